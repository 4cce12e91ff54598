"""maskwise: diagnose, tune and decode masked diffusion language models.

    import maskwise as mw

    model = mw.open("tiny-llada")
    print(mw.generate(model, "Once upon a time")[0].text)

Names are imported on first use: `import maskwise` takes milliseconds, the first model a few seconds.
"""

from typing import TYPE_CHECKING

from maskwise.support.version import __version__

__all__ = [
    "Model",
    "Run",
    "UserError",
    "__version__",
    "advise",
    "compare",
    "convert",
    "diagnose",
    "export",
    "generate",
    "open",
    "read_run",
    "score",
    "toy",
    "train",
    "tune",
    "wrap",
]

if TYPE_CHECKING:
    from maskwise.advise import advise
    from maskwise.compare import compare
    from maskwise.decoding.generate import generate
    from maskwise.decoding.score import score
    from maskwise.models.checkpoints.convert import convert
    from maskwise.models.checkpoints.export import export
    from maskwise.models.checkpoints.opening import open, wrap
    from maskwise.models.model import Model
    from maskwise.runs.run import Run, diagnose, read_run
    from maskwise.support.errors import UserError
    from maskwise.toy import toy
    from maskwise.training.train import train
    from maskwise.training.tune import tune
else:  # a type checker that saw __getattr__ would take any name for a public one
    import sys
    from types import ModuleType

    _MODULES = {
        "Model": "maskwise.models.model",
        "Run": "maskwise.runs.run",
        "UserError": "maskwise.support.errors",
        "advise": "maskwise.advise",
        "compare": "maskwise.compare",
        "convert": "maskwise.models.checkpoints.convert",
        "diagnose": "maskwise.runs.run",
        "export": "maskwise.models.checkpoints.export",
        "generate": "maskwise.decoding.generate",
        "open": "maskwise.models.checkpoints.opening",
        "read_run": "maskwise.runs.run",
        "score": "maskwise.decoding.score",
        "toy": "maskwise.toy",
        "train": "maskwise.training.train",
        "tune": "maskwise.training.tune",
        "wrap": "maskwise.models.checkpoints.opening",
    }

    def __getattr__(name):
        if name not in _MODULES:
            from maskwise.support.nearest import nearest
            from maskwise.support.removed import removed

            meant = "open" if name in ("load", "load_model", "from_pretrained") else nearest(name, __all__)
            hint = "" if meant is None else f": did you mean {meant}?"
            raise AttributeError(removed("name", name) or f"module 'maskwise' has no attribute {name!r}{hint}")
        from importlib import import_module

        from maskwise.support.garbage_collection import collection_paused

        with collection_paused():
            value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value

    class _Package(ModuleType):
        def __setattr__(self, name, value):
            """Python sets an imported module as an attribute: maskwise.advise stays the function."""
            if name not in _MODULES or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
