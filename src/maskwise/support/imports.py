"""Faster imports of torch and transformers."""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from maskwise.support.garbage_collection import collection_paused


def imported(path: str) -> Any:
    """The class or function that an import path like "module:name" names."""
    module, name = path.split(":")
    return getattr(import_module(module), name)


class Process:
    """runs_a_command: True in a process started by the `maskwise` command."""

    runs_a_command = False


@contextmanager
def command_imports(compiled: bool = False) -> Iterator[None]:
    """Faster imports for a command that opens a model, in a process of its own.
    compiled: the command compiles the model or what rounds it, for which everything is imported as it is."""
    with collection_paused(), ExitStack() as replaced:
        lean = Process.runs_a_command and not compiled
        if lean:
            replaced.enter_context(lean_transformers())
        yield
        if lean and "triton" not in sys.modules:  # which complains of what the collector does not free at the end
            gc.freeze()  # what was imported stays: else the collector walks over it once more at the end, for .6 s


@contextmanager
def lean_transformers() -> Iterator[None]:
    """Imports transformers without modules that only training, sharding or compiling needs, for the whole process.

    Its object detection losses import scipy.optimize, and its sharding torch.distributed.tensor with sympy: both are
    reported as not available, the second only in a process without a launcher. Decorators for compiled models
    import torch._dynamo, which is deferred to its first real use. Installed packages are listed on first use, and the
    names in all model files are read once, not for `transformers` and `transformers.models`. A later transformers that
    differs here is imported as it is.
    """
    with ExitStack() as replaced:
        for module in (_Compiler("torch._dynamo"), _ItemToIndex("torch._dynamo._trace_wrapped_higher_order_op")):
            sys.modules.setdefault(module.__name__, module)
        from importlib import metadata

        listed = metadata.packages_distributions
        replaced.enter_context(_replaced(metadata, "packages_distributions", lambda: _Distributions(listed)))
        from transformers import utils
        from transformers.utils import import_utils

        read_names: Any = getattr(import_utils, "create_import_structure_from_path", None)  # remembers what it read
        replaced.enter_context(
            _replaced(import_utils, "create_import_structure_from_path", lambda path: read_names(_folder_of(path)))
        )
        for check in ("is_scipy_available", "is_sklearn_available"):  # 5.17 imports sklearn, and with it scipy
            replaced.enter_context(_replaced(utils, check, lambda: False))
        if "WORLD_SIZE" not in os.environ:
            for holder in (utils, import_utils):
                replaced.enter_context(_replaced(holder, "is_torch_distributed_available", lambda: False))
            _leave_to_be_found("torch.distributed", ("tensor", "fsdp", "checkpoint"))
        yield


def _leave_to_be_found(package: str, names: Sequence[str]) -> None:
    """Defers modules that other packages (PEFT) expect to be imported after `import transformers`."""
    parent = import_module(package)
    for name in names:
        if not hasattr(parent, name):
            setattr(parent, name, Deferred(f"{package}.{name}"))


class Deferred(ModuleType):
    """A module that is imported on first use of an attribute it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspect and the like ask of every module there is
            raise AttributeError(name)
        return getattr(self.real, name)

    @cached_property
    def real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return import_module(self.__name__)


class _Compiler(Deferred):
    """torch._dynamo with decorators that do nothing, as they do without a compiler."""

    @property  # asked for where a module in this package is imported
    def __path__(self) -> Any:  # type: ignore[override]
        return self.real.__path__

    def allow_in_graph(self, function: Any) -> Any:
        return function

    def assume_constant_result(self, function: Any) -> Any:
        return function

    def disable(self, function: Any = None, recursive: bool = True, *, reason: str | None = None, **more: Any) -> Any:
        if more:  # torch itself, at the first call of what follows
            return self.real.disable(function, recursive, reason=reason, **more)
        from torch import _disable_dynamo  # torch's own way to wait for the first call

        return _disable_dynamo(function, recursive)


class _ItemToIndex(Deferred):
    """The module of torch._dynamo with a class that attention masks are made with."""

    def TransformGetItemToIndex(self) -> Any:
        return self.real.TransformGetItemToIndex()


class _Distributions(Mapping[str, list[str]]):
    """The distributions of each installed package, listed on first use.
    Two are asked for by whoever imports transformers: they bear their package's name."""

    def __init__(self, list_all: Callable[[], Mapping[str, list[str]]]) -> None:
        self._list_all = list_all

    @cached_property
    def every(self) -> Mapping[str, list[str]]:
        return self._list_all()

    def __getitem__(self, package: str) -> list[str]:
        return [package] if package in ("torch", "accelerate") else self.every[package]

    def __iter__(self) -> Iterator[str]:
        return iter(self.every)

    def __len__(self) -> int:
        return len(self.every)


def _folder_of(path: str | Path) -> Path:
    """The folder of a package, given as a folder or as its __init__.py."""
    return Path(path).parent if Path(path).is_file() else Path(path)


@contextmanager
def _replaced(module: Any, name: str, function: Any) -> Iterator[None]:
    before = getattr(module, name, None)
    if before is not None:
        setattr(module, name, function)
    try:
        yield
    finally:
        if before is not None:
            setattr(module, name, before)
