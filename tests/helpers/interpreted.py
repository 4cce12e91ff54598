"""Runs a kernel's test file in a process of its own: Triton decides when it is imported whether it interprets.

On a machine with a card the kernels are compiled and run there, elsewhere Triton's interpreter runs them on the CPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ON_CARD = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_CARD else "cpu")
HALF = torch.bfloat16 if ON_CARD else torch.float16  # Triton's interpreter multiplies bf16 wrongly
DIGITS = 2e-2 if ON_CARD else 2e-3
DONE = "the kernels agree with their plain forms"

# Every edge once in each run of the tests; all cases, and what imports the compiler, in the slow ones.
few_and_all = pytest.mark.parametrize("cases", ["few", pytest.param("all", marks=pytest.mark.slow)])
needs_a_card = pytest.mark.skipif(not ON_CARD, reason="takes the branches for CUDA: needs a CUDA device")


def run_cases(file: str, cases: str) -> None:
    pytest.importorskip("triton", reason="torch for the CPU alone comes without it on some machines")
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if not ON_CARD:
        environment |= {"TRITON_INTERPRET": "1"}
    process = subprocess.run([sys.executable, file, cases], env=environment, capture_output=True, text=True)
    assert process.returncode == 0 and DONE in process.stdout, process.stderr[-3000:]


def agree(found: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> None:
    """As torch.testing.assert_close, which would import a second's worth of other packages."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    wrong = (found - expected).abs() > atol + rtol * expected.abs()
    assert not wrong.any() and found.isfinite().all(), f"{int(wrong.sum())} of {wrong.numel()} differ"


def without_operators(module: object, *names: str) -> None:
    """Calls the functions under these custom operators directly: an operator's first call imports the compiler."""
    for name in names:
        setattr(module, name, getattr(module, name)._init_fn)
