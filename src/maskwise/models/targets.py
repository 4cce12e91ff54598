"""Which linear maps of a network an adapter may touch. Imports no torch unless a network is given."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def linear_targets(net: "PreTrainedModel") -> str:
    """A regular expression for PEFT, to be matched in full: every linear map inside the layers, never the output head.

    It is read off the network, so it always matches something. A list of suffixes would catch LLaDA's head, which
    shares its name with the last map of each block.
    """
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    head = net.get_output_embeddings()
    return targets_pattern(
        name
        for name, module in net.named_modules()
        if in_a_layer(name) and module is not head and isinstance(module, nn.Linear | Conv1D)
    )


def in_a_layer(name: str) -> bool:
    """Experts are left out: hundreds of maps per layer, each seen by few tokens."""
    parents = name.split(".")[:-1]
    return any(part.isdigit() for part in parents) and "experts" not in parents


def targets_pattern(names: Iterable[str]) -> str:
    """One regular expression for these modules, in which a layer's number may be any other."""
    by_parent: dict[str, set[str]] = {}
    for name in names:
        *parents, last = name.split(".")
        parent = r"\.".join(r"\d+" if part.isdigit() else re.escape(part) for part in parents)
        by_parent.setdefault(parent, set()).add(re.escape(last))
    return "|".join(rf"{parent}\.(?:{'|'.join(sorted(last))})" for parent, last in sorted(by_parent.items()))
