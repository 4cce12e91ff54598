"""The coherence probe: perfect models reach the closed forms through the real decoder; what speed costs by hand."""

import pandas as pd
import pytest

from closed_forms import closed_form
from helpers.known import shipped_tokenizer
from helpers.oracle import oracle
from maskwise.decoding.exact import outcomes
from maskwise.probes.answers.decoded import solve
from maskwise.probes.library.coherence import BLIND, ITEMS, PERFECT, SPEEDS, by_rule, by_speed, draw_puzzles, metrics
from maskwise.scoring.intervals import none_seen
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import NAMES, ideal_marginals, make_puzzle
from maskwise.tasks.words import load_words

TOKENIZER = shipped_tokenizer()
MASK = TOKENIZER.mask_token_id
POINTS = 50


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


def perfect(name, tokens):
    return PERFECT[name][[*SPEEDS.values()].index(tokens)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rule", "tokens"), [("random", 2), ("entropy", 4)])
def test_the_probe_measures_a_perfect_model_at_its_closed_form(name, rule, tokens):
    points = 120
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), points, seed=0)[name]
    answers = solve(perfect_solver(puzzles), prompts_of(puzzles), rule, tokens, puzzles, seed=0)
    accuracy = perfect(name, tokens)
    share = sum(answer.written.right for answer in answers) / points
    assert share == pytest.approx(accuracy, abs=4 * (accuracy * (1 - accuracy) / points) ** 0.5 + 1e-6)


@pytest.mark.parametrize(("rule", "tokens"), [("random", 2), ("low-confidence", 4), ("remdm", 1)])
def test_a_puzzle_is_solved_alike_alone_and_among_others(rule, tokens):
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), 6, seed=0)["replace"]
    prompts = prompts_of(puzzles)
    model = perfect_solver(puzzles)
    together = solve(model, prompts, rule, tokens, puzzles, seed=3)
    assert together == [solve(model, [prompt], rule, tokens, puzzles, seed=3)[0] for prompt in prompts]
    other_seeds = [solve(model, prompts, rule, tokens, puzzles, seed=seed) for seed in range(4)]
    assert any([a.written for a in other] != [a.written for a in together] for other in other_seeds)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", SPEEDS.values())
def test_perfect_is_the_closed_form_and_what_enumeration_gives_under_every_blind_strategy(name, tokens):
    expected = closed_form(name, [tokens] * (ITEMS // tokens))
    assert perfect(name, tokens) == pytest.approx(expected)
    puzzle, mask = make_puzzle(name, range(ITEMS), ITEMS), ITEMS + 1

    def predict(canvases):
        seen = [[None if token == mask else token for token in canvas] for canvas in canvases]
        return [ideal_marginals(puzzle, visible, mask + 1).log() for visible in seen]

    for rule in BLIND:
        found = outcomes(predict, (mask,) * ITEMS, mask, rule, ITEMS // tokens)
        solved = sum(chance for canvas, chance in found.probability.items() if puzzle.solved_by(canvas))
        assert solved == pytest.approx(expected, abs=1e-6)


def test_puzzles_do_not_repeat():
    puzzles = draw_puzzles(TOKENIZER, MASK, load_words(), 5, seed=1)
    assert all(len({asked.ids for asked in puzzles[name]}) == 5 for name in NAMES)


def table(solved, points=POINTS, rules=("random", "entropy")):
    """`solved`: puzzle -> the share of the puzzles solved at 1 and at 4 tokens a step."""
    rows = [
        {"task": puzzle, "point": point, "puzzle": puzzle, "rule": rule, "speed": f"{speed} a step"}
        | {"correct": float(point < POINTS * share)}
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


def test_figures_are_of_the_answers_and_of_perfect_marginals():
    found = table({"copy": (1.0, 0.5), "shuffle": (0.8, 0.1)})
    older = table({"copy": (1.0, 0.5)}, rules=("threshold",)).assign(speed="tau 0.9")  # 0.2 asked it too
    drawn = by_speed(pd.concat([found, older]), {}).set_index(["puzzle", "tokens"]).value
    assert drawn["copy", 4] == 0.5 and drawn["shuffle, perfect", 4] == 3 / 32 and drawn["shuffle, perfect", 2] == 3 / 8
    of_rules = by_rule(pd.concat([found, older]), {}).set_index(["puzzle", "rule", "speed"]).value
    assert of_rules["shuffle", "entropy", "1 a step"] == 0.8 and set(of_rules.index.levels[1]) == {"random", "entropy"}
