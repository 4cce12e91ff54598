"""Empty masks: do masks behind the question change the answer?

    R d d R d ... Q ? _ _ _ _ _

The same question with more and more masks behind it; only the first mask is the answer, the others state how much room
follows. A level line is what one would hope for; two masks (the answer's and the closing bracket's) are the baseline.
Mask tax: mean over k > 2 of (a_2 - a_k) / (a_2 - 1/3), with a_k the accuracy under k masks. Degradation: (max - min) /
max over all k, biased upwards where masks do nothing. Tuning with the mask-agnostic loss lowers the entropy and keeps
the confidence level.

With `shots`: relevant examples alone, few and many of them, with few and many masks, over the 16 tasks, clouds of
points and the data sets given. A point is a task: what more examples gain against what more masks take away. Both share
one accuracy, whose noise alone makes r negative; the second r takes the two from different questions.

The paper (arXiv 2511.21338, probes 4 and 11, format B): from few masks to 200 LLaDA-Base loses 23 points,
LLaDA-Instruct 27; Dream-Base loses 6 and Dream-Instruct 8 by about 20 masks, then both stay level. Shots: r is -.15 and
-.16 for LLaDA, -.21 and -.02 for Dream.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import UnsetType

from maskwise.probes import select_tasks
from maskwise.probes.blocks import visible_counts
from maskwise.probes.labelled import Labels, data_examples, given_data, label_prompt, labels_of, tests_that_fit
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import FewShot, Points, Questions, few_shot
from maskwise.probes.setup import Asker, Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, SHARE, Estimate, change, curve, mean, ratio, share, wide
from maskwise.scoring.intervals import correlation
from maskwise.scoring.scores import least_relative_loss, relative_loss, share_of_skill
from maskwise.support.typed import Count
from maskwise.tasks.datasets import READERS, has_labels
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.labelled_exercises import Labelled
from maskwise.tasks.point_clouds import LABELS, SHAPES, arranged, draw_cloud, exercise
from maskwise.tasks.prompts import Prompt, opened

NAME = "mask-count"
BASELINE, SOME = 2, 20  # masks; by 20 the paper's Dream has lost what it loses

Condition = Mapping[str, Any]
Examples = Callable[[int, int], Sequence[Labelled]]  # of so many shots, as a point sees them
LabelledTask = tuple[str, Examples, Sequence[Labelled], Labels]  # with its tests


def ask(
    setup: Setup,
    mask_counts: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200),
    among: int | None = None,
    shots: tuple[int, ...] = (),
    extra: tuple[int, ...] = (1, 200),
    clouds: int = 5,
) -> Iterator[Questions]:
    asked = [{"masks": k} for k in visible_counts(setup, NAME, mask_counts)]

    def prompt(source: FewShot, point: int, condition: Condition) -> Prompt:
        return opened(source.encoded(point, distractors=among), setup.asker.mask_id, condition["masks"])

    for source in few_shot(setup):
        yield source.under(asked, prompt)
    if shots and setup.model.block is None:  # a block diffusion model sees no masks beyond its block
        conditions = [{"shots": n, "extra": k} for n in shots for k in extra]
        for source in few_shot(setup, shots, distractors=0, afresh=False):
            own = [one for one in conditions if one["shots"] == source.relevant]
            yield Questions(source, own, partial(examples_alone, source), source.answer)
        for task, examples, tests, labels in (
            *clouds_of(setup, max(shots), clouds),
            *data_of(setup, shots, max(extra)),
        ):
            own_prompt = partial(label_prompt_of, setup.asker, examples, tests, labels)
            yield Questions(Points(task, range(len(tests))), conditions, own_prompt)


def examples_alone(source: FewShot, point: int, condition: Condition) -> Prompt:
    return opened(source.encoded(point), source.asker.mask_id, 1 + condition["extra"])


def label_prompt_of(
    asker: Asker, examples: Examples, tests: Sequence[Labelled], labels: Labels, point: int, condition: Condition
) -> Prompt:
    """The answer's own masks hide its closing bracket too, which is the first of the extra ones."""
    shown = examples(condition["shots"], point)
    return label_prompt(asker, shown, tests[point], labels, more=condition["extra"] - 1)


def clouds_of(setup: Setup, most: int, several: int) -> Iterator[LabelledTask]:
    """The four shapes; a shape's questions are shared out among its clouds, whose examples stand as they were drawn."""
    seed, count = setup.settings.seed, setup.settings.questions
    for shape in SHAPES:
        numbers = range(seed * several, (seed + 1) * several)
        drawn = [draw_cloud(shape, most, -(-count // several), number) for number in numbers]
        each = [[exercise(*one) for one in zip(cloud.tests, cloud.test_labels, strict=True)] for cloud in drawn]
        tests = [test for turn in zip(*each, strict=True) for test in turn][:count]

        def examples(shots: int, point: int, drawn=drawn) -> Sequence[Labelled]:
            return arranged(drawn[point % len(drawn)], point // len(drawn), "random", shots)

        yield shape, examples, tests, labels_of(setup.asker.tokenizer, LABELS)


def data_of(setup: Setup, shots: Sequence[int], most_masks: int) -> Iterator[LabelledTask]:
    """The data sets given, of whose questions those are asked that fit with the most examples and masks."""
    asker, settings, most = setup.asker, setup.settings, max(shots)
    if missing := [name for name in READERS if name not in setup.data]:
        setup.note(f"{NAME}: without the paper's {', '.join(missing)}: give them with --data NAME=PATH")
    for data, labels in given_data(setup, PROBE):
        shown = {n: data_examples(asker, data, n, settings.seed) for n in shots}
        longest = setup.model.window - labels.masks - most_masks
        tests = tests_that_fit(asker, data, shown[most], settings.questions, longest, settings.seed)
        if len(tests) < settings.questions:
            fitting = f"{len(tests)} questions of {data.name} fit the context length"
            setup.note(f"{NAME}: {fitting} after {most} examples")

        def examples(shots: int, point: int, shown=shown) -> list[Labelled]:
            return list(shown[shots])

        yield data.name, examples, tests, labels


def metrics(table: Table, others: Tables) -> list[Estimate]:
    found = [*of_masks(few_shots(table)), *of_shots(table)]
    if select_tasks.NAME in others:  # on how many tasks the shares and changes rest
        asked = others[select_tasks.NAME]
        room = float(len(select_tasks.tasks_with_room(asked)))
        found.append(Estimate("tasks with room for a loss", room, n=asked.task.nunique(), unit="tasks"))
    return found


def few_shots(table: Table) -> Table:
    """The answers that are about masks alone."""
    own = table[table.shots.isna()] if "shots" in table else table
    return own.assign(masks=0, relevant=0) if own.empty else own.astype({"masks": int, "relevant": int})


def of_masks(table: Table) -> list[Estimate]:
    right, nats = wide(table, "masks"), wide(table, "masks", "nll")
    more = [k for k in right if k > BASELINE]
    if BASELINE not in right or not more:
        return []
    most, two, after = max(more), list(right).index(BASELINE), [at for at, k in enumerate(right) if k > BASELINE]
    changes = {
        k: change(f"change of accuracy with {k} masks instead of {BASELINE}", right[k], right[BASELINE], claim="below")
        for k in (most, SOME)
        if k in more
    }
    return [
        changes.pop(most),
        *(share(f"accuracy with {k} masks", right[k]) for k in (BASELINE, most)),
        *changes.values(),
        ratio("mask tax", right, lambda a: share_of_skill((a[:, [two]] - a[:, after]).mean(1), a[:, two] - CHANCE)),
        ratio(
            f"degradation over {', '.join(map(str, right))} masks", right, relative_loss, low_end=least_relative_loss
        ),
        mean("nats lost to masks", nats[more].mean(axis=1) - nats[BASELINE]),
    ]


def by_masks(table: Table, others: Tables) -> Table:
    measures = {"correct": SHARE, "nll": NATS, "confidence": "", "entropy": NATS}
    return curve(few_shots(table), ["masks"], measures, {"masks": BASELINE})


def of_shots(table: Table) -> list[Estimate]:
    """Pearson's r, over tasks, of the gain from more shots and the change from more masks at the most shots."""
    tasks = by_task(table, {})
    if tasks.empty:
        return []
    name = "correlation, over tasks, of the gain from shots and the change from masks"
    apart = correlation(tasks.gain_apart, tasks.change_apart)
    return [
        Estimate(name, *correlation(tasks.gain, tasks.value), len(tasks), "r"),
        Estimate(f"{name}, from different questions", *apart, len(tasks), "r"),
    ]


def by_task(table: Table, others: Tables) -> Table:
    """Of each task: what more shots gain, and the change from more masks at the most shots. `_apart`: the gain from
    every second question and the change from the others, so that no answer is in both."""
    import pandas as pd

    asked = table[table.shots.notna()] if "shots" in table else table[:0]
    if asked.empty or asked.shots.nunique() < 2 or asked.extra.nunique() < 2:
        return pd.DataFrame()
    (few, many), (one, most) = ((column.min(), column.max()) for column in (asked.shots, asked.extra))
    even, odd = (asked[asked.point % 2 == half] for half in (0, 1))

    def right(own: Table, shots: int, extra: int) -> Any:
        return own[(own.shots == shots) & (own.extra == extra)].groupby("task", observed=True).correct.mean()

    gain, gain_apart = (right(own, many, one) - right(own, few, one) for own in (asked, even))
    lost, change_apart = (right(own, many, most) - right(own, many, one) for own in (asked, odd))
    columns = {"gain": gain, "value": lost, "gain_apart": gain_apart, "change_apart": change_apart}
    found = pd.DataFrame(columns | {"n": asked.groupby("task", observed=True).point.nunique()}).dropna()
    return found.rename_axis("task").reset_index().assign(low=None, high=None)


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(by_masks, "masks", "Masks at the end", "", panel="measure", log=True, guessing=CHANCE),
        Figure(by_task, "gain", "Gain from few to many shots", "Change from few to many masks", kind="scatter"),
    ],
    condition=dict.fromkeys(("masks", "relevant", "shots", "extra"), Count | UnsetType),
    needs=frozenset({"masks"}),
    presets=("quick", "default", "full", "paper"),
    sizes={
        "quick": {"mask_counts": (2, 200), "among": 6, "extra": (1, 100), "clouds": 2},
        "default": {"mask_counts": (2, 20, 200)},
        "full": {"shots": (5, 25)},
        "paper": {"shots": (5, 25)},
    },
    takes=has_labels,
)
