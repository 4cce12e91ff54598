"""What the page says about the probes beyond the core, in the form of sections.py."""

from functools import partial

from maskwise.report.curves import Measure, Point, Section
from maskwise.report.readings import Reading
from maskwise.tasks.points import ORDERS

GRADIENT = Measure("evidence", "Gradient norm, of the largest", "evidence_low", "evidence_high")
PLACES = {"left": "question first", "middle": "question in the middle", "right": "question last"}
TOKENS = ("masks", "near", "all")


def _attribution(reading: Reading) -> list[Point]:
    return [
        Point(name, 1 + entry["condition"]["example"], entry)
        for place, name in PLACES.items()
        for entry in reading.entries("attribution")
        if entry["condition"]["question"] == place and "example" in entry["condition"]
    ]


def _mask_attribution(reading: Reading) -> list[Point]:
    entries = {entry["condition"]["tokens"]: entry for entry in reading.entries("mask-attribution")}
    return [Point("", place, entries[name]) for place, name in enumerate(TOKENS) if name in entries]


def _attention(reading: Reading) -> list[Point]:
    """Masks first; an autoregressive model has none."""
    names = {"masks": "masks", "near": "nearest context", "far": "farther context", "answer": "itself"}
    return [
        Point(name, 1 + entry["condition"]["layer"], entry)
        for tokens, name in names.items()
        for entry in reading.entries("attention")
        if entry["condition"]["tokens"] == tokens and not (tokens == "masks" and reading.is_autoregressive)
    ]


def _one_step(reading: Reading, probe: str) -> list[Point]:
    """The mask-count curve beside it, where both have the same numbers of masks."""
    counts = {entry["masks"] for entry in reading.entries(probe)}
    return [Point("1 step", e["masks"], e) for e in reading.entries("mask-count") if e["masks"] in counts]


def _unmasking(reading: Reading) -> list[Point]:
    names = {"confidence": "surest first", "random": "random order"}
    return _one_step(reading, "unmasking") + [
        Point(name, entry["masks"], entry)
        for order, name in names.items()
        for entry in reading.entries("unmasking")
        if entry["condition"]["order"] == order
    ]


def _few_steps(reading: Reading) -> list[Point]:
    return _one_step(reading, "few-steps") + [
        Point(f"{entry['condition']['steps']} steps", entry["masks"], entry) for entry in reading.entries("few-steps")
    ]


def _confidence(reading: Reading) -> list[Point]:
    return [Point("", entry["masks"], entry) for entry in reading.entries("mask-count")]


def _shots(reading: Reading) -> list[Point]:
    """A point a task. Its mask count is the larger one, at which the change was measured."""
    entries = reading.entries("shots-masks")
    most = max((entry["masks"] for entry in entries), default=0)
    answers = sum(entry["n"] for entry in entries)
    tasks = reading.summary.get("shots_against_masks", {}).get("tasks", {})
    return [
        Point("", told["gain"], {"condition": {"task": task, "gain": round(told["gain"], 4)}, "masks": most,
                                 "n": answers // max(1, len(tasks)), "accuracy": None, "low": None, "high": None,
                                 "evidence": told["change"]})
        for task, told in tasks.items()
    ]  # fmt: skip


def _shots_in_words(reading: Reading) -> list[str]:
    found = reading.summary.get("shots_against_masks", {})

    def told(score: dict[str, float | None]) -> str:
        value, low, high = score["value"], score["low"], score["high"]
        if value is None or low is None or high is None:
            return "not defined (too few tasks, or no change)"
        return f"{value:.2f} (95 % interval {low:.2f} to {high:.2f})".replace("-", "−")

    if not found:
        return ["not run"]
    return [f"r = {told(found['together'])}; with the two from different test points, r = {told(found['apart'])}"]


def _points(reading: Reading) -> list[Point]:
    entries = {entry["condition"]["order"]: entry for entry in reading.entries("points")}
    return [Point("", place, entries[order]) for place, order in enumerate(ORDERS) if order in entries]


def _by_share(probe: str, reading: Reading) -> list[Point]:
    return [Point("", 100 * entry["condition"]["share"], entry) for entry in reading.entries(probe)]


def _nelbo(reading: Reading) -> list[Point]:
    return [Point("", 0, entry) for entry in reading.entries("nelbo")]


EVIDENCE_SECTIONS = (
    Section(
        name="confidence",
        side_by_side=True,
        probe="mask-count",
        title="How sure is it of its answers?",
        question="The probability it gives to the answer it chooses, and the entropy of all its choices, with more and "
        "more masks behind the question.",
        paper="Tuning with the mask-agnostic loss lowers the entropy and keeps the confidence level; cross-entropy "
        "alone does not.",
        how_to_read="Level lines mean that masks leave its certainty alone. Sure and wrong is worse than unsure and "
        "wrong: compare with the accuracy above.",
        x_label="Masks at the end (k)",
        at="k\u00a0=\u00a0{}",
        points=_confidence,
        measures=(
            Measure("confidence", "Probability of its answer", "", ""),
            Measure("entropy", "Entropy (nats)", "", "", percent=False),
        ),
        caption="Line: mean over all answers.",
        spread=True,
    ),
    Section(
        probe="attribution",
        title="Which examples move the answer?",
        question="How much would the chosen answer's logit change if an example's tokens were nudged? The norm of the "
        "gradient with respect to each token's embedding, examples in random orders, by their place in the prompt.",
        paper="A U in all models: the first and last examples and those near the question weigh most; flatter for "
        "diffusion models than for autoregressive ones.",
        how_to_read="A high point means that the example at that place moves the answer. The question stands at the "
        "left end, in the middle or at the right end of the axis.",
        x_label="Place of the example in the prompt",
        at="example {}",
        points=_attribution,
        measures=(GRADIENT,),
    ),
    Section(
        probe="mask-attribution",
        title="Do masks move the answer more than the text does?",
        question="Masks are appended, and the same gradient is taken: of the masks, of the other tokens nearest to the "
        "answer, and of all other tokens.",
        paper="Mean of masks / nearest 50 / all: LLaDA-Base .234/.005/.005, LLaDA-Instruct .220/.057/.017, Dream-Base "
        ".282/.012/.005, Dream-Instruct .144/.030/.018.",
        how_to_read="Masks carry no information. If their point is the highest, the model listens to them nonetheless.",
        x_label="Tokens",
        at="{}",
        x_names=("masks", "nearest context", "all context"),
        points=_mask_attribution,
        measures=(GRADIENT,),
        caption="Mean over tasks; whisker: 95 % interval over tasks.",
    ),
    Section(
        probe="attention",
        title="To whom does the answer attend?",
        question="The share of its attention that the place which predicts the answer pays to masks, to the nearest "
        "context and to all farther context, layer by layer, mean over heads.",
        paper="Not in the paper; asked for by its reviewers.",
        how_to_read="The four lines add up to 100 % in each layer. Attention to masks is attention lost to the text.",
        x_label="Layer",
        at="layer {}",
        points=_attention,
        measures=(Measure("evidence", "Share of attention", "evidence_low", "evidence_high"),),
    ),
    Section(
        probe="unmasking",
        title="Does decoding step by step undo the harm?",
        question="The masks are filled in many steps, in random order or the surest first, instead of all at once. Is "
        "the answer then right again?",
        paper="In 40 steps the loss is recovered, best with the surest first.",
        how_to_read="Lines above “1 step” show what patience buys. If they lie on it, steps do not help.",
        x_label="Masks at the end (k)",
        at="k\u00a0=\u00a0{}",
        points=_unmasking,
        spread=True,
    ),
    Section(
        probe="few-steps",
        title="And in a few steps?",
        question="The masks are filled in random order in very few steps, as fast decoders do.",
        paper="Relative degradation in 2, 4 and 6 steps: LLaDA-Base 19.7, 14.5 and 12.4 %, LLaDA-Instruct 33.2, 26.5 "
        "and 22.8 %; after mask-agnostic tuning about half of it.",
        how_to_read="The flatter a line, the less the canvas' length matters at that speed.",
        x_label="Masks at the end (k)",
        at="k\u00a0=\u00a0{}",
        points=_few_steps,
        spread=True,
    ),
    Section(
        probe="shots-masks",
        title="Do tasks that need more examples suffer more from masks?",
        question="For each task: what more examples gain, against what more masks take away.",
        paper="Hardly: Pearson's r is −.15 and −.16 for LLaDA, −.21 and −.02 for Dream.",
        how_to_read="A point is a task. Falling to the right would mean that tasks learnt from context suffer most. "
        "Both axes share one accuracy, whose noise alone makes r negative; the second r is free of that.",
        x_label="Gain from few to many shots",
        at="{}",
        points=_shots,
        measures=(Measure("evidence", "Change from few to many masks", "", ""),),
        caption="A point for each task.",
        scatter=True,
        says=_shots_in_words,
    ),
    Section(
        probe="points",
        title="Does the order of the examples matter for numbers too?",
        question="Points in space are labelled Above or Below by a curved surface. The same examples come in random "
        "order, with the points nearest to the one asked first, or last.",
        paper="Nearest last is best: locality again.",
        how_to_read="If “nearest last” is clearly the highest, what stands next to the question counts most.",
        x_label="Order of the examples",
        at="{}",
        x_names=ORDERS,
        points=_points,
        measures=(Measure("accuracy", "Right answers", chance=0.5),),
        caption="Mean over shapes and seeds; whisker: 95 % interval over them.",
    ),
    Section(
        probe="hotpotqa",
        title="And in questions about real text?",
        question="HotpotQA questions with two options, the supporting facts as context, one example, and masks worth a "
        "share of the length.",
        paper="LLaDA-Base breaks at about 5 % of the length in masks; the tuned model stays level.",
        how_to_read="A level line is what one would hope for.",
        x_label="Extra masks (% of the length)",
        at="{} %",
        points=partial(_by_share, "hotpotqa"),
        measures=(Measure("accuracy", "Right answers", chance=0.5),),
        caption="Line: share of right answers; band: 95 % interval over questions.",
    ),
    Section(
        probe="labelled-text",
        title="And in ordinary classification?",
        question="Texts and labels of the data sets given, a few examples, and masks worth a share of the length.",
        paper="Not in the paper in this form; the data sets are those usual for in-context learning.",
        how_to_read="A level line is what one would hope for.",
        x_label="Extra masks (% of the length)",
        at="{} %",
        points=partial(_by_share, "labelled-text"),
        measures=(Measure("accuracy", "Right answers"),),
        caption="Line: mean over data sets; band: 95 % interval over them.",
    ),
    Section(
        probe="nelbo",
        title="What does its language cost?",
        question="The negative evidence lower bound of held-out prose: how many nats a token takes to write down. For "
        "an autoregressive model its exact negative log-likelihood.",
        paper="Not in the paper; asked for by its reviewers: does tuning cost language modelling?",
        how_to_read="Lower is better. Compare models with one tokenizer only; both then meet the same noise.",
        x_label="",
        at="{}",
        x_names=("held-out prose",),
        points=_nelbo,
        measures=(Measure("nll", "NELBO (nats a token)", "nll_low", "nll_high", percent=False),),
        caption="Mean over passages; whisker: 95 % interval.",
    ),
)  # fmt: skip
