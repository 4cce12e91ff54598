"""The factorial of training choices: its design, its words, and its effects on answers whose truth is known."""

import numpy as np
import pytest
import torch

from corpus import load_zoo_tokenizer
from cure_tables import fieller
from task_accuracy import hidden_states
from training_effects import Runs, effects, seed_table
from training_factorial import NEAREST, SMALL, Course, design, run_named, words_of
from unfamiliar_sets import load_sets

RUNS = [*design("large"), *design("small")]
LEVELS = np.array([run.levels for run in RUNS])


def test_the_design_is_balanced_and_holds_the_cell_nearest_to_llada():
    cells = np.unique(LEVELS, axis=0)
    assert len(cells) == 16 and NEAREST in [tuple(cell) for cell in cells.tolist()]
    assert np.array_equal(cells.T @ cells, 16 * np.eye(6))
    assert len({run.name for run in RUNS}) == len(RUNS) == 21
    assert [run_named(run.name) for run in RUNS] == RUNS


def test_the_forty_kinds_share_no_word_with_each_other_or_the_sets():
    kinds = words_of(1)
    words = [word for listed in kinds.values() for word in listed]
    assert len(kinds) == 40 and len(set(words)) == len(words) == 480
    sets = [*load_sets("I"), *load_sets("II")]
    assert not {*words} & {word for one in sets for word in one.targets + one.others}
    assert not {*kinds} & {kind for one in sets for kind in (one.target, one.other)}


def test_effects_are_those_the_changes_were_made_of():
    """0.3 for A and -0.1 for F, with a different base in every set; repeats count once."""
    base = np.linspace(-1, 1, 12)[:, None] + np.zeros((12, 4))
    changes = [base + 0.15 * levels[0] - 0.05 * levels[5] for levels in LEVELS]
    found = effects(Runs([run.name for run in RUNS], LEVELS, [], []), changes)
    assert [one.value for one in found] == pytest.approx([0.3, 0, 0, 0, 0, -0.1], abs=1e-9)
    assert found[0].shown and found[5].shown
    assert found[0].over_runs == pytest.approx((0.3, 0.3), abs=1e-9)


def test_seeds_of_one_cell_have_their_changes_over_sets_and_over_seeds():
    few = np.zeros((12, 4, 3))
    changes = (-1.0, -2.0, -3.0)
    answers = [{"sets|masks 2": few, "sets|masks 200": few + one, "sets|numbers": few - 0.5} for one in changes]
    table = seed_table(Runs(["a", "b", "c"], np.array([NEAREST] * 3), [], answers)).splitlines()
    assert table[3] == "| b | -2.000 (-2.000 to -2.000) | -0.500 (-0.500 to -0.500) | -1.500 (-1.500 to -1.500) |"
    assert table[-1].startswith("| over seeds | -2.000 (-4.484 to 0.484) | -0.500")


def test_the_interval_of_a_ratio_holds_it_and_widens_where_the_lower_mean_may_be_zero():
    draws = np.random.default_rng(0)
    loss = draws.normal(0.5, 0.1, 24)
    share, low, high = fieller(0.9 * loss + draws.normal(0, 0.02, 24), loss)
    assert low < 0.9 < high and high - low < 0.1 and low < share < high
    assert fieller(loss, draws.normal(0, 1, 24))[1:] == (-np.inf, np.inf)


@pytest.mark.slow
def test_a_runs_network_is_that_of_the_stack_after_training():
    english = np.random.default_rng(0).integers(5, 500, 4000).astype(np.int16)
    course = Course("small", design("small"), english, SMALL, toy=True, seed=0)
    for step, progress in enumerate((0.1, 0.6)):  # causal and masked
        course.learn(step, progress)
    course.check()
    ids = torch.arange(40).view(2, 20) + len(load_zoo_tokenizer()) // 2
    together = course.stack.hidden(ids.expand(len(course.runs), -1, -1))
    for number in (0, len(course.runs) - 1):
        alone = hidden_states(course.net(number), ids, causal=False)
        assert torch.allclose(together[number], alone, atol=1e-5)
