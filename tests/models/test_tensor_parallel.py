"""Processes that share a model answer as one process does, within rounding (slow: each imports torch)."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from sharded_worker import ASKED, answers

from helpers import tiny
from helpers.asked_alone import small_model
from helpers.checkpoints import END, MASK, byte_tokenizer
from helpers.same_records import assert_same_records
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.families.llada2 import LLaDA2MoeModelLM
from maskwise.models.tensor_parallel import refuse_indivisible
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.support.errors import UserError

WORKER = Path(__file__).with_name("sharded_worker.py")
FAMILIES = ("llada", "dream", "llada_moe", "llada2", "sdar", "sdar_moe", "fast_dllm")


def saved(folder, kind, **more):
    net = getattr(tiny, f"{kind}_net")(vocab=259, window=512, eos_token_id=END, mask_token_id=MASK, **more)
    net.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def started(processes, *arguments):
    """With the environment torchrun gives them, but in this session: torchrun's children outlive a test that is cut."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    found = {"PYTHONPATH": os.pathsep.join([str(WORKER.parents[1]), *sys.path]), "CUDA_VISIBLE_DEVICES": ""}
    run = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, WORKER, *map(str, arguments)]
    return [
        subprocess.Popen(
            command, env=os.environ | found | run | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, stderr=subprocess.PIPE
        )
        for rank in range(processes)
    ]


def ended(processes):
    """Exit status and standard error of each."""
    try:
        errors = [process.communicate(timeout=400)[1].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]


def assert_same_answers(out, folders):
    for name, (tensors, others) in torch.load(out, weights_only=True).items():
        expected, same = answers(folders[name])
        torch.testing.assert_close(
            tensors, expected, rtol=1e-4, atol=3e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
        assert others == same, name


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("size", "kinds", "more"), [(2, FAMILIES, {}), (4, ("llada", "llada2"), {"heads": 4})], ids=["2", "4"]
)
def test_logits_gradients_attention_likelihoods_and_generations_are_those_of_one_process(tmp_path, size, kinds, more):
    names = {"llada": "n_kv_heads", "llada2": "num_key_value_heads"}
    folders = {kind: saved(tmp_path / kind, kind, **({names[kind]: more["heads"]} if more else {})) for kind in kinds}
    out = tmp_path / "answers.pt"
    for status, error in ended(started(size, "answers", out, size, 0, *folders.values())):
        assert status == 0, error
    assert_same_answers(out, folders)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_replicas_of_two_make_one_run_which_goes_on_after_a_process_was_killed(tmp_path):
    folder = tmp_path / "model"
    small_model().save_pretrained(folder)
    run, whole = tmp_path / "run", tmp_path / "whole"
    model = open_model(folder, device="cpu")
    diagnose(model, ASKED, whole, batch_tokens=400)

    processes = started(4, "diagnose", run, 2, 0.3, folder)
    while not any(file.stat().st_size for file in run.glob("records*.jsonl")):
        assert all(process.poll() is None for process in processes), ended(processes)
        time.sleep(0.05)
    processes[3].send_signal(signal.SIGKILL)
    for status, error in ended(processes)[:3]:
        assert status == 1 and "another process of this run has ended: what was saved is kept" in error
        assert "Traceback" not in error

    kept = sum(file.read_text().count("\n") for file in run.glob("records*.jsonl"))
    for status, error in ended(started(4, "diagnose", run, 2, 0, folder)):
        assert status == 0, error
    found, expected = read_run(run), read_run(whole)
    assert 0 < kept < len(expected.records) and found.manifest.complete
    assert found.manifest.model == expected.manifest.model
    assert_same_records(found.records, expected.records)
    assert sorted(file.name for file in run.iterdir()) == ["manifest.json", "records.jsonl", "sample.json"]


@pytest.mark.parametrize(
    ("size", "problem"), [(3, "does not divide num_attention_heads, 4"), (4, "does not divide num_key_value_heads, 2")]
)
def test_heads_that_cannot_be_shared_are_refused(size, problem):
    net = tiny.llada_net()
    with pytest.raises(UserError, match=problem):
        refuse_indivisible(type(net), net.config, size)


def test_refusals(tmp_path):
    more = {"device": "cpu", "tensor_parallel": 2}
    refuse_indivisible(LLaDA2MoeModelLM, tiny.llada2_net().config, 8)  # its attention is replicated
    for name, others, problem in (
        ("tiny-llada", {}, "needs 2 processes or a multiple, not 1"),
        ("tiny-llada", {"device_map": "auto"}, "exclude each other"),
        ("tiny-llada", {"weights": "fp8"}, "one device"),
        ("tiny-llada+distracted", {}, "no adapter"),
        ("tiny-qwen", {}, "has no plan"),
    ):
        with pytest.raises(UserError, match=problem):
            open_model(name, **more, **others)
