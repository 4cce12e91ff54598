"""Advise on a model with perfect marginals, by enumeration: speed is free for copy and ruinous for shuffle."""

import pytest
import torch

from advise_puzzles import advise_on, draw_questions, is_right, word_tokenizer
from helpers.oracle import oracle
from maskwise.probes.paces import ITEMS
from maskwise.tasks.word_puzzles import NAMES, ideal_marginals, make_puzzle
from puzzles import MASK, START, WORDS


def perfect():
    """Reads the task off the line and knows the marginals of its answer."""

    def marginals(sequence):
        name, other, items = NAMES[sequence[0] - WORDS], sequence[1], sequence[2 : 2 + ITEMS]
        seen = [None if token == MASK else token for token in sequence[START:]]
        p = ideal_marginals(make_puzzle(name, items, other), seen, MASK + 1)
        return torch.cat([p[[0] * START], p])

    model = oracle(marginals, MASK + 1, MASK)
    model.tokenizer = word_tokenizer()
    return model


def test_lines_are_text_whose_answers_are_right():
    for name in ("copy", "shuffle"):
        (question,) = draw_questions(name, 1, seed=3)
        ids = word_tokenizer()(question["prompt"])["input_ids"]
        assert len(ids) == START and ids[0] == WORDS + NAMES.index(name)
        assert is_right(name, question["answer"], question["answer"])
        assert not is_right(name, " ".join(question["answer"].split()[:1] * ITEMS), question["answer"])


@pytest.mark.slow
def test_speed_is_free_for_copy_and_ruinous_for_shuffle(tmp_path):
    model = perfect()
    copy, shuffle = (advise_on(model, name, 36, tmp_path) for name in ("copy", "shuffle"))
    assert copy["all_equal"] and not copy["advice"] and "Not enough questions" in copy["sentence"]
    assert copy["confirmed"][0]["passes"] == 1 and copy["confirmed"][0]["quality"]["mean"] == 1
    # One token per step is right; the likeliest of four equal marginals in one step are one word four times.
    assert not shuffle["all_equal"] and shuffle["winner"] is None
    best = max(shuffle["confirmed"], key=lambda row: row["quality"]["mean"])
    assert best["quality"]["mean"] == 1 and best["passes"] == ITEMS
    beaten = [row for row in shuffle["confirmed"] if row["passes"] < ITEMS]
    assert beaten and all(row["to_reference"]["high"] < -0.5 for row in beaten if row["passes"] == 1)
