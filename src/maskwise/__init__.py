"""maskwise: diagnose, cure and decode masked diffusion language models."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Imported on first use, so that `maskwise --help` never waits for torch.
_HOMES = {
    "open": "maskwise.models.opening",
    "wrap": "maskwise.models.opening",
    "convert": "maskwise.models.convert",
    "export": "maskwise.models.export",
    "generate": "maskwise.decoding.generate",
    "UserError": "maskwise.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'maskwise' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
