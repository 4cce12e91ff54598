"""A model whose layers are in two stages answers as the whole model does."""

from dataclasses import replace

import pytest
import torch
from accelerate import dispatch_model

import maskwise as mw
from maskwise.models.attention.ragged import Layout, Watch
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.configuration import read_config, read_family
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.checkpoints.networks import network_without_weights
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.checkpoints.placement import plan_device_map
from maskwise.models.families.layers import Rotary, default_inverse_frequencies
from maskwise.support.errors import UserError

TEXT = "Once upon a"
MIB = 2**20


def bare(name):
    folder = locate_checkpoint(name)[0]
    family = read_family(folder)
    return network_without_weights(read_config(folder, family), family)


def in_stages(name):
    """The model dispatched as for two GPUs of equal size, both of them the CPU."""
    model = open_model(name, device="cpu")
    places = plan_device_map(bare(name.split("+")[0]), torch.float32, {0: 24 * MIB, 1: 24 * MIB})
    dispatch_model(model.core, dict.fromkeys(places, "cpu"), force_hooks=True)
    model.core.hf_device_map = places
    return model


@pytest.fixture(scope="module")
def pair():
    return open_model("tiny-llada", device="cpu"), in_stages("tiny-llada")


def asked(model):
    sequences = [[5, 6, 7, model.mask_id, 9], [3, model.mask_id, model.mask_id]]
    return torch.cat(model.predict(sequences, [[3], [1, 2]]))


def test_layers_are_in_two_stages_and_embeddings_and_head_in_the_first(pair):
    whole, spread = pair
    places = spread.core.hf_device_map
    layers = [place for name, place in places.items() if "blocks" in name]
    assert layers == sorted(layers) and {*layers} == {0, 1}
    assert {place for name, place in places.items() if "blocks" not in name} == {0}
    assert spread.spread and not whole.spread and not spread.recordable


def test_logits_likelihoods_and_fingerprint_are_those_of_the_whole_model(pair):
    whole, spread = pair
    assert torch.equal(asked(spread), asked(whole))
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


@pytest.mark.parametrize("name", ["tiny-dream", "tiny-qwen", "tiny-llada+distracted"])
def test_shifted_causal_and_adapted_models_in_two_stages(name):
    whole, spread = open_model(name, device="cpu"), in_stages(name)
    assert spread.spread
    assert torch.equal(*(model.predict([[5, 6, 7, 8]], [[2, 3]])[0] for model in (spread, whole)))


def test_what_does_not_fit_the_gpus_is_refused_with_its_size():
    for limits in ({0: 10 * MIB, 1: 10 * MIB}, {0: MIB, 1: 64 * MIB}):
        with pytest.raises(UserError, match="2 GPUs have room for"):
            plan_device_map(bare("tiny-llada"), torch.float32, limits)


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


@pytest.mark.parametrize(("given", "problem"), [("balanced", "unknown device map"), ("auto", "GPUs of one machine")])
def test_other_device_maps_and_devices_are_refused(given, problem):
    with pytest.raises(UserError, match=problem):
        open_model("tiny-llada", device="cpu", device_map=given)


def test_training_a_spread_model_is_refused(pair, tmp_path):
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"prompt": "a", "answer": "b"}\n')
    with pytest.raises(UserError, match="over several devices is not trained"):
        mw.tune(pair[1], data, tmp_path / "out")
