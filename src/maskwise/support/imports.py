"""Classes and functions by their import paths, so that naming them imports nothing."""

from importlib import import_module
from typing import Any


def imported(path: str) -> Any:
    """The class or function that an import path like "module:name" names."""
    module, name = path.split(":")
    return getattr(import_module(module), name)
