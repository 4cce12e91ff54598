"""The smallest detectable difference is the one that a run's own interval finds in 80 % of simulated runs."""

import numpy as np
import pytest

from maskwise.scoring.intervals import difference_interval
from maskwise.scoring.power import Z_LEVEL, Z_POWER, questions_for, smallest_detectable


@pytest.mark.parametrize(("questions", "discordance"), [(300, 0.3), (300, 0.1), (1600, 0.1), (1600, 0.3)])
def test_a_difference_of_this_size_is_detected_in_80_per_cent_of_runs(questions, discordance):
    difference = smallest_detectable(questions, discordance)
    lost, gained = (discordance + difference) / 2, (discordance - difference) / 2
    draws, tasks = np.random.default_rng(0), 5
    counts = np.full(tasks, questions / tasks)
    changes = draws.multinomial(questions // tasks, [lost, gained, 1 - discordance], size=(4000, tasks))
    shares = changes / counts[0]
    _, _, high = difference_interval(shares[..., 1], shares[..., 0], counts)
    assert 0.77 < np.mean(high < 0) < 0.84


def test_it_solves_the_equation_and_never_exceeds_the_answers_that_change():
    found = smallest_detectable(300, 0.3)
    assert found * np.sqrt(300) == pytest.approx(Z_LEVEL * np.sqrt(0.3) + Z_POWER * np.sqrt(0.3 - found**2))
    few = smallest_detectable(20, 0.1)  # even if all changes go one way, 10 % of 20 answers are too few
    assert few > 0.1 and few == smallest_detectable(20, few - 1e-9) == pytest.approx(smallest_detectable(20, few))
    assert smallest_detectable(1, 0.3) == 1.0


@pytest.mark.parametrize("discordance", [0.05, 0.1, 0.3])
def test_so_many_questions_and_no_fewer_show_a_change(discordance):
    needed = questions_for(0.05, discordance)
    assert (
        smallest_detectable(needed, discordance) <= 0.05 + 1e-6 and smallest_detectable(needed - 2, discordance) > 0.05
    )
    assert questions_for(0.05, discordance, tests=6) > needed
