"""A model whose layers lie on disk answers as the whole model does."""

from dataclasses import replace

import pytest
import torch

import maskwise as mw
from helpers.checkpoints import save
from maskwise.cli.common import device_limits
from maskwise.models.attention.ragged import Layout, Watch
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.families.layers import Rotary, default_inverse_frequencies
from maskwise.probes.answers.gradients import attribute
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import Prompt

TEXT = "Once upon a"


def on_disk(name, limit="14MiB", **more):
    return open_model(name, device="cpu", device_map="auto", max_memory={"cpu": limit}, **more)


@pytest.fixture(scope="module")
def pair():
    return open_model("tiny-llada", device="cpu"), on_disk("tiny-llada")


def asked(model):
    sequences = [[5, 6, 7, model.mask_id, 9], [3, model.mask_id, model.mask_id]]
    return torch.cat(model.predict(sequences, [[3], [1, 2]]))


def test_some_layers_are_on_disk_and_embeddings_are_not(pair):
    whole, spread = pair
    places = list(spread.core.hf_device_map.values())
    assert {"cpu", "disk"} == set(places) and 0 < places.count("disk") < 6
    assert spread.spread and not whole.spread
    assert str(spread.device) == "cpu" and not spread.head_weight.is_meta and not spread.recordable


def test_logits_likelihoods_and_fingerprint_are_those_of_the_whole_model(pair):
    whole, spread = pair
    assert torch.equal(asked(whole), asked(spread))
    rows = [{"prompt": TEXT, "answer": " time"}]
    assert mw.score(whole, rows) == mw.score(spread, rows)
    assert fingerprint(whole) == fingerprint(spread)


@pytest.mark.parametrize("options", [{}, {"cache": "dual"}, {"cache": "prefix", "block": 4}], ids=str)
def test_generations_are_those_of_the_whole_model(pair, options):
    whole, spread = ([one.ids for one in model.generate(TEXT, max_new_tokens=8, **options)] for model in pair)
    assert whole == spread


def test_gradients_and_attention_are_those_of_the_whole_model(pair):
    found = []
    for model in pair:
        batch = Batch.pack([[5, 6, model.mask_id, 9]], model.device)
        embeds = model.embed(batch.ids).detach().requires_grad_()
        rows = model.flat_rows(batch, [[2]])
        hidden, seen = model.hidden_and_attention(replace(batch, embeds=embeds), rows)
        model.head(hidden[rows])[0, 7].backward()
        found.append([embeds.grad, *seen])
    assert all(map(torch.equal, *found))


def test_attribution_after_other_probes_of_a_run(pair):
    """Offloaded weights that a probe loaded in inference mode cannot take part in gradients."""
    spread = pair[1]
    with torch.inference_mode():
        asked(spread)
    prompt = Prompt((5, 6, spread.mask_id, 9), 2, 7, 1)
    found, expected = (attribute(model, [prompt], near=1)[0] for model in (spread, pair[0]))
    assert found.nll == expected.nll and found.evidence == expected.evidence


def test_an_adapter_is_put_on_layers_on_disk():
    whole, spread = open_model("tiny-llada+distracted", device="cpu"), on_disk("tiny-llada+distracted")
    assert torch.equal(asked(whole), asked(spread))


@pytest.mark.parametrize(("kind", "limit"), [("llada2", "200KiB"), ("ar", "80KiB")])
def test_experts_and_causal_models_on_disk(tmp_path, kind, limit):
    """Experts on disk are computed one by one, so their sums differ in rounding."""
    folder = save(tmp_path / kind, kind)
    whole, spread = open_model(folder, device="cpu"), on_disk(folder, limit)
    assert spread.spread
    for found, expected in zip(*(model.predict([[5, 6, 7, 8]], [[2, 3]]) for model in (spread, whole)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_a_model_that_fits_is_opened_whole():
    model = open_model("tiny-llada", device="cpu", device_map="auto")
    assert not model.spread


def test_layouts_and_rotary_tables_are_moved_to_the_device_of_a_layer():
    """The meta device stands for another card."""
    offsets = torch.tensor([0, 2], dtype=torch.int32)
    watch = Watch(torch.tensor([1]))
    layout = Layout(offsets, offsets, 2, 2, False, False, key_mask=torch.ones(1, 1, 1, 2), watch=watch)
    there = layout.to("meta")
    assert there.q_offsets.is_meta and there.key_mask.is_meta and there.watch.queries.is_meta
    assert there.watch.seen is watch.seen and layout.to("meta") is there and layout.to("cpu") is layout
    rotary = Rotary(torch.arange(2), default_inverse_frequencies(1e4, 8), 1.0)
    assert rotary.to("meta").cosine.is_meta and rotary.to("cpu") is rotary


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"device_map": "balanced"}, "unknown device map"),
        ({"max_memory": {"cpu": "1GiB"}}, "max_memory is for"),
        ({"device_map": "auto", "max_memory": {3: "1GiB"}}, "names 3, but the devices here are cpu"),
        ({"device_map": "auto", "max_memory": {"cpu": "much"}}, "such as 10GiB"),
        ({"device_map": "auto", "max_memory": {"cpu": "1KiB"}}, "embeddings and head take"),
        ({"device_map": "auto", "weights": "fp8"}, "one device"),
    ],
)
def test_refusals(more, problem):
    with pytest.raises(UserError, match=problem):
        open_model("tiny-llada", device="cpu", **more)


def test_options_of_the_command_line_are_read_and_refused():
    assert device_limits("auto", "0=10GiB, cpu=30GiB") == {0: "10GiB", "cpu": "30GiB"}
    for given in [("auto", "10GiB"), ("auto", "gpu=1GiB"), (None, "0=1GiB"), ("half", None)]:
        with pytest.raises(UserError):
            device_limits(*given)


def test_training_a_spread_model_is_refused(pair, tmp_path):
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"prompt": "a", "answer": "b"}\n')
    with pytest.raises(UserError, match="over several devices is not trained"):
        mw.tune(pair[1], data, tmp_path / "out")
