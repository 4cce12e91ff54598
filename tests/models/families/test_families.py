"""The table of families: it is true of the networks, config.json comes before it, and it can be extended."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from outside_family import MIRROR, MirrorConfig, MirrorModelLM
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig
from typer.testing import CliRunner

import maskwise as mw
from helpers.tiny import (
    dream_net,
    edit_config,
    fast_dllm_net,
    illada_net,
    llada2_net,
    llada_moe_net,
    llada_net,
    qwen_net,
    sdar_net,
    tiny_dream,
)
from maskwise.cli import app
from maskwise.models.checkpoints.catalog import (
    describe_checkpoint,
    describe_embedded,
    describe_folder,
    describe_published,
)
from maskwise.models.checkpoints.locations import embedded_models, locate_checkpoint
from maskwise.models.checkpoints.networks import network_without_weights
from maskwise.models.families import AUTOREGRESSIVE, DREAM, FAMILIES, WRAPPED, family_of_class
from maskwise.models.families.padded import SpecialTokens, context_length
from maskwise.models.peft_access import linear_targets
from maskwise.support.errors import UserError
from maskwise.support.imports import imported

NETS = {"llada": llada_net, "illada": illada_net, "dream": dream_net, "llada-moe": llada_moe_net, "ar": qwen_net}
PUBLISHED = [(family, known) for family in FAMILIES for known in family.published]


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_models_are_listed_without_torch():
    code = (
        "import sys; from maskwise.models.checkpoints.catalog import list_models; assert len(list_models()) > 10; "
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    ended = run_python(code)
    assert ended.stdout == "set()\n", ended.stdout + ended.stderr


def test_each_class_of_a_family_is_a_name_of_the_package():
    import maskwise.models as package

    for family in FAMILIES:
        for path in (family.net_class, family.config_class):
            if path is not None and path.startswith("maskwise."):
                assert getattr(package, path.split(":")[1]) is imported(path)
                assert path.split(":")[1] in package.__all__
    with pytest.raises(AttributeError, match="NoSuchModel"):
        package.NoSuchModel  # noqa: B018


def test_names_and_architectures_are_unique_and_each_masked_family_names_its_paper():
    names = [family.name for family in FAMILIES]
    assert names == ["llada", "illada", "dream", "llada-moe", "llada2", "sdar", "sdar-moe", "fast-dllm",
                     "ar", "masked-lm", "wrapped"]  # fmt: skip
    architectures = [family.architecture for family in FAMILIES if family.native]
    assert len(set(architectures)) == len(architectures)
    for family in FAMILIES:
        if family.native:
            assert imported(family.net_class).__name__ == family.architecture
            assert imported(family.net_class).config_class is imported(family.config_class)
            assert "arXiv" in family.reference
            config = imported(family.config_class)().get_text_config()
            assert family.experts == hasattr(config, "num_experts")
            assert family.blockwise == (getattr(config, "attention_block", None) is not None)
            assert family.default_block == getattr(config, "attention_block", None)
            assert not family.blockwise or getattr(config, family.block_field) == family.default_block


def published_cases():
    """Networks with hundreds of experts take seconds to build, even without weights."""
    for family, known in PUBLISHED:
        marks = [pytest.mark.slow] if known.parameters > 15e9 else []
        yield pytest.param(family, known, id=known.name, marks=marks)


@pytest.mark.parametrize("family, known", published_cases())
def test_what_is_stated_of_a_published_checkpoint_is_true_of_its_network(family, known):
    settings = dict(known.settings)
    config = imported(family.config_class)(**settings) if family.native else AutoConfig.for_model(**settings)
    net = network_without_weights(config, family)
    stated = describe_published(known, family)
    assert stated["parameters"] == sum(parameter.numel() for parameter in net.parameters())
    framing = SimpleNamespace(frame=SpecialTokens((1,), (2,)))  # a tokenizer that writes [CLS] and [SEP]
    positions = context_length(net, framing) if family.framed else config.get_text_config().max_position_embeddings
    assert stated["window"] == positions
    assert stated["lora_targets"] == linear_targets(net)
    assert stated.get("block") == getattr(config, "attention_block", None)
    assert family.causal or stated["mask_id"] < net.get_input_embeddings().weight.shape[0]
    assert describe_checkpoint(known.name) == stated


@pytest.mark.parametrize("name", [name for name in embedded_models() if name != "smol-diffusion"])
def test_an_embedded_model_is_listed_as_its_folder_is_described(name):
    listed = describe_embedded(name)
    planted = {"planted": listed["planted"]} if "planted" in listed else {}  # which a folder cannot tell
    assert listed == describe_folder(name, locate_checkpoint(name)[0]) | planted


@pytest.mark.parametrize("name", NETS)
def test_stated_adapter_targets_are_those_found_in_the_network(name, tmp_path):
    net = NETS[name]()
    net.save_pretrained(tmp_path)
    model = mw.open(tmp_path)
    assert model.kind == name
    assert model.lora_targets == linear_targets(net) == describe_checkpoint(str(tmp_path))["lora_targets"]


def test_stated_adapter_targets_are_the_same_with_an_adapter_on_the_model():
    model = tiny_dream()
    before = model.lora_targets
    model.net = get_peft_model(model.core, LoraConfig(r=2, target_modules=before))
    assert model.lora_targets == before


@pytest.mark.parametrize("make, field", [(sdar_net, "block_size"), (fast_dllm_net, "bd_size")])
def test_the_blocks_of_a_folder_are_those_of_its_config_and_messages_say_where_they_stand(make, field, tmp_path):
    make().save_pretrained(tmp_path)
    edit_config(tmp_path, **{field: 16})
    assert describe_checkpoint(str(tmp_path))["block"] == mw.open(tmp_path).block == 16
    shown = CliRunner().invoke(app, ["models", str(tmp_path)]).stdout
    assert f"\nover blocks of 16{', shifted' if make is fast_dllm_net else ''}; adapters" in shown
    with pytest.raises(UserError, match=rf"blocks of 16 tokens \({field} of its config.json\): choose one that does"):
        mw.generate(mw.open(tmp_path), [[1, 2]], 12, block=6)


# What config.json says comes first


@pytest.fixture
def unshifted_folder(tmp_path):
    dream_net().save_pretrained(tmp_path / "unshifted")
    edit_config(tmp_path / "unshifted", shift=False)
    return tmp_path / "unshifted"


def assert_unshifted(folder):
    """Opened and described without shift: the prediction of position i is row i of the class's own logits."""
    model = mw.open(folder)
    assert (model.kind, model.shift) == ("dream", False)
    assert describe_checkpoint(str(folder))["shift"] is False
    dense = model.core(input_ids=torch.tensor([[5, 63, 9]])).logits[0].detach()
    torch.testing.assert_close(model.predict([[5, 63, 9]], [[0, 1, 2]])[0][:, :63], dense[:, :63])
    with pytest.raises(UserError, match=r"row 3 is outside 0\.\.2"):
        model.predict([[5, 63, 9]], [[3]])
    return model


def test_a_dream_checkpoint_without_shift_opens_and_is_saved_as_one(unshifted_folder, tmp_path):
    model = assert_unshifted(unshifted_folder)
    model.core.save_pretrained(tmp_path / "again")
    assert_unshifted(tmp_path / "again")


def test_a_checkpoint_without_shift_is_exported_as_one(unshifted_folder, tmp_path):
    targets = mw.open(unshifted_folder).lora_targets
    adapted = get_peft_model(dream_net(), LoraConfig(r=2, target_modules=targets, init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    assert_unshifted(mw.export(unshifted_folder, tmp_path / "merged", tmp_path / "adapter"))


def test_generation_without_shift_needs_no_position_before_the_canvas(unshifted_folder):
    """The one mask of a canvas of one token is filled from its own hidden state."""
    model = mw.open(unshifted_folder)
    written = mw.generate(model, [[5, 9]], max_new_tokens=1)[0].sequence[-1]
    expected = model.core(input_ids=torch.tensor([[5, 9, 63]])).logits[0, 2, :63].argmax()
    assert written == int(expected)


@pytest.mark.parametrize("shift", [True, False])
def test_convert_writes_a_shift_that_is_not_dreams(shift, tmp_path):
    qwen_net().save_pretrained(tmp_path / "ar")
    arguments = ["convert", tmp_path / "ar", "--out", tmp_path / "out", *([] if shift else ["--no-shift"])]
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ended.exit_code == 0, ended.output
    assert f"bidirectional{', shifted' if shift else ''}, mask id 64" in ended.stdout
    assert json.loads((tmp_path / "out" / "config.json").read_text()).get("shift") == (None if shift else False)
    assert mw.open(tmp_path / "out").shift == shift


def test_shift_is_what_is_passed_then_the_configurations_then_the_familys(tmp_path):
    assert not mw.wrap(dream_net(), shift=False).shift
    assert mw.wrap(dream_net(shift=False), shift=True).shift
    assert not mw.wrap(dream_net(shift=False)).shift
    assert mw.wrap(llada_net(shift=True)).shift
    llada_net().save_pretrained(tmp_path)
    for stated, shift in ((True, True), (False, False), (None, False)):
        edit_config(tmp_path, shift=stated)
        assert mw.open(tmp_path).shift == shift
    edit_config(tmp_path, shift="no")
    with pytest.raises(UserError, match='shift is "no", not true or false'):
        mw.open(tmp_path)


def test_the_length_of_training_is_known_of_the_configured_length_alone():
    assert DREAM.trained_context_length(131072) == 2048
    assert DREAM.trained_context_length(4096) is None
    assert tiny_dream(window=131072).trained_window == 2048
    assert tiny_dream(window=4096).trained_window is None


# A family from outside


@pytest.fixture
def mirror_folder(tmp_path):
    settings = llada_net(mask_token_id=None).config.to_dict()
    torch.manual_seed(0)
    MirrorModelLM(MirrorConfig(**{name: settings[name] for name in settings if name != "model_type"})).save_pretrained(
        tmp_path / "mirror"
    )
    return tmp_path / "mirror"


def test_a_family_from_outside_is_opened_and_described_by_an_extended_tuple(mirror_folder):
    families = (*FAMILIES, MIRROR)
    model, entry = mw.open(mirror_folder, families=families), describe_checkpoint(str(mirror_folder), families)
    assert (model.kind, model.mask_id, model.shift, model.causal) == ("mirror", 7, True, False)
    assert {key: entry[key] for key in ("kind", "mask_id", "shift", "causal")} == {
        "kind": "mirror",
        "mask_id": 7,
        "shift": True,
        "causal": False,
    }
    assert model.attention_readable
    assert type(model.core) is MirrorModelLM
    assert entry["lora_targets"] == model.lora_targets == linear_targets(model.core)  # found: the family states none
    dense = model.core(input_ids=torch.tensor([[5, 7, 9]])).logits[0, 1].detach()
    dense[7] = -torch.inf
    torch.testing.assert_close(model.predict([[5, 7, 9]], [[2]])[0][0], dense)
    assert len(mw.generate(model, [[5, 9]], max_new_tokens=4)[0].sequence) == 6


def test_a_family_from_outside_is_unknown_without_the_tuple(mirror_folder):
    for look in (mw.open, lambda folder: describe_checkpoint(str(folder))):
        with pytest.raises(UserError, match=r"unknown architecture 'MirrorModelLM'; supported are LLaDAModelLM, IL"):
            look(mirror_folder)


def test_wrap_takes_a_network_as_the_nearest_family_it_inherits_from():
    net = MirrorModelLM(MirrorConfig(**{"d_model": 32, "n_layers": 1, "n_heads": 2, "vocab_size": 64}))
    assert mw.wrap(net, mask_id=3).kind == "llada"
    assert mw.wrap(net, mask_id=3, families=(*FAMILIES, MIRROR)).kind == "mirror"
    assert family_of_class(type(qwen_net())) is None


def test_what_a_model_cannot_do_is_read_from_its_family():
    unreadable = replace(MIRROR, attention_readable=False, canvas_cache=False)
    net = MirrorModelLM(MirrorConfig(**{"d_model": 32, "n_layers": 1, "n_heads": 2, "vocab_size": 64}))
    model = mw.wrap(net, mask_id=3, families=(*FAMILIES, unreadable))
    assert not model.attention_readable
    with pytest.raises(UserError, match="takes no canvas cache"):
        model.new_cache([4])
    assert not WRAPPED.attention_readable and not WRAPPED.cuda_graphs
    assert AUTOREGRESSIVE.attention_readable


@pytest.mark.parametrize("architecture", ["DiffusionGemmaForBlockDiffusion", "NemotronLabsDiffusionModel"])
def test_a_family_of_0_2_is_refused_by_its_config_json(tmp_path, architecture):
    llada_net().save_pretrained(tmp_path)
    edit_config(tmp_path, architectures=[architecture])
    with pytest.raises(UserError, match=f"{architecture} was removed in 0.3"):
        mw.open(tmp_path)


def test_llada2_2_is_refused_by_the_capacity_of_its_experts(tmp_path):
    llada2_net().save_pretrained(tmp_path)
    edit_config(tmp_path, expert_capacity=4)
    for read in (mw.open, describe_checkpoint):
        with pytest.raises(UserError, match=r"LLaDA2\.2 was removed in 0.3"):
            read(str(tmp_path))
