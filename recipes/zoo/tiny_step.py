"""One update of an embedded model: the three kinds, their objectives, the loss, and the optimisers.

Objectives:
- next: the next token's cross-entropy, and the answers' once more;
- plain: LLaDA's own (Nie et al., arXiv 2502.09992): each row has a rate t, uniform in 0..1 (stratified over the batch),
  each of its tokens is masked with probability t, and the masked tokens' cross-entropy is weighted 1/t;
- focused: half or more of the rows mask mostly answers, and the answers' loss is counted once more.

Weights are bf16 on a GPU with a float32 master copy that the optimisers change.
"""

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from corpus import ANSWER
from dense_noise import nelbo_grid, stratified
from maskwise.models import DreamConfig, DreamModel, LLaDAConfig, LLaDAModelLM
from muon import Muon
from task_accuracy import hidden_states

THETA = 10000.0


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    hidden: int


SIZES = {"256x6": Size(256, 6, 4, 512), "192x10": Size(192, 10, 3, 448), "320x4": Size(320, 4, 5, 600)}
TOY = Size(32, 2, 2, 48)


Objective = Literal["next", "plain", "focused"]


@dataclass(frozen=True)
class Kind:
    objective: Objective
    shift: bool
    rate: float
    phases: tuple[tuple[float, int], ...]  # (from this share of the time on, rows of so many tokens)
    cut: float = 0.0  # share of the batches that are cut to a random length

    @property
    def diffusion(self) -> bool:
        return self.objective != "next"

    @property
    def causal(self) -> bool:
        return not self.diffusion


GROWING = ((0.0, 384), (0.3, 768), (0.55, 1536))
KINDS = {
    "tiny-qwen": Kind("next", shift=True, rate=6e-3, phases=GROWING),
    "tiny-dream": Kind("focused", shift=True, rate=3e-3, phases=((0.0, 768), (0.35, 1536))),
    "tiny-llada": Kind("plain", shift=False, rate=6e-3, phases=GROWING, cut=0.01),  # the cut is LLaDA's too
}
LEAST_RATE = 1e-3  # LLaDA's: t is drawn from LEAST_RATE..1, so that 1/t stays finite
ADAM_SHARE = 0.25  # the embedding's and the norms' rate, as a share of the matrices'


def make_net(name: str, size: Size, tokenizer: Any, window: int) -> PreTrainedModel:
    """A new network. tiny-qwen is trained as a Dream made causal (the same arithmetic and names) and saved as Qwen2."""
    special = {
        "mask_token_id": tokenizer.mask_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.eos_token_id,
    }
    if name == "tiny-llada":
        return LLaDAModelLM(
            LLaDAConfig(
                d_model=size.width,
                n_layers=size.layers,
                n_heads=size.heads,
                mlp_hidden_size=size.hidden,
                vocab_size=len(tokenizer),
                max_sequence_length=window,
                rope_theta=THETA,
                weight_tying=True,
                **special,
            )
        )
    rope = {"rope_type": "default", "rope_theta": THETA}
    return DreamModel(
        DreamConfig(
            hidden_size=size.width,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=size.hidden,
            vocab_size=len(tokenizer),
            max_position_embeddings=window,
            rope_parameters=rope,
            tie_word_embeddings=True,
            **special,
        )
    )


def layers_of(net: PreTrainedModel) -> Any:
    return net.model.transformer["blocks"] if isinstance(net, LLaDAModelLM) else net.model.layers


# What is predicted


def mask_answers(
    ids: Tensor, answer: Tensor, mask_id: int, progress: float, draws: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Masks tokens of ids [B, L]: the masked ids, and the loss weight of each position, [B, L], 0 where it is visible.

    Rows of the first kind mask every token with the row's p; rows of the second kind mask answers at a rate of their
    own and other tokens rarely. The share of the second kind falls from 0.8 to 0.5.
    """
    rows, device = len(ids), ids.device
    p = stratified(rows, draws, device).clamp(min=0.02)
    focused = torch.rand(rows, 1, generator=draws, device=device) < 0.8 - 0.3 * progress
    answer_rate = 0.1 + 0.6 * torch.rand(rows, 1, generator=draws, device=device)
    rate = torch.where(focused, torch.where(answer, answer_rate, 0.2 * p), p)
    masked = torch.rand(ids.shape, generator=draws, device=device) < rate
    general = masked * torch.where(focused, 1.0, p**-progress)
    return torch.where(masked, mask_id, ids), balanced(general, masked & answer)


def balanced(general: Tensor, answers: Tensor) -> Tensor:
    """Weights [B, L] of a mean over all predicted tokens plus a mean over the answers among them."""
    return general / general.sum().clamp(min=1) + answers / answers.sum().clamp(min=1)


def weighted_loss(hidden: Tensor, head: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """hidden [T, d], head [V, d], targets [T], weights [T] -> the weighted sum of cross-entropies."""
    losses = F.cross_entropy((hidden @ head.t()).float(), targets, reduction="none")
    return (losses * weights).sum()


class Training:
    def __init__(self, kind: Kind, net: PreTrainedModel, mask_id: int, rate: float, device: torch.device, seed: int):
        self.kind, self.mask_id, self.rate = kind, mask_id, rate
        self.draws = torch.Generator(device).manual_seed(seed)
        self.masters = [parameter.detach().to(device, torch.float32).clone() for parameter in net.parameters()]
        self.net = net.to(device, torch.bfloat16 if device.type == "cuda" else torch.float32).train()
        self.plain = copy.deepcopy(self.net).eval()  # never compiled: exams come in many shapes
        in_layers = {id(parameter) for parameter in layers_of(net).parameters() if parameter.ndim == 2}
        pairs = list(zip(net.parameters(), self.masters, strict=True))
        for _, master in pairs:
            master.grad = torch.zeros_like(master)
        matrices = [master for parameter, master in pairs if id(parameter) in in_layers]
        others = [master for parameter, master in pairs if id(parameter) not in in_layers]
        self.optimisers: list[torch.optim.Optimizer] = [
            Muon(matrices, lr=rate, weight_decay=0.1),
            torch.optim.AdamW(others, lr=rate * ADAM_SHARE, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self.loss = weighted_loss
        if device.type == "cuda":
            for layer in layers_of(net):
                layer.compile(dynamic=False)
            self.loss = torch.compile(weighted_loss, dynamic=False)

    def step(self, rows: Tensor, progress: float, warmth: float) -> Tensor:
        """One update from rows int16 [B, L] on the device; the loss, not waited for."""
        ids, answer = (rows & (ANSWER - 1)).long(), (rows & ANSWER) > 0
        given, weights = self._masked(ids, answer, progress)
        if self.kind.shift:  # hidden state i speaks of token i + 1
            ids, weights = ids.roll(-1, 1), weights.roll(-1, 1)
            weights[:, -1] = 0
        hidden = hidden_states(self.net, given, self.kind.causal)
        loss = self.loss(hidden, self.net.get_output_embeddings().weight, ids.flatten(), weights.flatten())
        loss.backward()
        self._update(warmth * min(1.0, (1 - progress) / 0.4))
        return loss.detach()

    def _masked(self, ids: Tensor, answer: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        """What the model is given, and the loss weight of each position, both [B, L]."""
        if self.kind.objective == "plain":
            return nelbo_grid(ids, self.mask_id, self.draws, LEAST_RATE)
        if self.kind.objective == "focused":
            return mask_answers(ids, answer, self.mask_id, progress, self.draws)
        return ids, balanced(torch.ones(ids.shape, device=ids.device), answer)

    def _update(self, rate: float) -> None:
        parameters = list(self.net.parameters())
        torch._foreach_copy_([master.grad for master in self.masters], [parameter.grad for parameter in parameters])
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        for optimiser, share in zip(self.optimisers, (1.0, ADAM_SHARE), strict=True):
            for group in optimiser.param_groups:
                group["lr"] = self.rate * share * rate
            optimiser.step()
        with torch.no_grad():
            torch._foreach_copy_(parameters, self.masters)
        for parameter in parameters:
            parameter.grad = None

    def plain_net(self) -> PreTrainedModel:
        with torch.no_grad():
            torch._foreach_copy_(list(self.plain.parameters()), self.masters)
        return self.plain

    def state(self) -> dict[str, Any]:
        return {"masters": self.masters, "optimisers": [optimiser.state_dict() for optimiser in self.optimisers]}

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self.masters, state["masters"])
            torch._foreach_copy_(list(self.net.parameters()), self.masters)
        for optimiser, stored in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(stored)
