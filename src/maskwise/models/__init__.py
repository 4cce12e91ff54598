"""LLaDA, LLaDA-MoE, Dream and AR models with one interface.

The classes are imported on first use, so that models can be listed without torch. Importing a class registers it with
transformers' Auto classes. After `import maskwise.models` all of them are registered as soon as the Auto classes are
imported: AutoModelForCausalLM.from_pretrained then opens a LLaDA or Dream checkpoint without remote code.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from maskwise.models.checkpoints.locations import embedded_models
from maskwise.models.families import FAMILIES
from maskwise.support.imports import imported

if TYPE_CHECKING:
    from maskwise.models.families.dream import DreamConfig, DreamModel
    from maskwise.models.families.fast_dllm import Fast_dLLM_QwenForCausalLM, FastDLLMConfig
    from maskwise.models.families.illada import ILLaDAConfig, ILLaDAForCausalLM
    from maskwise.models.families.llada import LLaDAConfig, LLaDAModelLM
    from maskwise.models.families.llada2 import LLaDA2Config, LLaDA2MoeModelLM
    from maskwise.models.families.llada_moe import LLaDAMoEConfig, LLaDAMoEModelLM
    from maskwise.models.families.sdar import SDARConfig, SDARForCausalLM, SDARMoeConfig, SDARMoeForCausalLM

_CLASSES = {
    path.split(":")[1]: path
    for family in FAMILIES
    for path in (family.net_class, family.config_class)
    if path and path.startswith("maskwise.")
}

__all__ = ["DreamConfig", "DreamModel", "FastDLLMConfig", "Fast_dLLM_QwenForCausalLM", "embedded_models"]
__all__ += ["ILLaDAConfig", "ILLaDAForCausalLM", "LLaDA2Config", "LLaDA2MoeModelLM", "LLaDAConfig", "LLaDAModelLM"]
__all__ += ["LLaDAMoEConfig", "LLaDAMoEModelLM", "SDARConfig", "SDARForCausalLM", "SDARMoeConfig", "SDARMoeForCausalLM"]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module 'maskwise.models' has no attribute {name!r}")
    return imported(_CLASSES[name])


_AUTO_CLASSES = "transformers.models.auto.modeling_auto"


def register_families() -> None:
    """Imports our classes, which register themselves."""
    for path in _CLASSES.values():
        imported(path)


class _AfterAutoClasses:
    """Import hook: registers our classes right after transformers' Auto classes, whose import takes seconds."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _AUTO_CLASSES:
            return None
        sys.meta_path.remove(self)
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                ours = [one for name, one in sys.modules.items() if name.startswith(f"{__name__}.")]
                # A module of ours that is half imported has no classes yet: `open` registers them then.
                if not any(getattr(one.__spec__, "_initializing", False) for one in ours):
                    register_families()

            found.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return found


if _AUTO_CLASSES in sys.modules:
    register_families()
elif not any(isinstance(finder, _AfterAutoClasses) for finder in sys.meta_path):
    sys.meta_path.insert(0, _AfterAutoClasses())
