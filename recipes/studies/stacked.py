"""Many small LLaDA networks trained at once, as one network whose weights have one more dimension.

R runs of one shape take their steps together: every weight is [R, ...], a linear map is one batched product, attention
sees R * B rows. Each run has its own rows, masks, gradient norm and optimiser state, so nothing of one reaches another
(tested: the weights after some steps are those of tiny_step.Training, run by run). One process fills the card, all runs
have had the same number of tokens at any time, and the layers are compiled once for all.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.models import LLaDAModelLM
from maskwise.models.families.layers import Rotary
from maskwise.tasks.prompts import Prompt
from muon import Muon
from task_accuracy import ROWS_A_PASS, padded
from tiny_step import ADAM_SHARE, layers_of, weighted_loss

# The maps of a block, those of one input laid end to end.
PACKED = (
    ("attn_norm",),
    ("q_proj", "k_proj", "v_proj"),
    ("attn_out",),
    ("ff_norm",),
    ("ff_proj", "up_proj"),
    ("ff_out",),
)
Weights = list[Tensor]


def packed(net: LLaDAModelLM) -> Weights:
    """Embedding, last norm, then six tensors per block."""
    weights = [net.get_input_embeddings().weight, net.model.transformer["ln_f"].weight]
    for block in layers_of(net):
        weights += [torch.cat([getattr(block, name).weight for name in names]) for names in PACKED]
    return weights


def block(
    x: Tensor, weights: Weights, rotary: Rotary, rows: int, heads: int, eps: float, causal: int, key_mask: Tensor | None
) -> Tensor:
    """x [R, rows * L, d] -> the same. The first `causal` runs look to the left only; key_mask [R * rows, 1, 1, L]."""
    attn_norm, qkv, attn_out, ff_norm, gate_up, ff_out = weights
    runs, tokens, width = x.shape
    parts = torch.bmm(normed(x, attn_norm, eps), qkv.mT).view(runs * rows, tokens // rows, 3, heads, width // heads)
    q, k, v = parts.unbind(2)
    q, k, v = (part.transpose(1, 2) for part in (rotary.turn(q), rotary.turn(k), v))
    first = causal * rows
    seen = [F.scaled_dot_product_attention(q[:first], k[:first], v[:first], is_causal=True)] if causal else []
    if causal < runs:
        seen.append(F.scaled_dot_product_attention(q[first:], k[first:], v[first:], attn_mask=key_mask))
    attended = torch.cat(seen) if len(seen) > 1 else seen[0]
    x = x + torch.bmm(attended.transpose(1, 2).reshape(runs, tokens, width), attn_out.mT)
    gate, up = torch.bmm(normed(x, ff_norm, eps), gate_up.mT).chunk(2, dim=-1)
    return x + torch.bmm(F.silu(gate) * up, ff_out.mT)


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As RMSNorm, with a weight per run: x [R, T, d], weight [R, d]."""
    return weight[:, None] * F.rms_norm(x, x.shape[-1:], eps=eps)


class Stack:
    """R networks of one shape and their optimisers; weights are bf16 on a GPU with a float32 master copy."""

    def __init__(self, nets: Sequence[LLaDAModelLM], rate: float, device: torch.device) -> None:
        self.config, self.rate = nets[0].config, rate
        self.frequencies = nets[0].model.frequencies
        with torch.no_grad():
            alike = zip(*(packed(net) for net in nets), strict=True)
            self.masters = [torch.stack(one).to(device, torch.float32) for one in alike]
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.weights = [master.to(dtype, copy=True).requires_grad_() for master in self.masters]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        matrices, others = self._matrices(), [self.masters[0], *(one for one in self.masters if one.ndim == 2)]
        self.optimisers: list[torch.optim.Optimizer] = [
            Muon(matrices, lr=rate, weight_decay=0.1),
            torch.optim.AdamW(others, lr=rate * ADAM_SHARE, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self.block, self.loss = block, weighted_loss
        if device.type == "cuda":
            self.block = torch.compile(block, dynamic=False)
            self.loss = torch.compile(weighted_loss, dynamic=False)

    @property
    def runs(self) -> int:
        return len(self.masters[0])

    def _matrices(self) -> list[Tensor]:
        """Each linear map of each run, as views of the masters with views of their gradients."""
        found = []
        for place, master in enumerate(self.masters[2:]):
            if master.ndim == 3:
                maps = len(PACKED[place % len(PACKED)])
                for whole, gradient in zip(master, master.grad, strict=True):
                    for matrix, part in zip(whole.chunk(maps), gradient.chunk(maps), strict=True):
                        matrix.grad = part
                        found.append(matrix)
        return found

    @torch.no_grad()
    def begin_with(self, one: "Stack") -> None:
        """Every run gets the weights of a stack of one."""
        for mine, theirs in zip(self.masters, one.masters, strict=True):
            mine.copy_(theirs.expand_as(mine))
        torch._foreach_copy_(self.weights, self.masters)

    def hidden(self, ids: Tensor, causal: int = 0, exists: Tensor | None = None) -> Tensor:
        """ids [R, B, L], exists [B, L] where tokens are real -> last hidden states [R, B * L, d]."""
        runs, rows, length = ids.shape
        embedding, last_norm, *layers = self.weights
        vocab = embedding.shape[1]
        own = torch.arange(runs, device=ids.device)[:, None] * vocab  # a run's part of all embeddings end to end
        x = F.embedding(ids.flatten(1) + own, embedding.flatten(0, 1))
        rotary = Rotary(torch.arange(length, device=ids.device), *self.frequencies.on(ids.device))
        key_mask = None if exists is None else exists[:, None, None, :].repeat(runs, 1, 1, 1)
        eps, heads, count = self.config.rms_norm_eps, self.config.n_heads, len(PACKED)
        for first in range(0, len(layers), count):
            x = self.block(x, layers[first : first + count], rotary, rows, heads, eps, causal, key_mask)
        return normed(x, last_norm, eps)

    def step(self, given: Tensor, targets: Tensor, weights: Tensor, rate: float, causal: int = 0) -> Tensor:
        """One update of every run from [R, B, L] each, at a share of the peak rate; the losses [R], not waited for."""
        hidden = self.hidden(given, causal)
        parts = (hidden.unbind(), self.weights[0].unbind(), targets.flatten(1).unbind(), weights.flatten(1).unbind())
        losses = torch.stack([self.loss(*one) for one in zip(*parts, strict=True)])
        losses.sum().backward()
        self._update(rate)
        return losses.detach()

    @torch.no_grad()
    def _update(self, rate: float) -> None:
        gradients = [master.grad for master in self.masters]
        torch._foreach_copy_(gradients, [weight.grad for weight in self.weights])
        clip_each_run(gradients)
        for optimiser, share in zip(self.optimisers, (1.0, ADAM_SHARE), strict=True):
            for group in optimiser.param_groups:
                group["lr"] = self.rate * share * rate
            optimiser.step()
        torch._foreach_copy_(self.weights, self.masters)
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def answers(self, prompts: Sequence[Prompt], length: int, causal: int = 0) -> tuple[Tensor, Tensor]:
        """(right, nats), each [R, n], as task_accuracy.answers; prompts are padded to one length, compiled once.

        With `causal` runs the prediction is read one place earlier, and what the other runs answer means nothing.
        """
        right, nats = [], []
        head = self.weights[0].float()
        for first in range(0, len(prompts), ROWS_A_PASS):
            part = prompts[first : first + ROWS_A_PASS]
            filled = [*part, *[part[-1]] * (ROWS_A_PASS - len(part))]
            ids, exists, row, wanted = padded(filled, length, head.device)
            hidden = self.hidden(ids.expand(self.runs, -1, -1), causal, None if causal else exists)
            asked = hidden.unflatten(1, ids.shape)[:, torch.arange(len(filled)), row - int(causal > 0)]
            logits = torch.bmm(asked.float(), head.mT)[:, : len(part)]
            wanted = wanted[: len(part)].expand(self.runs, -1)
            right.append(logits.argmax(-1) == wanted)
            nats.append(F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none"))
        return torch.cat(right, 1).cpu(), torch.cat(nats, 1).cpu()


def clip_each_run(gradients: Sequence[Tensor], most: float = 1.0) -> None:
    """Scales the gradients [R, ...] of each run so that their common norm is at most `most`, in place."""
    norms = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0).sqrt()
    factor = (most / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient *= factor.view(-1, *[1] * (gradient.ndim - 1))
