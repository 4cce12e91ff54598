"""One process and two give the same gradients through `forward`, under DDP and under FSDP2, in real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name("gradient_worker.py")


def gradients(tmp_path, how, processes):
    out = tmp_path / f"{how}.pt"
    launch = [sys.executable, str(WORKER)]
    if processes > 1:
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc_per_node={processes}",
            str(WORKER),
        ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(WORKER.parents[1])}
    subprocess.run([*launch, how, str(out)], check=True, env=environment, timeout=240)
    return torch.load(out, weights_only=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return gradients(tmp_path_factory.mktemp("alone"), "alone", 1)


@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_two_processes_give_the_gradients_of_one(how, alone, tmp_path):
    shared = gradients(tmp_path, how, 2)
    assert shared.keys() == alone.keys()
    for name, expected in alone.items():
        torch.testing.assert_close(shared[name], expected, atol=1e-6, rtol=1e-4, msg=name)
