"""Which linear maps of a network an adapter may touch. Imports no torch unless a network is given."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwise.support.errors import UserError
from maskwise.support.interrupts import time_limit

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


def linear_targets(net: "PreTrainedModel") -> str:
    """A regular expression for PEFT, to be matched in full: every linear map inside the layers, never the output head.

    It is read off the network, so it always matches something. A list of suffixes would catch LLaDA's head, which
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
    """Also a map that gptqmodel packed, whose classes are none of torch's."""
    from torch import nn

    return isinstance(module, nn.Linear) or {"qweight", "scales"} <= dict(module.named_buffers(recurse=False)).keys()


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


def is_attention(name: str) -> bool:
    """By its name: LLaDA's blocks hold the maps of attention and MLP side by side."""
    *parents, last = name.split(".")
    return "attn" in name or "attention" in parents or last in ("q_proj", "k_proj", "v_proj")


MOST_SECONDS = 5  # of processor time; patterns in use take milliseconds


def refuse_endless_patterns(settings: Any, names: Sequence[str], file: Path) -> None:
    """Any text of these settings may be a regular expression for names of layers, and such a one may take years."""
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
