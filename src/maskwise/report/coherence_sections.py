"""What the page says about the second paper's probes, in the form of sections.py."""

from typing import Any

from maskwise.probes.settings import ORDER_RULES
from maskwise.report.curves import Measure, Point, Section
from maskwise.report.readings import Reading

SHOWN_RULE = "random"  # its choice of places cannot depend on what is drawn, so the closed forms hold for it


def _nats(key: str, label: str) -> Measure:
    return Measure(key, label, f"{key}_low", f"{key}_high", percent=False)


def _share(key: str, label: str) -> Measure:
    return Measure(key, label, f"{key}_low", f"{key}_high")


def _marginals(reading: Reading) -> list[Point]:
    names = {"none": "masks to the end", "visible": "text after the masks"}
    return [
        Point(name, entry["condition"]["distance"], entry)
        for suffix, name in names.items()
        for entry in reading.entries("marginals")
        if entry["condition"]["suffix"] == suffix
    ]


def _likeness(reading: Reading) -> list[Point]:
    """The last mask has no neighbour."""
    return [point for point in _marginals(reading) if point.entry.get("tv_next") is not None]


def _correlation(reading: Reading) -> list[Point]:
    return [Point("", entry["condition"]["distance"], entry) for entry in reading.entries("total-correlation")]


def _order(reading: Reading) -> list[Point]:
    entries = {entry["condition"]["rule"]: entry for entry in reading.entries("order")}
    return [Point("", place, entries[rule]) for place, rule in enumerate(ORDER_RULES) if rule in entries]


def _order_in_words(reading: Reading) -> list[str]:
    entries = {entry["condition"]["rule"]: entry for entry in reading.entries("order")}

    def told(entry: dict[str, Any]) -> str:
        return (
            f"tau {entry['tau']:.2f}, global AR-ness@1 {entry['global1']:.2f}, @4 {entry['global4']:.2f}, "
            f"local AR-ness@1 {entry['local1']:.2f}, @4 {entry['local4']:.2f}"
        )

    return [f"{rule}: {told(entries[rule])}" for rule in ORDER_RULES if rule in entries]


def _puzzles(reading: Reading) -> list[Point]:
    """One rule, measured and ideal; the areas of all rules are told in words."""
    entries = [entry for entry in reading.entries("coherence") if entry["condition"]["rule"] == SHOWN_RULE]
    measured = [Point(entry["condition"]["puzzle"], entry["tokens_per_pass"], entry) for entry in entries]
    ideal = [
        Point(name, entry["ideal_speed"],
              entry | {"accuracy": entry["ideal"], "low": None, "high": None,
                       "condition": entry["condition"] | {"puzzle": name}})
        for entry in entries
        for name in [f"{entry['condition']['puzzle']}, perfect"]
    ]  # fmt: skip
    return measured + ideal


def _areas_in_words(reading: Reading) -> list[str]:
    """The three rules with the most area under accuracy against speed and the one with the least, puzzle by puzzle."""

    def told(pair: tuple[str, dict[str, float]]) -> str:
        rule, area = pair
        return f"{rule} {area['aup']:.2f} (perfect: {area['ideal']:.2f})"

    lines = []
    for puzzle, rules in reading.summary.get("aup", {}).items():
        if not any(area["aup"] for area in rules.values()):
            lines.append(f"{puzzle}: never solved, under any rule")
            continue
        ordered = sorted(rules.items(), key=lambda pair: -pair[1]["aup"])
        best = ", ".join(map(told, ordered[:3]))
        lines.append(f"{puzzle}: area under accuracy against speed {best}; least {told(ordered[-1])}")
    return lines


COHERENCE_SECTIONS = (
    Section(
        probe="marginals",
        title="Do distant masks become alike?",
        question="A piece of text, then many masks, predicted in one pass. How unsure is the model of a mask far from "
        "the text, and how close is it to simply naming frequent words?",
        paper="A conjecture: far from any visible token predictions lose information and become almost identical, in "
        "the middle when both ends are visible.",
        how_to_read="A line that climbs and levels off shows predictions that fade into word frequencies. With text "
        "after the masks it should be highest in the middle. Frequent: the text's 50 commonest tokens and the end. "
        "Near is the mask beside the text, far the second half of the masks.",
        x_label="Distance from the last visible token",
        at="distance {}",
        points=_marginals,
        measures=(
            Measure("entropy", "Entropy (nats)", "", "", percent=False),
            _share("common", "Share of frequent tokens"),
        ),
        caption="Line: mean over pieces of text; band: 95 % interval.",
        says=lambda reading: [],  # the ends of these curves say little: it is the middle that counts
        claims=("far-unsure", "far-doubtful", "far-frequent", "middle-unsure"),
    ),
    Section(
        probe="marginals",
        name="likeness",
        title="How alike, and how like plain frequencies?",
        question="The distance (total variation) between the predictions of neighbouring masks, and between a "
        "prediction and the frequencies of the text's tokens.",
        paper="Neighbours become almost identical; their modes are function words or the end token.",
        how_to_read="0 % is identical, 100 % is nothing in common. Lines that fall to the right confirm it.",
        x_label="Distance from the last visible token",
        at="distance {}",
        points=_likeness,
        measures=(
            _share("tv_next", "Distance to the next mask's prediction"),
            _share("tv_unigram", "Distance to word frequencies"),
        ),
        caption="Line: mean over pieces of text; band: 95 % interval.",
        says=lambda reading: [],
        claims=("grow-alike", "far-identical"),
    ),
    Section(
        probe="total-correlation",
        title="How much do two masks know of each other?",
        question="Filling two masks in one step draws them independently. What is lost is their total correlation: how "
        "far the prediction of one moves once the other stands.",
        paper="The output is conditional marginals; a parallel step is exact only where this is zero.",
        how_to_read="High next to the text and low far apart means: neighbours should not be filled in one step, "
        "distant masks may.",
        x_label="Distance between the two masks",
        at="distance {}",
        points=_correlation,
        measures=(_nats("tc", "Total correlation (nats)"),),
        caption="Line: mean over pieces of text and both orders; band: 95 % interval.",
        spread=True,
        claims=("coupled",),
    ),
    Section(
        probe="order",
        title="In which order does it write?",
        question="The text is continued one token a step, each rule choosing the place. How close is that to reading "
        "order?",
        paper="Confidence falls with distance, so the reliable order is close to left to right. Reported elsewhere: "
        "global AR-ness@1 of LLaDA-8B 0.73, of Dream-7B 0.92.",
        how_to_read="Tau is 1 from left to right, −1 from right to left and 0 at random. Global AR-ness is the share "
        "of steps that take the leftmost mask, local AR-ness of those that go on to the right of the one before.",
        x_label="Rule",
        at="{}",
        x_names=("confidence", *ORDER_RULES[1:]),
        points=_order,
        measures=(
            Measure("tau", "Kendall's tau", "tau_low", "tau_high", percent=False, unit=""),
            _share("global1", "Global AR-ness@1"),
        ),
        caption="Mean over pieces of text; whisker: 95 % interval.",
        says=_order_in_words,
        claims=("reading-order", "leftmost-first"),
    ),
    Section(
        probe="coherence",
        title="What does speed cost where tokens hang together?",
        question="Copy four words; replace one of them; shuffle them. Tokens are drawn, one, two or four a step. Does "
        "what was drawn together fit together?",
        paper="Not in the paper; the tasks and their closed forms are standard: four at once solve shuffle with "
        "4!/4⁴ = 9 %, two a step with 3/8, and replace with (3/4)³ = 42 %.",
        how_to_read="“Perfect” is what exact marginals reach at that speed. The gap to it is what the model does not "
        "know; the fall of “perfect” is what parallel drawing loses whatever the model knows. Drawn: the rule random.",
        x_label="Tokens per forward pass",
        at="{} tokens a pass",
        points=_puzzles,
        measures=(Measure("accuracy", "Puzzles solved"),),
        caption="Line: share of puzzles solved; band: 95 % interval.",
        says=_areas_in_words,
        claims=("speed-copy", "speed-replace", "speed-shuffle"),
    ),
)
