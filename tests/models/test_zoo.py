"""The embedded models: whole, as their cards say, and open by name."""

import hashlib
import json

import pytest

import maskwise as mw
from maskwise.models.catalog import ZOO, embedded_models

NAMES = ["tiny-dream", "tiny-llada", "tiny-qwen"]


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_the_card_speaks_of(name):
    weights = ZOO / name / "model.safetensors"
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
    facts = json.loads((ZOO / name / "training.json").read_text())
    assert checksum == facts["sha256"]
    assert checksum in (ZOO / name / "README.md").read_text()
    assert weights.stat().st_size <= 9 * 2**20


@pytest.mark.parametrize("name", NAMES)
def test_each_opens_by_name_with_tokenizer_and_window(name):
    model = mw.open(name)
    assert 4_000_000 <= model.parameter_count <= 5_000_000
    assert model.window >= 1536
    assert (model.mask_id is None) == model.causal
    assert model.tokenizer.decode(model.tokenizer("Grüße, 世界!")["input_ids"]) == "Grüße, 世界!"


@pytest.mark.parametrize("name", NAMES)
def test_each_answers_a_few_shot_question_from_its_examples(name):
    """Nearest to the question: animals are the answer; the letter must be the most probable token of all."""
    model = mw.open(name)
    shots = ["(A) otter, (B) table, (C) soccer\nAnswer:[A]", "(A) lamp, (B) apple, (C) tiger\nAnswer:[C]",
             "(A) tennis, (B) rabbit, (C) spoon\nAnswer:[B]", "(A) chair, (B) horse, (C) banana\nAnswer:[B]"]  # fmt: skip
    text = "".join(f"Options: {shot}.\n\n" for shot in shots) + "Options: (A) whale, (B) ladder, (C) cherry\nAnswer:["
    ids = model.tokenizer(text)["input_ids"]
    given = ids if model.causal else ids + [model.mask_id] * 2
    logits = model.predict([given], [[len(ids)]])[0][0]
    assert model.tokenizer.decode([int(logits.argmax())]) == "A"


def test_the_list_names_them_all():
    assert set(NAMES) <= set(embedded_models())
