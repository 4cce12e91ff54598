"""trajectory (ours): what the last steps destroy.

Checkable questions (tasks/checkable.py) are decoded greedily under several strategies, one and several tokens per step.
The answer after a step is the parse of the canvas with every mask filled by its likeliest token; an answer that cannot
be parsed is a class of its own. Measured over the steps of each question:

    right then wrong   right after some step, wrong at the end; wrong then right: its mirror. The chance of both is what
                       the same answers give in random order (as many looks at the same distribution of answers): W/T of
                       questions with a right look, R/T of those with a wrong one, with R, W right and wrong of T looks
    first seen         the share of the steps after which the final answer is first given
    settled            the share of the steps after which the answer does not change any more
    changed            committed tokens that a later step masked or replaced, per question; 0 unless a strategy re-masks

Condition: {"rule": "low-confidence", "tokens_per_step": 1}; evidence {"answers", "right", "changed"}.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from msgspec import UNSET, UnsetType

from maskwise.probes.checked import CanvasLayout, asked_sets, canvas_items
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Probe, Setup, Unit, units_of
from maskwise.probes.section import Entry, Point, Section, Shown, as_share, mark_place, without_accuracy
from maskwise.records.record import Condition, Evidence, Record
from maskwise.scoring import intervals
from maskwise.scoring.claims import LEVEL, holm_adjusted, judged, p_value
from maskwise.scoring.intervals import ENDS, Estimate, bounded_mean, by_task, paired_share, stratified_share
from maskwise.scoring.numbers import percent
from maskwise.scoring.power import questions_for
from maskwise.support.grouping import grouped
from maskwise.tasks.checkable import CHECKED, EMBEDDED

NAME = "trajectory"
STRATEGIES = ("low-confidence", "random", "remdm")
PLACES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of the steps at which the accuracy is drawn
PACES = (1, 2)  # tokens per step
KINDS = {"lost": "lost", "lost_chance": "lost by chance", "gained": "gained", "gained_chance": "gain by chance"}
LITTLE = 0.05  # of the questions
DECODING_COST = 4


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.looks import watch_looks

    own = setup.own
    for asked in asked_sets(setup):
        canvas = own["canvas"] if asked.name == EMBEDDED else own["data_canvas"]
        if asked.longest + canvas > setup.model.window:
            setup.note(f"{NAME} was not run on {asked.name}: a canvas of {canvas} masks exceeds the context length")
            continue
        look = partial(watch_looks, asked=asked, canvas=canvas, seed=setup.settings.seed)
        for rule in own["rules"]:
            for pace in (pace for pace in own["tokens_per_step"] if pace <= canvas):
                condition: Condition = {"rule": rule, "tokens_per_step": pace}
                items = canvas_items(setup.asker, NAME, asked, CanvasLayout(canvas), condition)
                answer = partial(look, rule=rule, steps=canvas // pace)
                yield from units_of(len(asked.questions), 1, items, answer, DECODING_COST)


def looked(evidence: Evidence) -> dict[str, float]:
    """The measures of one question."""
    answers, right = np.array(evidence["answers"]), evidence["right"]
    looks, final = len(answers), answers[-1]
    is_right = (answers == right) & (right >= 0)
    is_wrong = ~is_right & (answers >= 0)
    same = answers == final
    changes = np.flatnonzero(~same)
    return {
        "lost": float(is_wrong[-1] and is_right.any()),
        "lost_chance": float(is_wrong.mean() if is_right.any() else 0.0),
        "gained": float(is_right[-1] and is_wrong.any()),
        "gained_chance": float(is_right.mean() if is_wrong.any() else 0.0),
        "ever": float(is_right.any()),
        "unparsable": float(answers[-1] < 0),
        "first_seen": float((same.argmax() + 1) / looks),
        "settled": float((changes[-1] + 2) / looks if len(changes) else 1 / looks),
        "changed": float(evidence["changed"]),
    }


SHARES = ("lost", "gained", "ever", "unparsable")  # 0 or 1 of each question
MEANS = ("first_seen", "settled", "changed")


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    found: Evidence = {}
    each = [(record.task, looked(record.evidence)) for record in group]
    for name in SHARES:
        found |= stratified_share(by_task((task, one[name]) for task, one in each)).named(name)
    for name in MEANS:
        values = by_task((task, one[name]) for task, one in each)
        found |= Estimate.of(bounded_mean(values, None if name == "changed" else (0, 1))).named(name)
    for name in ("lost", "gained"):
        # Few questions have a chance above 0, so Student's interval would be too narrow: as of shares and of changes.
        chance = by_task((task, one[f"{name}_chance"]) for task, one in each)
        found |= Estimate.of(intervals.share_interval(intervals.means_of(chance), intervals.points_of(chance))).named(
            f"{name}_chance"
        )
        excess = by_task((task, one[name] - one[f"{name}_chance"]) for task, one in each)
        found |= paired_share(excess).named(f"{name}_excess")
        found[f"{name}_p"] = _p_of_none(excess)
    found["along"] = [{"share": at, **stratified_share(_right_at(group, at)).named("right")} for at in PLACES]
    return [entry.changed(confidence=UNSET, entropy=UNSET, **found)]


def _right_at(group: Sequence[Record], share: float) -> dict[str, np.ndarray]:
    """Whether the answer is right after this share of the steps, by task."""
    found = []
    for record in group:
        answers, right = record.evidence["answers"], record.evidence["right"]
        look = max(0, int(np.ceil(share * len(answers) - 1e-9)) - 1)
        found.append((record.task, float(right >= 0 and answers[look] == right)))
    return by_task(found)


def _p_of_none(strata: dict[str, np.ndarray]) -> float:
    """The p-value of a mean of 0, tested as claims are (scoring/claims.py)."""
    found = p_value(judged("", "", "", strata, "points", bounds=(-1.0, 1.0)), 0.0)
    return 1.0 if found is None else found


def _shown_above(entries: Sequence[Entry], value: str, p: str) -> list[Entry]:
    """The conditions in which a change is above 0, significant by Holm's procedure over all of them."""
    adjusted = holm_adjusted([entry.measures[p] for entry in entries])
    return [one for one, level in zip(entries, adjusted, strict=True) if level < LEVEL and one.measures[value] > 0]


def _named(entry: Entry) -> str:
    return f"{entry.condition['rule']}, {entry.condition['tokens_per_step']} per step"


def _along(shown: Shown) -> list[Point]:
    """A curve for each strategy, with a panel for each number of tokens per step."""
    by_rule: dict[str, dict[int, Entry]] = {}
    for entry in shown.entries(NAME):
        by_rule.setdefault(entry.condition["rule"], {})[entry.condition["tokens_per_step"]] = entry
    found = []
    for rule, paces in by_rule.items():
        # One entry for all numbers of tokens per step, each of which is a measure of it.
        entry = without_accuracy(next(iter(paces.values()))).changed(condition={"rule": rule})
        for place, share in enumerate(PLACES):
            along = {pace: one.measures["along"][place] for pace, one in paces.items()}
            right = {f"right_{pace}{end}": one[f"right{end}"] for pace, one in along.items() for end in ENDS}
            found.append(Point(rule, round(100 * share), entry.changed(**right)))
    return found


def _lost_and_gained(shown: Shown) -> list[Point]:
    entries, points = shown.entries(NAME), []
    for turn, entry in enumerate(entries):
        for place, kind in enumerate(KINDS):
            share = {f"share{end}": entry.measures[kind + end] for end in ENDS}
            at = mark_place(place, turn, len(entries))
            points.append(Point(_named(entry), at, without_accuracy(entry).changed(**share)))
    return points


def _each(shown: Shown, what: str, value: Callable[[Entry], str]) -> str:
    """`what, with 1 and 2 tokens per step: low-confidence 92 % and 88 %, random ...`"""
    by_rule = grouped((entry.condition["rule"], value(entry)) for entry in shown.entries(NAME))
    paces = dict.fromkeys(str(entry.condition["tokens_per_step"]) for entry in shown.entries(NAME))
    each = ", ".join(f"{rule} {' and '.join(values)}" for rule, values in by_rule.items())
    return f"{what}, with {' and '.join(paces)} tokens per step: {each}"


def _range(values: Sequence[float], show: Callable[[float], str] = percent) -> str:
    return " to ".join(dict.fromkeys(map(show, (min(values), max(values)))))


def stands(shown: Shown) -> list[str]:
    """When the final answer first stands."""
    entries = shown.entries(NAME)
    steps = [entry.masks / entry.condition["tokens_per_step"] for entry in entries]
    stood = [entry.measures["settled"] * count for entry, count in zip(entries, steps, strict=True)]
    after, right = _range(stood, "{:.1f}".format), _range([entry.accuracy or 0.0 for entry in entries])
    paces = dict(zip((entry.condition["tokens_per_step"] for entry in entries), steps, strict=True))
    of = " and ".join(f"{count:g} at {pace} per step" for pace, count in paces.items())
    return [
        f"the final answer stands on average after step {after} (of {of}) and is right for {right} of the questions",
        _each(shown, "right at the end", lambda entry: percent(entry.accuracy)),
        _each(shown, "right after some step", lambda entry: percent(entry.measures["ever"])),
    ]


def _questions_needed(entries: Sequence[Entry]) -> int:
    """To show a change of 5 points in 8 of 10 runs, in any of the conditions, by the answers that changed late."""
    changed = (entry.measures["lost"] + entry.measures["gained"] for entry in entries)
    return max(questions_for(LITTLE, share, len(entries)) for share in changed)


def destroyed(shown: Shown) -> list[str]:
    verdict, do = _last_steps(shown)
    return [
        verdict,
        _each(shown, "right then wrong (by chance)", _with_chance("lost")),
        _each(shown, "wrong then right (by chance)", _with_chance("gained")),
        _each(shown, "unparsable at the end", lambda entry: percent(entry.measures["unparsable"])),
        _each(shown, "committed tokens that changed later, per question", lambda e: f"{e.measures['changed']:.1f}"),
        f"what to do: {do}",
    ]


def _with_chance(kind: str) -> Callable[[Entry], str]:
    return lambda entry: f"{percent(entry.measures[kind], 1)} ({percent(entry.measures[f'{kind}_chance'], 1)})"


def _last_steps(shown: Shown) -> tuple[str, str]:
    """Whether more is lost than random order would lose, and what to do."""
    entries = shown.entries(NAME)
    worse = [_named(entry) for entry in _shown_above(entries, "lost_excess", "lost_p")]
    if worse:
        found = f"the last steps destroy right answers with {' and '.join(worse)}"
        return found, "commit fewer tokens per step there"
    ends = [entry.measures["lost_excess_high"] for entry in entries]
    high = None if None in ends else max(ends)
    if high is not None and high < LITTLE:
        return "the last steps destroy no more right answers than chance would", "decode to the end"
    up_to = "" if high is None else f" of up to {percent(high)} of the questions (95 % upper bound)"
    found = f"not shown that the last steps destroy right answers; losses above chance{up_to} are not excluded"
    asked, n = _questions_needed(entries), min(entry.n for entry in entries)
    most, high = (max(entry.measures[f"gained{end}"] for entry in entries) for end in ("", "_high"))
    gains = f"{percent(most)} of the questions gained" if most else "no question gained"
    ask = f"Before you take fewer steps (--steps), ask {asked} questions: --probes {NAME} --points {asked}"
    gains += f" from later steps, up to {percent(high)} could ({n} questions; end of the 95 % interval)"
    return found, f"decode to the end: {gains}. {ask}"


of_canvas = partial(Section, masks=lambda shown: "masks: as many as the canvas has")

PROBE = Probe(
    name=NAME,
    group="evidence",
    about="right answers that later steps overwrite (--data prompts=, gsm8k=)",
    condition={"rule": str, "tokens_per_step": int},
    evidence={"answers": list[int], "right": int, "changed": int, "voted": int | UnsetType},  # voted: by version 0.2
    units=units,
    takes=lambda data_set: data_set in CHECKED,
    parameters={"questions": 20, "canvas": 8, "data_canvas": 128, "rules": STRATEGIES, "tokens_per_step": PACES},
    quick={"questions": 8, "rules": ("low-confidence", "random")},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    measures=measures,
    chance=None,
    columns={
        "accuracy": "accuracy",
        "ever": "ever right",
        "lost": "right then wrong",
        "gained": "wrong then right",
        "settled": "settled",
    },
    sections=(
        of_canvas(
            title="When does the answer stand?",
            question="After each step the masks that are left are filled with their likeliest tokens, and the answer "
            "is read. How often is it right, and from when on does it not change any more?",
            paper="Not in the paper. Wang et al. (arXiv 2508.09138) report right answers in the middle that are "
            "overwritten later.",
            how_to_read="A curve that falls towards the end loses right answers; a level one shows that the remaining "
            "steps do not change the share of right answers. Whether to stop earlier: section overwritten. remdm masks "
            "committed tokens again at random.",
            x_label="Steps done, %",
            at="{} % of the steps",
            points=_along,
            measures=tuple(as_share(f"right_{pace}", f"Right answers, tokens per step: {pace}") for pace in PACES),
            caption="Line: share of right answers; band: 95 % interval over questions.",
            says=stands,
        ),
        of_canvas(
            name="overwritten",
            title="What do the last steps destroy?",
            question="Answers that were right after some step and end wrong, the reverse, and what the same answers "
            "give in random order (chance).",
            paper="Not in the paper. Related: arXiv 2508.09138.",
            how_to_read="lost: right then wrong; gained: wrong then right; by chance: if a question's answers over the "
            "steps came in random order. Only losses above chance are due to the order of the steps. Intervals are "
            "two-sided; where no answer changed, the bound of a change is the exact one-sided one.",
            x_label="What becomes of an answer",
            x_names=tuple(KINDS.values()),
            points=_lost_and_gained,
            measures=(as_share("share", "Questions"),),
            caption="Mark: share of questions; whisker: 95 % interval over questions.",
            says=destroyed,
        ),
    ),
)
