"""Exact outcomes of decoding rules, against closed forms and against the real decoder's samples."""

import math

import pytest
import torch

from closed_forms import closed_form
from helpers.oracle import oracle
from maskwise.decoding.exact import outcomes
from maskwise.decoding.generate import generate
from maskwise.decoding.strategies import STRATEGIES, find_strategy
from maskwise.support.errors import UserError
from maskwise.tasks.word_puzzles import NAMES, ideal_marginals, make_puzzle

N, OTHER, MASK = 3, 3, 4  # items 0..2, the replacement, the mask
CANVAS = (MASK,) * N
BLIND = ("random", "margin", "entropy", "left-to-right", "dream-topk-margin", "dream-entropy")


def perfect(name):
    puzzle = make_puzzle(name, range(N), OTHER)

    def marginals(sequence):
        return ideal_marginals(puzzle, [None if token == MASK else token for token in sequence], MASK + 1)

    return puzzle, marginals


def solved(name, rule, steps=None):
    puzzle, marginals = perfect(name)
    found = outcomes(lambda canvases: [marginals(c).log() for c in canvases], CANVAS, MASK, rule, steps)
    assert sum(found.probability.values()) == pytest.approx(1, abs=1e-9)
    return sum(p for canvas, p in found.probability.items() if puzzle.solved_by(canvas)), found.forwards


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", BLIND)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_rules_that_do_not_look_at_the_drawn_token_reach_the_closed_form(name, rule, steps):
    found = find_strategy(rule)
    parameters = found.complete(None)
    chance, forwards = solved(name, rule, steps)
    assert chance == pytest.approx(closed_form(name, found.counts(N, steps, parameters)), abs=1e-6)
    assert forwards == pytest.approx(steps)


def confident_replacement(counts):
    """`replace` under low confidence, which sees the drawn tokens: kept items (1 - 1/r) go before replaced ones (1/r).

    Of r proposals K ~ Bin(r, 1/r) replace their item; of these max(0, K - (r - c)) are among the c committed (r > 2;
    at r = 2 both tokens are equally probable and the choice does not depend on them).
    """
    solved, still_open, left = 0.0, 1.0, sum(counts)
    for count in counts:
        if left <= 2:
            return solved + still_open * closed_form("replace", [count] + [1] * (left - count))
        spare = left - count
        solved += still_open * binomial(left, spare + 1)
        still_open *= sum(binomial(left, k) for k in range(spare + 1))
        left = spare
    return solved


def binomial(n, k):
    """P(Bin(n, 1/n) = k)."""
    return math.comb(n, k) * (1 / n) ** k * (1 - 1 / n) ** (n - k)


@pytest.mark.parametrize("counts", [(3,), (2, 1), (1, 1, 1)])
def test_confidence_looks_at_the_drawn_token_and_has_its_own_closed_form(counts):
    assert solved("replace", "low-confidence", len(counts))[0] == pytest.approx(confident_replacement(counts), abs=1e-6)


def test_a_temperature_of_the_order_is_refused():
    with pytest.raises(UserError, match="alg_temp"):
        outcomes(
            lambda canvases: [torch.zeros(N, MASK + 1)] * len(canvases),
            CANVAS,
            MASK,
            "dream-entropy",
            2,
            {"alg_temp": 0.5},
        )


@pytest.mark.parametrize("rule", ["threshold", "factor", "entropy-bound", "klass"])
def test_careful_rules_solve_everything_and_copy_in_few_passes(rule):
    for name in NAMES:
        chance, forwards = solved(name, rule)
        assert chance == pytest.approx(1, abs=1e-6)
        assert forwards <= N
    copying = solved("copy", rule)[1]
    assert copying == pytest.approx(
        3 if rule == "klass" else 1
    )  # KLASS waits until a prediction has stood still for two steps


def test_coins_of_two_steps_are_a_binomial():
    """dream-origin: each mask goes in the first of two steps with probability 1 - s/t = .4995, else in the second."""
    q = 1 - 0.5005
    binomial = [(1 - q) ** 3, 3 * q * (1 - q) ** 2, 3 * q**2 * (1 - q), q**3]
    expected = sum(p * closed_form("shuffle", [first, N - first]) for first, p in enumerate(binomial))
    assert solved("shuffle", "dream-origin", 2)[0] == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("rule", [strategy.name for strategy in STRATEGIES])
def test_the_real_decoder_draws_from_the_exact_outcomes(rule):
    """Every rule on replace: the share of solved puzzles among 600 decodings, within four standard errors."""
    puzzle, marginals = perfect("replace")
    model = oracle(marginals, MASK + 1, MASK)
    steps = None if find_strategy(rule).adaptive else 2
    exact, forwards = solved("replace", rule, steps)
    written = generate(
        model,
        [list(CANVAS)] * 600,
        0,
        steps=steps,
        rule=rule,
        temperature=1.0,
        generator=torch.Generator().manual_seed(1),
    )
    share = sum(puzzle.solved_by(one.ids) for one in written) / 600
    assert share == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 600) ** 0.5 + 1e-3)
    spread = torch.tensor([float(one.forwards) for one in written]).std().item()
    assert sum(one.forwards for one in written) / 600 == pytest.approx(forwards, abs=4 * spread / 600**0.5 + 1e-3)
