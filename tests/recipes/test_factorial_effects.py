"""Effects and their intervals, on answers whose truth is known."""

import json

import numpy as np
import pytest

from factorial import design, learnt_design
from factorial_effects import LOCALITY, NEAR, Experiment, effect_table, effects, figure, noise, run_table, values_of

LEVELS = np.array([run.levels for run in design()])
A, B, C, D, E = LEVELS.T


def parts_of(values: np.ndarray, questions: int = 1) -> list[np.ndarray]:
    return [np.repeat(values[:, None].astype(float), max(2, questions), axis=1)]


def test_effects_are_those_the_values_were_made_of():
    """Twice the coefficients at +1 and -1; what is not there is zero, though two cells have three runs."""
    found = {effect.name: effect for effect in effects(LEVELS, parts_of(5 + 2 * A - 0.5 * C + 1.5 * D * E))}
    assert len(found) == 15
    wanted = {"A": 4.0, "C": -1.0, "DE": 3.0}
    for name, effect in found.items():
        assert effect.value == pytest.approx(wanted.get(name, 0), abs=1e-9)
        assert effect.half == pytest.approx(0, abs=1e-9)


def test_a_three_way_effect_is_seen_as_the_interaction_of_the_other_two():
    found = {effect.name: effect.value for effect in effects(LEVELS, parts_of(A * D * E))}
    assert found["BC"] == pytest.approx(2) and sum(map(abs, found.values())) == pytest.approx(2)


def test_noise_is_pooled_over_repeats():
    values = np.zeros(len(LEVELS))
    for cell, some in (((1, -1, -1, -1, -1), (1, 2, 3)), ((-1, -1, -1, 1, -1), (0, 0, 6))):
        values[np.all(cell == LEVELS, axis=1)] = some
    spread, freedom = noise(LEVELS, values)
    assert freedom == 4 and spread == pytest.approx(np.sqrt((2 + 24) / 4))
    values[(LEVELS == (1, -1, -1, -1, -1)).all(1)] = np.nan
    assert noise(LEVELS, values) == pytest.approx((np.sqrt(12), 2))


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Both sources of error at work: a run's own deviation, and questions that all runs share in part."""
    draws, covered, count = np.random.default_rng(0), 0, 150
    for _ in range(count):
        of_run = draws.normal(0, 1, (len(LEVELS), 1))
        answers = A[:, None] + of_run + 2 * draws.normal(0, 1, (len(LEVELS), 40)) * draws.normal(0, 1, (1, 40))
        covered += sum(abs(e.value - 2 * (e.name == "A")) < e.half for e in effects(LEVELS, [answers]))
    assert 0.94 < covered / (15 * count) < 0.99  # the repeats see a part of the questions' error, so it counts twice


def test_some_runs_alone():
    runs = learnt_design()
    levels = np.array([run.levels for run in runs])
    which = levels[:, 4] > 0
    values = np.where(which, 3.0 * levels[:, 2], np.nan)
    found = {effect.name: effect.value for effect in effects(levels, parts_of(values), which)}
    assert found == pytest.approx({"B": 0, "C": 6, "BC": 0})
    with pytest.raises(AssertionError, match="not orthogonal"):
        effects(levels, parts_of(values), which & (levels[:, 1:3].sum(1) < 2))


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    """Four exams: one along the way before the autoregressive start is over, the start, one more, the last."""
    runs = design()
    draws = np.random.default_rng(0)
    exams, answers = [], {}
    for number, kind in enumerate(("along", "start", "along", "final")):
        found = {}
        for name in ("contrast near", "contrast far", "recall near", "recall far"):
            for masks in (2, 20, 200):
                share = 0.75 if name == "contrast near" and number in (0, 2) else 0.2
                right = draws.random((20, 240)) < 0.5
                answers[f"{number} {name} {masks} right"] = right
                answers[f"{number} {name} {masks} nats"] = np.full((20, 240), number + (name == "contrast far") + 0.5)
                found[f"{name} {masks}"] = {"right": [share] * 19 + [0.95], "nats": [1.0] * 20}
        exams.append({"kind": kind, "tokens": 10, "found": found})
    facts = {
        "masks": [2, 20, 200],
        "device": "CPU",
        "exams": exams,
        "runs": [{"name": run.name, "levels": run.levels, "repeat": run.repeat} for run in runs],
    }
    (tmp_path / "results.json").write_text(json.dumps(facts))
    np.savez(tmp_path / "answers.npz", **answers)
    return Experiment(tmp_path)


def test_matched_accuracy_counts_diffusion_exams_along_the_way_in_the_band(experiment):
    inside = experiment.in_band()
    causal = experiment.levels[:, 3] > 0
    assert not inside[1].any() and not inside[3].any() and not inside[:, 19].any()
    assert (inside[0, :19] == ~causal[:19]).all() and inside[2, :19].all()
    near = values_of(experiment.matched(NEAR))
    wanted = 100 * experiment.answers["2 contrast near 2 right"].mean(1)
    np.testing.assert_allclose(near[causal], wanted[causal])
    assert np.isnan(near[19]) and not np.isnan(near[:19]).any()
    (locality,) = experiment.matched(LOCALITY)
    assert locality.shape == (20, 80)  # three rules a question
    np.testing.assert_allclose(locality[:19], 1.0)


def test_tables_and_figure_show_every_run_and_effect(experiment):
    measured = [(measure, experiment.matched(measure)) for measure in (NEAR, LOCALITY)]
    rows = run_table(experiment, measured).splitlines()
    assert len(rows) == 22 and rows[-1] == "| `+---- 3` |  |  |"
    assert "| DE |" in effect_table(experiment.levels, [(NEAR, experiment.at_end(NEAR))])
    svg = figure(experiment, experiment)
    assert svg.count("<svg") == 1 and "nan" not in svg.lower().replace("nanosecond", "")
