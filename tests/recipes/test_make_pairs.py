"""Pairs for tuning are cut where the answer begins, and keep what is evaluated out."""

import numpy as np

from corpus import Corpus, load_zoo_tokenizer
from make_pairs import ANSWER_WORDS, pairs
from maskwise.tasks.words import load_words, split_words

PROSE = ["It was the best of times, it was the worst of times, " * 40]


def test_pairs_are_cut_before_their_answer():
    made = list(pairs(Corpus(load_zoo_tokenizer(), np.zeros(0, dtype=np.int16)), PROSE, 40, seed=0))
    assert len(made) == 40
    for number, pair in enumerate(made):
        if number % 4 == 3:
            assert pair["prompt"] + pair["answer"] in PROSE[0]
            assert len(pair["answer"].split()) == ANSWER_WORDS
        else:
            assert pair["prompt"].endswith(":[") and pair["answer"].endswith("].")
        if number % 4 in (0, 1):
            assert pair["answer"] in ("A].", "B].", "C].")


def test_few_shot_pairs_hold_no_word_of_the_test_questions():
    made = list(pairs(Corpus(load_zoo_tokenizer(), np.zeros(0, dtype=np.int16)), PROSE, 80, seed=1))
    text = "".join(pair["prompt"] for number, pair in enumerate(made) if number % 4 in (0, 1))
    _, held = split_words(load_words())
    for listed in held.values():
        assert not any(f") {word}," in text or f") {word}\n" in text for word in listed)
