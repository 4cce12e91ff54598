"""The Triton kernel, in a process of its own: whether Triton interprets is decided when it is first imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import maskwise.diffusion

pytest.importorskip("triton")


def test_the_kernel_gives_what_pytorch_gives():
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    command = [sys.executable, Path(__file__).with_name("kernel_cases.py"), Path(maskwise.diffusion.__file__).parent]
    process = subprocess.run(command, env=os.environ | interpreted, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.startswith("8 cases agree")
