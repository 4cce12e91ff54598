"""The gate of the Triton kernels: each is compared with its plain form before it is used, once per device.

A file kernels/NAME.py declares its trial: `agrees(device, *decides)` runs the kernels and their plain form on the same
inputs, and `OTHERWISE` says what happens where they disagree. Callers ask `kernel(NAME, device, *decides)`, and compute
the plain form where they get None.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from subprocess import CalledProcessError  # nosec B404 # the name of an error; no process is started
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from maskwise.support.errors import UserNotice, first_line

TRITON = find_spec("triton") is not None
LARGE = (9, 10)  # major compute capabilities, with 227 KiB of shared memory
SMALL_BATCH = 64  # rows of a pass up to which the split kernels pay; larger passes fill the card without them
HALF = (torch.bfloat16, torch.float16)  # the types that the split kernels take

_verdicts: dict[tuple[Any, ...], ModuleType | None] = {}


def kernel(name: str, device: torch.device, *decides: Any) -> ModuleType | None:
    """The module kernels/NAME.py if its kernels passed their trial on this CUDA device, else None.

    decides: what else the verdict depends on, for example a dtype. A trial runs once, and never while a CUDA graph is
    captured: until then the answer is None. After it a call is one dictionary lookup.
    """
    key = (name, device, *decides)
    if key not in _verdicts:
        if not TRITON or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return None
        module = import_module(f"maskwise.kernels.{name}")
        why = problem(lambda: module.agrees(device, *decides))
        if why is not None:
            warn_of_fallback(module.OTHERWISE, why)
        _verdicts[key] = module if why is None else None
    return _verdicts[key]


def problem(trial: Callable[[], bool]) -> str | None:
    """Runs a trial; why it failed, or None if it passed."""
    try:
        with torch.no_grad():
            return None if trial() else "gives other numbers"
    except kernel_errors() as error:
        return f"fails: {first_line(error)}"


def warn_of_fallback(otherwise: str, why: str) -> None:
    warnings.warn(f"{otherwise}, more slowly: the kernel for it {why}", UserNotice, stacklevel=4)


def kernel_errors() -> tuple[type[Exception], ...]:
    """The exceptions that torch and Triton raise where a kernel cannot be compiled or launched.

    RuntimeError: torch, and Triton without a C compiler; CalledProcessError: a compiler that fails, for example without
    Python.h; OSError: a cache that cannot be written; ValueError: a pointer that Triton cannot use.
    """
    plain = (RuntimeError, CalledProcessError, OSError, ValueError)
    if not TRITON:
        return plain
    from triton.errors import TritonError

    return (*plain, TritonError)


def has_large_tiles(like: Tensor) -> bool:
    """True if the tensor is on a card with enough shared memory to fetch many tiles ahead."""
    return like.is_cuda and torch.cuda.get_device_capability(like.device)[0] in LARGE


def close(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    """True if the norm of the difference is at most this fraction of the norm of the expected values."""
    return bool((found.float() - expected.float()).norm() <= tolerance * expected.float().norm())
