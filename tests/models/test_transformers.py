"""A Model at home in transformers: Auto classes open what we export, and a Model generates, saves and is uploaded."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

import maskwise as mw
from helpers.checkpoints import CHAT, save
from helpers.same import assert_same
from maskwise.models.checkpoints.export import export


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada", device="cpu")


def rows(model) -> torch.Tensor:
    return model.predict([[5, 9, 12, model.mask_id]], [[3]])[0]


@pytest.mark.slow
def test_auto_classes_open_an_export_after_import_maskwise_models_auto(tmp_path):
    """In a new process, where nothing of ours was imported before."""
    folder = export("tiny-llada+distracted", tmp_path / "merged")
    code = (
        "import maskwise.models.auto\n"
        "from transformers import AutoConfig, AutoModel, AutoModelForCausalLM\n"
        f"net = AutoModelForCausalLM.from_pretrained({str(folder)!r}, dtype='float32')\n"
        f"print(type(net).__module__, type(AutoModel.from_pretrained({str(folder)!r})).__name__)\n"
        "print([AutoConfig.for_model(name).model_type for name in ('llada', 'Dream', 'lladamoe')])\n"
        "print(net(input_ids=__import__('torch').tensor([[5, 9, 12, 3]])).logits[0, 3, 5:10].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names, types, logits = done.stdout.splitlines()
    assert names == "maskwise.models.families.llada LLaDAModelLM" and types == "['llada', 'Dream', 'lladamoe']"
    ours = mw.open(folder, device="cpu").predict([[5, 9, 12, 3]], [[3]])[0][0, 5:10]
    assert_same(json.loads(logits), ours.tolist(), rel=1e-4, abs=1e-4)


def test_the_network_is_a_pretrained_model_and_saves_what_opens_again(model, tmp_path):
    assert isinstance(model.net, PreTrainedModel) and model.net is model.core
    files = model.save_pretrained(tmp_path / "saved")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert_same(rows(mw.open(tmp_path / "saved", device="cpu")), rows(model), abs=1e-6)
    assert type(AutoModelForCausalLM.from_pretrained(tmp_path / "saved")) is type(model.net)
    with pytest.raises(mw.UserError, match="is not empty"):
        model.save_pretrained(tmp_path / "saved")


def test_an_adapted_model_saves_its_adapter(tmp_path):
    adapted = mw.open("tiny-llada+distracted", device="cpu")
    assert "adapter_model.safetensors" in adapted.save_pretrained(tmp_path / "adapter")
    assert isinstance(adapted.core, PreTrainedModel) and adapted.net is not adapted.core
    assert_same(rows(mw.open(tmp_path / "adapter", device="cpu")), rows(adapted), abs=1e-6)


def test_a_dry_run_of_an_upload_asks_nobody(model, monkeypatch):
    import socket

    def refuse(*_, **__):
        raise AssertionError("a dry run needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert {"config.json", "model.safetensors"} <= set(model.push_to_hub("me/my-llada", dry_run=True))
    with pytest.raises(mw.UserError, match="like OWNER/NAME"):
        model.push_to_hub("my-llada", dry_run=True)


def test_a_model_generates_from_texts_ids_and_chats(model, tmp_path):
    texts = ["Once upon a time", "It was"]
    assert model.generate(texts, 4) == mw.generate(model, texts, 4) == mw.generate("tiny-llada", texts, 4)
    with pytest.raises(mw.UserError, match="no chat template"):
        model.generate([{"role": "user", "content": "hi"}])
    chatty = mw.open(save(tmp_path / "chat", chat_template=CHAT), device="cpu")
    turns = [{"role": "user", "content": "hi"}]
    (alone,) = chatty.generate(turns, max_new_tokens=4)
    assert alone == chatty.generate("hi", max_new_tokens=4)[0] == chatty.generate([turns, "ho"], max_new_tokens=4)[0]
    longer = [*turns, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "hi"}]
    assert len(chatty.generate(longer, max_new_tokens=4)[0].sequence) > len(alone.sequence)
    with pytest.raises(mw.UserError, match="prompt 1 is a list of messages"):
        chatty.generate(turns, chat=False)
    with pytest.raises(mw.UserError, match="prompt 1: each message has a role and a content"):
        chatty.generate([{"role": "user"}])
