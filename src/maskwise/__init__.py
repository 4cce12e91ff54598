"""maskwise: diagnose, tune and decode masked diffusion language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskwise.decoding.generate import generate
    from maskwise.errors import UserError
    from maskwise.models.convert import convert
    from maskwise.models.export import export
    from maskwise.models.opening import open, wrap
    from maskwise.training.train import train

__all__ = ["UserError", "__version__", "convert", "export", "generate", "open", "train", "wrap"]

__version__ = "0.2.0.dev0"  # the one place: pyproject.toml reads it from here

# Imported on first use, so that `maskwise --help` never waits for torch.
_MODULES = {
    "open": "maskwise.models.opening",
    "wrap": "maskwise.models.opening",
    "convert": "maskwise.models.convert",
    "export": "maskwise.models.export",
    "generate": "maskwise.decoding.generate",
    "train": "maskwise.training.train",
    "UserError": "maskwise.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'maskwise' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
