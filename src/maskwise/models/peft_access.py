"""Access through PEFT: the network inside its wrapper, rows that an adapter replaces, the maps an adapter may target.

Imports no torch unless a network is given.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwise.support.errors import UserError
from maskwise.support.interrupts import time_limit

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel


def without_adapter(net: Any) -> "PreTrainedModel":
    """The transformers model inside PEFT's wrapper, where there is one."""
    return net.get_base_model() if hasattr(net, "peft_config") else net


def token_rows(module: "nn.Module") -> Any:
    """PEFT's layer around embeddings or a head in which an adapter replaces some tokens' rows, or None."""
    return getattr(module, "token_adapter", None)  # by its name: importing PEFT takes longer than opening a model


def stored_weight(module: "nn.Module") -> "Tensor":
    """The weight of embeddings or a head, without an adapter's rows: PEFT would copy it whole at each call."""
    layer = token_rows(module)
    return (module if layer is None else layer.base_layer).weight  # type: ignore[return-value]


def embed_ids(net: "PreTrainedModel", ids: "Tensor") -> "Tensor":
    """Input embeddings of ids of any shape, with an adapter's own rows where it has some."""
    embeddings = net.get_input_embeddings()
    layer = token_rows(embeddings)
    if layer is None:
        return embeddings(ids)
    from torch import where

    found = layer.base_layer(ids)
    for adapter in layer.active_adapters:
        rows = layer.trainable_tokens_delta[adapter].to(found.dtype)
        for place, token in enumerate(layer.token_indices[adapter]):
            found = where((ids == token)[..., None], rows[place], found)
    return found


def execution_devices(net: "PreTrainedModel") -> list[Any]:
    """The device that computes each layer of a network dispatched by accelerate."""
    named = ((name, getattr(module, "_hf_hook", None)) for name, module in net.named_modules())
    return [hook.execution_device for name, hook in named if hook is not None and name.rpartition(".")[2].isdigit()]


def linear_targets(net: "PreTrainedModel") -> str:
    """A regular expression for PEFT, to be matched in full: every linear map in the layers, never the output head.

    It is derived from the network, so it always matches something. A list of suffixes would catch LLaDA's head, which
    shares its name with the last map of each block.
    """
    from transformers.pytorch_utils import Conv1D

    head = net.get_output_embeddings()
    return targets_pattern(
        name
        for name, module in net.named_modules()
        if in_a_layer(name) and module is not head and (is_linear(module) or isinstance(module, Conv1D))
    )


def is_linear(module: "nn.Module") -> bool:
    """True also for a map packed by gptqmodel, whose classes are not torch's."""
    from torch import nn

    return isinstance(module, nn.Linear) or {"qweight", "scales"} <= dict(module.named_buffers(recurse=False)).keys()


def in_a_layer(name: str) -> bool:
    """True for a map in a layer, except in experts: hundreds of maps per layer, each used by few tokens."""
    parents = name.split(".")[:-1]
    return any(part.isdigit() for part in parents) and "experts" not in parents


def targets_pattern(names: Iterable[str]) -> str:
    """One regular expression for these modules and those of the same names in other layers."""
    by_parent: dict[str, set[str]] = {}
    for name in names:
        *parents, last = name.split(".")
        parent = r"\.".join(r"\d+" if part.isdigit() else re.escape(part) for part in parents)
        by_parent.setdefault(parent, set()).add(re.escape(last))
    return "|".join(rf"{parent}\.(?:{'|'.join(sorted(last))})" for parent, last in sorted(by_parent.items()))


def is_attention(name: str) -> bool:
    """True for a map of attention, by its name: LLaDA's blocks hold the maps of attention and MLP side by side."""
    *parents, last = name.split(".")
    return "attn" in name or "attention" in parents or last in ("q_proj", "k_proj", "v_proj")


MOST_SECONDS = 5  # of processor time; patterns in use take milliseconds


def refuse_endless_patterns(settings: Any, names: Sequence[str], file: Path) -> None:
    """Refuses settings with a text that, as a regular expression for names of layers, would take too long."""
    endless = f"{file}: a pattern takes more than {MOST_SECONDS} s on the names of the weights: write it otherwise"
    with time_limit(MOST_SECONDS, UserError(endless)):
        for pattern in {text for text in _texts(settings) if re.search("[*+{]", text)}:
            with suppress(re.error, RecursionError, OverflowError):  # its reader says so
                compiled = re.compile(rf"(?:.*\.)?(?:{pattern})$")
                for name in names:
                    compiled.match(name)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(inner)
