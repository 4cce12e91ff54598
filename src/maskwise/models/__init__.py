"""LLaDA, LLaDA-MoE, Dream and AR models with one interface.

The classes are imported on first use, so that models can be listed without torch. Importing one registers it with
transformers' Auto classes.
"""

from typing import TYPE_CHECKING, Any

from maskwise.models.families import FAMILIES, imported
from maskwise.models.locations import embedded_models

if TYPE_CHECKING:
    from maskwise.models.dream import DreamConfig as DreamConfig
    from maskwise.models.dream import DreamModel as DreamModel
    from maskwise.models.llada import LLaDAConfig as LLaDAConfig
    from maskwise.models.llada import LLaDAModelLM as LLaDAModelLM
    from maskwise.models.llada_moe import LLaDAMoEConfig as LLaDAMoEConfig
    from maskwise.models.llada_moe import LLaDAMoEModelLM as LLaDAMoEModelLM

_CLASSES = {
    path.split(":")[1]: path
    for family in FAMILIES
    for path in (family.net_class, family.config_class)
    if path and path.startswith("maskwise.")
}

__all__ = [*_CLASSES, "embedded_models"]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module 'maskwise.models' has no attribute {name!r}")
    return imported(_CLASSES[name])
