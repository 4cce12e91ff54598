"""The shipped tokenizer keeps what the tasks and the corpus rely on."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

import maskwise
from maskwise.tasks.words import load_words

FOLDER = Path(maskwise.__file__).parent / "models" / "zoo" / "tokenizer"
TOKENIZER = AutoTokenizer.from_pretrained(FOLDER)
EXAMPLE = "Options: (A) knit, (B) quirky, (C) persuade\nAnswer:[{}].\n\n"


def tokens(text: str) -> list[str]:
    return [TOKENIZER.decode([token]) for token in TOKENIZER.encode(text)]


@given(st.text())
def test_any_text_comes_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_at_most_2048_entries_with_the_special_tokens():
    assert len(TOKENIZER) <= 2048
    assert max(TOKENIZER.get_vocab().values()) == len(TOKENIZER) - 1
    assert TOKENIZER.eos_token_id == TOKENIZER.pad_token_id != TOKENIZER.mask_token_id
    assert TOKENIZER.encode("a<|mask|>b")[1] == TOKENIZER.mask_token_id


@pytest.mark.parametrize("letter", "ABC")
def test_letters_and_the_closing_are_single_tokens(letter):
    pieces = tokens(EXAMPLE.format(letter))
    assert pieces[-6:] == ["\n", "Answer", ":[", letter, "].", "\n\n"]
    for option in "ABC":
        assert pieces[pieces.index(option) + 1] == ")"
    masked = TOKENIZER.encode(EXAMPLE.format("<|mask|>"))
    assert len(masked) == len(pieces)
    assert masked[-3] == TOKENIZER.mask_token_id


def test_task_words_are_short():
    lengths = [len(TOKENIZER.encode(" " + word)) for listed in load_words().values() for word in listed]
    assert max(lengths) <= 3
    assert sum(length <= 2 for length in lengths) > 0.9 * len(lengths)


@given(st.sampled_from(sorted(load_words()["country"])), st.integers(0, 10000), st.sampled_from("ABC"))
def test_pieces_tokenised_apart_are_the_tokens_of_the_whole(word, number, letter):
    pieces = ["Options: (A)", f" {word}", ", (B)", f" {number}", ", (C)", " a b", f"\nAnswer:[{letter}].\n\n"]
    assert [token for piece in pieces for token in TOKENIZER.encode(piece)] == TOKENIZER.encode("".join(pieces))
