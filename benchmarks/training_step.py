"""Row j: a step of masked diffusion training on full rows, LoRA at LLaDA-8B shape."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import plain
from benchmarks.measure import Bench, Line, bound, check_close, forward_flops, line, timed
from benchmarks.shapes import random_ids
from benchmarks.step import adapted, gradient, half, trained
from maskwise.diffusion import Noised, nelbo, nelbo_call
from maskwise.models.model import Model

ROWS = (4, 1024)  # rows of a micro-batch, tokens of a row
TOY_ROWS = (3, 12)
BAR = 0.6  # MFU


def noised_rows(model: Model, rows: int, length: int) -> list[Noised]:
    assert model.mask_id is not None
    draws = torch.Generator().manual_seed(3)
    # The first token stays visible: where predictions are shifted it shares its row with the second.
    return [nelbo(torch.tensor(ids), model.mask_id, draws, start=1) for ids in random_ids([length] * rows, model)]


def our_loss(bench: Bench, model: Model, examples: list[Noised]) -> Tensor:
    call = nelbo_call(model, examples)
    with half(bench):
        return model(call.batch, call.index, call.loss)


def plain_loss(bench: Bench, model: Model, examples: list[Noised]) -> Tensor:
    """As the peers' trainers do it: logits of every position in float32, zero weight where nothing was masked."""
    ids = torch.stack([example.ids for example in examples]).to(model.device)
    with half(bench):
        logits = plain.logits(model, ids).float()
    logits[..., model.mask_id] = -1e30  # minus infinity times zero is no number
    labels, weights = torch.zeros_like(ids), torch.zeros(ids.shape, device=model.device)
    for row, example in enumerate(examples):
        places = (example.rows - int(model.shift)).clamp(min=0).to(model.device)
        labels[row, places], weights[row, places] = example.targets.to(model.device), example.weights.to(model.device)
    entropies = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return (weights * entropies).sum() / len(examples)


def training_step(bench: Bench) -> Iterator[Line]:
    model = adapted(bench, "llada")
    count, length = ROWS if bench.full else TOY_ROWS
    examples = noised_rows(model, count, length)
    close = (5e-2, 0.25) if bench.full else (1e-4, 1e-3)
    check_close("loss", our_loss(bench, model, examples), plain_loss(bench, model, examples), close[0])
    gradients = [gradient(model, loss(bench, model, examples)) for loss in (our_loss, plain_loss)]
    check_close("gradient", gradients[0], gradients[1], close[1])
    del gradients
    optimiser = torch.optim.AdamW(trained(model), lr=0.0)  # all its work, and the weights stay as they are

    def step(loss: Callable[[Bench, Model, list[Noised]], Tensor]) -> None:
        loss(bench, model, examples).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    # Backward: to the inputs; the adapter's own share is small.
    flops = 2 * forward_flops(model, [length] * count, sum(len(e.rows) for e in examples))
    slow = timed(bench.device, lambda: step(plain_loss))
    if bench.full:
        model.compile_layers()
    fast = timed(bench.device, lambda: step(our_loss), warm=2)
    case = f"{model.name}, LoRA, {count} rows of {length}"
    yield line(bench, "j", f"{case}, a step", fast, slow, flops)
    yield Line("j", f"{case}, tokens", "1/s", count * length / fast.seconds, count * length / slow.seconds)
    yield bound(bench, "j", f"{case}, MFU", "share", flops / fast.seconds / bench.ceiling, BAR, least=True)
