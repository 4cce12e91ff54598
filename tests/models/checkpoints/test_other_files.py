"""Folders with files that do not belong together: one line from `models` and from opening, or a notice."""

import json
import re

import pytest
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM
from typer.testing import CliRunner

import maskwise as mw
from helpers.tiny import llada_net
from maskwise.cli import app
from maskwise.support.errors import UserError, UserNotice


def said(line: str, status: int = 2) -> str:
    done = CliRunner().invoke(app, line.split(), prog_name="maskwise")
    assert done.exit_code == status, done.stderr
    return done.stderr if status else done.stdout


@pytest.fixture
def folder(tmp_path):
    mw.open("tiny-llada").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change(folder, **values):
    name = next(file for file in ("config.json", "adapter_config.json") if (folder / file).exists())
    settings = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(settings | values))


def words(count: int) -> PreTrainedTokenizerFast:
    found = Tokenizer(models.WordLevel({f"w{number}": number for number in range(count)}, unk_token="w0"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=found)


def test_models_checks_the_shapes_of_the_weights(folder):
    assert "works: all commands" in said(f"models {folder}", 0)
    change(folder, n_kv_heads=2)
    assert "does not fit its config.json: wrongly shaped weights" in said(f"models {folder}")


@pytest.mark.parametrize("count", [50, 5000])
def test_the_tokenizer_of_another_model_is_a_notice(folder, count):
    words(count).save_pretrained(folder)
    line = rf"the tokenizer has {count:,} tokens, and token 1, the model's mask, is 'w1' there"
    for call in (lambda: said(f"models {folder}", 0), lambda: mw.open(folder)):
        with pytest.warns(UserNotice, match=line):
            call()
    with pytest.warns(UserNotice, match=line):
        mw.wrap(AutoModelForCausalLM.from_pretrained(folder), words(count))


def test_a_folder_without_a_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.warns(UserNotice, match="has no tokenizer: it takes token ids alone"):
        said(f"models {folder}", 0)
    assert "copy its tokenizer.json there" in said(f"generate {folder} hi -n 2")


@pytest.mark.parametrize("ends", [5000, [3, 5000]])
def test_an_end_token_outside_the_vocabulary_names_its_file(folder, ends):
    change(folder, eos_token_id=ends)
    with pytest.warns(UserNotice, match=re.escape(f"config.json: eos_token_id {ends} is outside 0..2047")):
        said(f"models {folder}", 0)
    assert "eos_token_id of" in said(f"generate {folder} hi -n 2")


def test_a_pointer_of_git_lfs_is_named(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n")
    assert "model.safetensors is a Git LFS pointer, not the file itself: run git lfs pull" in said(f"models {folder}")


def test_adapters_name_what_is_wrong(tmp_path):
    mw.open("tiny-llada+distracted").save_pretrained(tmp_path / "adapter")
    rank = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"]
    change(tmp_path / "adapter", base_model_name_or_path="tiny-llada")
    assert "is an adapter; the table describes its base model" in said(f"models {tmp_path / 'adapter'}", 0)
    change(tmp_path / "adapter", r=2 * rank)
    with pytest.raises(UserError, match=f"r is {2 * rank}, but the adapter's weights have rank {rank}"):
        mw.open("tiny-llada", adapter=tmp_path / "adapter", any_base=True)
    change(tmp_path / "adapter", r=[rank])
    with pytest.raises(UserError, match=r"adapter_config\.json"):
        mw.open("tiny-llada", adapter=tmp_path / "adapter", any_base=True)
    change(tmp_path / "adapter", base_model_name_or_path="/gone/base")
    assert "no model '/gone/base', the base model that the adapter in" in said(f"generate {tmp_path / 'adapter'} hi")


def save_adapter(net, folder, **lora):
    """The folder of a LoRA adapter on the net, with the net itself under `base`."""
    net.save_pretrained(folder / "base")
    adapted = get_peft_model(net, LoraConfig(**lora))
    adapted.peft_config["default"].base_model_name_or_path = str(folder / "base")
    adapted.save_pretrained(folder / "adapter")
    return folder / "adapter"


def test_an_adapter_without_a_rank_has_that_of_peft(tmp_path):
    folder = save_adapter(llada_net(), tmp_path, r=8, target_modules=["q_proj"])
    settings = json.loads((folder / "adapter_config.json").read_text())
    del settings["r"]
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    assert mw.open(folder).net.peft_config["default"].r == 8


def test_an_adapter_of_expert_parameters_stores_the_ranks_of_all_experts_in_one(tmp_path):
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        head_dim=16,
    )
    experts = {"target_modules": [], "target_parameters": ["mlp.experts.gate_up_proj"]}
    folder = save_adapter(Qwen3MoeForCausalLM(config), tmp_path, r=2, **experts)
    stored = load_file(folder / "adapter_model.safetensors")
    assert stored["base_model.model.model.layers.0.mlp.experts.lora_A.weight"].shape[0] == 8
    assert mw.open(folder).net.peft_config["default"].r == 2


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>", "<MASK>", "<|mdm_mask|>"])
def test_the_mask_of_another_model_in_a_prompt(mask):
    line = (
        f"{mask} in a prompt is plain text to tiny-llada, whose mask is <|mask|>: write that to have a place filled in"
    )
    with pytest.warns(UserNotice) as warned:
        mw.generate("tiny-llada", f"The {mask} is", max_new_tokens=1)
    assert line in [str(one.message) for one in warned]
    with pytest.raises(UserError, match=re.escape(line)):
        mw.generate("tiny-llada", f"The {mask} is", max_new_tokens=0)


def test_a_mask_in_a_prompt_where_the_tokenizer_has_no_name_for_the_models_mask(folder):
    words(50).save_pretrained(folder)
    model = mw.wrap(AutoModelForCausalLM.from_pretrained(folder), words(50), mask_id=60)
    with pytest.warns(UserNotice, match=r"\[MASK\] in a prompt is plain text to .*, whose mask is token 60"):
        mw.generate(model, "The [MASK] is", max_new_tokens=1)


def test_a_mask_for_an_autoregressive_model():
    with pytest.warns(UserNotice, match="is autoregressive and fills in no masks"):
        mw.generate("tiny-qwen", "The <|mask|> is", max_new_tokens=1)


def test_the_name_of_a_file_as_prompt_and_traces_in_a_text_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("hi\n")
    done = CliRunner().invoke(app, ["generate", "tiny-llada", "prompts.txt", "-n", "1", "--out", "traces.txt"])
    assert done.exit_code == 0 and "its name is taken as the prompt: did you mean --file?" in done.stderr
    assert "traces.txt holds JSON lines: name it .jsonl" in done.stderr
