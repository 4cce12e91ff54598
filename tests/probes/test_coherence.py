"""The coherence probe: perfect models reach the closed forms through the real decoder; AUP by hand."""

from dataclasses import replace

import pytest

from closed_forms import closed_form
from helpers.known import shipped_tokenizer
from helpers.oracle import oracle
from maskwise.decoding.strategies import STRATEGIES
from maskwise.probes.answers.puzzles import ideal, solve
from maskwise.probes.library.coherence import aup, draw_puzzles, puzzle_items
from maskwise.probes.paces import ITEMS, Pace, paces
from maskwise.tasks.word_puzzles import NAMES, ideal_marginals
from maskwise.tasks.words import load_words

TOKENIZER = shipped_tokenizer()
MASK = TOKENIZER.mask_token_id
NAMED = {strategy.name for strategy in STRATEGIES}


def perfect_solver(puzzles):
    """A model that recognises each puzzle by its prompt and returns the exact marginals of the answer line."""
    known = {asked.ids[:-ITEMS]: asked.puzzle for asked in puzzles}

    def marginals(sequence):
        puzzle = known[tuple(sequence[:-ITEMS])]
        p = ideal_marginals(puzzle, [None if t == MASK else t for t in sequence[-ITEMS:]], len(TOKENIZER))
        return p[[0] * (len(sequence) - ITEMS) + list(range(ITEMS))]

    return oracle(marginals, len(TOKENIZER), MASK)


def test_no_pace_hangs_on_rounding():
    """What perfect marginals reach is the same a hair to either side of each parameter."""
    for pace in paces():
        for name, value in (pace.parameters or {}).items():
            for puzzle in NAMES:
                nearby = [ideal(puzzle, replace(pace, parameters={name: value * (1 + hair)})) for hair in (-1e-4, 1e-4)]
                assert nearby == [pytest.approx(ideal(puzzle, pace))] * 2, pace


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pace", [Pace("random", 2), Pace("low-confidence", 1), Pace("threshold", None, {"tau": 0.9})])
def test_the_probe_measures_a_perfect_model_at_its_ideal(name, pace):
    points = 120
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), points, seed=0)[name]
    items = list(puzzle_items(TOKENIZER, name, puzzles, pace)(range(points), set()))
    answers = solve(perfect_solver(puzzles), [item.prompt for item in items], name, pace, puzzles, seed=0)
    accuracy, speed = ideal(name, pace)
    accuracy = min(1.0, accuracy)  # sums of probabilities may pass one by a rounding
    share = sum(answer.written.right for answer in answers) / points
    assert share == pytest.approx(accuracy, abs=4 * (accuracy * (1 - accuracy) / points) ** 0.5 + 1e-6)
    mean = points * ITEMS / sum(ITEMS / answer.evidence["tokens_per_pass"] for answer in answers)
    assert mean == pytest.approx(speed, rel=0.05)


@pytest.mark.parametrize("pace", [Pace("random", 2), Pace("threshold", None, {"tau": 0.5}), Pace("remdm", 4)])
def test_a_puzzle_is_solved_alike_alone_and_among_others(pace):
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), 6, seed=0)["replace"]
    prompts = [item.prompt for item in puzzle_items(TOKENIZER, "replace", puzzles, pace)(range(6), set())]
    model = perfect_solver(puzzles)
    together = solve(model, prompts, "replace", pace, puzzles, seed=3)
    assert together == [solve(model, [prompt], "replace", pace, puzzles, seed=3)[0] for prompt in prompts]
    other_seeds = [solve(model, prompts, "replace", pace, puzzles, seed=seed) for seed in range(4)]
    assert any([a.written for a in other] != [a.written for a in together] for other in other_seeds)


def test_the_ideal_is_the_closed_form():
    for name in NAMES:
        for steps in (1, 2, 4):
            expected = closed_form(name, [ITEMS // steps] * steps)
            assert ideal(name, Pace("left-to-right", steps))[0] == pytest.approx(expected, abs=1e-6)


def test_every_rule_is_asked_at_more_than_one_speed():
    asked = [pace.rule for pace in paces()]
    assert set(asked) == NAMED and all(asked.count(rule) > 1 for rule in NAMED)
    conditions = [tuple(pace.condition.values()) for pace in paces()]
    assert len(set(conditions)) == len(conditions)


def test_puzzles_do_not_repeat_and_finished_ones_are_not_asked_again():
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), 5, seed=1)["shuffle"]
    assert len({asked.ids for asked in puzzles}) == 5
    items = list(puzzle_items(TOKENIZER, "shuffle", puzzles, Pace("random", 4))(range(5), set()))
    again = list(puzzle_items(TOKENIZER, "shuffle", puzzles, Pace("random", 4))(range(5), {items[2].key}))
    assert again == items[:2] + items[3:]


def test_area_under_the_curve_by_hand():
    assert aup([(1, 1.0), (4, 1.0)], 4) == 1
    assert aup([(1, 1.0), (2, 0.5), (4, 0.0)], 4) == pytest.approx((0.75 + 0.5) / 3)
    assert aup([(2, 0.6), (2, 0.4)], 4) == pytest.approx(0.6 / 3)  # level to the left, nothing to the right
    assert aup([(4, 1.0)], 4) == 1
