"""The Triton kernels, in a process of their own: whether Triton interprets is decided when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import torch

import maskwise.models


def test_the_kernels_give_what_plain_arithmetic_gives():
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    command = [sys.executable, Path(__file__).with_name("kernel_cases.py"), Path(maskwise.models.__file__).parent]
    process = subprocess.run(command, env=os.environ | interpreted, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.startswith("7 cases agree")
