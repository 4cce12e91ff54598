"""Sample size for a difference: two stages with a half-width fixed beforehand (Stein 1945).

A block is one question of every task under all conditions; what it gives is the mean over tasks of a paired difference
in accuracy. The first stage asks FIRST_STAGE blocks. Their variance s^2 alone decides how many blocks n there are in
all, and nothing is looked at again. With t the quantile of Student's t for FIRST_STAGE - 1 degrees of freedom, the mean
of all n blocks lies within

    sqrt(t^2 s^2 / n + u^2)

of the truth in 95 % of runs. The first part is Stein's: s^2 is independent of the mean, so t holds for any n chosen
from it. u is the exact bound of none in n questions per task (intervals.py), for changes so rare that the first stage
may have missed them. tests/scoring/test_stages.py simulates how often it holds.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import scipy  # scipy.stats, which takes a second to import, is imported when it is first used

from maskwise.records.record import Record
from maskwise.scoring.intervals import TAILS, none_seen

FIRST_STAGE = 64
MOST_BLOCKS = 10**9


def block_differences(group: Sequence[Record], baseline: Sequence[Record]) -> np.ndarray:
    """The paired difference in accuracy of each block, mean over tasks, in order, [blocks].

    Only blocks of which every task was asked under both: those of an unfinished run may lack some.
    """
    before = {(record.task, record.point): record.correct for record in baseline}
    changes: dict[int, dict[str, float]] = defaultdict(dict)
    for record in group:
        place = record.task, record.point
        if place in before:
            changes[record.point][record.task] = float(record.correct) - float(before[place])
    tasks = {task for task, _ in before}
    return np.array(
        [np.mean(list(of_task.values())) for _, of_task in sorted(changes.items()) if len(of_task) == len(tasks)]
    )


def half_width(variance: float, blocks: int, tasks: int) -> float:
    """Half-width of the 95 % interval of a difference; `variance` is that of the first stage's blocks."""
    quantile = float(scipy.stats.t.ppf(TAILS[1], FIRST_STAGE - 1))
    return float(np.sqrt(quantile**2 * variance / blocks + none_seen(blocks * tasks) ** 2))


def blocks_needed(variance: float, wanted: float, tasks: int) -> int:
    """The fewest blocks in all, those of the first stage among them, whose half-width is at most `wanted`."""
    counts = range(FIRST_STAGE, MOST_BLOCKS)
    return counts[bisect_left(counts, True, key=lambda blocks: half_width(variance, blocks, tasks) <= wanted)]


def first_stage_variance(differences: np.ndarray) -> float:
    return float(differences[:FIRST_STAGE].var(ddof=1))
