"""likelihood-masks (ours): how much the score of an answer moves with the masks that stand after it.

The right answers of checkable questions (tasks/checkable.py) are scored as lm-eval scores options: the bound on their
log-likelihood (decoding/likelihood.py), with more and more masks after them. The sets that are masked are the same for
every number of masks. Condition: {"masks": 64}; the record's nll is in nats per token.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from msgspec import UNSET

from maskwise.probes.checked import AskedSet, asked_sets
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, Setup, Unit, first_condition, units_for, with_nll
from maskwise.probes.section import Entry, Shown, by_masks, in_nats, over_masks
from maskwise.records.record import Condition, Record
from maskwise.support.typed import Count
from maskwise.tasks.checkable import CHECKED
from maskwise.tasks.prompts import Prompt

NAME = "likelihood-masks"
MOVED = "score_movement"


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.answer_scores import score_answers

    own = setup.own
    for asked in asked_sets(setup):
        room = setup.model.window - asked.longest - asked.longest_answer
        counts = [count for count in own["mask_counts"] if count <= room]
        if len(counts) < len(own["mask_counts"]):
            setup.note(f"{NAME}: {asked.name} leaves room for {max(room, 0)} masks, more were not asked")
        for count in counts:
            made, points = partial(answer_prompt, setup.asker.mask, asked), len(asked.questions)
            answer = partial(score_answers, asked=asked, masks=count, samples=own["samples"], seed=setup.settings.seed)
            yield from units_for(NAME, asked.name, points, [{"masks": count}], made, answer, own["samples"])


def answer_prompt(mask_id: int, asked: AskedSet, point: int, condition: Condition) -> tuple[Prompt, str]:
    one, masks = asked.questions[point], int(condition["masks"])
    ids = (*one.ids, *one.answer_ids, *[mask_id] * masks)
    return Prompt(ids, len(one.ids), one.answer_ids[0], masks), one.answer.strip()


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """Only the likelihood was measured."""
    return with_nll(entry.changed(confidence=UNSET, entropy=UNSET, accuracy=None, low=None, high=None), group)


def movement(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """{masks: {"mean", "largest"}}: absolute change of an answer's score from that without masks, nats per token."""
    by_count: dict[int, dict[tuple[str, int], float]] = {}
    for record in records:
        assert record.nll is not None
        by_count.setdefault(int(record.condition["masks"]), {})[record.task, record.point] = record.nll
    fewest = min(by_count)
    found = {}
    for count in sorted(by_count.keys() - {fewest}):
        shared = by_count[count].keys() & by_count[fewest].keys()
        moved = [abs(by_count[count][one] - by_count[fewest][one]) for one in shared]
        if moved:
            found[str(count)] = {"mean": float(np.mean(moved)), "largest": float(max(moved))}
    return found


def _in_words(shown: Shown) -> list[str]:
    return [
        f"with {count} masks after it the score of an answer moves by {moved['mean']:.2f} nats per token on average, "
        f"by {moved['largest']:.2f} at most"
        for count, moved in shown.summary.extras.get(MOVED, {}).items()
    ]


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="the score of an answer, by the masks after it (--data gsm8k=, prompts=)",
    condition={"masks": Count},
    units=units,
    takes=lambda data_set: data_set in CHECKED,
    parameters={"mask_counts": (0, 16, 64, 256, 1024), "samples": 16, "questions": 64},
    quick={"mask_counts": (0, 64), "samples": 4, "questions": 8},
    not_causal=NO_MASK_TOKEN,
    not_blocks="masks after an answer of a block diffusion model are seen by its last block at most",
    baseline=first_condition,
    measures=measures,
    chance=None,
    extras={MOVED: movement},
    columns={"nll": "NLL (nats per token)"},
    sections=(
        over_masks(
            title="Do masks after an answer change its score?",
            question="Right answers are scored as options of a multiple-choice task are, with more and more masks "
            "after them, which state only how much room follows.",
            paper="Not in the paper in this form; lm-eval scores without masks after an answer.",
            how_to_read="A level line means that scores do not depend on the room after an answer. A movement as large "
            "as the differences between options would change which one is chosen.",
            x_label="Masks after the answer",
            points=by_masks(NAME),
            measures=(in_nats("nll", "NLL (nats per token)"),),
            caption="Line: mean over answers; band: 95 % interval.",
            says=_in_words,
        ),
    ),
)
