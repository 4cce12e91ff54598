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

from collections.abc import Mapping
from functools import cache
from typing import Annotated

import numpy as np
import scipy  # scipy.stats, which takes a second to import, is imported when it is first used
from msgspec import Meta

from maskwise.scoring.intervals import SAME, TAILS, Bounds
from maskwise.support.typed import Typed


class TemplateSpread(Typed, frozen=True, kw_only=True):
    """An effect over templates, in shares of the accuracy."""

    templates: int
    questions: int
    mean: Annotated[float, Meta(description="over templates and questions")]
    mean_low: Annotated[float | None, Meta(description="lower end of its 95 % interval: new templates and questions")]
    mean_high: Annotated[float | None, Meta(description="upper end")]
    sd: Annotated[float, Meta(description="standard deviation of the effect over templates")]
    sd_low: Annotated[float | None, Meta(description="lower end of its 95 % interval; null where nothing varied")]
    sd_high: Annotated[float | None, Meta(description="upper end")]
    new_low: Annotated[float | None, Meta(description="lower end of the 95 % predictive interval of a new template")]
    new_high: Annotated[float | None, Meta(description="upper end")]


def template_spread(values: Mapping[str, np.ndarray], bounds: Bounds = (-1.0, 1.0)) -> TemplateSpread:
    """values: of each task the effect under each template on each question, [T, questions of the task].

    bounds: the least and the most that the effect can be.
    """
    strata = list(values.values())
    if min(one.shape[1] for one in strata) < 2:  # the tasks' own spread is not known: all questions as one task
        strata = [np.concatenate(strata, axis=1)]
    whole = np.concatenate(strata, axis=1)
    templates, questions = whole.shape
    ms_t = questions * float(whole.mean(1).var(ddof=1))
    ms_q, ms_e, free_e = _within(strata)
    mean = float(whole.mean())
    low, high = (None, None) if ms_t < SAME**2 else sd_interval(ms_t, ms_e, templates - 1, free_e, questions)
    half = new_half = None
    if ms_t >= SAME**2:
        new_half = float(scipy.special.stdtrit(templates - 1, TAILS[1])) * np.sqrt(
            ms_t / questions * (1 + 1 / templates)
        )
        half = _mean_half(ms_t, ms_q, ms_e, templates, questions, questions - len(strata), free_e)
    return TemplateSpread(
        templates=templates,
        questions=questions,
        mean=mean,
        mean_low=None if half is None else max(mean - half, bounds[0]),
        mean_high=None if half is None else min(mean + half, bounds[1]),
        sd=float(np.sqrt(max(0.0, (ms_t - ms_e) / questions))),
        sd_low=low,
        sd_high=high,
        new_low=None if new_half is None else max(mean - new_half, bounds[0]),
        new_high=None if new_half is None else min(mean + new_half, bounds[1]),
    )


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
