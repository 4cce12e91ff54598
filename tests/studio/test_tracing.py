"""A trace is the decoding itself, frame by frame."""

import itertools

import pytest
import torch

import maskwise as mw
from helpers.references import dense_logits
from maskwise.decoding.prompt_ids import text_ids
from maskwise.studio.tracing import trace
from maskwise.support.errors import UserError

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada")


def test_the_last_frame_is_what_generate_writes_and_each_token_names_its_step(model):
    found = trace(model, "one", PROMPT, "rule=threshold,tau=0.3", 12)
    (expected,) = mw.generate(model, PROMPT, 12, chat=False, rule="threshold", tau=0.3)
    assert (found.title, found.prompt) == ("one, rule=threshold,tau=0.3", PROMPT)
    assert found.forwards == expected.forwards == len(found.frames) - 1
    assert [cell.step - 1 for cell in found.frames[-1]] == expected.order
    assert [cell.text for cell in found.frames[-1]] == [model.tokenizer.decode([token]) for token in expected.ids]
    for number, frame in enumerate(found.frames):
        assert all(cell.step <= number and bool(cell.step) == (cell.confidence is not None) for cell in frame)


def test_confidence_is_the_probability_when_the_token_was_written(model):
    found = trace(model, "", PROMPT, "rule=low-confidence", 4)
    ids = [*text_ids(model, PROMPT), *[model.mask_id] * 4]
    chances = dense_logits(model, ids).softmax(-1)[-4:]
    first = next(place for place, cell in enumerate(found.frames[1]) if cell.step)
    best = chances.max(-1).values
    assert first == int(best.argmax())
    torch.testing.assert_close(torch.tensor(found.frames[-1][first].confidence), best[first], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "seen"),
    [("canvas=growing", 4), ("canvas=window,window=2,cache=prefix", 6), ("canvas=blocks,cache=dual", 8)],
)
def test_a_canvas_shows_so_many_places_at_first(model, settings, seen):
    found = trace(model, "", PROMPT, f"block=4,{settings}", 8)
    assert [cell.shown for cell in found.frames[0]] == [True] * seen + [False] * (8 - seen)
    assert all(cell.shown and cell.step for cell in found.frames[-1])


def test_a_token_that_is_masked_again_loses_its_step(model):
    frames = trace(model, "", PROMPT, "steps=30,rule=remdm,eta=0.3", 10).frames
    pairs = [(one, two) for before, after in itertools.pairwise(frames) for one, two in zip(before, after, strict=True)]
    assert any(one.step and not two.step for one, two in pairs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"new": 500}, "new tokens: 500"),
        ({"new": "8"}, "new tokens: '8'"),
        ({"settings": "max_new_tokens=500"}, "at most 128 steps"),
        ({"settings": "steps=8 steps=4"}, "separated by commas"),
        ({"settings": ""}, "separated by commas"),
        ({"settings": None}, "settings is not text"),
        ({"settings": "rule=threshold,tau=2"}, "between 0 and 1"),
        ({"settings": "canvas=growing"}, "needs a block"),
        ({"settings": "block=3"}, "block 3 does not divide"),
        ({"prompt": "x" * 30_000}, "30,000 characters"),
        ({"prompt": "word " * 2000}, "context length"),
    ],
)
def test_wrong_input_is_one_line(model, change, said):
    with pytest.raises(UserError, match=said):
        trace(model, "", **({"prompt": PROMPT, "settings": "steps=4", "new": 8} | change))


def test_an_autoregressive_model_has_no_strategy():
    with pytest.raises(UserError, match="autoregressive"):
        trace(mw.open("tiny-qwen"), "", PROMPT, "steps=4", 4)
