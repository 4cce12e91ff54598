"""The coherence tasks: what parallel decoding can solve is known in closed form."""

import math
from itertools import product

import pytest
import torch

from closed_forms import closed_form
from helpers.known import shipped_tokenizer
from maskwise.support.errors import UserError
from maskwise.tasks.word_puzzles import NAMES, ask, ideal_marginals, make_puzzle, one_token_words
from maskwise.tasks.words import load_words


def brute_force(name, counts):
    """Walks every draw of every step, from left to right."""
    n = sum(counts)
    puzzle = make_puzzle(name, range(n), n)

    def solved(visible, counts):
        if not counts:
            return float(puzzle.solved_by(visible))
        p = ideal_marginals(puzzle, [*visible, *[None] * (n - len(visible))], n + 1)
        rows = range(len(visible), len(visible) + counts[0])
        total = 0.0
        for drawn in product(range(n + 1), repeat=counts[0]):
            chance = math.prod(float(p[row, token]) for row, token in zip(rows, drawn, strict=True))
            total += chance * solved([*visible, *drawn], counts[1:]) if chance else 0.0
        return total

    return solved([], list(counts))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (2, 2), (4,), (3, 1), (1, 3), (2, 1, 1), (0, 2, 2)])
def test_the_closed_form_is_what_drawing_from_the_marginals_gives(name, counts):
    assert closed_form(name, counts) == pytest.approx(brute_force(name, counts), abs=1e-12)


@pytest.mark.parametrize("n", [2, 4, 6, 8])
def test_the_published_formulas(n):
    def double_factorial(k):
        return math.prod(range(k, 0, -2))

    assert closed_form("shuffle", [n]) == pytest.approx(math.factorial(n) / n**n)
    assert closed_form("shuffle", [2] * (n // 2)) == pytest.approx(double_factorial(n - 1) / double_factorial(n))
    assert closed_form("replace", [n]) == pytest.approx((1 - 1 / n) ** (n - 1))
    for name in NAMES:
        assert closed_form(name, [1] * n) == pytest.approx(1)  # one token at a time is exact
    assert closed_form("copy", [n]) == 1


def test_one_step_replacement_tends_to_one_over_e():
    assert closed_form("replace", [100_000]) == pytest.approx(1 / math.e, abs=1e-5)


def test_the_marginals_count_the_answers_that_agree():
    shuffle = make_puzzle("shuffle", (3, 5, 7))
    p = ideal_marginals(shuffle, (5, None, None), 9)
    assert p[0, 5] == 1 and p[1, 3] == p[1, 7] == p[2, 3] == 0.5 and p[1, 5] == 0
    replaced = ideal_marginals(make_puzzle("replace", (3, 5, 7), 8), (3, None, None), 9)
    assert torch.equal(replaced[1, [5, 8]], torch.tensor([0.5, 0.5], dtype=torch.float64))
    lost = ideal_marginals(shuffle, (5, 5, None), 9)
    assert torch.allclose(lost, torch.full_like(lost, 1 / 9))


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_masks_exactly_the_answer_line(name):
    tokenizer = shipped_tokenizer()
    words = one_token_words(tokenizer, sorted(word for listed in load_words().values() for word in listed))
    asked = ask(tokenizer, tokenizer.mask_token_id, name, 4, words, seed=3)
    assert asked.ids[-4:] == (tokenizer.mask_token_id,) * 4 and tokenizer.mask_token_id not in asked.ids[:-4]
    lines = tokenizer.decode(asked.ids[:-4]).split("\n")
    items = lines[-2].split(":")[1].split()
    assert [f" {item}" for item in items] == [tokenizer.decode([token]) for token in asked.puzzle.items]
    for given, answered in zip(lines[::3][:-1], lines[1::3], strict=False):
        other = given.split(":")[0].split()[-1]
        example = make_puzzle(name, given.split(":")[1].split(), other)
        assert example.solved_by(answered.split(":")[1].split())
    assert ask(tokenizer, tokenizer.mask_token_id, name, 4, words, seed=3) == asked
    assert ask(tokenizer, tokenizer.mask_token_id, name, 4, words, seed=4) != asked


def test_bad_requests_are_refused_in_one_line():
    with pytest.raises(UserError, match="unknown coherence task 'sort'"):
        make_puzzle("sort", (1, 2))
    with pytest.raises(UserError, match="1 words are one token"):
        ask(shipped_tokenizer(), 0, "copy", 4, ["red"], 0)
