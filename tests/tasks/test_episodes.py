"""Episodes are deterministic, obey their rules, and share their examples over all test points."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwise.tasks.episodes import Question, blocked, draw, mixed, render
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words, split_words

WORDS = load_words()
SHOWN, HELD = split_words(WORDS)


def test_rendering_is_exact():
    question = Question(("knit", "quirky", "persuade"), 1, relevant=True)
    assert render(question) == "Options: (A) knit, (B) quirky, (C) persuade\nAnswer:[B].\n\n"


@settings(max_examples=20)
@given(
    task=st.sampled_from(TASKS), seed=st.integers(0, 2**31), relevant=st.integers(0, 25), distractors=st.integers(0, 40)
)
def test_every_question_obeys_its_rule(task, seed, relevant, distractors):
    episode = draw(task, WORDS, relevant, distractors, points=9, seed=seed)
    assert (len(episode.relevant), len(episode.distractors), len(episode.tests)) == (relevant, distractors, 9)
    pick = min if task.number == "smallest" else max
    for question in episode.distractors:
        numbers = [int(option) for option in question.options]
        assert numbers[question.answer] == pick(numbers) and not question.relevant
        assert len(set(numbers)) == 3 and min(numbers) >= 1 and max(numbers) <= 1000
    for questions, words in ((episode.relevant, SHOWN), (episode.tests, HELD)):
        targets, pool = (set(listed) for listed in task.word.lists(words))
        for question in questions:
            others = [option for place, option in enumerate(question.options) if place != question.answer]
            assert question.options[question.answer] in targets and set(others) <= pool and len(set(others)) == 2
            assert question.relevant


def test_the_seed_decides_and_small_episodes_begin_large_ones():
    task = TASKS[4]
    large, small = draw(task, WORDS, 10, 40, 100, seed=3), draw(task, WORDS, 5, 15, 20, seed=3)
    assert large == draw(task, WORDS, 10, 40, 100, seed=3)
    assert small.relevant == large.relevant[:5] and small.distractors == large.distractors[:15]
    assert small.tests == large.tests[:20]
    assert large.tests != draw(task, WORDS, 10, 40, 100, seed=4).tests
    assert large.distractors != draw(TASKS[6], WORDS, 10, 40, 100, seed=3).distractors


def test_a_constant_guess_scores_exactly_chance():
    for task in TASKS:
        assert set(Counter(question.answer for question in draw(task, WORDS, points=99).tests).values()) == {33}


def test_held_out_words_are_never_shown():
    for task in TASKS:
        episode = draw(task, WORDS, 25, 0, 200)
        shown = {option.casefold() for question in episode.relevant for option in question.options}
        tested = {option.casefold() for question in episode.tests for option in question.options}
        assert not shown & tested
    everything = draw(TASKS[0], WORDS, 0, 0, 200, held_out=0)
    assert {option for question in everything.tests for option in question.options} & set(SHOWN["name"])


@given(location=st.integers(0, 40))
def test_a_block_stands_after_as_many_distractors_as_its_location(location):
    episode = draw(TASKS[0], WORDS, 10, 40, 1)
    order = blocked(episode, location)
    assert [question.relevant for question in order] == [False] * location + [True] * 10 + [False] * (40 - location)
    assert [question for question in order if not question.relevant] == list(episode.distractors)


def test_location_outside_the_distractors_is_refused():
    with pytest.raises(ValueError, match="location 41 is outside"):
        blocked(draw(TASKS[0], WORDS, points=1), 41)


def test_mixing_keeps_all_examples_in_one_fixed_order():
    episode = draw(TASKS[0], WORDS, 10, 40, 1, seed=1)
    assert Counter(mixed(episode)) == Counter([*episode.relevant, *episode.distractors])
    assert mixed(episode) == mixed(episode) != mixed(draw(TASKS[0], WORDS, 10, 40, 1, seed=2))


@pytest.mark.parametrize("relevant", [True, False], ids=["words", "numbers"])
def test_the_six_orders_of_the_options_are_drawn_evenly(relevant):
    """Right and wrong options, distinguished by the alphabet; 1200 questions, chi-squared with 5 df."""
    episode = draw(TASKS[4], WORDS, 0, 0 if relevant else 1200, points=1200 if relevant else 0)
    orders = Counter()
    for question in episode.tests or episode.distractors:
        right = question.options[question.answer]
        ranked = [right, *sorted(set(question.options) - {right})]
        orders[tuple(ranked.index(option) for option in question.options)] += 1
    assert len(orders) == 6
    assert sum((count - 200) ** 2 / 200 for count in orders.values()) < 15.1  # the 1 % point
    places = Counter(question.answer for question in episode.tests or episode.distractors)
    assert set(places.values()) == {400}
