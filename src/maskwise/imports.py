"""Importing torch and transformers sooner."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def collection_paused() -> Iterator[None]:
    """Without the garbage collector, which walks 900 times over what the imports make and finds it all in use.

    Measured on two cores of a Neoverse N1: 5.3 instead of 6.3 s for torch and transformers' PreTrainedModel.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def command_imports() -> Iterator[None]:
    """For a command that opens a model, in a process of its own: transformers without what no command of ours uses,
    for as long as the process lives.

    Its losses of object detection import scipy.optimize where scipy is installed, so here it is told that it is not.
    It reads the names in all its model files twice, for `transformers` and for `transformers.models`: here once.
    Measured on a Neoverse N1: 3.3 instead of 4.5 s of processor time after torch. A later transformers in which these
    functions are called otherwise is imported as it is.
    """
    with collection_paused(), ExitStack() as replaced:
        from transformers import utils
        from transformers.utils import import_utils

        read_names: Any = getattr(import_utils, "create_import_structure_from_path", None)  # remembers what it read
        replaced.enter_context(_replaced(utils, "is_scipy_available", lambda: False))
        replaced.enter_context(
            _replaced(import_utils, "create_import_structure_from_path", lambda path: read_names(_folder_of(path)))
        )
        yield


def _folder_of(path: str | Path) -> Path:
    """Where a package lies, given as a folder or as its __init__.py."""
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
