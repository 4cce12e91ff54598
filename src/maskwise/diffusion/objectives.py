"""What training means: each objective turns a clean sequence into noised ones and says which rows carry which weight.

The noise is drawn here, on the host, from an explicit generator; the loss is computed inside the model's one `forward`
(`Call`), so that DDP, FSDP2 and checkpointing see it. All losses are in nats, a mean over the examples of the call.

    nelbo           Sahoo et al., Simple and Effective Masked Diffusion Language Models, arXiv 2406.07524; with the
                    linear schedule the objective of LLaDA (Nie et al., arXiv 2502.09992)
    blockwise       Sun, Wen and Wang, Why mask diffusion does not work, arXiv 2510.03289 (names the strategy; the
                    objective is our reading of it)
    block_diffusion Arriola et al., Block Diffusion, arXiv 2503.09573
    soft_masks      Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from maskwise.diffusion.fused import linear_ce
from maskwise.diffusion.fused_kl import linear_kl
from maskwise.diffusion.process import absorb
from maskwise.diffusion.schedules import Linear, Schedule, step_weight
from maskwise.diffusion.softmask import SoftShape, likeliest
from maskwise.models.batch import Batch, Mixture
from maskwise.models.model import Model


@dataclass(frozen=True)
class Noised:
    """One noised sequence: sum(weights * CE at rows) is one draw of the objective. All but ids are of m rows."""

    ids: Tensor  # [n]
    rows: Tensor  # [m] positions that carry loss
    targets: Tensor  # [m] their clean tokens
    weights: Tensor  # [m]


@dataclass(frozen=True)
class Call:
    """The arguments of one training call: model(call.batch, call.index, call.loss)."""

    batch: Batch
    index: Tensor
    loss: Callable[[Tensor, Tensor], Any]


@dataclass(frozen=True)
class Taught:
    """Of the m loss rows of a call: which learn a teacher's distribution, and its hidden states there."""

    rows: Tensor  # [k] of 0..m-1
    others: Tensor  # [m - k]
    hidden: Tensor  # [k, d] the teacher's
    head_weight: Tensor  # [V, d] the teacher's


# The NELBO of the absorbing process


def nelbo(
    ids: Tensor,
    mask_id: int,
    generator: torch.Generator,
    schedule: Schedule | None = None,
    start: int = 0,
    steps: int | None = None,
    places: Tensor | None = None,
    weighted: bool = True,
) -> Noised:
    """One draw of the NELBO of ids[start:] given ids[:start]: a time, its noise, and the schedule's weight.

    Continuous time by default; `steps` gives the process of that many steps. A draw may mask nothing: its loss is zero.
    places [p], in order: the positions that are noised, instead of all from `start` on; the others stay visible.
    Without `weighted` every masked token has weight 1, which is no bound on the likelihood.
    """
    schedule = schedule or Linear()
    places = torch.arange(start, len(ids)) if places is None else places
    if steps is None:
        t = 1 - torch.rand((), generator=generator, dtype=torch.float64)  # in (0, 1]: the weight at 0 is infinite
        weight = schedule.weight(t)
    else:
        number = torch.randint(1, steps + 1, (), generator=generator).double()
        t = number / steps
        weight = steps * step_weight(schedule, (number - 1) / steps, t)
    noised = ids.clone()
    noised[places] = absorb(ids[places], float(schedule.alpha(t)), mask_id, generator)
    rows = (noised != ids).nonzero()[:, 0]
    return Noised(noised, rows, ids[rows], torch.full((len(rows),), float(weight) if weighted else 1.0))


# Blockwise training: clean prefix, one partly masked block, everything after it masked

BlockAblation = Literal["suffix", "drop-later", "forced", "clipped"]


def blockwise(
    ids: Tensor,
    mask_id: int,
    block: int,
    generator: torch.Generator,
    start: int = 0,
    which: int | None = None,
    ablation: BlockAblation | None = None,
    places: Tensor | None = None,
    weighted: bool = True,
) -> Noised:
    """One draw of the exact blockwise NELBO of ids[start:], cut into blocks of `block` tokens (the last may be short).

    A block b is drawn uniformly (times their number K), l ~ U{1..B} of its tokens are masked, all later blocks are
    masked, and the loss falls on b alone with weight K * B / l. `which` names the block instead (see `last_to_first`).
    Ablations, none of them exact: "suffix" masks the last l tokens of the block; "drop-later" leaves later blocks out;
    "forced" and "clipped" draw a Bernoulli rate u instead of l, with weight 1/u, and mask one token where none fell;
    the second keeps u >= 1/B. `places` and `weighted` are those of `nelbo`; blocks are cut from the places.
    """
    places = torch.arange(start, len(ids)) if places is None else places
    count = -(-len(places) // block)
    chosen = int(torch.randint(count, (), generator=generator)) if which is None else which
    active, later = places[chosen * block : (chosen + 1) * block], places[(chosen + 1) * block :]
    masked, weight = _mask_block(len(active), generator, ablation)
    rows = active[masked]
    noised = ids.clone()
    noised[rows] = mask_id
    noised[later] = mask_id
    if ablation == "drop-later":
        noised = noised[: int(active[-1]) + 1]
    return Noised(noised, rows, ids[rows], torch.full((len(rows),), count * weight if weighted else 1.0))


def _mask_block(size: int, generator: torch.Generator, ablation: BlockAblation | None) -> tuple[Tensor, float]:
    """Places to mask in a block of `size` tokens, and the weight of their cross-entropies."""
    if ablation in ("forced", "clipped"):
        rate = 1 - float(torch.rand((), generator=generator, dtype=torch.float64))
        rate = max(rate, 1 / size) if ablation == "clipped" else rate
        masked = (torch.rand(size, generator=generator) < rate).nonzero()[:, 0]
        if len(masked) == 0:
            masked = torch.randint(size, (1,), generator=generator)
        return masked, 1 / rate
    amount = int(torch.randint(1, size + 1, (), generator=generator))
    if ablation == "suffix":
        return torch.arange(size - amount, size), size / amount
    return torch.randperm(size, generator=generator)[:amount], size / amount


def block_diffusion(
    ids: Tensor,
    mask_id: int,
    block: int,
    generator: torch.Generator,
    places: Tensor | None = None,
    weighted: bool = True,
) -> Noised:
    """One draw of the exact NELBO of a model whose tokens see no block after their own, counted from position 0.

    Of the K blocks that hold places, one is drawn, l ~ U{1..n} of its n places are masked, and the loss has weight
    K * n / l. What stands before is clean, and what stands after is left out: nobody sees it. `places` and `weighted`
    are those of `nelbo`.
    """
    places = torch.arange(len(ids)) if places is None else places
    owner = places // block
    blocks = owner.unique()
    chosen = blocks[torch.randint(len(blocks), (), generator=generator)]
    active = places[owner == chosen]
    masked, weight = _mask_block(len(active), generator, None)
    rows = active[masked]
    noised = ids[: (int(chosen) + 1) * block].clone()
    noised[rows] = mask_id
    return Noised(noised, rows, ids[rows], torch.full((len(rows),), len(blocks) * weight if weighted else 1.0))


def last_to_first(progress: float, count: int) -> int:
    """The curriculum over blocks: which of `count` blocks to train at `progress` in [0, 1), the last one first."""
    return count - 1 - int(progress * count)


def nelbo_call(
    model: Model,
    examples: Sequence[Noised],
    block: int | None = None,
    taught: Taught | None = None,
    count: int | None = None,
) -> Call:
    """The mean over examples of their weighted cross-entropies; for `nelbo`, `blockwise` and `block_diffusion` alike.

    count: what their sum is divided by, instead of their number.
    block: attention reaches no block of so many tokens after a token's own (`Batch.block`).
    taught: rows that learn a teacher's distribution instead of the clean token (`teach`).
    """
    batch = replace(Batch.pack([example.ids for example in examples], model.device), block=block)
    index = model.locate_all(batch, [example.rows for example in examples])
    targets = torch.cat([example.targets for example in examples]).to(model.device)
    weights = torch.cat([example.weights for example in examples]).to(model.device) / (count or len(examples))

    def loss(hidden: Tensor, head_weight: Tensor) -> Tensor:
        if taught is None:
            return linear_ce(hidden, head_weight, targets, weights, model.mask_id)
        own, given = taught.others, taught.rows
        entropies = linear_ce(hidden[own], head_weight, targets[own], weights[own], model.mask_id)
        return entropies + linear_kl(
            hidden[given], head_weight, taught.hidden, taught.head_weight, weights[given], model.mask_id
        )

    return Call(batch, index, loss)


# Distillation from an autoregressive teacher


def taught_rows(example: Noised, mask_id: int) -> Tensor:
    """[m] True at loss rows with nothing visible to their right.

    There the teacher's distribution given the clean prefix is an unbiased target, whatever of the prefix is masked: its
    mean over what is hidden is what the model should say. With a visible token to the right it would not be.
    """
    visible = (example.ids != mask_id).nonzero()[:, 0]
    return example.rows > (int(visible[-1]) if len(visible) else -1)


@torch.no_grad()
def teach(teacher: Model, clean: Sequence[Tensor], examples: Sequence[Noised], mask_id: int) -> Taught:
    """One pass of the teacher over the clean sequences; `mask_id` is the student's. Position 0 has no teacher."""
    flags = [taught_rows(example, mask_id) & (example.rows > 0) for example in examples]
    batch = Batch.pack(clean, teacher.device)
    index = teacher.locate_all(batch, [example.rows[flag] for example, flag in zip(examples, flags, strict=True)])
    flat = torch.cat(flags)
    rows, others = flat.nonzero()[:, 0].to(teacher.device), (~flat).nonzero()[:, 0].to(teacher.device)
    return Taught(rows, others, teacher.hidden(batch)[index], teacher.head_weight)


# Training for soft masking


@torch.no_grad()
def soft_masks(
    call_model: Callable[..., Any], call: Call, examples: Sequence[Noised], chosen: Sequence[bool], mask_id: int,
    shape: SoftShape,
) -> Mixture:  # fmt: skip
    """What decoding with soft masks would show at the call's rows after one step: a first pass predicts them.

    chosen: the examples whose masks become soft, one flag each. `call_model` is the model or what DDP or FSDP2 put
    around it. The mixture goes into the batch of the second pass.
    """
    lengths = torch.tensor([0] + [len(example.ids) for example in examples]).cumsum(0)
    flat = [start + example.rows for start, example in zip(lengths.tolist(), examples, strict=False)]
    picked = torch.cat([torch.full_like(rows, flag, dtype=torch.bool) for rows, flag in zip(flat, chosen, strict=True)])
    device = call.index.device
    index, places = call.index[picked.nonzero()[:, 0].to(device)], torch.cat(flat)[picked].to(device)
    tokens, shares = call_model(
        call.batch, index, lambda hidden, head_weight: likeliest(hidden, head_weight, mask_id, shape)
    )
    masks = torch.full((len(places), 1), mask_id, device=device)
    left = 1 - shares.sum(dim=1, keepdim=True)
    return Mixture(places, torch.cat([masks, tokens], dim=1), torch.cat([left, shares], dim=1))
