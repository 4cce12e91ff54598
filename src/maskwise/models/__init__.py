"""What answers: LLaDA, LLaDA-MoE, Dream and AR models behind one seam. Importing it registers the Auto classes."""

from maskwise.models.catalog import embedded_models
from maskwise.models.dream import DreamConfig, DreamModel
from maskwise.models.llada import LLaDAConfig, LLaDAModelLM
from maskwise.models.llada_moe import LLaDAMoEConfig, LLaDAMoEModelLM

__all__ = [
    "DreamConfig",
    "DreamModel",
    "LLaDAConfig",
    "LLaDAMoEConfig",
    "LLaDAMoEModelLM",
    "LLaDAModelLM",
    "embedded_models",
]
