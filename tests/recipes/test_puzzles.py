"""The puzzles recipe: its lines are right, and a perfect model lands on its closed forms."""

import random

import pandas as pd
import pytest
import torch

from closed_forms import equivalence
from helpers.oracle import oracle
from maskwise.probes.library.coherence import ITEMS
from maskwise.tasks.word_puzzles import NAMES, ideal_marginals, make_puzzle
from puzzles import MASK, SEPARATOR, START, WORDS, answers_of, by_closed_form, draw_line, table_lines, train


def perfect():
    """Reads the task off the line and knows the marginals of its answer."""

    def marginals(sequence):
        name, other, items = NAMES[sequence[0] - WORDS], sequence[1], sequence[2 : 2 + ITEMS]
        seen = [None if token == MASK else token for token in sequence[START:]]
        p = ideal_marginals(make_puzzle(name, items, other), seen, MASK + 1)
        return torch.cat([p[[0] * START], p])

    return oracle(marginals, MASK + 1, MASK)


@pytest.mark.parametrize("name", NAMES)
def test_a_line_holds_one_of_its_right_answers(name):
    line, asked = draw_line(name, random.Random(3))
    assert line[:START] == list(asked.ids[:START]) and line[START - 1] == SEPARATOR
    assert asked.puzzle.solved_by(line[START:]) and set(asked.ids[START:]) == {MASK}


def test_a_perfect_model_lands_on_the_closed_forms():
    model = perfect()
    answers = [
        answer
        for name in NAMES
        for tokens in (1, 2, 4)
        for answer in answers_of(model, name, "random", tokens, 60, seed=0)
    ]
    rows = by_closed_form(pd.DataFrame(answers))
    assert [(row["puzzle"], row["tokens a step"]) for row in rows] == [(name, k) for name in NAMES for k in (1, 2, 4)]
    for row in rows:
        spread = (row["closed form"] * (1 - row["closed form"]) / row["n"]) ** 0.5
        assert row["solved"] == pytest.approx(row["closed form"], abs=4 * spread + 1e-9)
        assert row["n"] == 60
    assert "| copy | 1 | 100.0 % | 94.0 to 100.0 % | 100.0 % | inconclusive |" in table_lines(rows)


def test_training_lowers_the_loss_of_new_lines():
    lines = random.Random(9)
    asked = [draw_line("copy", lines)[0] for _ in range(20)]

    def surprise(model):
        canvases = [[*line[:START], *[MASK] * ITEMS] for line in asked]
        logits = model.predict(canvases, [range(START, START + ITEMS)] * len(canvases))
        p = torch.stack(logits).log_softmax(dim=-1)
        return -float(p.gather(-1, torch.tensor([line[START:] for line in asked])[..., None]).mean())

    assert surprise(train(40, 16, seed=0)) < surprise(train(1, 16, seed=0)) - 0.3


def test_equality_with_a_closed_form_needs_an_interval_within_the_margin():
    """An interval that contains the closed form but reaches beyond the margin decides nothing."""
    assert equivalence(0.39, 0.44, 0.42, 0.05) == "holds"
    assert equivalence(0.10, 0.90, 0.42, 0.05) == "inconclusive"  # contains it, and says nothing
    assert equivalence(0.45, 0.60, 0.42, 0.05) == "inconclusive"
    assert equivalence(0.48, 0.60, 0.42, 0.05) == "rejected"
    assert equivalence(0.45, 0.46, 0.42, 0.05) == "holds"  # next to it, but equal up to the margin
    assert equivalence(None, None, 0.42, 0.05) == "inconclusive"
