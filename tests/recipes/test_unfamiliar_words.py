"""The word sets: twelve and twelve, ten words or more a kind, nothing shared, nothing trained on, no giveaway."""

import json
import re
from itertools import chain
from pathlib import Path

import pytest

import maskwise.tasks
from corpus import FRAMES
from smol_data import DAYS, NUMBERS, RULES
from unfamiliar_sets import FILE, WordSet, load_sets

SETS = [*load_sets("I"), *load_sets("II")]
each_set = pytest.mark.parametrize("one", SETS, ids=lambda one: one.name)


def words_of(one: WordSet) -> tuple[str, ...]:
    return one.targets + one.others


def trained_words() -> set[str]:
    """Every word of tasks/words.json and of the lists and frames in the recipes' few-shot documents, in lower case."""
    listed = json.loads((Path(maskwise.tasks.__file__).parent / "words.json").read_text(encoding="utf-8"))
    texts = chain(*listed.values(), listed, FRAMES, DAYS, NUMBERS, RULES, ["yes", "no"])
    return {word for text in texts for word in re.findall("[a-z]+", text.casefold())}


def test_there_are_twelve_sets_for_development_and_twelve_for_confirmation():
    assert (len(load_sets("I")), len(load_sets("II"))) == (12, 12)


def test_no_kind_and_no_word_stands_twice():
    kinds = [kind for one in SETS for kind in (one.target, one.other)]
    words = [word for one in SETS for word in words_of(one)]
    assert len(set(kinds)) == len(kinds)
    assert len(set(words)) == len(words)
    assert set(kinds) == set(json.loads(FILE.read_text(encoding="utf-8"))["kinds"])


def test_no_kind_is_one_of_the_tasks_own():
    listed = json.loads((Path(maskwise.tasks.__file__).parent / "words.json").read_text(encoding="utf-8"))
    assert not {kind for one in SETS for kind in (one.target, one.other)} & set(listed)


@each_set
def test_a_kind_has_ten_or_more_single_lower_case_words(one: WordSet):
    assert min(len(one.targets), len(one.others)) >= 10
    assert all(re.fullmatch("[a-z]{3,}", word) for word in words_of(one))


@each_set
def test_no_word_is_in_a_training_list(one: WordSet):
    assert not set(words_of(one)) & trained_words()


@each_set
def test_length_does_not_give_the_answer_away(one: WordSet):
    """The best threshold on length puts at most three quarters of the words into the right kind."""
    total = len(words_of(one))
    for limit in range(3, 15):
        right = sum(len(word) <= limit for word in one.targets) + sum(len(word) > limit for word in one.others)
        assert max(right, total - right) <= 0.75 * total


@each_set
def test_no_ending_gives_the_answer_away(one: WordSet):
    """Endings of one to three letters: none is shared by more than four words more of one kind than of the other."""
    for ending in {word[-size:] for word in words_of(one) for size in (1, 2, 3)}:
        counts = [sum(word.endswith(ending) for word in listed) for listed in (one.targets, one.others)]
        assert abs(counts[0] - counts[1]) <= 4, ending
