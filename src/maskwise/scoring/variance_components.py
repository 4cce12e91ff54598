"""An effect measured under T templates on the same Q questions: how much of it is the template's.

A mixed model with crossed random effects: value(t, q) = mean + template(t) + question(q) + rest(t, q). Questions are
drawn within tasks, which are fixed. The design is balanced, so that the estimates are those of the analysis of variance
(and of REML, where they are not below zero):

    MS_T  variance between the templates' means, times Q
    MS_Q  variance between the questions' means within tasks, times T
    MS_E  variance of what is left within tasks, (T - 1)(Q - tasks) degrees of freedom
    sd of the effect over templates = sqrt((MS_T - MS_E) / Q), 0 where that is negative

Interval of the sd: the modified large-sample interval (Ting et al. 1990; Burdick and Graybill 1992). Interval of the
mean, over templates and questions: Satterthwaite's. Predictive interval of the effect that a new template would show on
these questions: mean +- t(T - 1) sqrt(MS_T / Q (1 + 1 / T)), exact for normal effects at any T: the questions' own
differences cancel.
"""

from functools import cache

import numpy as np
import scipy  # scipy.stats, which takes a second to import, is imported when it is first used

from maskwise.scoring.intervals import SAME, TAILS, Bounds, Interval, Strata


def template_spread(strata: Strata, bounds: Bounds = (-1.0, 1.0)) -> tuple[Interval, Interval, Interval]:
    """The effect with its predictive interval under a new template, with that of its mean, and its standard deviation.

    strata: of each task the effect under each template on each question, [T, questions of the task]. bounds: the least
    and the most that the effect can be. Without intervals where nothing varies over templates.
    """
    tables = list(strata.values())
    if min(one.shape[1] for one in tables) < 2:  # the tasks' own spread is not known: all questions as one task
        tables = [np.concatenate(tables, axis=1)]
    whole = np.concatenate(tables, axis=1)
    templates, questions = whole.shape
    ms_t = questions * float(whole.mean(1).var(ddof=1))
    ms_q, ms_e, free_e = _within(tables)
    mean, sd = float(whole.mean()), float(np.sqrt(max(0.0, (ms_t - ms_e) / questions)))
    if ms_t < SAME**2:
        return (mean, None, None), (mean, None, None), (sd, None, None)
    of_new = float(scipy.special.stdtrit(templates - 1, TAILS[1])) * np.sqrt(ms_t / questions * (1 + 1 / templates))
    of_mean = _mean_half(ms_t, ms_q, ms_e, templates, questions, questions - len(tables), free_e)
    low, high = sd_interval(ms_t, ms_e, templates - 1, free_e, questions)
    least, most = bounds
    new, middle = ((mean, max(mean - half, least), min(mean + half, most)) for half in (float(of_new), of_mean))
    return new, middle, (sd, low, high)


def _within(strata: list[np.ndarray]) -> tuple[float, float, int]:
    """Mean squares of the questions and of the rest within tasks, and the degrees of freedom of the rest."""
    templates = strata[0].shape[0]
    free_q = sum(one.shape[1] - 1 for one in strata)
    between = sum(float(((one.mean(0) - one.mean()) ** 2).sum()) for one in strata)
    rest = [one - one.mean(0) - one.mean(1, keepdims=True) + one.mean() for one in strata]
    free_e = (templates - 1) * free_q
    return templates * between / free_q, sum(float((one**2).sum()) for one in rest) / free_e, free_e


def sd_interval(ms_t: float, ms_e: float, free_t: int, free_e: int, questions: int) -> tuple[float, float]:
    """The modified large-sample interval of sqrt((MS_T - MS_E) / Q), cut at 0."""
    g1, h1, g2, h2, g12, h12 = _constants(free_t, free_e)
    below = (g1 * ms_t) ** 2 + (h2 * ms_e) ** 2 + g12 * ms_t * ms_e
    above = (h1 * ms_t) ** 2 + (g2 * ms_e) ** 2 + h12 * ms_t * ms_e
    middle = ms_t - ms_e
    ends = middle - np.sqrt(max(0.0, below)), middle + np.sqrt(max(0.0, above))
    least, most = (float(np.sqrt(max(0.0, end) / questions)) for end in ends)
    return least, most


@cache
def _constants(free_t: int, free_e: int) -> tuple[float, float, float, float, float, float]:
    """G1, H1, G2, H2, G12 and H12 of the modified large-sample interval."""
    chi2, f = scipy.stats.chi2, scipy.stats.f
    low, high = TAILS
    g1, h1 = 1 - free_t / chi2.ppf(high, free_t), free_t / chi2.ppf(low, free_t) - 1
    g2, h2 = 1 - free_e / chi2.ppf(high, free_e), free_e / chi2.ppf(low, free_e) - 1
    f_high, f_low = f.ppf(high, free_t, free_e), f.ppf(low, free_t, free_e)
    g12 = ((f_high - 1) ** 2 - (g1 * f_high) ** 2 - h2**2) / f_high
    h12 = ((1 - f_low) ** 2 - (h1 * f_low) ** 2 - g2**2) / f_low
    return g1, h1, g2, h2, g12, h12


def _mean_half(
    ms_t: float, ms_q: float, ms_e: float, templates: int, questions: int, free_q: int, free_e: int
) -> float:
    """Half of the interval of the mean: its variance is (MS_T + MS_Q - MS_E) / TQ, never below that of MS_T alone."""
    parts = (ms_t, templates - 1), (ms_q, free_q), (ms_e, free_e)
    total = max(ms_t + ms_q - ms_e, ms_t)
    free = max(1.0, total**2 / sum(part**2 / max(1, own) for part, own in parts))
    return float(scipy.special.stdtrit(free, TAILS[1]) * np.sqrt(total / (templates * questions)))
