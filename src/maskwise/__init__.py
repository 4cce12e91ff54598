"""maskwise: diagnose, tune and decode masked diffusion language models.

    import maskwise as mw

    model = mw.open("tiny-llada")
    print(mw.generate(model, "Once upon a time")[0].text)

Names are imported on first use: `import maskwise` takes milliseconds, the first model a few seconds.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Model",
    "Run",
    "UserError",
    "__version__",
    "advise",
    "compare",
    "convert",
    "cures",
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

__version__ = "0.2.0.dev0"  # the one place: pyproject.toml reads it from here

if TYPE_CHECKING:
    from maskwise.advice.advise import advise
    from maskwise.decoding.generate import generate
    from maskwise.decoding.score import score
    from maskwise.errors import UserError
    from maskwise.experiments.compare import compare
    from maskwise.experiments.mitigations import cures
    from maskwise.experiments.toy import toy
    from maskwise.models.base import Model
    from maskwise.models.convert import convert
    from maskwise.models.export import export
    from maskwise.models.opening import open, wrap
    from maskwise.runs.run import Run, diagnose, read_run
    from maskwise.training.train import train
    from maskwise.training.tune import tune
else:  # a type checker that saw __getattr__ would take any name for a public one
    _MODULES = {
        "Model": "maskwise.models.base",
        "Run": "maskwise.runs.run",
        "UserError": "maskwise.errors",
        "advise": "maskwise.advice.advise",
        "compare": "maskwise.experiments.compare",
        "convert": "maskwise.models.convert",
        "cures": "maskwise.experiments.mitigations",
        "diagnose": "maskwise.runs.run",
        "export": "maskwise.models.export",
        "generate": "maskwise.decoding.generate",
        "open": "maskwise.models.opening",
        "read_run": "maskwise.runs.run",
        "score": "maskwise.decoding.score",
        "toy": "maskwise.experiments.toy",
        "train": "maskwise.training.train",
        "tune": "maskwise.training.tune",
        "wrap": "maskwise.models.opening",
    }

    def __getattr__(name):
        if name not in _MODULES:
            from maskwise.nearest import nearest

            meant = nearest(name, __all__)
            hint = "" if meant is None else f": did you mean {meant}?"
            raise AttributeError(f"module 'maskwise' has no attribute {name!r}{hint}")
        from importlib import import_module

        from maskwise.imports import collection_paused

        with collection_paused():
            value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
