"""The gate: a kernel is tried once per device and key, and one that fails is named once and left."""

import sys
import warnings
from subprocess import CalledProcessError
from types import ModuleType

import pytest
import torch

from maskwise.kernels import gate
from maskwise.support.errors import UserNotice

CARD = torch.device("cuda", 7)


@pytest.fixture
def doubling(monkeypatch):
    """A kernel file whose trial is recorded; it agrees for bfloat16 alone."""
    module = ModuleType("maskwise.kernels.doubling")
    module.tried = []
    module.OTHERWISE = "numbers are doubled by PyTorch"
    module.agrees = lambda device, dtype: module.tried.append((device, dtype)) or dtype == torch.bfloat16
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(gate, "TRITON", True)
    monkeypatch.setattr(gate, "_verdicts", {})
    return module


def test_a_kernel_that_agrees_is_tried_once_per_key(doubling):
    other = torch.device("cuda", 3)
    for _ in range(2):
        assert gate.kernel("doubling", CARD, torch.bfloat16) is doubling
        assert gate.kernel("doubling", other, torch.bfloat16) is doubling
    assert doubling.tried == [(CARD, torch.bfloat16), (other, torch.bfloat16)]


def test_a_kernel_that_gives_other_numbers_is_named_once_and_left(doubling):
    wanted = "numbers are doubled by PyTorch, more slowly: the kernel for it gives other numbers"
    with pytest.warns(UserNotice, match=wanted):
        assert gate.kernel("doubling", CARD, torch.float16) is None
    doubling.agrees = lambda *_: True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gate.kernel("doubling", CARD, torch.float16) is None, "tried once"


@pytest.mark.parametrize(
    "error", [RuntimeError("no C compiler"), CalledProcessError(1, "gcc"), ValueError("pointer"), OSError("cache")]
)
def test_a_kernel_that_cannot_run_is_named_with_the_reason(doubling, error):
    def failing(*_):
        raise error

    doubling.agrees = failing
    with pytest.warns(UserNotice, match="the kernel for it fails: ") as warned:
        assert gate.kernel("doubling", CARD, torch.bfloat16) is None
    assert str(error) in str(warned[0].message)


def test_an_error_of_another_kind_is_not_hidden(doubling):
    def wrong(*_):
        raise KeyError("a mistake of ours")

    doubling.agrees = wrong
    with pytest.raises(KeyError):
        gate.kernel("doubling", CARD, torch.bfloat16)


def test_nothing_is_tried_while_a_graph_is_captured(doubling, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert gate.kernel("doubling", CARD, torch.bfloat16) is None and not doubling.tried
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert gate.kernel("doubling", CARD, torch.bfloat16) is doubling, "it is tried afterwards"
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert gate.kernel("doubling", CARD, torch.bfloat16) is doubling, "and the verdict holds in later captures"


def test_without_triton_there_is_no_kernel_and_no_warning(doubling, monkeypatch):
    monkeypatch.setattr(gate, "TRITON", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gate.kernel("doubling", CARD, torch.bfloat16) is None
    assert not doubling.tried


def test_trials_run_without_gradients(doubling):
    doubling.agrees = lambda *_: not torch.is_grad_enabled()
    assert gate.kernel("doubling", CARD, torch.bfloat16) is doubling
