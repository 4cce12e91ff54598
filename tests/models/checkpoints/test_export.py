"""`maskwise export`: the merged checkpoint is the adapted model, in the original's own files and names."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from test_verify import ORIGINAL
from typer.testing import CliRunner

import maskwise as mw
from helpers.tiny import dream_net, llada_net, qwen_net
from maskwise.cli import app
from maskwise.models.checkpoints.export import export
from maskwise.models.checkpoints.verify import verify
from maskwise.models.peft_access import linear_targets
from maskwise.support.errors import UserError

IDS = [5, 9, 63, 63, 2, 41, 63]


def adapt(net, folder, seed=0, **more):
    """Saves a LoRA adapter that is not zero."""
    torch.manual_seed(seed)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": linear_targets(net)}
    adapted = get_peft_model(net, LoraConfig(**(settings | more)))
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data.normal_(std=0.1)
    adapted.save_pretrained(folder)
    return folder


def tensors(folder):
    found = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            found |= {name: (file.name, opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118
    return found


def logits(model):
    return model.predict([IDS], [[2, 3, 6]])[0]


@pytest.mark.parametrize("make", [llada_net, dream_net, qwen_net])
@pytest.mark.parametrize("more", [{}, {"use_rslora": True, "alpha_pattern": {"q_proj": 3}}], ids=["plain", "patterns"])
def test_the_merged_model_answers_as_the_adapted_one(make, more, tmp_path):
    make().save_pretrained(tmp_path / "base", max_shard_size="20KB")
    adapter = adapt(make(), tmp_path / "adapter", **more)
    out = export(tmp_path / "base", tmp_path / "merged", adapter)
    adapted = mw.open(tmp_path / "base", adapter=adapter)
    merged, base = mw.open(out), mw.open(tmp_path / "base")
    torch.testing.assert_close(logits(merged), logits(adapted), atol=2e-5, rtol=1e-4)
    assert (logits(base) - logits(adapted))[:, :60].abs().max() > 0.1
    before, after = tensors(tmp_path / "base"), tensors(out)
    assert len({file for file, _ in before.values()}) > 1
    assert {n: (f, t.dtype, t.shape) for n, (f, t) in before.items()} == {
        n: (f, t.dtype, t.shape) for n, (f, t) in after.items()
    }
    touched = {name for name in before if not torch.equal(before[name][1], after[name][1])}
    modules = {name.removesuffix(".weight") for name in touched}
    assert modules and len(modules) == len(adapted.net.targeted_module_names)
    assert not any("norm" in name or "wte" in name or "embed" in name for name in modules)
    for name in ("config.json", "model.safetensors.index.json"):
        assert (out / name).read_bytes() == (tmp_path / "base" / name).read_bytes()


def test_what_a_killed_export_left_does_not_open_and_the_next_one_is_whole(tmp_path):
    llada_net().save_pretrained(tmp_path / "base")
    adapter = adapt(llada_net(), tmp_path / "adapter")
    left = tmp_path / "merged.partial"
    left.mkdir()
    (left / "model-00001-of-00009.safetensors").write_bytes(b"half")
    names = [file.name for file in (tmp_path / "base").iterdir()]
    out = export(tmp_path / "base", tmp_path / "merged", adapter)
    assert not left.exists() and {f.name for f in out.iterdir()} == {*names, "README.md"}


def test_bfloat16_is_rounded_once(tmp_path):
    llada_net().to(torch.bfloat16).save_pretrained(tmp_path / "base")
    adapter = adapt(llada_net(), tmp_path / "adapter")
    out = export(tmp_path / "base", tmp_path / "merged", adapter)
    exact = mw.open(tmp_path / "base", "float32", "cpu", adapter).net.merge_and_unload()
    for name, weight in exact.state_dict().items():
        stored = tensors(out)[name][1]
        assert stored.dtype == torch.bfloat16
        # One rounding: within half a unit in the last place (2^-8) of the exact sum, float32 noise aside.
        assert ((stored.float() - weight).abs() <= weight.abs() * 2**-8 + 1e-7).all()


def test_the_originals_own_code_opens_it(tmp_path):
    base = tmp_path / "base"
    dream_net(rope_theta=1e4).save_pretrained(base)
    (base / "original.py").write_text(ORIGINAL)
    settings = json.loads((base / "config.json").read_text())
    settings["auto_map"] = {"AutoConfig": "original.Config", "AutoModel": "original.Net"}
    (base / "config.json").write_text(json.dumps(settings, indent=1))
    out = export(base, tmp_path / "merged", adapt(dream_net(rope_theta=1e4), tmp_path / "adapter"))
    assert (out / "config.json").read_bytes() == (base / "config.json").read_bytes()
    found = verify(str(out), "float32", "cpu")
    assert found["largest_logit_difference"] < 1e-4 and found["greedy_tokens_that_differ"] == 0


def test_the_command_copies_tokenizer_files_and_leaves_other_weights_behind(tmp_path):
    base = tmp_path / "base"
    llada_net().save_pretrained(base)
    (base / "tokenizer_config.json").write_text("{}")
    (base / "pytorch_model.bin").write_bytes(b"old")
    adapter = adapt(llada_net(), tmp_path / "adapter")
    arguments = ["export", base, "--adapter", adapter, "--out", tmp_path / "merged"]
    result = CliRunner().invoke(app, [str(a) for a in [*arguments, "--json"]])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["out"] == str(tmp_path / "merged")
    copied = {f.name for f in base.iterdir() if f.name != "pytorch_model.bin"}
    assert {f.name for f in (tmp_path / "merged").iterdir()} == copied | {"README.md"}
    again = CliRunner().invoke(app, [str(a) for a in arguments])
    assert again.exit_code == 2 and "is not empty" in again.stderr


def test_what_cannot_be_merged_is_refused_and_nothing_is_written(tmp_path):
    base, out = tmp_path / "base", tmp_path / "out"
    llada_net().save_pretrained(base)
    cases = {
        "is for another model": adapt(llada_net(layers=1), tmp_path / "smaller"),
        "not plain LoRA": adapt(llada_net(), tmp_path / "dora", use_dora=True),
        "no adapter_config.json": tmp_path / "nothing",
    }
    for reason, adapter in cases.items():
        with pytest.raises(mw.UserError, match=reason):
            export(base, out, adapter)
    # Each of these changes more than a linear map's weight, or starts from another base.
    for number, more in enumerate(
        [
            {"target_modules": ["q_proj", "wte"]},
            {"init_lora_weights": "pissa"},
            {"init_lora_weights": "olora"},
            {"lora_bias": True},
            {"modules_to_save": ["attn_norm"]},
        ]
    ):
        adapter = adapt(llada_net(), tmp_path / str(number), **more)
        with pytest.raises(mw.UserError, match="not plain LoRA"):
            export(base, out, adapter)
    with pytest.raises(mw.UserError, match="has no adapter, so there is nothing to merge: give one with adapter"):
        export(base, out)
    assert not out.exists()


def test_the_card_tells_of_the_merge_and_of_no_folder_of_this_machine(tmp_path):
    """The base's licence and card, under ours; what it says of code is left alone."""
    llada_net().save_pretrained(tmp_path / "my-base")
    base_card = "---\nlicense: mit\nlanguage: en\n---\n# My base\n\n```\n# a comment\n```\n"
    (tmp_path / "my-base" / "README.md").write_text(base_card)
    adapter = adapt(llada_net(), tmp_path / "my-adapter")
    (adapter / "README.md").unlink(missing_ok=True)
    card = (export(tmp_path / "my-base", tmp_path / "merged", adapter) / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n") and "# my-base, merged\n" in card
    assert "`my-base` with the LoRA adapter `my-adapter` merged" in card and str(tmp_path) not in card
    assert "### My base" in card and "\n# a comment" in card
    embedded = (export("tiny-llada+distracted", tmp_path / "ma") / "README.md").read_text()
    assert (
        "license: apache-2.0" in embedded
        and "`tiny-llada+distracted` with the LoRA adapter `tiny-llada+distracted`" in embedded
    )


def test_a_link_that_leaves_the_checkpoint_is_not_exported(tmp_path):
    llada_net().save_pretrained(tmp_path / "base")
    adapter = adapt(llada_net(), tmp_path / "adapter")
    (tmp_path / "token").write_text("secret")
    (tmp_path / "base" / "notes.txt").symlink_to(tmp_path / "token")
    with pytest.raises(UserError, match="is a link to a file outside the checkpoint"):
        export(tmp_path / "base", tmp_path / "merged", adapter)
    assert not (tmp_path / "merged").exists()


def test_links_of_the_hubs_cache_are_exported_and_weights_get_the_usual_mode(tmp_path):
    snapshot, blobs = tmp_path / "models--me--base" / "snapshots" / "1f2e", tmp_path / "models--me--base" / "blobs"
    blobs.mkdir(parents=True)
    llada_net().save_pretrained(snapshot)
    (blobs / "9a").write_bytes((snapshot / "config.json").read_bytes())
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(blobs / "9a")
    out = export(snapshot, tmp_path / "merged", adapt(llada_net(), tmp_path / "adapter"))
    assert not (out / "config.json").is_symlink()
    assert (out / "config.json").read_bytes() == (blobs / "9a").read_bytes()
    (tmp_path / "new").touch()
    assert (out / "model.safetensors").stat().st_mode == (tmp_path / "new").stat().st_mode
