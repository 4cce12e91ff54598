"""Likelihood and masks (ours): do masks after an answer change its score?

    no masks    Q Q ? a ? a
    1024 masks  Q Q ? a ? a _ _ _ _ _

The right answers of questions with a known answer (embedded ones, or yours with --data) are scored as lm-eval scores
options, by the bound on their log-likelihood, with more and more masks after them, which state only how much room
follows. The sets that are masked are the same for every number of masks. A level line means that scores do not depend
on that room. A movement (of either sign) as large as the differences between options would change which one is chosen.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from maskwise.probes.checked import AskedSet, asked_sets
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, Estimate, curve, mean, wide
from maskwise.support.typed import Count
from maskwise.tasks.checkable import CHECKED
from maskwise.tasks.prompts import Prompt

NAME = "likelihood-masks"


def ask(
    setup: Setup, mask_counts: tuple[int, ...] = (0, 16, 64, 256, 1024), samples: int = 16, questions: int = 64
) -> Iterator[Questions]:
    from maskwise.probes.answers.answer_scores import score_answers

    for asked in asked_sets(setup, questions):
        room = setup.model.window - asked.longest - asked.longest_answer
        counts = [count for count in mask_counts if count <= room]
        if len(counts) < len(mask_counts):
            setup.note(f"{NAME}: {asked.name} leaves room for {max(room, 0)} masks, more were not asked")

        def prompt(point: int, condition: Mapping[str, Any], asked: AskedSet = asked) -> Prompt:
            one, masks = asked.questions[point], condition["masks"]
            ids = (*one.ids, *one.answer_ids, *[setup.asker.mask] * masks)
            return Prompt(ids, len(one.ids), one.answer_ids[0], masks)

        source = Points(asked.name, range(len(asked.questions)))
        for count in counts:
            scored = partial(score_answers, asked=asked, masks=count, samples=samples, seed=setup.settings.seed)
            yield Questions(source, [{"masks": count}], prompt, asked.answer, scored, samples)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    nats = wide(table, "masks", "nll")
    fewest, most = min(nats, default=0), max(nats, default=0)
    if fewest == most:
        return []
    changed, said = nats[most] - nats[fewest], f"with {most} masks after it instead of {fewest}"
    return [
        mean(f"change of nats per token of an answer {said}", changed),
        mean(f"movement of the score of an answer {said}", changed.abs()),
    ]


def by_masks(table: Table, others: Tables) -> Table:
    """moved, moved_most: the mean and the largest change of an answer's score, of either sign."""
    nats = wide(table, "masks", "nll")
    fewest = min(nats, default=0)
    moved = nats.sub(nats[fewest], axis=0).abs()
    found = curve(table, ["masks"], {"nll": NATS}, {"masks": fewest})
    return found.assign(moved=found.masks.map(moved.mean()), moved_most=found.masks.map(moved.max()))


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_masks, "masks", "Masks after the answer", "NLL (nats per token)", log=True)],
    condition={"masks": Count},
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"mask_counts": (0, 64), "samples": 4, "questions": 8}},
    takes=lambda data_set: data_set in CHECKED,
)
