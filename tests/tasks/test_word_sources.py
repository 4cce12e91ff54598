"""The word sets: twelve and twelve, ten words or more a kind, nothing shared, nothing trained on, no giveaway.

A user's file of the same form is read, or refused in one line.
"""

import json
import re
from itertools import chain
from pathlib import Path

import pytest

import maskwise.tasks
from corpus import FRAMES
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import draw
from maskwise.tasks.rules import TASKS
from maskwise.tasks.word_sources import UNFAMILIAR, WordSet, load_sets, load_word_source
from maskwise.tasks.words import load_words, split_words
from smol_data import DAYS, NUMBERS, RULES

SETS = [one for name in UNFAMILIAR for one in load_sets(name)]
each_set = pytest.mark.parametrize("one", SETS, ids=lambda one: one.name)


def words_of(one: WordSet) -> tuple[str, ...]:
    return one.targets + one.others


def trained_words() -> set[str]:
    """Every word of tasks/words.json and of the lists and frames in the recipes' few-shot documents, in lower case."""
    listed = json.loads((Path(maskwise.tasks.__file__).parent / "words.json").read_text(encoding="utf-8"))
    texts = chain(*listed.values(), listed, FRAMES, DAYS, NUMBERS, RULES, ["yes", "no"])
    return {word for text in texts for word in re.findall("[a-z]+", text.casefold())}


def test_there_are_twelve_sets_for_development_and_twelve_for_confirmation():
    assert [len(load_sets(name)) for name in UNFAMILIAR] == [12, 12]


def test_no_kind_and_no_word_stands_twice():
    kinds = [kind for one in SETS for kind in (one.target, one.other)]
    words = [word for one in SETS for word in words_of(one)]
    assert len(set(kinds)) == len(kinds)
    assert len(set(words)) == len(words)


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


# As the words of a run


def test_the_default_is_the_papers_sixteen_tasks():
    assert load_word_source() == load_word_source("paper")
    assert load_word_source().tasks == TASKS and load_word_source().words == load_words()


@pytest.mark.parametrize("name", UNFAMILIAR)
def test_a_set_is_a_task_whose_questions_hold_words_that_no_example_holds(name):
    source, sets = load_word_source(name), load_sets(name)
    shown, held = split_words(source.words)
    assert split_words(load_words()) == tuple({c: side[c] for c in load_words()} for side in (shown, held))
    assert [task.word.name for task in source.tasks] == [one.name for one in sets]
    assert {task.number for task in source.tasks} == {"smallest", "largest"}
    for task, one in zip(source.tasks, sets, strict=True):
        episode = draw(task, source.words, 5, 2, 12)
        for question in episode.relevant + episode.tests:
            right = question.options[question.answer]
            assert right in one.targets and set(question.options) - {right} < set(one.others)
        asked, seen = ({word for q in some for word in q.options} for some in (episode.tests, episode.relevant))
        assert not asked & seen


def sets_file(tmp_path, content):
    path = tmp_path / "mine.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


METALS, GAMES = (
    ["iron", "zinc", "tin", "lead", "gold", "nickel", "silver", "cobalt"],
    ["chess", "bridge", "darts", "poker", "go", "snap", "tag", "bingo"],
)


def test_a_users_file_is_read(tmp_path):
    path = sets_file(tmp_path, {"sets": [["metal", "game"]], "kinds": {"metal": METALS, "game": GAMES}})
    source = load_word_source(path)
    assert [task.name for task in source.tasks] == ["metal among game-smallest"]
    assert source.words["metal"] == METALS
    lists = sets_file(tmp_path, {"animal": [f"beast{n}" for n in range(8)]})
    assert load_word_source(lists).tasks == TASKS and load_word_source(str(lists)).words["animal"][0] == "beast0"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not valid JSON"),
        ({"sets": [], "kinds": {}}, "word sets are a JSON object"),
        ({"sets": [["metal", "game"]]}, "word sets are a JSON object"),
        ({"sets": [["metal"]], "kinds": {"metal": METALS}}, "set 1 must be a pair of kinds"),
        ({"sets": [["metal", "toy"]], "kinds": {"metal": METALS}}, 'set 1 names "toy"'),
        ({"sets": [["metal", "game"]], "kinds": {"metal": METALS, "game": ["chess"]}}, "8 are needed"),
        ({"sets": [["metal", "game"]], "kinds": {"metal": METALS, "game": [*GAMES, "Tin"]}}, '"tin" is of both kinds'),
        ({"sets": [["metal", "game"]] * 2, "kinds": {"metal": METALS, "game": GAMES}}, "stands twice"),
        ({"sets": [["metal", "game"]], "kinds": {"metal": METALS, "game": GAMES, "tree": METALS}}, '"tree"'),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, content, said):
    with pytest.raises(UserError) as refused:
        load_word_source(sets_file(tmp_path, content))
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(UserError, match=r"unknown words 'unfamiliar'.*unfamiliar-1"):
        load_word_source("unfamiliar")
