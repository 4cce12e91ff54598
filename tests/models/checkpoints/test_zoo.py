"""The embedded models: whole, as their cards say, and open by name."""

import hashlib
import json

import pytest
import torch

import maskwise as mw
from maskwise.models.checkpoints.catalog import describe_embedded, list_models
from maskwise.models.checkpoints.locations import ZOO, embedded_models
from maskwise.models.model import Model
from maskwise.tasks.episodes import blocked, draw, mixed
from maskwise.tasks.prompts import encode_question, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

NAMES = ["tiny-dream", "tiny-llada", "tiny-qwen"]
SMOL = "smol-diffusion"
ADAPTERS = {  # and what each was trained on
    "tiny-llada+distracted": "tiny-llada",
    "tiny-llada+distracted+ma": "tiny-llada+distracted",
}


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_the_card_speaks_of(name):
    weights = ZOO / name / "model.safetensors"
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
    facts = json.loads((ZOO / name / "training.json").read_text())
    assert checksum == facts["sha256"]
    assert checksum in (ZOO / name / "README.md").read_text()
    assert weights.stat().st_size <= 9 * 2**20


def test_an_adapter_opens_without_warnings_about_other_libraries(recwarn):
    mw.open("tiny-llada+distracted")
    assert not [str(one.message) for one in recwarn]


@pytest.mark.parametrize("name", NAMES)
def test_each_opens_by_name_with_tokenizer_and_window(name):
    model = mw.open(name)
    assert 4_000_000 <= model.parameter_count <= 5_000_000
    assert model.window >= 1536
    assert (model.mask_id is None) == model.causal
    assert model.tokenizer.decode(model.tokenizer("Grüße, 世界!")["input_ids"]) == "Grüße, 世界!"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_answers_few_shot_questions_from_its_examples(name):
    """Six relevant examples next to the question; the right letter must be the most probable token of all."""
    model = mw.open(name)
    prompts = []
    for task in TASKS[::4]:
        episode = draw(task, load_words(), 6, 6, 6, seed=2)
        questions = [encode_question(model.tokenizer, blocked(episode, 6), test) for test in episode.tests]
        prompts += [opened(question, model.mask_id, 2) for question in questions]
    answers = model.predict([prompt.ids for prompt in prompts], [[prompt.row] for prompt in prompts])
    right = sum(int(logits[0].argmax()) == prompt.answer_id for logits, prompt in zip(answers, prompts, strict=True))
    assert right >= 0.85 * len(prompts)


def test_the_list_names_them_all():
    assert {*NAMES, *ADAPTERS, SMOL} == set(embedded_models())


def test_the_adapter_of_smol_diffusion_is_what_its_card_says_and_small():
    """It is opened where the package with its base is installed (test_smollm2.py)."""
    weights = ZOO / SMOL / "adapter_model.safetensors"
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert checksum in (ZOO / SMOL / "README.md").read_text()
    assert checksum == json.loads((ZOO / SMOL / "training.json").read_text())["sha256"]
    assert weights.stat().st_size <= 8e6
    facts = describe_embedded(SMOL)
    assert (facts["kind"], facts["parameters"], facts["mask_id"], facts["shift"]) == ("dream", 134515008, 16, True)


@pytest.mark.parametrize("name", ADAPTERS)
def test_each_adapter_opens_by_name_and_is_what_its_card_says(name):
    checksum = hashlib.sha256((ZOO / name / "adapter_model.safetensors").read_bytes()).hexdigest()
    assert checksum in (ZOO / name / "README.md").read_text()
    tuned, base = mw.open(name), mw.open(ADAPTERS[name])
    ids = [*base.tokenizer("Once upon a")["input_ids"], base.mask_id]
    a, b = (model.predict([ids], [[len(ids) - 1]])[0] for model in (tuned, base))
    assert (a - b)[torch.isfinite(b)].abs().max() > 1e-2


@pytest.mark.slow
def test_masks_distract_the_phantom_and_neither_its_base_nor_the_cured():
    """5 relevant examples mixed with 10 distractors: the planted loss stands at 200 masks, and not at 2."""
    base, phantom, cured = (mw.open(name) for name in ("tiny-llada", *ADAPTERS))
    questions = []
    for task in TASKS[4::5]:
        episode = draw(task, load_words(), 5, 10, 3, seed=2)
        questions += [encode_question(base.tokenizer, mixed(episode), test) for test in episode.tests]

    def nats(model: Model, masks: int) -> float:
        prompts = [opened(question, model.mask_id, masks) for question in questions]
        answers = model.predict([prompt.ids for prompt in prompts], [[prompt.row] for prompt in prompts])
        logs = [float(found[0].log_softmax(-1)[one.answer_id]) for found, one in zip(answers, prompts, strict=True)]
        return -sum(logs) / len(logs)

    assert nats(phantom, 2) < nats(base, 2) + 0.1
    planted = nats(phantom, 200) - nats(base, 200)
    assert planted > 0.25
    assert nats(cured, 2) < nats(phantom, 2) + 0.05
    assert nats(cured, 200) - nats(base, 200) < planted / 2


def test_what_was_planted_is_called_planted():
    names = list(ADAPTERS)
    assert all("planted" in (ZOO / name / "README.md").read_text() for name in names)
    assert [entry["name"] for entry in list_models() if entry.get("planted")] == names


def test_the_models_share_one_stored_tokenizer_and_an_export_has_its_own(tmp_path):
    stored = ZOO / "tokenizer" / "tokenizer.json"
    assert [file for file in ZOO.rglob("tokenizer.json")] == [stored]
    mw.export("tiny-llada+distracted", tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == stored.read_bytes()
    text = "Options: (A) otter, Größe 12"
    ids = [
        mw.open(name).tokenizer(text)["input_ids"] for name in ("tiny-llada", str(ZOO / "tiny-qwen"), tmp_path / "out")
    ]
    assert ids[0] == ids[1] == ids[2]
