"""Two stages: how many blocks are asked, and how often the interval of the worst and of other differences is right."""

import numpy as np
import pytest
from scipy import stats

from helpers.records import record as plain_record
from maskwise.scoring.intervals import difference_interval
from maskwise.scoring.precision import (
    FIRST_STAGE,
    block_differences,
    blocks_needed,
    first_stage_variance,
    half_width,
)

RUNS = 4000
LEAST = 0.94


def record(task, point, correct):
    return plain_record(task=task, point=point, correct=correct)


def test_a_block_is_the_mean_over_tasks_of_what_changed():
    group = [record("a", 0, True), record("b", 0, True), record("a", 1, False), record("b", 1, True)]
    before = [record("a", 0, False), record("b", 0, True), record("a", 1, True), record("b", 1, True)]
    assert block_differences(group, before).tolist() == [0.5, -0.5]
    assert block_differences(group[:3], before).tolist() == [0.5]  # an unfinished block does not count


@pytest.mark.parametrize(("spread", "wanted", "tasks"), [(0.1, 0.02, 16), (0.3, 0.05, 5), (0.0, 0.02, 2)])
def test_the_fewest_blocks_that_suffice(spread, wanted, tasks):
    needed = blocks_needed(spread**2, wanted, tasks)
    assert half_width(spread**2, needed, tasks) <= wanted
    assert needed == FIRST_STAGE or half_width(spread**2, needed - 1, tasks) > wanted
    steins = np.ceil((stats.t.ppf(0.975, 63) * spread / wanted) ** 2)
    assert max(FIRST_STAGE, steins) <= needed <= 1.2 * steins + 120


def drawn_blocks(draws, chances, blocks):
    """Changes [RUNS, blocks, C, T] of -1, 0 or 1 from the chances [C, T, 2] of a gain and a loss in each task; one
    number of a question decides under all C conditions, so that they are correlated."""
    luck = draws.random((RUNS, blocks, 1, chances.shape[1]), dtype=np.float32)
    gain, loss = np.moveaxis(chances.astype(np.float32), -1, 0)
    return (luck < gain).astype(np.int8) - (luck > 1 - loss).astype(np.int8)


@pytest.mark.parametrize(
    ("gain", "loss", "tasks", "wanted"),
    [
        pytest.param(0.1, 0.4, 16, 0.02, marks=pytest.mark.slow),  # a large effect
        pytest.param(0.15, 0.15, 5, 0.05, marks=pytest.mark.slow),  # none, five tasks
        pytest.param(0.0, 0.01, 16, 0.02, marks=pytest.mark.slow),  # rare and all of one sign
        pytest.param(0.0, 0.003, 5, 0.02, marks=pytest.mark.slow),
        pytest.param(0.0, 0.5, 2, 0.05, marks=pytest.mark.slow),
    ],
)
def test_both_intervals_hold_the_truth_after_two_stages(gain, loss, tasks, wanted):
    """Tasks differ, and so do three conditions: full effect, half of it, a tenth. The worst decides; each is judged.

    A cell that covers exactly 95 % has a standard error of 0.34 points in 4000 runs. The summary's paired differences
    have an interval that knows nothing of stages; it is judged too, for the worst.
    """
    draws = np.random.default_rng(4)
    unequal = np.linspace(0.5, 1.5, tasks)
    chances = np.array([[(share * gain * u, share * loss * u) for u in unequal] for share in (1.0, 0.5, 0.1)])
    first = drawn_blocks(draws, chances, FIRST_STAGE)
    variances = first.mean(-1, dtype=np.float64).var(1, ddof=1)  # [RUNS, C]
    needed = np.array([blocks_needed(worst, wanted, tasks) for worst in variances.max(1)])
    gained, lost = ((sign * first > 0).sum(1, dtype=np.int64) for sign in (1, -1))  # [RUNS, C, T]
    gained, lost = np.add((gained, lost), second_stage_counts(draws, chances, needed - FIRST_STAGE))
    truth = (chances[..., 0] - chances[..., 1]).mean(-1)
    found = ((gained - lost) / needed[:, None, None]).mean(-1)
    for column in range(3):
        half = np.array([half_width(v, n, tasks) for v, n in zip(variances[:, column], needed, strict=True)])
        assert half.max() <= wanted
        assert np.mean(abs(found[:, column] - truth[column]) <= half) >= LEAST, column
    covered = []
    for run in range(0, RUNS, 8):
        shares = (side[run, 0] / needed[run] for side in (gained, lost))
        _, low, high = difference_interval(*shares, np.full(tasks, float(needed[run])))
        covered.append(low <= truth[0] <= high)
    assert np.mean(covered) >= LEAST - 0.01  # 500 runs: a standard error of 1 point


def second_stage_counts(draws, chances, more):
    """(gained, lost) [RUNS, C, T] among `more` [RUNS] further questions of each task. The chances fall from one
    condition to the next, so a question gains under the first few, loses under the first few, or does neither."""
    gained, lost = np.zeros((2, len(more), *chances.shape[:2]), dtype=np.int64)
    for task in range(chances.shape[1]):
        gain, loss = (chances[:, task, side] - np.append(chances[1:, task, side], 0.0) for side in (0, 1))
        drawn = draws.multinomial(more, np.concatenate([gain, loss, [1 - gain.sum() - loss.sum()]]))
        for counts, some in ((gained, drawn[:, : len(chances)]), (lost, drawn[:, len(chances) : 2 * len(chances)])):
            counts[:, :, task] = some[:, ::-1].cumsum(1)[:, ::-1]
    return gained, lost


def test_the_variance_is_that_of_the_first_stage_alone():
    values = np.concatenate([np.tile([0.1, -0.1], 32), np.full(100, 5.0)])
    assert first_stage_variance(values) == pytest.approx(np.tile([0.1, -0.1], 32).var(ddof=1))
