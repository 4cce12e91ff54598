"""What answers: LLaDA, Dream and autoregressive models behind one seam. Importing it registers the Auto classes."""

from maskwise.models.catalog import embedded_models
from maskwise.models.dream import DreamConfig, DreamModel
from maskwise.models.llada import LLaDAConfig, LLaDAModelLM

__all__ = ["DreamConfig", "DreamModel", "LLaDAConfig", "LLaDAModelLM", "embedded_models"]
