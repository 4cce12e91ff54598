"""One sentence of advice at the end of a diagnosis: what the run's own answers support, with their numbers. No torch.

Masks that take accuracy away are the evidence for all of it. A growing canvas shows few of them, so it is supported
where the accuracy with few masks is higher than with many; it needs no training and is named first. Mask-agnostic
tuning (Piskorz et al., arXiv 2511.21338) addresses the loss itself. Small blocks show all masks but take many steps:
they are supported where many steps, the surest first, regain accuracy (probe unmasking).
"""

from collections.abc import Sequence

from maskwise.probes.examples import main_records
from maskwise.probes.library.mask_count import NAME as MASK_COUNT
from maskwise.probes.library.unmasking import NAME as UNMASKING
from maskwise.records.record import Record
from maskwise.scoring.changes import Difference, paired_difference
from maskwise.scoring.skill import task_skill

LARGEST_BLOCK = 32  # masks that a growing canvas may show at a time


def advice(records: Sequence[Record]) -> str | None:
    """None where masks were not asked about, where they cannot show a loss (no skill, or too easy), and of block
    diffusion models, whose canvas is not a choice."""
    one_step = main_records([record for record in records if record.probe == MASK_COUNT])
    counts = sorted({record.condition["masks"] for record in one_step})
    if 2 not in counts or counts[-1] <= LARGEST_BLOCK or any("visible" in record for record in one_step):
        return None
    most = counts[-1]
    if _cannot_show_a_loss(one_step, counts):
        return None
    lost = paired_difference(_under(one_step, 2), _under(one_step, most))
    if not _is_gain(lost):
        return (
            "No evidence for mask-agnostic tuning, a growing canvas or small blocks: 2 masks in place of "
            f"{most} change the accuracy by {_points(lost)}."
        )
    supported = [*_growing(one_step, counts), *_small_blocks(records, one_step, most)]
    tuning = f"mask-agnostic tuning (2 masks in place of {most}: {_points(lost)})"
    return f"The run's evidence supports {' and '.join([*supported, tuning])}."


def _cannot_show_a_loss(one_step: Sequence[Record], counts: Sequence[int]) -> bool:
    few = _under(one_step, 2)
    changes = [paired_difference(_under(one_step, count), few) for count in counts if count != 2]
    right = sum(record.correct for record in few)
    return task_skill(round(right), len(few), changes=[(one.low, one.high) for one in changes]).skill != "skilled"


def _growing(one_step: Sequence[Record], counts: Sequence[int]) -> list[str]:
    """The most masks that a block may have and that were asked, against the most of all."""
    block = max(count for count in counts if count <= LARGEST_BLOCK)
    gain = paired_difference(_under(one_step, block), _under(one_step, counts[-1]))
    return [f"a growing canvas ({block} masks in place of {counts[-1]}: {_points(gain)})"] if _is_gain(gain) else []


def _small_blocks(records: Sequence[Record], one_step: Sequence[Record], most: int) -> list[str]:
    asked = main_records([record for record in records if record.probe == UNMASKING])
    stepwise = [record for record in _under(asked, most) if record.condition["order"] == "confidence"]
    gain = paired_difference(stepwise, _under(one_step, most))
    return [f"small blocks (many steps in place of one: {_points(gain)})"] if _is_gain(gain) else []


def _under(records: Sequence[Record], masks: int) -> list[Record]:
    return [record for record in records if record.condition["masks"] == masks]


def _is_gain(difference: Difference) -> bool:
    return difference.low is not None and difference.low > 0


def _points(difference: Difference) -> str:
    assert difference.low is not None and difference.high is not None
    return f"{100 * difference.difference:+.1f} points, {100 * difference.low:.1f} to {100 * difference.high:.1f}"
