"""The studio's questions are those of `maskwise diagnose`, and what it tells of them is what the probes measure."""

import dataclasses
import math

import pytest
import torch

import maskwise as mw
from helpers.tiny import tiny_llada2
from maskwise.probes.answers.gradients import embedding_gradients
from maskwise.probes.answers.plain import ask
from maskwise.runs.run_sample import chances_of
from maskwise.studio.probing import (
    CURVE_MASKS,
    MOST_DISTRACTORS,
    MOST_MASKS,
    MOST_RELEVANT,
    TASK_NAMES,
    ContextQuestion,
    Side,
    attributed,
    build_prompt,
    draw_question,
    probe,
    right_answer_curve,
)
from maskwise.studio.views import probed_view
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import blocked, draw, draw_afresh, example_words
from maskwise.tasks.prompts import encode_question, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada")


def drawn_ask(task="animal-largest", point=3, relevant=1, **more):
    return ContextQuestion(*draw_question(task, point, relevant), task, point, relevant, **more)


def asked_of(model, asked):
    return probe(model, Side("one", asked))


@pytest.mark.parametrize("relevant", [1, 10])
@pytest.mark.parametrize(("share", "location"), [(0.0, 0), (0.5, 4), (1.0, 8)])
def test_a_drawn_question_is_the_one_that_diagnose_asks(model, relevant, share, location):
    words = load_words()
    episode = draw(TASKS[TASK_NAMES.index("animal-largest")], words, relevant, 8, 4, 0, 0.5)
    episode = draw_afresh(episode, example_words(words, 0.5), 3)
    encoded = encode_question(model.tokenizer, blocked(episode, location), episode.tests[3])
    expected = opened(encoded, model.mask_id, 6)
    found = build_prompt(model, drawn_ask(relevant=relevant, distractors=8, place=share, masks=5))
    assert dataclasses.replace(expected, allowed=()) == found


def test_the_answer_is_that_of_the_probes(model):
    asked = drawn_ask(distractors=4, masks=30)
    found = attributed(model, asked_of(model, asked))
    prompt = build_prompt(model, asked)
    (answer,) = ask(model, [prompt])
    assert found.prompt == prompt and prompt.masks == 31
    assert found.shown.correct == (prompt.answer_id == answer.token)
    chances = chances_of(model, prompt)
    assert [p for _, p in found.shown["top"]] == pytest.approx(chances.topk(5).values.tolist(), abs=1e-5)
    assert found.shown["probability"] == pytest.approx(float(chances[prompt.answer_id]), abs=1e-5)
    assert found.shown["answer"] == asked.answer
    norms = embedding_gradients(model, [prompt])[1][0]
    torch.testing.assert_close(torch.tensor(found.shown["attribution"]), norms, atol=6e-4, rtol=0)


def test_the_curve_has_the_right_answers_probability_for_each_number_of_masks(model):
    asked = drawn_ask(distractors=2)
    curve = right_answer_curve(model, asked)
    assert [masks for masks, _ in curve] == list(CURVE_MASKS) and (CURVE_MASKS[0], CURVE_MASKS[-1]) == (0, MOST_MASKS)
    for masks, chance in curve[::3]:
        prompt = build_prompt(model, dataclasses.replace(asked, masks=masks))
        assert chance == pytest.approx(float(chances_of(model, prompt)[prompt.answer_id]), abs=1e-5)


@pytest.mark.slow
def test_there_is_no_curve_without_a_right_answer_or_masks_and_none_past_the_context_length(model):
    assert right_answer_curve(model, ContextQuestion("The sky is blue.", "The sky is")) == ()
    assert right_answer_curve(mw.open("tiny-qwen"), drawn_ask()) == ()
    # 1440 tokens of 1536: 50 more fit, 100 do not.
    long = dataclasses.replace(drawn_ask(), context="otter " * 700)
    room = model.window - len(build_prompt(model, long).ids)
    assert 0 < room < MOST_MASKS
    assert [masks for masks, _ in right_answer_curve(model, long)] == [masks for masks in CURVE_MASKS if masks <= room]


@pytest.mark.parametrize("name", ["tiny-llada", "tiny-dream"])
def test_all_sliders_at_their_ends_stay_below_1200_tokens(name):
    model = mw.open(name)
    for task in TASK_NAMES:
        asked = drawn_ask(task, relevant=MOST_RELEVANT, distractors=MOST_DISTRACTORS, masks=MOST_MASKS)
        assert len(build_prompt(model, asked).ids) < 1200


def test_typed_text_is_asked_as_it_is(model):
    found = asked_of(model, ContextQuestion("The sky is blue.", "The sky is", masks=3))
    ids = tuple(model.tokenizer("The sky is blue.\n\nThe sky is")["input_ids"])
    assert found.prompt.ids == (*ids, *[model.mask_id] * 4) and found.prompt.row == len(ids)
    assert found.shown["answer"] == "" and found.shown.correct


def test_an_autoregressive_model_reads_the_text_alone():
    found = asked_of(mw.open("tiny-qwen"), drawn_ask(masks=50))
    assert found.prompt.masks == 0 and found.prompt.row == len(found.prompt.ids)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"question": " "}, "question is empty"),
        ({"masks": 201}, "masks: 201"),
        ({"masks": "many"}, "masks: 'many'"),
        ({"masks": None}, "masks: None"),
        ({"masks": 3.5}, "masks: 3.5"),
        ({"distractors": -1}, "distracting examples: -1"),
        ({"place": float("nan")}, "place of the block"),
        ({"context": "x" * 20_001}, "20,001 characters"),
        ({"context": "\ud800"}, "context is not text"),
        ({"question": None}, "question is not text"),
        ({"task": "no-such"}, "no task 'no-such'"),
        ({"point": 100}, "question: 100"),
        ({"relevant": 11}, "relevant examples: 11"),
        ({"context": "word " * 3000}, "context length"),
    ],
)
def test_wrong_input_is_one_line_that_names_it(model, change, said):
    with pytest.raises(UserError, match=said):
        asked_of(model, dataclasses.replace(drawn_ask(), **change))


def test_a_block_diffusion_model_answers_at_a_blocks_start_and_masks_after_the_block_are_not_visible(model):
    over_blocks = tiny_llada2(tokenizer=model.tokenizer, vocab=2056, window=2048, mask_token_id=model.mask_id)
    few, many = (attributed(over_blocks, asked_of(over_blocks, drawn_ask(masks=masks))) for masks in (7, 20))
    assert (few.prompt.start + few.prompt.row) % 8 == 0 and (few.visible, many.visible) == (8, 8)
    plain = ask(over_blocks, [many.prompt])[0]
    chance = math.exp(-plain.nll)
    assert [few.shown.probability, many.shown.probability] == pytest.approx([chance] * 2, abs=1e-4)
    assert all(norm == 0 for norm in many.shown["attribution"][many.prompt.row + 8 :])
    assert "after its block" not in probed_view([few])
    assert "It does not see 13 of the masks: they stand after its block." in probed_view([many])
