"""Checkpoints of strangers: what would hang or fill the memory is refused before anything is built."""

import json
import subprocess
import sys
import time

import pytest

import maskwise as mw
from helpers.checkpoints import byte_tokenizer, save
from helpers.tiny import edit_config
from maskwise.decoding.prompts import encode_prompts
from maskwise.errors import UserError
from maskwise.models import chat
from maskwise.models.catalog import describe_checkpoint
from maskwise.models.chat import render_chat

TURNS = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    "change",
    [{"n_layers": 10**9}, {"vocab_size": 10**30}, {"d_model": -1}, {"n_layers": 1e400}, {"mlp_ratio": 1e300}],
)
def test_sizes_are_bounded_before_anything_is_built(tmp_path, change):
    edit_config(save(tmp_path), **change)
    began = time.monotonic()
    for read in (mw.open, lambda folder: describe_checkpoint(str(folder))):
        with pytest.raises(UserError, match=r"config.json"):
            read(tmp_path)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("change", [{"vocab_size": 2**30}, {"d_model": 2**20}, {"n_layers": 999}])
def test_a_configuration_of_more_than_the_weights_is_refused_before_memory_is_taken(tmp_path, change):
    edit_config(save(tmp_path), **change)
    with pytest.raises(UserError, match=r"describes more than the .* numbers in .* weights"):
        mw.open(tmp_path)


@pytest.mark.parametrize(
    "template, said",
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes more than"),
        ("{{ 10 ** 10 ** 8 }}", "computes powers"),
        ("{{ 'x' * 1000000000 }}", "counts beyond a million"),
        ("{{ messages[99].content }}", "refuses these turns"),
        ("{{ 1 // 0 }}", "cannot be used"),
        ("{% for m in %}", "refuses these turns"),
        ("{{ ''.__class__.__mro__ }}", "refuses these turns"),
    ],
)  # fmt: skip
def test_a_chat_template_is_bounded(monkeypatch, template, said):
    monkeypatch.setattr(chat, "SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(UserError, match=said) as caught:
        render_chat(byte_tokenizer(template), TURNS)
    assert time.monotonic() - began < 5 and "\n" not in str(caught.value)
    assert sys.gettrace() is None or sys.gettrace() is not chat._Deadline._look


def test_an_ordinary_template_is_rendered_as_by_transformers():
    tokenizer = byte_tokenizer("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    assert render_chat(tokenizer, TURNS) == tokenizer.apply_chat_template(TURNS, tokenize=False) == "<user>Hello"


def test_text_that_is_not_utf8_is_one_line(tmp_path):
    model = mw.open(save(tmp_path))
    with pytest.raises(UserError, match="prompt 2 is not UTF-8"):
        encode_prompts(model, ["fine", "\udcff"], None)
    command = [sys.executable, "-m", "maskwise.cli", "generate", str(tmp_path), "-"]
    done = subprocess.run(command, input=b"\xff\xfe\n", capture_output=True)
    assert done.returncode == 2 and b"is not UTF-8" in done.stderr and done.stderr.count(b"\n") == 1


def test_a_pattern_of_nested_repetitions_is_refused(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "target_modules": "(.+)+x"}))
    (folder / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(UserError, match="repeats a repetition"):
        mw.open("tiny-llada", adapter=folder)
