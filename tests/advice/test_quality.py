"""What a good answer is must be said, and must fit the answers it is to find."""

import math

import pytest

import maskwise as mw
from maskwise.advice.quality import Quality, check_quality, chosen_quality, judged
from maskwise.advice.questions import (
    EMBEDDED_PATTERN,
    DecodingQuestion,
    embedded_ends,
    embedded_questions,
    read_questions,
)
from maskwise.advice.search_request import prepare
from maskwise.support.errors import UserError

SUMS = [{"prompt": f"{n} + 1 =", "answer": f"so it is #### {n + 1}"} for n in range(60)]


def test_each_measure_gives_what_its_name_says():
    assert (
        chosen_quality(exact=True).of_text(" 42\n", "42") == 1 and chosen_quality(exact=True).of_text("4 2", "42") == 0
    )
    last = chosen_quality(pattern=r"#### (\d+)")
    assert last.of_text("well #### 7 #### 8", "#### 7") == 1 and last.of_text("7", "#### 7") == 0
    assert last.of_text("nothing", "nothing") == 0  # what is not found is not right
    assert chosen_quality(pattern="otter|zebra").of_text("a zebra", "zebra") == 1
    assert chosen_quality(pattern="exact").of_text("an exact one", "exact") == 1  # a word like any other
    length = chosen_quality(function=lambda text, answer: len(text) / len(answer))
    assert length.of_text("ab", "abcd") == 0.5


def test_a_function_is_found_by_name_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "my_grading.py").write_text("def is_right(text, answer):\n    return answer in text\nno = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert chosen_quality(function="my_grading:is_right").of_text("so 42.", "42") == 1
    with pytest.raises(UserError, match="has no function 'no'"):
        chosen_quality(function="my_grading:no")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "say how answers are judged"),
        ({"pattern": "a{99999999999}"}, "does not compile"),
        ({"pattern": r"#### ([a-z]+)"}, "never matches its own answers"),
        ({"pattern": r"#### ([1-9])$"}, "does not match the answer of question 10"),
        ({"function": lambda text, answer: None}, "returned None: it must return a number"),
        ({"function": lambda text, answer: math.nan}, "must return a finite number"),
        ({"exact": True, "budget": 1e-3}, "too small for one round"),
        ({"exact": True, "max_new_tokens": 0}, "leaves nothing to generate"),
        ({"exact": True, "block": 8}, "advise searches no 'block'"),
    ],
)
def test_what_cannot_work_is_refused_before_a_model_is_opened(given, said):
    with pytest.raises(UserError, match=said):
        prepare(SUMS, **given)


def test_questions_without_answers_are_refused_unless_a_judge_reads_them():
    prompts = [{"prompt": "Once"}] * 60
    with pytest.raises(UserError, match=r"has the keys .*: write prompt and answer"):
        prepare(prompts, exact=True)
    with pytest.raises(UserError, match="question 1 has an empty answer"):
        read_questions([{"prompt": "Once", "answer": " "}], answers=True)
    assert prepare(prompts, judge="tiny-qwen").questions[0] == DecodingQuestion("Once", None)


def test_embedded_questions_are_distinct_checkable_and_fit_their_pattern():
    questions = embedded_questions()
    assert len(questions) == 160 == len({question.prompt for question in questions})
    assert {question.answer for question in questions} == {"A].", "B].", "C]."}
    assert all(
        question.prompt.endswith("Answer:[") and question.prompt.count("Options:") == 10 for question in questions
    )
    check_quality(Quality("pattern", EMBEDDED_PATTERN), questions)
    assert embedded_questions(1)[0] != questions[0] == embedded_questions(0)[0]


def test_a_judge_gives_nats_per_token_and_an_empty_text_the_chance_of_a_guess():
    judge = mw.open("tiny-qwen", device="cpu")
    assert [judge.tokenizer.decode([one]) for one in embedded_ends(judge.tokenizer)] == ["]."]
    known, empty = judged(judge, ["Once upon a", "Once"], [" time", " "], 0)
    (alone,) = mw.score(judge, [{"prompt": "Once upon a", "answer": " time"}])
    assert known == pytest.approx(alone.log_likelihood / alone.tokens)
    assert empty == -math.log(judge.vocab)
