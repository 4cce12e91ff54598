"""recall (ours): pairs of words, each used once, then one of the keys asked again, near to or far from its pair.

A fresh list of pairs for each test point, the same under all its conditions. The question comes last, with masks or
masks and fillers in the value's place and after it (format B), or first, with the value masked (format A). What counts
is the value's first token; no two values of a list begin with the same one, so guessing among them is right once in as
many as there are pairs.

Condition: {"question": "right", "distance": "near", "masks": 2, "fillers": 0}. The distance is that of the pair from
the question: near (one of the five next pairs, never the very next), quarter, middle, three quarters, far (the last).
Evidence: {"pairs": 30, "between": 29, "offset": -1}: the pairs in the list, those between the asked pair and the
question, and whose value was answered: so many pairs after the asked one (before it, below zero), null if of no pair.

recall_scores.py says what is made of the answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maskwise.probes import recall_scores
from maskwise.probes.blocks import visible_counts
from maskwise.probes.probe import Asker, Probe, ScoreRule, Sentences, Setup, Unit, units_for
from maskwise.probes.recall_scores import ERRORS, FIRST, LAST, NO_VALUE
from maskwise.probes.section import Entry, Measure, Point, Section, Shown, Summary, TextTable, as_share, in_nats
from maskwise.records.record import Condition
from maskwise.scoring.numbers import between, number, percent
from maskwise.support.typed import AtLeast1, Count
from maskwise.tasks import recall_pairs
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.recall_pairs import DISTANCES, RecallPair, RecallPrompt

NAME, TASK = "recall", "pairs"
MARKS_APART = 0.12  # of the way from one kind of error to the next


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.recalled_values import recall

    own, settings = setup.own, setup.settings
    words = recall_pairs.recall_words(setup.asker.tokenizer, setup.words, settings.held_out, own["pairs"])
    masks = visible_counts(setup, NAME, own["mask_counts"])
    fillers = visible_counts(setup, NAME, own["filler_counts"], other_tokens=min(own["mask_counts"]))
    asked = conditions({**own, "mask_counts": masks, "filler_counts": fillers}, setup.model.causal, words.tokens)
    if setup.model.block is not None:
        setup.note(f"{NAME}: not asked with the question first, which would see no pair after its block")
        asked = [condition for condition in asked if condition["question"] == LAST]

    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        pairs = recall_pairs.list_of_point(words, own["pairs"], settings.seed, point)
        prompt = recall_prompt(setup.asker, condition, pairs, settings.seed, point)
        return prompt, setup.asker.tokenizer.decode([prompt.answer_id])

    yield from units_for(NAME, TASK, settings.points * own["lists_per_point"], asked, made, recall)


def conditions(own: Mapping[str, Any], causal: bool, value_tokens: int) -> list[Condition]:
    """The tokens after the question at each distance; none if it is before the pairs. A causal model sees no masks."""
    few = min(own["mask_counts"])
    endings = [(k, 0) for k in own["mask_counts"]] + [(few, n) for n in own["filler_counts"]]
    last = [(0, 0)] if causal else endings
    first = [] if causal else [(value_tokens, 0)]
    return [
        {"question": question, "distance": distance, "masks": masks, "fillers": fillers}
        for question, after in ((LAST, last), (FIRST, first))
        for masks, fillers in after
        for distance in own["distances"]
    ]


def recall_prompt(
    asker: Asker, condition: Condition, pairs: Sequence[RecallPair], seed: int, point: int
) -> RecallPrompt:
    away = recall_pairs.pairs_between(str(condition["distance"]), len(pairs), seed, point)
    if condition["question"] == FIRST:
        return recall_pairs.asked_first(asker.tokenizer, pairs, away, asker.mask, asker.chat)
    fillers = [asker.filler_id] * int(condition["fillers"])
    return recall_pairs.asked_last(
        asker.tokenizer, pairs, away, asker.mask_id, int(condition["masks"]), fillers, asker.chat
    )


def _entries_of(shown: Shown, conditions: Sequence[Condition]) -> list[Entry]:
    entries = shown.entries(NAME)
    return [entry for condition in conditions for entry in entries if entry.condition == condition]


def _ends(shown: Shown) -> list[Entry]:
    """The entries the score is made of."""
    return _entries_of(shown, recall_scores.near_and_far([entry.condition for entry in shown.entries(NAME)]))


def _seen(shown: Shown) -> str:
    near, far = _ends(shown)
    return (
        f"{percent(near.accuracy)} of the near pairs are recalled, {percent(far.accuracy)} of those "
        f"{far.measures['between']:g} pairs away, with the question last"
    )


def _no_skill(shown: Shown) -> str:
    return f"guessing gives {percent(shown.entries(NAME)[0]['chance'], 1)}, so there is no skill to lose"


def _errors_when_far(shown: Shown) -> str:
    _, far = _ends(shown)
    wrong = 1 - (far.accuracy or 0.0)
    return f" Of its errors there, {percent(other_values(far) / wrong)} are the value of another pair." if wrong else ""


def other_values(entry: Entry) -> float:
    return sum(found["share"] for kind, found in entry.measures["errors"].items() if kind != NO_VALUE)


def _curves(shown: Shown) -> list[Point]:
    """Masks, then fillers, then the question first: a curve each."""
    entries = sorted(shown.entries(NAME), key=lambda entry: _curve_order(entry.condition))
    return [Point(_curve_name(entry.condition), round(entry.measures["between"], 1), entry) for entry in entries]


def _curve_order(condition: Condition) -> tuple[Any, ...]:
    return condition["question"] == FIRST, condition["fillers"], condition["masks"]


def _curve_name(condition: Condition) -> str:
    if condition["question"] == FIRST:
        return "question first"
    if condition["fillers"]:
        return f"{condition['fillers']} fillers"
    return f"{condition['masks'] or 'no'} masks"


def _error_points(shown: Shown) -> list[Point]:
    """Of each distance a mark for each kind of error, with the question last and the fewest masks; those of one kind
    stand side by side."""
    entries = _few_masks(shown)
    points = []
    for turn, entry in enumerate(entries):
        shift = MARKS_APART * (turn - (len(entries) - 1) / 2)
        for place, (kind, found) in enumerate(entry.measures["errors"].items()):
            drawn = entry.changed(condition=entry.condition | {"error": kind}, **found)
            points.append(Point(str(entry.condition["distance"]), place + shift, drawn))
    return points


def _few_masks(shown: Shown) -> list[Entry]:
    conditions = [entry.condition for entry in shown.entries(NAME)]
    return _entries_of(shown, recall_scores.by_distance(conditions, LAST))


def _errors_in_words(shown: Shown) -> list[str]:
    return [
        f"{entry.condition['distance']}: {percent(1 - (entry.accuracy or 0.0), 1)} of its answers are wrong; "
        f"{percent(other_values(entry), 1)} are another pair's value, "
        f"{percent(entry.measures['errors'][NO_VALUE]['share'], 1)} are not in the list"
        for entry in _few_masks(shown)
    ]


def _tables(summary: Summary) -> list[TextTable]:
    """A row for each condition, curve by curve. Masks "2+198" are two masks and 198 fillers."""
    nearest_first = sorted(summary.probes.get(NAME, []), key=lambda e: list(DISTANCES).index(e.condition["distance"]))
    entries = sorted(nearest_first, key=lambda entry: _curve_order(entry.condition))
    if not entries:
        return []
    title = f"{NAME} (guessing {percent(entries[0]['chance'], 1)}; others: values of other pairs)"
    head = ("asked", "distance", "pairs", "masks", "n", "right", "95 % interval", "NLL", "others")
    return [TextTable(title, head, [_row(entry) for entry in entries])]


def _row(entry: Entry) -> tuple[str, ...]:
    condition = entry.condition
    return (
        "first" if condition["question"] == FIRST else "last",
        str(condition["distance"]),
        f"{entry.measures['between']:.1f}",
        f"{entry.masks}" + (f"+{condition['fillers']}" if condition["fillers"] else ""),
        str(entry.n),
        percent(entry.accuracy, 1),
        between(entry.low, entry.high, 1),
        number(entry.nll or None),
        percent(other_values(entry), 1),
    )


RECALL_LOCALITY = ScoreRule(
    name="recall_locality",
    title="Recall locality",
    meaning="share of its recall of near pairs, above guessing, that is lost when the pair is far",
    formula=recall_scores.recall_locality,
    sentences=Sentences(
        topic="Recall",
        claims={
            1: "It recalls near pairs better than distant ones.",
            0: "No difference between near and distant pairs is certain.",
            -1: "It recalls distant pairs better than near ones.",
        },
        change=("moving the pair away", "costs", "raises"),
        seen=_seen,
        takes="It takes near pairs and distant ones, with the question last.",
        no_skill=_no_skill,
        addition=_errors_when_far,
    ),
)

RECALL_NATS = ScoreRule(
    name="recall_nats",
    title="Nats of recall lost to distance",
    meaning="rise of the right value's negative log-likelihood when the pair is far",
    formula=recall_scores.recall_nats,
    unit="nats",
)


PROBE = Probe(
    name=NAME,
    group="context",
    about="pairs of words, one key asked again near to or far from its pair",
    condition={"question": str, "distance": str, "masks": Count, "fillers": Count},
    condition_words={LAST: "last", FIRST: "first"},
    evidence={"pairs": AtLeast1, "between": Count, "offset": float | None},
    presets=("default", "full"),
    units=units,
    one_pass=True,
    parameters={
        "pairs": 60,
        "distances": tuple(DISTANCES),
        "mask_counts": (2, 20, 200),
        "filler_counts": (18, 198),
        "lists_per_point": 2,
    },
    quick={"pairs": 30, "distances": ("near", "far"), "mask_counts": (2,), "filler_counts": (), "lists_per_point": 1},
    baseline=recall_scores.near_pair,
    measures=recall_scores.measures,
    chance=None,
    questions=lambda settings: settings.points * settings.parameters[NAME]["lists_per_point"],
    scores=(RECALL_LOCALITY, RECALL_NATS),
    columns={},
    tables=_tables,
    sections=(
        Section(
            title="Does it recall a pair wherever it stands?",
            question="A list of pairs, a key and a value each, all words used once. Then one of the keys is asked "
            "again. Is its value still found when the pair is far from the question, with more masks behind the "
            "question or fillers in their place, and with the question before the list?",
            paper="Not in the paper; this probe is ours.",
            how_to_read="A line that falls to the right means that distant pairs are recalled less. Nothing else "
            "tells the value, so what is lost is the use of distant context. Fillers follow as many masks as the first "
            "line has. Guessing among the values is right once in as many answers as there are pairs.",
            x_label="Pairs between the asked pair and the question (further right: farther away)",
            at="{} pairs between",
            points=_curves,
            measures=(Measure("accuracy", "Accuracy"), in_nats("nll", "Negative log-likelihood of the value (nats)")),
            caption="Line: mean over lists of pairs; band: 95 % interval over them.",
            effect=lambda point, base: (
                f"with {point.x:.0f} pairs between the asked pair and the question instead of "
                f"{base.x:.0f} ({point.series})"
            ),
        ),
        Section(
            name="recall-errors",
            title="Whose value does it give instead?",
            question="A wrong answer may be the value of another pair of the list, or no value of the list at all. "
            "Which is it, and how far from the asked pair?",
            paper="Not in the paper; this probe is ours.",
            how_to_read="The marks of one distance and its accuracy add up to 100 %. Many values of neighbouring "
            "pairs mean that the key was found, though not exactly; values from anywhere, that it was not found.",
            x_label="Whose value the wrong answer is",
            x_names=(*ERRORS, NO_VALUE),
            points=_error_points,
            measures=(as_share("share", "Share of all answers"),),
            caption="Question last, fewest masks. Whisker: 95 % interval over lists of pairs.",
            says=_errors_in_words,
        ),
    ),
)
