"""Tensor parallel: the processes of a replica share the layers of one model, by the plan of transformers.

A family's class has its plan (`_tp_plan`). Attention and MLP are split by columns, then by rows, with an
all-reduce after the rows; experts have one all-reduce per layer, so their weights are sharded without a hook on each
map. Embeddings, head and norms are replicated: every process of a replica computes the same logits.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import PreTrainedModel

from maskwise.support.errors import UserError

WAITING = timedelta(days=7)  # the slowest replica may finish hours later
SPLIT = ("intermediate_size", "moe_intermediate_size", "expert_intermediate_size")  # widths that are divided


@dataclass(frozen=True)
class Replica:
    """This process in a run of several replicas of one model; torch's default group holds one replica."""

    number: int
    count: int
    member: int
    everyone: Any  # a gloo group of all processes of the run


_joined: list[Replica] = []


@cache
def join_replica(size: int) -> Replica:
    """Splits the processes that torchrun started into replicas of so many, and joins that of this process."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world % size:
        raise UserError(
            f"--tensor-parallel {size} needs {size} processes or a multiple, not {world}: "
            f"torchrun --nproc-per-node {size} -m maskwise ..."
        )
    if dist.is_initialized():
        raise UserError("--tensor-parallel starts process groups of its own: torch.distributed is in use already")
    store, rank, _ = next(dist.rendezvous("env://"))
    number, member = divmod(rank, size)
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    everyone = dist.ProcessGroupGloo(dist.PrefixStore("everyone", store), rank, world, WAITING)
    own = dist.PrefixStore(f"replica {number}", store)
    dist.init_process_group("nccl" if cuda else "gloo", store=own, rank=member, world_size=size)
    _joined.append(Replica(number, world // size, member, everyone))
    return _joined[0]


def joined_replica() -> Replica | None:
    return _joined[0] if _joined else None


def refuse_indivisible(net_class: type[PreTrainedModel], config: Any, size: int) -> None:
    """Refuses families without a plan, and heads or widths that so many processes cannot share equally."""
    if getattr(net_class, "supports_tp_plan", None) is not True:  # transformers' own classes have a property there
        raise UserError(f"{net_class.__name__} has no plan for --tensor-parallel: use --device-map auto")
    plan: dict[str, str] = net_class._tp_plan  # type: ignore[assignment]
    heads = ("num_attention_heads", "num_key_value_heads") if splits_attention(plan) else ()
    for field in (*heads, *SPLIT):
        value = getattr(config, field, None)
        if value is not None and value % size:
            raise UserError(f"--tensor-parallel {size} does not divide {field}, {value}: use another number")


def splits_attention(plan: dict[str, str]) -> bool:
    return any(rule.endswith(".k_proj") for rule in plan)


def keep_local(net: PreTrainedModel, size: int) -> None:
    """Weights sharded without a hook become plain tensors, so that experts are stacked as they are in one process."""
    dims: dict[str, int] = {}
    for name, module in net.named_modules():
        if "forward" in vars(module):  # a hook of the plan, which takes DTensors
            continue
        for key, weight in list(module.named_parameters(recurse=False)):
            if is_sharded(weight):
                dims[f"{name}.{key}"] = weight.placements[0].dim  # type: ignore[attr-defined]
                setattr(module, key, nn.Parameter(weight.to_local(), weight.requires_grad))  # type: ignore[attr-defined]
    net.shards, net.shard_dims = size, dims  # type: ignore[assignment]


def is_sharded(tensor: Tensor) -> bool:
    """True for a DTensor. Does not import torch.distributed.tensor, which takes .7 s: without it there is none."""
    defined = sys.modules.get("torch.distributed.tensor")
    return defined is not None and isinstance(tensor, defined.DTensor)


def whole_weight(net: Any, name: str, weight: Tensor) -> Tensor:
    """A weight with the shards of all processes of the replica, which must all ask for it."""
    if is_sharded(weight):
        return weight.full_tensor()  # type: ignore[attr-defined]
    dim = getattr(net, "shard_dims", {}).get(name)
    return weight if dim is None else _gathered(weight, dim)


def local_heads(net: Any, heads: int) -> int:
    """The number of key-value heads that this process holds."""
    return heads // net.shards if is_split(net) else heads


def all_heads(net: Any, weights: Sequence[Tensor]) -> list[Tensor]:
    """Attention weights [n, local heads, keys] of each layer -> [n, heads, keys]."""
    return [_gathered(one, 1) for one in weights] if is_split(net) else list(weights)


def is_split(net: Any) -> bool:
    """True if each process holds a part of the attention heads."""
    return getattr(net, "shards", 1) > 1 and splits_attention(type(net)._tp_plan)


def _gathered(part: Tensor, dim: int) -> Tensor:
    parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts, dim)
