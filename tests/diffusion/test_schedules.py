"""Schedules and the absorbing process, by their laws."""

import itertools
import math

import pytest
import torch

from maskwise.diffusion import (
    Cosine,
    Geometric,
    Linear,
    Polynomial,
    absorb,
    nelbo,
    step_weight,
)

SCHEDULES = [Linear(), Cosine(), Polynomial(0.5), Polynomial(3.0), Geometric()]
MASK = 3


def loss_at_rate(u: torch.Tensor) -> torch.Tensor:
    """E[sum over masked of CE] when each of three tokens is masked with probability u, for an arbitrary model whose
    cross-entropy depends on which tokens are masked: a polynomial in u with no constant term."""
    total = torch.zeros_like(u)
    for masks in itertools.product([0, 1], repeat=3):
        cost = sum((1.3 + place + 0.7 * sum(masks)) for place, masked in enumerate(masks) if masked)
        total += cost * u ** sum(masks) * (1 - u) ** (3 - sum(masks))
    return total


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_alpha_falls_from_one_to_zero_and_the_weight_is_that_of_its_slope(schedule):
    t = torch.linspace(0.01, 0.99, 99, dtype=torch.float64, requires_grad=True)
    alpha = schedule.alpha(t)
    (slope,) = torch.autograd.grad(alpha.sum(), t)
    torch.testing.assert_close(schedule.weight(t), -slope / (1 - alpha), rtol=1e-6, atol=1e-9)
    assert (alpha.diff() < 0).all()
    ends = schedule.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(ends, torch.tensor([1.0, 0.0], dtype=torch.float64), rtol=0, atol=2e-5)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_the_schedule_does_not_change_the_continuous_nelbo(schedule):
    """The midpoint rule over time, on a grid fine where the schedules are steep; the value is that of du/u."""
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    exact = float((loss_at_rate(u) / u).mean())
    edges = torch.linspace(0, 1, 200_001, dtype=torch.float64) ** 3
    t = (edges[1:] + edges[:-1]) / 2
    value = float((schedule.weight(t) * loss_at_rate(1 - schedule.alpha(t)) * edges.diff()).sum())
    assert value == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_finite_steps_bound_the_continuous_nelbo_and_converge_to_it(schedule):
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    exact = float((loss_at_rate(u) / u).mean())

    def value(steps: int) -> float:
        later = torch.arange(1, steps + 1, dtype=torch.float64) / steps
        return float((step_weight(schedule, later - 1 / steps, later) * loss_at_rate(1 - schedule.alpha(later))).sum())

    coarse, finer, finest = value(4), value(64), value(20_000)
    assert coarse > finer > finest > exact - 1e-3
    assert finest == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("steps", [None, 5])
@pytest.mark.parametrize("schedule", [Linear(), Cosine()], ids=repr)
def test_draws_of_the_nelbo_average_to_it(schedule, steps):
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([7, 0, 1, 2])
    draws = []
    for _ in range(4000):
        noised = nelbo(ids, MASK, generator, schedule, start=1, steps=steps)
        assert noised.ids[0] == 7 and (noised.ids[noised.rows] == MASK).all()
        assert torch.equal(torch.where(noised.ids == MASK, ids, noised.ids), ids)
        assert torch.equal(noised.targets, ids[noised.rows])
        ce = 1.3 + (noised.rows - 1) + 0.7 * len(noised.rows)
        draws.append(float((noised.weights * ce).sum()))
    if steps is None:
        u = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
        exact = float((loss_at_rate(u) / u).mean())
    else:
        later = torch.arange(1, steps + 1, dtype=torch.float64) / steps
        weights = step_weight(schedule, later - 1 / steps, later)
        exact = float((weights * loss_at_rate(1 - schedule.alpha(later))).sum())
    values = torch.tensor(draws)
    assert abs(float(values.mean()) - exact) < 4 * float(values.std()) / math.sqrt(len(values))


def test_absorbing_twice_is_absorbing_once_and_masks_never_come_back():
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(40_000) % MASK
    once = absorb(ids, 0.8, MASK, generator)
    twice = absorb(once, 0.5 / 0.8, MASK, generator)
    assert ((twice == MASK) | (twice == ids)).all()
    assert (twice[once == MASK] == MASK).all()
    assert float((twice != MASK).double().mean()) == pytest.approx(0.5, abs=0.01)
