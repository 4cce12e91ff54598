"""What all Triton kernels ask before they are used: whether there is Triton, and whether it does what it should."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from subprocess import CalledProcessError

import torch
from torch import Tensor

from maskwise.support.errors import UserNotice, first_line

TRITON = find_spec("triton") is not None
LARGE = (9, 10)  # major compute capabilities, with 227 KiB of shared memory


def kernel_errors() -> tuple[type[Exception], ...]:
    """What torch and Triton raise where a kernel cannot be had; asked only then.

    RuntimeError: torch, and Triton without a C compiler; CalledProcessError: one that fails, say without Python.h;
    OSError: a cache that cannot be written; ValueError: a pointer Triton cannot use.
    """
    plain = (RuntimeError, CalledProcessError, OSError, ValueError)
    if not TRITON:
        return plain
    from triton.errors import TritonError

    return (*plain, TritonError)


def has_large_tiles(like: Tensor) -> bool:
    """Whether the tensor is on a card that can fetch many tiles ahead."""
    return like.is_cuda and torch.cuda.get_device_capability(like.device)[0] in LARGE


def close(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Whether they differ by at most this part of what was expected, in the norm."""
    return bool((found.float() - expected.float()).norm() <= tolerance * expected.float().norm())


def works_here(agree: Callable[[], bool], otherwise: str) -> bool:
    """Whether a kernel gives what it should; if not, a warning says what is done instead, and why."""
    try:
        fine, why = agree(), "gives other numbers"
    except kernel_errors() as error:
        fine, why = False, f"fails: {first_line(error)}"
    if not fine:
        warnings.warn(f"{otherwise}, more slowly: the kernel for it {why}", UserNotice, stacklevel=3)
    return fine
