"""Input embeddings and output head of a network, with the rows that an adapter replaces; the network inside PEFT's."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


def without_adapter(net: Any) -> PreTrainedModel:
    """The transformers model inside PEFT's wrapper, where there is one."""
    return net.get_base_model() if hasattr(net, "peft_config") else net


def token_rows(module: nn.Module) -> Any:
    """PEFT's layer around embeddings or a head in which an adapter replaces some tokens' rows, or None."""
    return getattr(module, "token_adapter", None)  # by its name: importing PEFT takes longer than opening a model


def stored_weight(module: nn.Module) -> Tensor:
    """The weight of embeddings or a head, without an adapter's rows: PEFT would copy it whole at each call."""
    layer = token_rows(module)
    return (module if layer is None else layer.base_layer).weight  # type: ignore[return-value]


def embed_ids(net: PreTrainedModel, ids: Tensor) -> Tensor:
    """Input embeddings of ids of any shape, with an adapter's own rows where it has some."""
    embeddings = net.get_input_embeddings()
    layer = token_rows(embeddings)
    if layer is None:
        return embeddings(ids)
    found = layer.base_layer(ids)
    for adapter in layer.active_adapters:
        rows = layer.trainable_tokens_delta[adapter].to(found.dtype)
        for place, token in enumerate(layer.token_indices[adapter]):
            found = torch.where((ids == token)[..., None], rows[place], found)
    return found
