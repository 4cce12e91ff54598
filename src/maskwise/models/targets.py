"""Which linear maps of a model an adapter may touch."""

import re

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D


def linear_targets(net: PreTrainedModel) -> str:
    """A regular expression for PEFT, to be matched in full: every linear map inside the layers, never the output head.

    It is read off the model, so it cannot match nothing; a list of suffixes would catch LLaDA's head, which shares its
    name with the last map of each block. Experts are left out: hundreds of maps a layer, each seen by few tokens.
    """
    head = net.get_output_embeddings()
    homes: dict[str, set[str]] = {}
    for name, module in net.named_modules():
        *parents, last = name.split(".")
        in_a_layer = any(part.isdigit() for part in parents) and "experts" not in parents
        if in_a_layer and module is not head and isinstance(module, nn.Linear | Conv1D):
            home = r"\.".join(r"\d+" if part.isdigit() else re.escape(part) for part in parents)
            homes.setdefault(home, set()).add(re.escape(last))
    return "|".join(rf"{home}\.(?:{'|'.join(sorted(names))})" for home, names in sorted(homes.items()))
