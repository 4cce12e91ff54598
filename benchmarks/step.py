"""Row c: one step of mask-agnostic LoRA tuning over pairs of mixed length."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import plain
from benchmarks.measure import Bench, Line, bound, check_close, forward_flops, line, timed
from benchmarks.shapes import make_model, random_ids
from maskwise.diffusion import Views, draw_noise, mask_agnostic, mask_agnostic_call
from maskwise.models.model import Model
from maskwise.training.training_settings import TuneSettings
from maskwise.training.weights import make_trainable

PAIRS = ((600, 120), (220, 80), (90, 40))  # tokens of prompt and answer
TOY_PAIRS = ((12, 6), (5, 4))


def adapted(bench: Bench, kind: str) -> Model:
    """A model with an adapter that is not at its start, where half the gradients would be zero."""
    model = make_model(bench, kind)
    make_trainable(model, TuneSettings(lora_rank=64 if bench.full else 4))
    draws = torch.Generator(bench.device).manual_seed(1)
    with torch.no_grad():
        for name, weight in model.net.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.01, generator=draws)
    return model.train()


def views_of(model: Model, pairs: Sequence[tuple[int, int]], context: int, most: int) -> list[Views]:
    assert model.mask_id is not None
    noise = torch.Generator().manual_seed(2)
    made = []
    for number, (prompt, answer) in enumerate(pairs):
        ids = torch.tensor(random_ids([prompt + answer], model, seed=number)[0])
        draw = draw_noise(answer, min(most, context - prompt - answer), noise)
        made.append(mask_agnostic(ids[:prompt], ids[prompt:], draw, model.mask_id))
    return made


def half(bench: Bench) -> contextlib.AbstractContextManager:
    return torch.autocast("cuda", torch.bfloat16) if bench.full else contextlib.nullcontext()


def our_loss(bench: Bench, model: Model, views: list[Views]) -> Tensor:
    call = mask_agnostic_call(model, views)
    with half(bench):
        return model(call.batch, call.index, call.loss).loss


def plain_loss(bench: Bench, model: Model, views: list[Views], recompute: bool) -> Tensor:
    """Two padded forward passes; as the peers' trainers do it, the cross-entropy of every position is taken in float32
    and weighted, with zero where nothing was masked. The variation takes the masked rows out first."""
    with half(bench):
        first, second = (
            _logits(model, [getattr(view, side) for view in views], recompute) for side in ("first", "second")
        )
    targets, ce, tv = (
        torch.cat([getattr(view, name) for view in views]).to(model.device)
        for name in ("targets", "ce_weights", "tv_weights")
    )
    rows = [(view.rows - int(model.shift)).clamp(min=0) for view in views]
    places = torch.cat([torch.full_like(part, number) for number, part in enumerate(rows)]), torch.cat(rows)
    entropies = torch.stack([_every_entropy(logits, places, targets)[places] for logits in (first, second)]).mean(0)
    p1, p2 = first[places].softmax(-1), second[places].softmax(-1)
    return (ce * entropies + tv * (p1 - p2).abs().sum(-1)).sum() / len(views)


def _logits(model: Model, side: list[Tensor], recompute: bool) -> Tensor:
    """[B, L, V] float32."""
    ids, seen = plain.pad([ids.tolist() for ids in side], model.device)
    every = plain.logits(model, ids, seen, recompute=recompute).float()
    every[..., model.mask_id] = -1e30  # minus infinity times zero is no number
    return every


def _every_entropy(logits: Tensor, places: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    """[B, L, V] -> [B, L]; positions without a target get token 0's."""
    labels = torch.zeros(logits.shape[:2], dtype=torch.int64, device=logits.device)
    labels[places] = targets
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")


def trained(model: Model) -> list[Tensor]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def gradient(model: Model, loss: Tensor) -> Tensor:
    return torch.cat([part.flatten().float() for part in torch.autograd.grad(loss, trained(model))])


def check_same(bench: Bench, model: Model, views: list[Views]) -> None:
    ours, reference = our_loss(bench, model, views), plain_loss(bench, model, views, False)
    check_close("loss", ours, reference, 5e-2 if bench.full else 1e-4)
    check_close("gradient", gradient(model, ours), gradient(model, reference), 0.25 if bench.full else 1e-3)


def tuning_step(bench: Bench, kind: str) -> Iterator[Line]:
    model = adapted(bench, kind)
    views = views_of(model, PAIRS if bench.full else TOY_PAIRS, *((1024, 600) if bench.full else (40, 12)))
    check_same(bench, model, views)
    optimiser = torch.optim.AdamW(trained(model), lr=0.0)  # all its work, and the weights stay as they are

    def step(loss: Tensor) -> None:
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    lengths = [len(ids) for view in views for ids in (view.first, view.second)]
    rows = 2 * sum(len(view.rows) for view in views)
    flops = 2 * forward_flops(model, lengths, rows)  # backward: to the inputs; the adapter's own share is small
    if bench.full:
        eager = timed(bench.device, lambda: step(our_loss(bench, model, views)))
        yield Line(
            "c",
            f"{model.name}, layers not compiled, a step",
            "s",
            eager.seconds,
            mfu=flops / eager.seconds / bench.ceiling,
            peak=eager.peak,
        )
        model.compile_layers()
        check_same(bench, model, views)
    for recompute, limit, how in ((False, 0.65, ""), (True, 0.5, ", checkpointing")):
        if recompute:
            model.core.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        fast = timed(bench.device, lambda: step(our_loss(bench, model, views)))
        slow = timed(bench.device, lambda again=recompute: step(plain_loss(bench, model, views, again)))
        case = f"{model.name}{how}"
        yield line(bench, "c", f"{case}, a step", fast, slow, flops, None if recompute else 1.5)
        tokens = sum(lengths)
        yield Line("c", f"{case}, useful tokens", "1/s", tokens / fast.seconds, tokens / slow.seconds)
        share = None if fast.above is None or slow.above is None else fast.above / slow.above
        yield bound(bench, "c", f"{case}, memory above the weights / plain's", "share", share, limit)
        if recompute:
            yield bound(bench, "c", f"{case}, whole step", "GiB", fast.peak, 22.0)
