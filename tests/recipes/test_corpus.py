"""The documents are what their text says, and keep what is evaluated out."""

import re
from itertools import product

import numpy as np
import pytest

from corpus import ANSWER, Corpus, Mix, load_zoo_tokenizer
from corpus_recall import FORMS
from corpus_rules import NUMBER_RULES, number_options, rule_key, training_rules
from maskwise.tasks.rules import WORD_RULES
from maskwise.tasks.words import load_words, split_words

TOKENIZER = load_zoo_tokenizer()
CORPUS = Corpus(TOKENIZER, np.full(5000, TOKENIZER.encode(" the")[0], dtype=np.int16))
QUESTION = re.compile(r"Options: \(A\) (.+?), \(B\) (.+?), \(C\) (.+?)\nAnswer:\[([ABC])\]\.\n\n")
MIXES = {
    "few-shot": Mix(1, 0, 0, 0),
    "kinds": Mix(0, 1, 0, 0),
    "recall": Mix(0, 0, 1, 0),
    "other": Mix(0, 0, 0, 1),
    "prose": Mix(0, 0, 0, 0),
}


def some_rows(mix: Mix, seed: int = 0, count: int = 24, length: int = 512) -> np.ndarray:
    return CORPUS.rows(count, length, mix, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", ["few_shot", "_kind_documents", "_recall_documents", "_other_documents"])
def test_pieces_laid_end_to_end_are_the_tokens_of_the_text(kind):
    draws = np.random.default_rng(1)
    if kind == "few_shot":
        pieces = CORPUS.few_shot(np.array([3, 50, 7]), 3, draws).ravel()
    else:
        pieces = getattr(CORPUS, kind)(2000, *[20] * (kind == "_recall_documents"), draws)
    assert (CORPUS.pieces.lay(pieces) & (ANSWER - 1)).tolist() == TOKENIZER.encode(CORPUS.pieces.text(pieces))


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_rows_have_their_shape_and_valid_tokens(mix):
    rows = some_rows(mix)
    assert rows.shape == (24, 512) and rows.dtype == np.int16
    assert (rows & (ANSWER - 1)).max() < len(TOKENIZER)
    assert TOKENIZER.mask_token_id not in rows & (ANSWER - 1)
    assert (some_rows(mix) == rows).all()
    assert mix == MIXES["prose"] or (some_rows(mix, seed=1) != rows).any()


def test_the_flag_is_on_the_answers_letters_and_nowhere_else_in_a_question():
    rows = some_rows(MIXES["few-shot"])
    opening = TOKENIZER.encode(":[")[0]
    after_opening = np.roll(rows & (ANSWER - 1), 1, axis=1)[:, 1:] == opening
    assert ((rows[:, 1:] & ANSWER > 0) == after_opening).all()


def test_no_word_kept_for_test_questions_stands_in_a_few_shot_document():
    _, held = split_words(load_words())
    kept = {word.casefold() for listed in held.values() for word in listed}
    text = "".join(TOKENIZER.decode(row & (ANSWER - 1)) for row in some_rows(MIXES["few-shot"], count=200))
    options = {option.casefold() for found in QUESTION.finditer(text) for option in found.groups()[:3]}
    assert len(options) > 1000 and not options & kept


def recall_documents(seed: int = 4, tokens: int = 60_000) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """(form, its lines) of each document; a line is key, value, and whether the value is flagged."""
    pieces = CORPUS._recall_documents(tokens, 64, np.random.default_rng(seed))
    texts = list(CORPUS.pieces.number)
    documents = []
    for document in np.split(pieces, np.flatnonzero(pieces == CORPUS.end) + 1)[:-1]:
        lines = document[:-1].reshape(-1, 5)
        named = [[texts[piece % len(texts)] for piece in line] for line in lines]
        flagged = lines[:, 3] >= len(texts)
        (form,) = {(line[0], line[2], line[4]) for line in named}
        documents.append((form, [(line[1], line[3], bool(flag)) for line, flag in zip(named, flagged, strict=True)]))
    return documents


def test_recall_documents_use_each_pair_once_and_ask_some_again():
    documents = recall_documents()
    assert {form for form, _ in documents} == set(FORMS)
    sides = set()
    for _, lines in documents:
        output = [(key, value) for key, value, again in lines if not again]
        asked = [(key, value) for key, value, again in lines if again]
        assert len(dict(output)) == len(output) and set(asked) <= set(output)
        assert 1 <= len(asked) == len(set(asked)) <= len(output)
        words = [word for pair in output for word in pair]
        assert len(set(words)) == len(words)
        first_tokens = [TOKENIZER.encode(value)[0] for _, value in output]
        assert len(set(first_tokens)) == len(first_tokens)
        sides |= {lines[0][2], lines[-1][2]}
    assert sides == {True, False}
    sizes = [sum(not again for *_, again in lines) for _, lines in documents]
    assert min(sizes) == 2 and max(sizes) > 55
    assert any(sum(again for *_, again in lines) == 1 and len(lines) > 20 for _, lines in documents)


def test_no_word_kept_for_test_questions_is_a_key_or_value():
    _, held = split_words(load_words())
    kept = {word.casefold() for listed in held.values() for word in listed}
    used = {word.strip().casefold() for _, lines in recall_documents() for line in lines for word in line[:2]}
    assert len(used) > 400 and not used & kept
    text = "".join(TOKENIZER.decode(row & (ANSWER - 1)) for row in some_rows(MIXES["other"], count=200))
    looked_up = {key.casefold() for key in re.findall(r"Key: (.+)\n", text)}
    coupled = {word.casefold() for pair in re.findall(r"Pair: (.+) and (.+)\n", text) for word in pair}
    assert len(looked_up) > 100 and len(coupled) > 100 and not (looked_up | coupled) & kept


def test_recall_also_uses_words_of_the_prose_but_none_that_are_kept():
    _, held = split_words(load_words())
    kept = [word for listed in held.values() for word in listed if word.islower() and len(word) > 2]
    made = ["".join(letters) for letters in product("bdklmnrst", "aeiou", "bdklmnrst", "aeiou")]
    text = "".join(f" {word}" for _ in range(3) for word in [*made, *kept])
    corpus = Corpus(TOKENIZER, np.array(TOKENIZER.encode(text), dtype=np.int16))
    found = corpus.pieces.text(corpus._recall_documents(60_000, 64, np.random.default_rng(5)))
    words = set(re.findall(r"[a-z]+", found))
    shown = {word for listed in load_words().values() for word in listed} - set(kept)
    assert len(words & set(made)) > 400 and len(words & shown) > 200
    assert not words & set(kept)


def test_some_documents_have_one_short_run_of_the_word_rule():
    sizes = np.full(400, 40)
    about_words = CORPUS._about_words(sizes, np.repeat(np.arange(400), 40), np.random.default_rng(6)).reshape(400, 40)
    changes = np.abs(np.diff(about_words.astype(int), axis=1, prepend=0, append=0)).sum(1)
    runs = (changes == 2) & (about_words.sum(1) <= 6)
    assert 0.18 < runs.mean() < 0.32 and set(about_words.sum(1)[runs]) == {2, 3, 4, 5, 6}
    assert about_words.any(1).all()


def test_the_evaluated_rules_are_held_out():
    keys = {rule_key(rule) for rule in training_rules(load_words())}
    assert len(keys) > 1500
    assert not keys & {rule_key(rule) for rule in WORD_RULES}


def test_a_document_follows_one_word_rule_and_one_number_rule():
    categories = {word.casefold(): kind for kind, listed in load_words().items() for word in listed}
    draws = np.random.default_rng(2)
    for _ in range(20):
        text = CORPUS.pieces.text(CORPUS.few_shot(np.array([40]), 1, draws).ravel())
        questions = [(found.groups()[:3], "ABC".index(found.group(4))) for found in QUESTION.finditer(text)]
        assert len(questions) == 40
        words = [(options, answer) for options, answer in questions if not options[0].isdigit()]
        capitals = all(
            option[0].isupper() == (place == answer)
            for options, answer in words
            for place, option in enumerate(options)
        )
        targets = {categories[options[answer].casefold()] for options, answer in words}
        pool = {
            categories[option.casefold()]
            for options, answer in words
            for place, option in enumerate(options)
            if place != answer
        }
        assert capitals or (len(targets) == len(pool) == 1 and targets != pool)


@pytest.mark.parametrize("name", NUMBER_RULES)
def test_number_rules(name):
    right = {
        "smallest": lambda n: n[:, 0] == n.min(1),
        "largest": lambda n: n[:, 0] == n.max(1),
        "middle": lambda n: n[:, 0] == np.median(n, 1),
        "even": lambda n: (n % 2 == [0, 1, 1]).all(1),
        "odd": lambda n: (n % 2 == [1, 0, 0]).all(1),
    }[name]
    numbers = number_options(np.full(2000, NUMBER_RULES.index(name)), np.random.default_rng(3))
    assert right(numbers).all()
    assert numbers.min() >= 1 and numbers.max() <= 1000
    assert all(len(set(row)) == 3 for row in numbers.tolist())
