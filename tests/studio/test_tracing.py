"""A trace is the decoding itself, frame by frame."""

import itertools

import pytest
import torch

import maskwise as mw
from helpers.references import dense_logits
from helpers.tiny import tiny_llada2
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.prompt_ids import text_ids
from maskwise.studio.tracing import decoding_options, empty_trace, in_words, trace
from maskwise.support.errors import UserError

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada")


def test_the_last_frame_is_what_generate_writes_and_each_token_names_its_step(model):
    options = {"rule": "threshold", "parameters": {"tau": 0.3}}
    found = trace(model, PROMPT, DecodingOptions(max_new_tokens=12, **options))
    (expected,) = mw.generate(model, PROMPT, 12, chat=False, **options)
    assert found.text == expected.text and found.forwards == expected.forwards == len(found.frames) - 1
    assert [cell.step - 1 for cell in found.frames[-1]] == expected.order
    assert [cell.text for cell in found.frames[-1]] == [model.tokenizer.decode([token]) for token in expected.ids]
    for number, frame in enumerate(found.frames):
        assert all(cell.step <= number and bool(cell.step) == (cell.confidence is not None) for cell in frame)


def test_confidence_is_the_probability_when_the_token_was_written(model):
    found = trace(model, PROMPT, DecodingOptions(max_new_tokens=4))
    ids = [*text_ids(model, PROMPT), *[model.mask_id] * 4]
    chances = dense_logits(model, ids).softmax(-1)[-4:]
    first = next(place for place, cell in enumerate(found.frames[1]) if cell.step)
    best = chances.max(-1).values
    assert first == int(best.argmax())
    torch.testing.assert_close(torch.tensor(found.frames[-1][first].confidence), best[first], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("canvas", "window", "cache", "seen"),
    [("growing", None, "none", 4), ("window", 2, "prefix", 6), ("blocks", None, "dual", 8)],
)
def test_a_canvas_shows_so_many_places_at_first(model, canvas, window, cache, seen):
    options = DecodingOptions(max_new_tokens=8, block=4, canvas=canvas, window=window, cache=cache)
    found = trace(model, PROMPT, options)
    assert [cell.shown for cell in found.frames[0]] == [True] * seen + [False] * (8 - seen)
    assert all(cell.shown and cell.step for cell in found.frames[-1])


def test_the_words_over_a_trace_say_how_the_model_is_decoded(model):
    plain, blocks = (decoding_options(8, "threshold", {"tau": 0.8}, 0, block, "fixed", 0, "none") for block in (0, 4))
    assert in_words(model, plain) == "threshold, tau=0.8, canvas fixed"
    assert in_words(model, blocks) == "threshold, tau=0.8, canvas blocks of 4"
    assert in_words(tiny_llada2(), plain) == "threshold, tau=0.8, canvas blocks of 8"  # the model's own
    cached = decoding_options(8, "low-confidence", {}, 0, 0, "fixed", 0, "prefix")
    assert in_words(model, cached) == "low-confidence, canvas fixed, cache prefix"


def test_a_token_that_is_masked_again_loses_its_step(model):
    options = DecodingOptions(max_new_tokens=10, steps=30, rule="remdm", parameters={"eta": 0.3})
    frames = trace(model, PROMPT, options).frames
    pairs = [(one, two) for before, after in itertools.pairwise(frames) for one, two in zip(before, after, strict=True)]
    assert any(one.step and not two.step for one, two in pairs)


@pytest.mark.parametrize(
    ("prompt", "options", "said"),
    [
        (PROMPT, {"max_new_tokens": 500}, "new tokens: 500"),
        ("x" * 30_000, {}, "30,000 characters"),
        ("word " * 2000, {"max_new_tokens": 8}, "context length"),
        (PROMPT, {"max_new_tokens": 8, "block": 3}, "block 3 does not divide"),
    ],
)
def test_wrong_input_is_one_line(model, prompt, options, said):
    with pytest.raises(UserError, match=said):
        trace(model, prompt, DecodingOptions(**options))


def test_controls_become_options():
    plain = DecodingOptions(max_new_tokens=8)
    assert decoding_options(8, "low-confidence", {}, 0, 0, "fixed", 8, "none") == plain
    found = decoding_options(8, "klass", {"tau": 0.5, "eps": 0.1}, 0, 4, "window", 3, "dual")
    assert found == DecodingOptions(
        max_new_tokens=8,
        rule="klass",
        parameters={"tau": 0.5, "eps": 0.1},
        block=4,
        canvas="window",
        window=3,
        cache="dual",
    )
    # The page hides the steps of an adaptive strategy, so a number left there does not count.
    assert decoding_options(8, "threshold", {}, 4, 0, "fixed", 8, "none").steps is None
    for controls, message in (
        (("threshold", {"tau": 2}, 0, 0, "fixed", 8, "none"), "between 0 and 1"),
        (("margin", {}, 0, 0, "growing", 8, "none"), "needs a block"),
    ):
        with pytest.raises(UserError, match=message):
            decoding_options(8, *controls)


def test_an_empty_trace_is_masks_alone():
    (frame,) = empty_trace(3).frames
    assert len(frame) == 3 and all(cell.shown and not cell.step for cell in frame)


def test_an_autoregressive_model_has_no_strategy():
    with pytest.raises(UserError, match="autoregressive"):
        trace(mw.open("tiny-qwen"), PROMPT, DecodingOptions(max_new_tokens=4))
