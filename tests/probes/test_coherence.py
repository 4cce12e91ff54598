"""The coherence probe: perfect models reach the closed forms through the real decoder; what speed costs by hand."""

from dataclasses import replace

import pandas as pd
import pytest

from closed_forms import closed_form
from helpers.known import shipped_tokenizer
from helpers.oracle import oracle
from maskwise.decoding.strategies import STRATEGIES
from maskwise.probes.answers.puzzles import ideal, solve
from maskwise.probes.library.coherence import areas, aup, draw_puzzles, metrics, random_order, speeds
from maskwise.probes.paces import ITEMS, Pace, paces
from maskwise.scoring.intervals import none_seen
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import NAMES, ideal_marginals
from maskwise.tasks.words import load_words

TOKENIZER = shipped_tokenizer()
MASK = TOKENIZER.mask_token_id
POINTS = 50
NAMED = {strategy.name for strategy in STRATEGIES}


def perfect_solver(puzzles):
    """A model that recognises each puzzle by its prompt and returns the exact marginals of the answer line."""
    known = {asked.ids[:-ITEMS]: asked.puzzle for asked in puzzles}

    def marginals(sequence):
        puzzle = known[tuple(sequence[:-ITEMS])]
        p = ideal_marginals(puzzle, [None if t == MASK else t for t in sequence[-ITEMS:]], len(TOKENIZER))
        return p[[0] * (len(sequence) - ITEMS) + list(range(ITEMS))]

    return oracle(marginals, len(TOKENIZER), MASK)


def prompts_of(puzzles):
    return [Prompt(one.ids, len(one.ids) - ITEMS, one.puzzle.items[0], ITEMS) for one in puzzles]


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
    answers = solve(perfect_solver(puzzles), prompts_of(puzzles), name, pace, puzzles, seed=0)
    accuracy, speed = ideal(name, pace)
    accuracy = min(1.0, accuracy)  # sums of probabilities may pass one by a rounding
    share = sum(answer.written.right for answer in answers) / points
    assert share == pytest.approx(accuracy, abs=4 * (accuracy * (1 - accuracy) / points) ** 0.5 + 1e-6)
    mean = points * ITEMS / sum(ITEMS / answer.evidence["tokens_per_pass"] for answer in answers)
    assert mean == pytest.approx(speed, rel=0.05)


@pytest.mark.parametrize("pace", [Pace("random", 2), Pace("threshold", None, {"tau": 0.5}), Pace("remdm", 4)])
def test_a_puzzle_is_solved_alike_alone_and_among_others(pace):
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), 6, seed=0)["replace"]
    prompts = prompts_of(puzzles)
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


def test_puzzles_do_not_repeat():
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), 5, seed=1)
    assert all(len({asked.ids for asked in puzzles[name]}) == 5 for name in NAMES)


def test_area_under_the_curve_by_hand():
    assert aup([(1, 1.0), (4, 1.0)], 4) == 1
    assert aup([(1, 1.0), (2, 0.5), (4, 0.0)], 4) == pytest.approx((0.75 + 0.5) / 3)
    assert aup([(2, 0.6), (2, 0.4)], 4) == pytest.approx(0.6 / 3)  # level to the left, nothing to the right
    assert aup([(4, 1.0)], 4) == 1


def table(solved, points=POINTS, rules=("random", "entropy")):
    """`solved`: puzzle -> the share of the puzzles solved at 1 and at 4 tokens a step."""
    rows = [
        {"task": puzzle, "point": point, "puzzle": puzzle, "rule": rule, "speed": f"{speed} a step"}
        | {"correct": point < POINTS * share, "tokens_per_pass": speed, "ideal_speed": speed, "ideal": 1 / speed}
        for puzzle, shares in solved.items()
        for speed, share in zip((1, 4), shares, strict=True)
        for rule in rules
        for point in range(points)
    ]
    return pd.DataFrame(rows)


def cost_of(puzzle, found):
    return next(one for one in metrics(found, {}) if one.name.startswith(f"change of {puzzle} "))


def test_speed_costs_what_is_coupled_and_is_undecided_without_skill():
    drawn = table({"copy": (0.1, 0)}, rules=("threshold",))  # looks at what was drawn: does not count
    found = pd.concat([drawn, table({"copy": (1, 1), "replace": (0.9, 0.4), "shuffle": (0.1, 0)})])
    verdicts = {puzzle: cost_of(puzzle, found).verdict for puzzle in NAMES}
    assert verdicts == {"copy": "holds", "replace": "holds", "shuffle": "undecided"}
    assert cost_of("replace", found).value == pytest.approx(-0.5) and cost_of("shuffle", found).why
    lost = table({"copy": (1, 0.4), "replace": (0.9, 0.9)})
    assert cost_of("copy", lost).verdict == "does not hold"
    assert cost_of("replace", lost).verdict == "undecided"  # none differed, and of 50 up to 7 % may


def test_a_handful_of_equal_puzzles_proves_nothing_and_one_pace_alone_is_no_change():
    few = cost_of("copy", table({"copy": (1, 1)}, points=6))
    assert few.verdict == "undecided" and -few.low == few.high == pytest.approx(none_seen(6))
    whole = table({"copy": (1, 1)})
    assert metrics(whole[whole.speed == "1 a step"], {}) == []


def test_speeds_and_areas_are_those_of_the_answers():
    found = table({"copy": (1.0, 0.5)}, rules=("random",))
    found.loc[found.point < POINTS / 2, "tokens_per_pass"] *= 2  # twice as fast on half: 4/3, as passes
    listed = speeds(found, {}).set_index("speed")
    assert listed.tokens_per_pass.to_dict() == pytest.approx({"1 a step": 4 / 3, "4 a step": 16 / 3})
    assert (listed.tokens_per_pass_low < listed.tokens_per_pass).all() and listed.n.eq(POINTS).all()
    (area,) = areas(table({"copy": (1.0, 0.5)}, rules=("random",)), {}).to_dict("records")
    assert area["value"] == pytest.approx(aup([(1, 1.0), (4, 0.5)])) and area["n"] == POINTS
    assert area["ideal"] == pytest.approx(aup([(1, 1.0), (4, 0.25)]))
    drawn = random_order(found, {}).set_index(["puzzle", "speed"]).value
    assert drawn["copy, perfect", "4 a step"] == 0.25 and drawn["copy", "4 a step"] == 0.5
    older = random_order(found.drop(columns=["tokens_per_pass", "ideal", "ideal_speed"]), {})
    assert older.value.notna().any() and older.tokens_per_pass.isna().all()  # not all records hold these
