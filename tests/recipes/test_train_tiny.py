"""The whole training program at toy size: learn, examine, save, resume, open."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import maskwise as mw
from corpus import load_zoo_tokenizer
from muon import Muon, orthogonal
from task_accuracy import accuracies, hidden_states, make_exam
from tiny_step import ANSWER, KINDS, TOY, Training, balanced, make_net, mask_answers
from train_tiny import kind_of, length_at, scale_of, shortened, train

TOKENIZER = load_zoo_tokenizer()
MASK = TOKENIZER.mask_token_id


@pytest.fixture(scope="module")
def english(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("prose") / "english.npy"
    np.save(path, np.array(TOKENIZER.encode("It was a dark and stormy night. " * 50), dtype=np.int16))
    return path


def options(english: Path, out: Path, **more) -> argparse.Namespace:
    usual = {"minutes": 0.02, "stop_after": None, "start": None, "rate": None, "seed": 0, "resume": False, "toy": True,
             "objective": None, "cut": None, "grow": None}  # fmt: skip
    return argparse.Namespace(english=english, out=out, **(usual | more))


def new_training(name: str) -> Training:
    torch.manual_seed(0)
    return Training(KINDS[name], make_net(name, TOY, TOKENIZER, 256), MASK, 1e-2, torch.device("cpu"), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_what_is_learnt_is_what_is_examined(name):
    """Trained on the exam's own prompts, a model of each kind answers them: losses and exams read the same rows."""
    kind, training = KINDS[name], new_training(name)
    exam = make_exam(TOKENIZER, MASK if kind.diffusion else None, points=1, relevant=0, distractors=0)
    longest = max(prompt.row for prompt in exam.prompts) + 1
    rows = torch.full((len(exam.prompts), longest + 1), TOKENIZER.eos_token_id, dtype=torch.int16)
    for place, prompt in enumerate(exam.prompts):
        rows[place, : prompt.row] = torch.tensor(prompt.ids[: prompt.row], dtype=torch.int16)
        rows[place, prompt.row] = prompt.answer_id | ANSWER
        rows[place, prompt.row + 1] = TOKENIZER.encode("].")[0]
    for _ in range(600 if kind.objective == "plain" else 100):  # of the plain one few rows hide the answer alone
        training.step(rows, progress=0.0, warmth=1.0)
    by_task = accuracies(training.plain_net(), exam, kind.shift, kind.causal)
    assert len(by_task) == 16 and sum(by_task) / 16 > 0.9


@pytest.mark.slow
def test_toy_run_saves_resumes_and_opens(english, tmp_path):
    folder = tmp_path / "tiny-qwen"
    scale = scale_of(KINDS["tiny-qwen"], "256x6", toy=True)
    first = train("tiny-qwen", scale, options(english, folder, minutes=9, stop_after=0.01))
    second = train("tiny-qwen", scale, options(english, folder, minutes=first.seconds / 60 + 0.02, resume=True))
    assert second.steps > first.steps and second.tokens > first.tokens
    (folder / "state.pt").unlink()
    third = train("tiny-qwen", scale, options(english, folder, minutes=second.seconds / 60 + 0.02, resume=True))
    assert third.steps > second.steps
    dream = train("tiny-dream", scale, options(english, tmp_path / "tiny-dream", start=folder))
    llada = train("tiny-llada", scale, options(english, tmp_path / "tiny-llada"))
    for facts, kind in ((third, "ar"), (dream, "dream"), (llada, "llada")):
        model = mw.open(tmp_path / facts.model)
        assert model.kind == kind and model.window == 256
        stored = json.loads((tmp_path / facts.model / "training.json").read_text())
        assert stored["sha256"] in (tmp_path / facts.model / "README.md").read_text()
        assert stored["tokens"] == facts.tokens and set(facts.final["by_task"].values()) <= {0.0, 1.0}


@pytest.mark.parametrize("name", KINDS)
def test_the_saved_model_predicts_what_the_trained_one_does(name, english, tmp_path):
    from zoo_card import as_qwen

    training = new_training(name)
    net, kind = training.plain_net(), KINDS[name]
    ids = torch.randint(3, len(TOKENIZER), (1, 20))
    ours = hidden_states(net, ids, kind.causal)
    saved = as_qwen(net) if name == "tiny-qwen" else net
    saved.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    model = mw.open(tmp_path)
    asked = [5, 12]
    logits = model.predict([ids[0].tolist()], [asked])[0]
    expected = ours[torch.tensor(asked) - int(kind.shift)] @ net.get_output_embeddings().weight.t()
    vocabulary = [token for token in range(len(TOKENIZER)) if token != MASK]
    torch.testing.assert_close(logits[:, vocabulary], expected[:, vocabulary].detach(), rtol=1e-4, atol=1e-4)


def test_masking_weighs_only_masked_tokens_and_answers_half():
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 50, (64, 128), generator=draws)
    answer = torch.rand(ids.shape, generator=draws) < 0.05
    masked, weights = mask_answers(ids, answer, MASK, 0.5, draws)
    hidden = masked == MASK
    assert ((weights > 0) == hidden).all()
    assert (masked[~hidden] == ids[~hidden]).all()
    torch.testing.assert_close(weights.sum(), torch.tensor(2.0))
    share = hidden.float().mean(1)
    assert share.min() < 0.1 and share.max() > 0.8
    assert balanced(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)).sum() == pytest.approx(1)


def test_tiny_llada_has_the_plain_objective_and_options_change_it(english, tmp_path):
    asked = options(english, tmp_path)
    assert kind_of("tiny-llada", asked).objective == "plain"
    changed = kind_of("tiny-llada", options(english, tmp_path, objective="focused", cut=0.5))
    assert (changed.objective, changed.cut, changed.rate) == ("focused", 0.5, KINDS["tiny-llada"].rate)


@pytest.mark.slow
def test_cut_batches_are_shorter(english, tmp_path):
    rows = torch.arange(20).view(2, 10)
    assert shortened(rows, 4).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [10, 11, 12, 13], [14, 15, 16, 17]]
    assert shortened(rows, 7).tolist() == rows[:, :7].tolist()
    scale = scale_of(KINDS["tiny-llada"], "256x6", toy=True)
    facts = train("tiny-llada", scale, options(english, tmp_path, cut=1.0))
    assert facts.tokens < facts.steps * scale.step_tokens
    assert facts.cut == 1.0 and "100% of the batches cut" in (tmp_path / "README.md").read_text()


def test_rows_grow():
    phases = KINDS["tiny-llada"].phases
    assert [length_at(phases, progress) for progress in (0, 0.4, 0.99)] == [384, 768, 1536]


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 24, 8), (2, 8, 24)])
def test_orthogonal_pulls_singular_values_towards_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(matrices))
    assert values.min() > 0.3 and values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    assert torch.nn.functional.cosine_similarity(orthogonal(matrices).flatten(), (left @ right).flatten(), dim=0) > 0.95


def test_muon_descends_and_keeps_its_state():
    weight = torch.nn.Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(2)))
    optimiser = Muon([weight], lr=0.05, weight_decay=0.0)
    before = weight.square().sum().item()
    for _ in range(20):
        optimiser.zero_grad()
        weight.square().sum().backward()
        optimiser.step()
    assert weight.square().sum().item() < before
    other = Muon([torch.nn.Parameter(weight.detach().clone())], lr=0.05)
    other.load_state_dict(optimiser.state_dict())
    stored = next(iter(other.state.values()))["momentum"]
    torch.testing.assert_close(stored, next(iter(optimiser.state.values()))["momentum"])
