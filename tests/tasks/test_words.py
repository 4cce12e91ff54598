"""The shipped lists keep their promises, and a user's file is read or refused in one line."""

import json
from itertools import combinations

import pytest

from maskwise.support.errors import UserError
from maskwise.tasks.rules import TASKS, WORD_RULES
from maskwise.tasks.words import CATEGORIES, load_words, split_words

FEWEST = dict.fromkeys(("animal", "object", "verb", "adjective", "country", "name"), 100) | dict.fromkeys(
    ("fruit", "sport", "colour", "emotion", "preposition"), 40
)


def test_lists_are_long_enough_and_no_word_is_twice_anywhere():
    words = load_words()
    assert set(words) == set(CATEGORIES) == set(FEWEST)
    for category, listed in words.items():
        assert len(listed) >= FEWEST[category]
        assert len({word.casefold() for word in listed}) == len(listed)
        proper = category in ("country", "name")
        assert all(word.isalpha() and word == (word.capitalize() if proper else word.lower()) for word in listed)
    for one, other in combinations(words.values(), 2):
        assert not {word.casefold() for word in one} & {word.casefold() for word in other}


def test_sixteen_tasks_with_targets_apart_from_their_pool():
    assert len(TASKS) == len({task.name for task in TASKS}) == 16
    for rule in WORD_RULES:
        for words in (load_words(), *split_words(load_words())):
            targets, pool = rule.lists(words)
            assert len(targets) >= 20 and len(pool) >= 20
            assert not {word.casefold() for word in targets} & {word.casefold() for word in pool}
            assert len(set(targets)) == len(targets) and len(set(pool)) == len(pool)


def test_only_the_case_tells_capitalised_targets_from_their_pool():
    rule = next(rule for rule in WORD_RULES if rule.name == "capitalised")
    targets, pool = rule.lists(load_words())
    assert all(word[0].isupper() and word[1:].islower() for word in targets) and all(word.islower() for word in pool)
    assert abs(len(targets) - len(pool)) <= 1


def test_split_is_a_partition_and_the_same_each_time():
    words = load_words()
    shown, held = split_words(words)
    assert (shown, held) == split_words(words)
    for category in words:
        assert sorted(shown[category] + held[category]) == sorted(words[category])
        assert abs(len(shown[category]) - len(held[category])) <= 1


def test_split_puts_a_word_of_two_categories_on_one_side():
    words = {"fruit": ["orange", "lime", "fig", "pear"], "colour": ["Orange", "red", "blue", "lime"]}
    shown, held = split_words(words)
    sides = [{word.casefold() for listed in half.values() for word in listed} for half in (shown, held)]
    assert not sides[0] & sides[1]


def test_user_lists_in_the_function_vectors_form(tmp_path):
    colours = [f"colour{letter}" for letter in "abcdefghij"]
    file = tmp_path / "categories.json"
    file.write_text(json.dumps({"color": [*colours, "Coloura"], "pronoun": ["I", "you"]}))
    words = load_words(file)
    assert words["colour"] == colours
    assert words["animal"] == load_words()["animal"] and "pronoun" not in words and "color" not in words


def test_user_words_shared_by_target_and_pool_stay_targets(tmp_path):
    listed = [f"word{letter}" for letter in "abcdefghij"]
    file = tmp_path / "words.json"
    file.write_text(json.dumps({"colour": listed, "animal": [*listed[:5], *(word + "x" for word in listed)]}))
    colour = next(rule for rule in WORD_RULES if rule.name == "colour")
    targets, pool = colour.lists(load_words(file))
    assert targets == listed and not set(listed) & set(pool)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"animal": ["ant",\n}', "line 2"),
        ("[1, 2]", "JSON object"),
        ('{"pronoun": ["I"]}', "none of the categories"),
        ('{"animal": "ant"}', '"animal" must be a list of words'),
        ('{"animal": ["ant", 3]}', '"animal" must be a list of words'),
        ('{"animal": ["ant", "ANT", "bee"]}', "2 different words"),
    ],
)
def test_a_bad_file_is_named_with_its_problem(tmp_path, content, said):
    file = tmp_path / "mine.json"
    file.write_text(content)
    with pytest.raises(UserError, match=r"mine\.json") as problem:
        load_words(file)
    assert said in str(problem.value)


def test_no_file_and_binary_file(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        load_words(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        load_words(tmp_path / "binary")
    same = json.dumps({"country": [f"w{i}" for i in range(9)], "name": [f"w{i}" for i in range(9)]})
    (tmp_path / "same.json").write_text(same)
    with pytest.raises(UserError, match="not targets too"):
        WORD_RULES[0].lists(load_words(tmp_path / "same.json"))
