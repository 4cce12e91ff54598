"""One process and two give the same gradients through `forward`, under DDP and under FSDP2, in real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gradient_worker import gradients, half_logits

from helpers.tiny import tiny_dream, tiny_llada

WORKER = Path(__file__).with_name("gradient_worker.py")
pytestmark = pytest.mark.slow  # two processes that each import torch and transformers


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    out = tmp_path_factory.mktemp("shared") / "gradients.pt"
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        str(WORKER),
        str(out),
    ]
    found_here = os.pathsep.join([str(WORKER.parents[1]), *sys.path])
    on_cpu = {"PYTHONPATH": found_here, "CUDA_VISIBLE_DEVICES": ""}  # FSDP2 would want a card for each process
    subprocess.run(launch, check=True, env=os.environ | on_cpu, timeout=240)
    return torch.load(out, weights_only=True)


@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_two_processes_give_the_gradients_of_one(how, shared):
    alone = gradients("alone")
    assert shared[how].keys() == alone.keys()
    for name, expected in alone.items():
        torch.testing.assert_close(shared[how][name], expected, atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
def test_mixed_precision_rounds_the_weights_and_nothing_else(make, shared):
    """LLaDA's rotary tables are float32 in any precision; a policy that rounds a layer's inputs must not reach them."""
    assert torch.equal(shared[make.__name__], half_logits(make, "plain"))
