"""Mixtures of experts in the place of an MLP: a router chooses a few for each token and weighs what they say."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # private; the public torch.compiler.disable imports the compiler at once
from transformers.modeling_layers import GradientCheckpointingLayer

from maskwise.kernels.gate import TRITON, close, works_here
from maskwise.models.attention.ragged import Layout, Store
from maskwise.models.families.dream import DreamBody, DreamModel, NormedAttention
from maskwise.models.families.layers import GatedMLP, MayWait, RMSNorm, Rotary
from maskwise.models.families.packing import end_to_end
from maskwise.models.families.routing import Router, choice

GROUPED = (torch.float32, torch.bfloat16, torch.float16)
HOOKS, HOOKS_BEFORE = attrgetter("_forward_hooks"), attrgetter("_forward_pre_hooks")
WITH_KERNEL = (9, 10)  # major compute capabilities
TOLERANCE = 1e-2  # between a kernel and PyTorch, relative: bf16 has 8 bits
FEW_EXPERTS = 2**15  # their numbers have 16 bits, and are sorted in a quarter of the time that 64 take


Stacks = tuple[Tensor, Tensor]  # of all E experts: gate above up [E, 2 * inner, d], and down [E, d, inner]


class Experts(nn.Module, MayWait):
    """Each token goes through the experts its router chose; their outputs are added in the precision of the shares.

    Published names: `experts.N.gate_proj.weight` and so on. The weights of all experts lie in two pieces of memory, of
    which those are parts (`lay_out`), so that one grouped product over the sorted tokens stands for a loop over them.
    """

    def __init__(self, gate: nn.Module, experts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.gate = gate
        self.experts = nn.ModuleList(experts)
        self.stacks: Stacks | None = None
        self.places: list[int] = []  # the addresses of the weights in the stacks
        self.grouped: Stacks | None = None  # where the next pass reads them
        self.kernels: torch.dtype | None = None  # experts that speak in this type have those of expert_kernels.py

    def forward(self, x: Tensor, *beside: Tensor) -> Tensor:
        """x [T, d] -> [T, d], to which at most two others of that shape are added in turn."""
        share, chosen = self.gate(x)  # [T, k] each
        picks = chosen.flatten().to(torch.int16 if len(self.experts) < FEW_EXPERTS else torch.int64)
        picks, order = picks.sort(stable=True)  # by expert
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        fast = self._fast(x, share, *beside)
        asked = _kernels().spread_rows(x, place) if fast else x[order // chosen.shape[1]]
        if self.grouped is not None and asked.dtype == self.grouped[0].dtype:
            together = _uncompiled if torch.compiler.is_compiling() and asked.dtype != torch.bfloat16 else _together
            done = together(asked, picks, *self.grouped, fast)
        else:
            done = self._one_by_one(asked, picks)
        sums = _kernels().expert_sums if fast and done.dtype == self.kernels else _sums
        return sums(done, place, share, x.dtype, list(beside))

    def _fast(self, x: Tensor, share: Tensor, *beside: Tensor) -> bool:
        """For these types, and without gradients."""
        tried = (self.kernels, torch.float32)
        fits = x.dtype in tried and share.dtype in tried and all(one.dtype in (x.dtype, self.kernels) for one in beside)
        return self.kernels is not None and fits and not torch.is_grad_enabled()

    @_disable_dynamo  # in a compiled layer it would be compiled again and again: each expert's number of rows changes
    def _one_by_one(self, asked: Tensor, picks: Tensor) -> Tensor:
        """The same, a product for each expert."""
        sizes = picks.bincount(minlength=len(self.experts)).tolist()  # the host waits here, once a layer
        # Experts nobody chose are asked about nothing: their gradient is zero, and every process has all of them.
        return torch.cat([expert(part) for expert, part in zip(self.experts, asked.split(sizes), strict=True)])

    def lay_out(self) -> None:
        """Before a pass: puts the weights end to end, unless they lie there already or have to stay apart.

        They stay apart where a map is more than a weight (adapted, quantised, spread over processes, watched by a
        hook), where they learn, so that each has its own gradient, and where there is no grouped product for them.
        """
        maps = [one for expert in self.experts._modules.values() for one in expert._modules.values()]  # type: ignore[union-attr]
        self._use(_with_kernels(next(maps[0].parameters())))  # type: ignore[union-attr]
        if any(map(HOOKS, maps)) or any(map(HOOKS_BEFORE, maps)) or (torch.is_grad_enabled() and _learn(maps)):
            self.grouped = None
            return
        if self.stacks is None or _places(maps) != self.places:
            self.stacks = self.grouped = None  # frees what they held before more is taken
            self.stacks = _stacked(maps)  # type: ignore[arg-type]
            self.places = _places(maps)
        self.grouped = None if self.stacks is None or _would_be_cast(self.stacks[0]) else self.stacks

    @property
    def waits(self) -> bool:
        return self.grouped is None or not _has_kernel(self.grouped[0])

    def _apply(self, *arguments: Any, **named: Any) -> "Experts":
        """Where the weights are moved or cast, what they were parts of is let go."""
        self.stacks = self.grouped = None
        self._use(None)
        return super()._apply(*arguments, **named)

    def _use(self, kernels: torch.dtype | None) -> None:
        self.kernels = kernels
        self.gate.kernel = kernels is not None  # type: ignore[assignment]


def _places(maps: Sequence[Any]) -> list[int]:
    """The addresses of the maps' weights, 0 where one has none of its own. In one go: there are hundreds per layer."""
    return [0 if (weight := one._parameters.get("weight")) is None else weight.data_ptr() for one in maps]


def _learn(maps: Sequence[Any]) -> bool:
    return any(weight.requires_grad for one in maps for weight in one.parameters())


def _together(asked: Tensor, picks: Tensor, gate_up: Tensor, down: Tensor, fast: bool) -> Tensor:
    """asked [n, d] sorted by its experts picks [n] -> what they say of it [n, d], without waiting for the device."""
    experts = torch.arange(len(down), device=picks.device, dtype=picks.dtype)
    ends = torch.searchsorted(picks, experts, right=True, out_int32=True)
    both = F.grouped_mm(asked, gate_up.transpose(1, 2), offs=ends)
    return F.grouped_mm(_kernels().gated(both) if fast else _gated(both), down.transpose(1, 2), offs=ends)


_uncompiled = _disable_dynamo(_together)  # torch 2.11 to 2.13 compile the grouped product of bf16 alone


# What the kernels do, in PyTorch's operations


def _gated(both: Tensor) -> Tensor:
    """both [n, 2 * inner], a gate beside its up -> [n, inner]."""
    gate, up = both.chunk(2, dim=-1)
    return F.silu(gate) * up


def _sums(said: Tensor, place: Tensor, share: Tensor, dtype: torch.dtype, beside: list[Tensor]) -> Tensor:
    """said [T * k, d], place [T * k] of each token's rows in it, share [T, k] -> [T, d] in `dtype`, beside added."""
    apart = said[place].unflatten(0, share.shape)  # [T, k, d], as they were chosen: always added in one order
    return sum(beside, (apart.to(share.dtype) * share[..., None]).sum(dim=1).to(dtype))


def _kernels() -> Any:
    from maskwise.kernels import experts as expert_kernels

    return expert_kernels


def _with_kernels(weight: Tensor) -> torch.dtype | None:
    """The type in which experts of such weights speak, if the kernels are right for it on their device."""
    if not (weight.is_cuda and TRITON):
        return None
    said = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
    return said if said in GROUPED and _kernels_agree(weight.device, said) else None


_found: dict[tuple[torch.device, torch.dtype], bool] = {}


@_disable_dynamo
def _kernels_agree(device: torch.device, said: torch.dtype) -> bool:
    """Whether the kernels give what PyTorch gives; tried once, and not while a graph is recorded."""
    key = device, said
    if key not in _found:
        if torch.cuda.is_current_stream_capturing():
            return False
        _found[key] = works_here(lambda: _agree(*key), "experts are chosen, gated and added up by PyTorch")
    return _found[key]


@torch.no_grad()
def _agree(device: torch.device, said: torch.dtype) -> bool:
    """Widths are multiples of 16, as models have them, and less than the power of two above; groups too."""
    kernels, draws = _kernels(), torch.Generator().manual_seed(0)
    tokens, count, width, experts = 33, 4, 2000, 60

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws).to(device, said)

    place = torch.randperm(tokens * count, generator=draws).to(device)
    # Far from ties, where either expert would be right: steps of a sixtieth, and a bias of one or none.
    logits = torch.stack([torch.randperm(experts, generator=draws) / experts for _ in range(tokens)]).to(device)
    bias = torch.zeros(experts, device=device)
    bias[::7] = 1

    def chooses(*given: Any) -> bool:
        mine, other = (torch.zeros_like(logits).scatter(1, chosen, share) for share, chosen in
                       (kernels.choose_experts(logits, *given), choice(logits, *given)))  # fmt: skip
        return close(mine, other, TOLERANCE)

    def spreads(x: Tensor) -> bool:
        out = kernels.spread_rows(x, place)
        return torch.equal(out[place], x.repeat_interleave(count, dim=0))

    def adds(share: torch.dtype, out: torch.dtype, *beside: Tensor) -> bool:
        shares = torch.rand(tokens, count, generator=draws).to(device, share)
        given = drawn(tokens * count, width), place, shares, out, list(beside)
        return close(kernels.expert_sums(*given), _sums(*given), TOLERANCE)

    both, others = drawn(tokens, 2 * 240), [drawn(tokens, width) for _ in range(2)]
    return (
        chooses(None, count, 1, 1, True, 1.0)
        and chooses(bias, count, 5, 2, True, 2.5)
        and all(spreads(drawn(tokens, width).to(kind)) for kind in {said, torch.float32})
        and close(kernels.gated(both), _gated(both), TOLERANCE)
        and adds(said, said)
        and adds(torch.float32, said, *others)
        and adds(torch.float32, torch.float32, *others[:1])
    )


def _stacked(maps: Sequence[nn.Module]) -> Stacks | None:
    """maps: gate, up and down of each expert in turn."""
    plain = [one for one in maps if type(one) is nn.Linear and type(one.weight) is nn.Parameter]
    if len(plain) < len(maps) or not all(_can_be_grouped(one.weight) for one in plain):
        return None
    gates, downs = [one.weight for pair in zip(plain[::3], plain[1::3], strict=True) for one in pair], plain[2::3]
    whole = end_to_end(gates), end_to_end([one.weight for one in downs])
    return whole[0].unflatten(0, (len(downs), -1)), whole[1].unflatten(0, (len(downs), -1))


def _can_be_grouped(weight: Tensor) -> bool:
    """What torch's grouped product takes: these types, and rows that begin at multiples of 16 bytes."""
    aligned = weight.dim() == 2 and weight.shape[1] * weight.element_size() % 16 == 0
    return aligned and weight.dtype in GROUPED and not weight.is_meta


def _would_be_cast(stack: Tensor) -> bool:
    """By autocast, in every pass anew."""
    kind = stack.device.type
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != stack.dtype


def _has_kernel(stack: Tensor) -> bool:
    """Whether the grouped product is one kernel, of Hopper and Blackwell; elsewhere torch loops over the groups."""
    return (
        stack.is_cuda
        and stack.dtype == torch.bfloat16
        and torch.cuda.get_device_capability(stack.device)[0] in WITH_KERNEL
    )


def with_residual(mlp: nn.Module, normed: Tensor, x: Tensor) -> Tensor:
    """x + mlp(normed), all [T, d]: in the experts' own sum, unless gradients are asked for or a hook is to see what
    they say alone."""
    watched = mlp._forward_hooks or mlp._forward_pre_hooks
    if isinstance(mlp, Experts) and not (watched or torch.is_grad_enabled()):
        return mlp(normed, x)
    return x + mlp(normed)


class ExpertsBlock(GradientCheckpointingLayer):
    """Dream's block with normed queries and keys, and experts of so many inner numbers for the MLP."""

    def __init__(self, config: Any, inner: int, normalised: bool) -> None:
        super().__init__()
        self.self_attn = NormedAttention(config)
        gate = Router(config.hidden_size, config.num_experts, config.num_experts_per_tok, normalised)
        self.mlp = Experts(gate, [GatedMLP(config.hidden_size, inner) for _ in range(config.num_experts)])
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, rotary: Rotary, layout: Layout, store: Store | None) -> Tensor:
        """x [T, d] -> [T, d]."""
        x = x + self.self_attn(self.input_layernorm(x), rotary, layout, store)
        return with_residual(self.mlp, self.post_attention_layernorm(x), x)


class ExpertsBody(DreamBody):
    def prepare(self, layer: Any) -> None:
        """Looks where the weights of its experts lie, outside the layer, which may be compiled."""
        if isinstance(layer.mlp, Experts):
            layer.mlp.lay_out()


class ExpertsModel(DreamModel):
    """Random weights for the routers too."""

    def make_body(self, config: Any) -> DreamBody:
        return ExpertsBody(config, self.block)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Router):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
