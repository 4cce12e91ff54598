"""DiffusionGemma: k masks are a canvas of k random tokens, and the logits are those of transformers' own class."""

import json
import math
from dataclasses import replace

import pytest
import torch
from lm_eval.api.instance import Instance
from typer.testing import CliRunner

import maskwise as mw
from helpers.random_canvas import diffusion_gemma_net, save_diffusion_gemma
from maskwise.cli import app
from maskwise.decoding.generate import prompt_generators
from maskwise.decoding.likelihood import log_likelihoods
from maskwise.lm_eval.model import MaskwiseLM
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.catalog import describe_checkpoint
from maskwise.models.families import NOISE_DRAWS
from maskwise.models.families.diffusion_gemma import CanvasHead, noise
from maskwise.report.words.printed_summary import print_summary
from maskwise.support.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_diffusion_gemma(tmp_path_factory.mktemp("diffusion-gemma"))


@pytest.fixture(scope="module")
def model(folder):
    return mw.open(folder, device="cpu")


@pytest.fixture(scope="module")
def sequences(model):
    """Prompts shorter and longer than the sliding window, canvases of several sizes, one with text between masks."""
    mask = model.mask_id
    prompts = [list(range(10, 10 + length)) for length in (40, 5, 17)]
    return [[*prompts[0], mask], [*prompts[1], *[mask] * 30], [*prompts[2], mask, 77, 78, mask]]


@torch.no_grad()
def own_logits(model, ids, draw, draws=NOISE_DRAWS):
    """Of transformers' class for one sequence alone, with this draw of the noise: [canvas, V]."""
    start = ids.index(model.mask_id)
    random = noise(ids[:start], len(ids) - start, model.vocab, draws)[draw].tolist()
    canvas = [r if token == model.mask_id else token for r, token in zip(random, ids[start:], strict=True)]
    return model.net(input_ids=torch.tensor([ids[:start]]), decoder_input_ids=torch.tensor([canvas])).logits[0]


def canvas_rows(model, ids):
    return list(range(ids.index(model.mask_id), len(ids)))


def test_predictions_of_a_batch_are_the_mean_of_transformers_own_over_the_draws(model, sequences):
    rows = [canvas_rows(model, ids) for ids in sequences]
    for ours, ids in zip(model.predict(sequences, rows), sequences, strict=True):
        mean = torch.stack([own_logits(model, ids, draw).softmax(-1) for draw in range(NOISE_DRAWS)]).mean(0)
        torch.testing.assert_close(ours, mean.log(), atol=2e-5, rtol=1e-4)


def test_with_one_draw_the_logits_are_those_of_transformers(sequences):
    model = mw.wrap(diffusion_gemma_net())
    model._body, model._own_head = replace(model._body, draws=1), CanvasHead(model.core, draws=1)
    rows = [canvas_rows(model, ids) for ids in sequences]
    for ours, ids in zip(model.predict(sequences, rows), sequences, strict=True):
        torch.testing.assert_close(ours, own_logits(model, ids, 0, draws=1), atol=2e-5, rtol=1e-4)


def test_a_larger_canvas_begins_with_the_same_noise_and_another_prompt_has_its_own():
    small, large = noise([1, 2], 3, 50, 4), noise([1, 2], 40, 50, 4)
    assert large[:, :3].equal(small) and not noise([1, 3], 40, 50, 4).equal(large)
    assert not noise([1, 2], 40, 50, 4, seed=1).equal(large)
    counts = torch.bincount(noise([5], 5000, 10, 4).flatten(), minlength=10)
    assert (counts - 2000).abs().max() < 5 * (20000 * 0.09) ** 0.5  # uniform over the vocabulary


def test_it_is_listed_without_reading_weights(folder, model):
    entry = describe_checkpoint(str(folder))
    assert (entry.kind, entry.window, entry.mask_id) == ("dgemma", 2048, model.vocab)
    assert entry.parameters == model.parameter_count


def test_a_saved_copy_predicts_the_same(model, tmp_path, sequences):
    model.save_pretrained(tmp_path / "saved")
    again = mw.open(tmp_path / "saved", device="cpu")
    rows = [canvas_rows(model, ids) for ids in sequences]
    for one, other in zip(model.predict(sequences, rows), again.predict(sequences, rows), strict=True):
        torch.testing.assert_close(one, other)


def test_what_has_no_meaning_is_refused(model):
    with pytest.raises(UserError, match="needs a prompt before its canvas"):
        model.predict([[model.mask_id]], [[0]])
    with pytest.raises(UserError, match="takes token ids only"):
        model.embed(torch.tensor([3]))
    with pytest.raises(UserError, match="cannot be moved"):
        model.hidden(Batch.spans([[5, 6]], [3]))
    with pytest.raises(UserError, match="takes no canvas cache"):
        model.new_cache([4])
    with pytest.raises(UserError, match="outside 0"):
        model.predict([[model.mask_id + 1]], [[0]])


# Decoding


def test_generation_is_that_of_transformers_sampler_and_the_same_for_the_same_seed(model):
    prompts = [[5, 6, 7], [9] * 20]
    made = mw.generate(model, prompts, max_new_tokens=12, seed=3)
    again = mw.generate(model, prompts[::-1], max_new_tokens=12, seed=3)
    assert [one.ids for one in made] == [one.ids for one in again][::-1]
    assert made.settings["sampler"] == "transformers"
    chance = prompt_generators(model, 3, prompts)[0]
    with torch.random.fork_rng([]):
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=chance)))
        own = model.net.generate(input_ids=torch.tensor(prompts[:1]), max_new_tokens=12, eos_token_id=None)
    assert made[0].ids == own.sequences[0, 3:15].tolist()
    assert max(made[0].order) == made[0].forwards - 1 and len(made[0].order) == 12


@pytest.mark.parametrize("more, sampler", [((), "transformers"), (("--rule", "margin"), None)])
def test_the_command_uses_its_own_sampler_too(folder, more, sampler):
    words = ["generate", str(folder), "Once upon a time", "-n", "4", "--json", *more]
    done = CliRunner().invoke(app, words, prog_name="maskwise")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["settings"].get("sampler") == sampler


def test_our_strategies_fill_a_canvas_of_the_asked_size(model):
    (made,) = mw.generate(model, [[5, 6, 7]], max_new_tokens=4, rule="margin")
    canvas = [5, 6, 7, *[model.mask_id] * 4]
    for _ in range(4):
        rows = [place for place, token in enumerate(canvas) if token == model.mask_id]
        top = model.predict([canvas], [rows])[0].softmax(-1).topk(2)
        best = int((top.values[:, 0] - top.values[:, 1]).argmax())
        canvas[rows[best]] = int(top.indices[best, 0])
    assert made.sequence == canvas


@pytest.mark.parametrize(
    "given, reason",
    [
        ({"guidance": 1.0}, "guidance does not apply"),
        ({"soft_mask": True}, "soft_mask does not apply"),
        ({"rule": "threshold", "edit": 0.9}, "edit does not apply"),
        ({"cache": "prefix", "block": 4}, "takes no canvas cache"),
    ],
)
def test_options_that_need_a_mask_token_are_refused(model, given, reason):
    with pytest.raises(UserError, match=reason):
        mw.generate(model, [[5, 6, 7]], max_new_tokens=8, **given)


def test_a_likelihood_is_the_chain_of_first_canvas_positions(model):
    prompt, answer, masks = [5, 6, 7], [40, 41, 42], 2
    found = log_likelihoods(model, [(prompt, answer)], masks=masks)[0]
    total = 0.0
    for place, token in enumerate(answer):
        given = [*prompt, *answer[:place]]
        canvas = [model.mask_id] * (len(answer) - place + masks)
        total += float(model.predict([[*given, *canvas]], [[len(given)]])[0][0].log_softmax(-1)[token])
    assert (found.method, found.log_likelihood) == ("chain", pytest.approx(total, abs=1e-4))
    with pytest.raises(UserError, match="only the chain rule applies"):
        log_likelihoods(model, [(prompt, answer)], method="exact")


@pytest.mark.parametrize("named", [True, False])
def test_training_is_refused_before_anything_is_asked(model, tmp_path, named):
    """By its published name before it is fetched: the tests reach no network."""
    given = "google/diffusiongemma-26B-A4B-it" if named else model
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"prompt": "a", "answer": "b"}\n' * 4)
    for train in (mw.tune, mw.train):
        with pytest.raises(UserError, match="no objective here draws"):
            train(given, data, tmp_path / "out", steps=1)


@pytest.mark.slow
def test_lm_eval_uses_the_chain_rule_and_generates(folder):
    lm = MaskwiseLM(str(folder), max_new_tokens=4)
    pair = ("One and one is", " two and more")
    ((likelihood, _),) = lm.loglikelihood([Instance("loglikelihood", {}, pair, 0)])
    (found,) = log_likelihoods(lm.model, [pair])
    assert found.method == "chain" and likelihood == pytest.approx(found.log_likelihood, abs=1e-4)
    assert len(lm.generate_until([Instance("generate_until", {}, (pair[0], {"until": []}), 0)])) == 1


# Diagnosis


@pytest.mark.slow
def test_a_quick_diagnosis_runs_through_to_the_page_and_speaks_of_canvas_size(model, tmp_path, capsys):
    asked = {"mask-count", "filler", "location", "contrast", "recall", "natural-text"}
    probes = ",".join([*sorted(asked), "order"])
    run = mw.diagnose(model, probes, preset="quick", points=1, relevant=1, distractors=3, out=tmp_path / "run")
    assert {record.probe for record in run.records} == asked
    assert all(math.isfinite(record.nll) for record in run.records)
    page = run.report().read_text()
    assert "Canvas size (k)" in page and "Masks at the end" not in page
    assert "averaged over 4 draws" in page and "order was not run" in page
    print_summary(run.reading)
    assert "lost to canvas positions" in capsys.readouterr().out
