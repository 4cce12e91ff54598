"""Effects over templates: simulated variance components are recovered, and the intervals hold at the sizes used."""

import numpy as np
import pytest
from scipy import stats

from maskwise.scoring.variance_components import template_spread

TEMPLATES, TASKS, PER_TASK = 9, 8, 2  # as the probe `templates` has them
QUESTIONS = TASKS * PER_TASK


def simulated(draws, sd_template, sd_question=0.3, sd_rest=0.25, mean=0.2):
    """Values [T, Q] of one experiment, by task, and the effect of a new template on the same questions."""
    template = draws.normal(0, sd_template, TEMPLATES + 1)
    question = draws.normal(0, sd_question, QUESTIONS) + np.repeat(np.linspace(-0.3, 0.3, TASKS), PER_TASK)
    values = mean + template[:, None] + question + draws.normal(0, sd_rest, (TEMPLATES + 1, QUESTIONS))
    by_task = {str(task): values[:-1, PER_TASK * task : PER_TASK * (task + 1)] for task in range(TASKS)}
    return by_task, values[-1].mean()


def test_the_components_are_those_of_the_analysis_of_variance_written_out():
    by_task, _ = simulated(np.random.default_rng(0), 0.1)
    whole = np.concatenate(list(by_task.values()), axis=1)
    rest = []
    for table in by_task.values():
        for t in range(TEMPLATES):
            for q in range(PER_TASK):
                rest.append(table[t, q] - table[t].mean() - table[:, q].mean() + table.mean())
    ms_e = np.square(rest).sum() / ((TEMPLATES - 1) * (QUESTIONS - TASKS))
    ms_t = QUESTIONS * sum((row.mean() - whole.mean()) ** 2 for row in whole) / (TEMPLATES - 1)
    (new, *_), (mean, *_), (deviation, *_) = template_spread(by_task)
    assert deviation == pytest.approx(np.sqrt((ms_t - ms_e) / QUESTIONS))
    assert new == mean == pytest.approx(whole.mean())


def test_a_new_template_has_the_predictive_interval_of_the_templates_means():
    by_task, _ = simulated(np.random.default_rng(1), 0.1)
    means = np.concatenate(list(by_task.values()), axis=1).mean(1)
    half = stats.t.ppf(0.975, TEMPLATES - 1) * means.std(ddof=1) * np.sqrt(1 + 1 / TEMPLATES)
    assert template_spread(by_task)[0] == pytest.approx((means.mean(), means.mean() - half, means.mean() + half))


@pytest.mark.parametrize("sd", [0.0, 0.05, 0.2])
def test_the_standard_deviation_over_templates_is_recovered_and_its_interval_holds(sd):
    draws = np.random.default_rng(3)
    runs = [simulated(draws, sd) for _ in range(300)]
    of_new, means, deviations = zip(*(template_spread(by_task) for by_task, _ in runs), strict=True)
    variance = np.mean([found**2 for found, _, _ in deviations])
    assert variance == pytest.approx(sd**2, abs=0.0012 + 0.1 * sd**2)
    assert np.mean([low <= sd <= high for _, low, high in deviations]) >= 0.92
    inside = np.mean([low <= new <= high for (_, low, high), (_, new) in zip(of_new, runs, strict=True)])
    assert 0.92 <= inside <= 0.98  # exact for normal effects: 95 % up to the noise of 300 experiments
    assert np.mean([low <= 0.2 <= high for _, low, high in means]) >= 0.92


def test_answers_that_are_right_or_wrong_keep_the_coverage_of_the_predictive_interval():
    draws = np.random.default_rng(4)
    inside = []
    for _ in range(300):
        chance = np.clip(draws.normal(0.6, 0.1, TEMPLATES + 1), 0, 1)
        values = (draws.random((TEMPLATES + 1, QUESTIONS)) < chance[:, None]).astype(float)
        by_task = {str(task): values[:-1, PER_TASK * task : PER_TASK * (task + 1)] for task in range(TASKS)}
        (_, low, high), *_ = template_spread(by_task)
        inside.append(low <= values[-1].mean() <= high)
    assert np.mean(inside) >= 0.92


def test_an_effect_that_no_template_changes_has_no_interval():
    new, mean, deviation = template_spread({"one": np.tile([0.0, 1.0, 1.0], (9, 1))})
    assert new == mean == (pytest.approx(2 / 3), None, None) and deviation == (0.0, None, None)


def test_one_question_per_task_is_pooled_over_tasks():
    by_task, _ = simulated(np.random.default_rng(5), 0.1)
    single = {task: table[:, :1] for task, table in by_task.items()}
    pooled = {"all": np.concatenate(list(single.values()), axis=1)}
    assert template_spread(single) == template_spread(pooled)
