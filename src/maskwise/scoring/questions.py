"""Scores over questions that are asked several times: the question is what is resampled, with all that was asked of it.

Tasks are strata: questions are drawn within each, and every task weighs the same.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from maskwise.randomness import numpy_generator
from maskwise.scoring.intervals import TAILS, none_seen
from maskwise.scoring.scores import NO_SKILL, RESAMPLES, Score, null_score, score

DIGITS = 12  # beyond them is rounding

# For each task, the mean of what was asked of each of its questions under each of C conditions: [questions, C].
QuestionTables = Sequence[np.ndarray]
Formula = Callable[[np.ndarray], np.ndarray]


def over_questions(by_task: QuestionTables, formula: Formula, skill: Formula) -> Score:
    """The score `formula` gives of the accuracies [n, C] -> [n], a ratio of means, with a 95 % interval.

    The interval is a bootstrap over questions within tasks, widened as in Hesterberg's expanded percentile interval
    (2015): its spread is that of a sample divided by n instead of n - 1, its tails are normal instead of Student's.
    Where no resample changes the score it is `none_seen` to both sides; `skill` [n, C] -> [n] is what it divides by.
    """
    if not by_task or min(map(len, by_task)) == 0:
        return null_score()
    means = np.mean([table.mean(0) for table in by_task], axis=0)[None]
    value = float(formula(means)[0].round(DIGITS))
    if np.isnan(value):
        return null_score(NO_SKILL)
    questions = sum(map(len, by_task))
    resampled = formula(np.mean([_resampled(table, place) for place, table in enumerate(by_task)], axis=0))
    low, high = np.nanquantile(resampled.round(DIGITS), _tails([len(table) for table in by_task]))
    if low < high:
        return score(value, float(low), float(high))
    reach = none_seen(questions) / float(skill(means)[0])
    return score(value, value - reach, value + reach)


def _resampled(table: np.ndarray, stratum: int) -> np.ndarray:
    """Accuracies [RESAMPLES, C] of resamples of a task's questions."""
    count = len(table)
    draws = numpy_generator("bootstrap over questions", stratum)
    return draws.multinomial(count, [1 / count] * count, size=RESAMPLES) @ table / count


def _tails(counts: Sequence[int]) -> tuple[float, float]:
    free = sum(counts) - len(counts)
    if free < 1:
        return TAILS
    spread = float(stats.t.ppf(TAILS[1], free)) * np.sqrt(np.mean([n / max(1, n - 1) for n in counts]))
    tail = float(stats.norm.sf(spread))
    return tail, 1 - tail
