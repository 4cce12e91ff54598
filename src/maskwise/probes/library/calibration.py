"""calibration (ours): the questions of the 16 tasks with distractors alone: which can be answered without examples?

Some rules show in the options: a country among names, a capitalised word. Scores over such tasks say little about the
use of context. This probe asks each task without a relevant example on a seed of its own, the calibration seed, so that
the questions it judges a task by are not those the scores are computed from. The rule is fixed beforehand: a task is
excluded where more than half of its answers are right with the fewest masks. The summary's "calibration" gives the
scores without the excluded tasks; the scores over all tasks are given too and keep their names.

Format B, k masks; the distractors are drawn afresh for each question. Condition: {"masks": 20}; 0 for autoregressive
models.
"""

from collections.abc import Iterator, Sequence

from maskwise.probes.blocks import visible_counts
from maskwise.probes.few_shot import afresh_units
from maskwise.probes.probe import Probe, Setup, Unit, Variant, first_condition
from maskwise.probes.section import Shown, Summary, TextTable, by_masks, over_masks
from maskwise.records.record import Record
from maskwise.scoring.intervals import by_task
from maskwise.scoring.numbers import between, percent
from maskwise.scoring.scores import Score
from maskwise.support.randomness import seed_of
from maskwise.support.typed import Count

NAME = "calibration"
MOST_WITHOUT_EXAMPLES = 0.5
SHARES = ("locality", "mask_tax", "degradation")  # the scores shown side by side, for each number of examples
RULE = "a task is excluded where more than half of its answers are right without a relevant example"


def units(setup: Setup) -> Iterator[Unit]:
    settings, own = setup.settings, setup.own
    count = min(settings.points, own["questions"])
    counts = (0,) if setup.model.causal else visible_counts(setup, NAME, own["mask_counts"])
    variants = [Variant(NAME, {"masks": k}, open=True, masks=k) for k in counts]
    seed = seed_of(NAME, settings.seed)
    tasks = [task for task in setup.tasks if task.name in settings.tasks]
    return afresh_units(setup, variants, tasks, setup.words, (0, settings.distractors, count, seed))


def accuracy_without_examples(records: Sequence[Record]) -> dict[str, float]:
    """The accuracy of each task with the fewest masks."""
    fewest = min(record.condition["masks"] for record in records)
    right = by_task((record.task, record.correct) for record in records if record.condition["masks"] == fewest)
    return {task: float(found.mean()) for task, found in sorted(right.items())}


def excluded_tasks(records: Sequence[Record]) -> list[str]:
    found = accuracy_without_examples(records)
    return [task for task, accuracy in found.items() if accuracy > MOST_WITHOUT_EXAMPLES]


def _rows(summary: Summary) -> list[tuple[str, ...]]:
    def in_words(score: Score) -> str:
        if score.value is None:
            return str(score.why)
        ends = "" if score.low is None else f" ({between(score.low, score.high)})"
        return percent(score.value) + ends

    kept = summary.extras.get(NAME, {}).get("scores", {})
    return [(name, in_words(summary.scores[name]), in_words(kept[name])) for name in kept if name.startswith(SHARES)]


def _tables(summary: Summary) -> list[TextTable]:
    if NAME not in summary.extras:
        return []
    title = f"scores over all tasks, and without those excluded: {_excluded(summary)}"
    return [TextTable(title, ("score", "all tasks", "tasks kept"), _rows(summary))]


def _excluded(summary: Summary) -> str:
    found = summary.extras[NAME]
    if not found["excluded"]:
        return "none"
    return ", ".join(f"{task} ({percent(found['without_examples'][task])})" for task in found["excluded"])


def _in_words(shown: Shown) -> list[str]:
    if NAME not in shown.summary.extras:
        return ["not run"]
    rows = _rows(shown.summary)
    lines = [f"{name}: {over_all} over all tasks, {kept} over those kept" for name, over_all, kept in rows]
    return [f"Excluded: {_excluded(shown.summary)}", f"The rule: {RULE}", *lines]


PROBE = Probe(
    name=NAME,
    group="context",
    about="the tasks without relevant examples: which of them need context",
    condition={"masks": Count},
    presets=("default", "full"),
    units=units,
    one_pass=True,
    parameters={"questions": 48, "mask_counts": (2, 20, 200)},
    quick={"questions": 12, "mask_counts": (2,)},
    baseline=first_condition,
    questions=lambda settings: len(settings.tasks) * min(settings.points, settings.parameters[NAME]["questions"]),
    tables=_tables,
    sections=(
        over_masks(
            title="Which tasks can be answered without examples?",
            question="The questions of each task among distractors alone, on a seed of their own. Where the rule shows "
            "in the options, the right answer says nothing about the use of context.",
            paper="Not in the paper, whose scores are means over all 16 tasks.",
            how_to_read="On the dotted line the model guesses. Scores are given over all tasks and also over "
            "the tasks that need examples.",
            points=by_masks(NAME),
            says=_in_words,
        ),
    ),
)
