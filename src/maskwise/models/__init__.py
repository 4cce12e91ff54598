"""LLaDA, LLaDA-MoE, Dream and AR models with one interface.

The classes are imported on first use, so that models can be listed without torch. Importing a class registers it with
transformers' Auto classes; `import maskwise.models.auto` registers all of them.
"""

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

MODEL_CLASSES = {
    path.split(":")[1]: path
    for family in FAMILIES
    for path in (family.net_class, family.config_class)
    if path and path.startswith("maskwise.")
}

__all__ = ["DreamConfig", "DreamModel", "FastDLLMConfig", "Fast_dLLM_QwenForCausalLM", "embedded_models"]
__all__ += ["ILLaDAConfig", "ILLaDAForCausalLM", "LLaDA2Config", "LLaDA2MoeModelLM", "LLaDAConfig", "LLaDAModelLM"]
__all__ += ["LLaDAMoEConfig", "LLaDAMoEModelLM", "SDARConfig", "SDARForCausalLM", "SDARMoeConfig", "SDARMoeForCausalLM"]


def __getattr__(name: str) -> Any:
    if name not in MODEL_CLASSES:
        raise AttributeError(f"module 'maskwise.models' has no attribute {name!r}")
    return imported(MODEL_CLASSES[name])
