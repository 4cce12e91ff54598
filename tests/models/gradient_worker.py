"""Gradients of one loss over four sequences; run by test_distributed, two processes share them.

And logits in bfloat16: as FSDP2 makes them of float32 weights, in mixed precision and with checkpointing.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from helpers.tiny import tiny_dream, tiny_llada
from maskwise.models.batch import Batch

SEQUENCES = [[1, 2, 3, 4, 5], [6, 7, 8], [9, 10, 11, 12, 13, 14], [15, 16]]
ROWS = [[1, 3], [0, 2], [2, 5], [0, 1]]


def loss(rows, weight):
    return torch.logsumexp(rows @ weight.T, dim=-1).mean()


def shard(model, **policy):
    """The layers first, then the rest, as accelerate does it."""
    for layer in model.net.modules():
        if type(layer).__name__ in model.net._no_split_modules:
            fully_shard(layer, **policy)
    fully_shard(model, **policy)


def half_logits(make, how: str) -> torch.Tensor:
    """how: plain, all weights in bfloat16; fsdp2, rounded by its policy."""
    model = make(seed=5)
    if how == "fsdp2":
        shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        model.core.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    else:
        model.to(torch.bfloat16)
    model.train()
    batch = Batch.pack(SEQUENCES)
    logits = model(batch, model.flat_rows(batch, ROWS))
    logits.logsumexp(dim=-1).sum().backward()
    return logits.detach()


def gradients(how: str) -> dict[str, torch.Tensor]:
    """how: alone, over all sequences; ddp or fsdp2, this process with its share of them."""
    model = tiny_llada(seed=5)
    mine = range(len(SEQUENCES))
    if how != "alone":
        mine = range(dist.get_rank(), len(SEQUENCES), dist.get_world_size())
    if how == "fsdp2":
        shard(model)
    trained = DistributedDataParallel(model) if how == "ddp" else model
    batch = Batch.pack([SEQUENCES[s] for s in mine])
    trained(batch, model.flat_rows(batch, [ROWS[s] for s in mine]), loss).backward()
    grads = {}
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        grads[name] = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
    return grads


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = {how: gradients(how) for how in ("ddp", "fsdp2")}
    found |= {make.__name__: half_logits(make, "fsdp2") for make in (tiny_llada, tiny_dream)}
    if dist.get_rank() == 0:
        torch.save(found, sys.argv[1])
    dist.barrier()
    # gloo's threads and DDP's reducer wait for each other at interpreter exit now and then: leave without it.
    os._exit(0)
