"""The kernels of the end of a step, in a process of their own: whether Triton interprets is decided at its import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from maskwise.decoding import end_of_step
from maskwise.support.errors import UserNotice

pytest.importorskip("triton")


@pytest.mark.parametrize("cases", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_the_kernels_give_what_pytorch_gives(cases):
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    command = [sys.executable, Path(__file__).with_name("step_cases.py"), cases]
    process = subprocess.run(command, env=os.environ | interpreted, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.startswith("the ends of steps agree")


def test_kernels_that_fail_are_named_and_left(monkeypatch):
    class OnCard:  # what `_kernels` asks of a tensor
        is_cuda, device = True, torch.device("cuda", 7)

    monkeypatch.setattr(end_of_step, "agree", lambda device: False)
    with pytest.warns(UserNotice, match="the end of a step is left to PyTorch, more slowly: the kernel for it gives"):
        assert end_of_step._kernels(OnCard()) is None
    monkeypatch.setattr(end_of_step, "agree", lambda device: True)
    assert end_of_step._kernels(OnCard()) is None, "tried once"
    end_of_step._kernels_work.cache_clear()
    assert end_of_step._kernels(OnCard()).__name__ == "maskwise.kernels.decoding_step"
    end_of_step._kernels_work.cache_clear()
