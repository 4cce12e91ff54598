"""Mixture of experts (MoE) in place of an MLP: a router chooses a few experts per token, whose outputs are added."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # private; the public torch.compiler.disable imports the compiler at once

from maskwise.kernels.gate import kernel
from maskwise.models.attention.ragged import Layout, Store
from maskwise.models.families.dream import DreamBlock, DreamBody, DreamModel, NormedAttention
from maskwise.models.families.layers import GatedMLP, MayWait, Rotary
from maskwise.models.families.packing import end_to_end
from maskwise.models.families.routing import Router
from maskwise.support.errors import UserError

GROUPED = (torch.float32, torch.bfloat16, torch.float16)
HOOKS, HOOKS_BEFORE = attrgetter("_forward_hooks"), attrgetter("_forward_pre_hooks")
WITH_GROUPED_KERNEL = (9, 10)  # major compute capabilities
FEW_EXPERTS = 2**15  # their indices fit into 16 bits, which are sorted in a quarter of the time of 64


Stacks = tuple[Tensor, Tensor]  # weights of all E experts: gate and up [E, 2 * inner, d], and down [E, d, inner]


class Experts(nn.Module, MayWait):
    """MoE layer: weighted sum of the outputs of each token's routed experts, in the precision of the weights.

    Published names: `experts.N.gate_proj.weight` and so on. These parameters are views of two stacked tensors
    (`lay_out`), so that one grouped product over the sorted tokens replaces a loop over the experts.
    """

    def __init__(self, gate: nn.Module, experts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.gate = gate
        self.experts = nn.ModuleList(experts)
        self.stacks: Stacks | None = None
        self.addresses: list[int] = []  # of the weights in the stacks
        self.grouped: Stacks | None = None  # the stacks, if the next pass reads them
        self.kernels: torch.dtype | None = None  # the compute dtype for which the kernels may be used

    def forward(self, x: Tensor, *added: Tensor) -> Tensor:
        """x [T, d] -> [T, d], to which at most two others of that shape are added in turn."""
        share, chosen = self.gate(x)  # [T, k] each
        picks = chosen.flatten().to(torch.int16 if len(self.experts) < FEW_EXPERTS else torch.int64)
        picks, order = picks.sort(stable=True)  # by expert
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        fast = self._may_use_kernels(x, share, *added)
        rows = _kernels().spread_rows(x, place) if fast else x[order // chosen.shape[1]]
        if self.grouped is not None and rows.dtype == self.grouped[0].dtype:
            grouped = _uncompiled if torch.compiler.is_compiling() and rows.dtype != torch.bfloat16 else _grouped
            outputs = grouped(rows, picks, *self.grouped, fast)
        else:
            outputs = self._one_by_one(rows, picks)
        sums = _kernels().expert_sums if fast and outputs.dtype == self.kernels else _sums
        return sums(outputs, place, share, x.dtype, list(added))

    def _may_use_kernels(self, x: Tensor, share: Tensor, *added: Tensor) -> bool:
        """True for self-tested dtypes without gradients."""
        tried = (self.kernels, torch.float32)
        fits = x.dtype in tried and share.dtype in tried and all(one.dtype in (x.dtype, self.kernels) for one in added)
        return self.kernels is not None and fits and not torch.is_grad_enabled()

    @_disable_dynamo  # in a compiled layer it would be recompiled often: each expert's number of rows changes
    def _one_by_one(self, rows: Tensor, picks: Tensor) -> Tensor:
        """`_grouped` as a loop over experts."""
        sizes = picks.bincount(minlength=len(self.experts)).tolist()  # the host waits here, once per layer
        # Experts that no token chose get zero rows: their gradient is zero, and every process has all gradients.
        return torch.cat([expert(part) for expert, part in zip(self.experts, rows.split(sizes), strict=True)])

    def lay_out(self) -> None:
        """Stacks the experts' weights before a pass, unless already stacked or trained, adapted or quantised.

        They stay apart where a map is more than a weight (adapted, quantised, sharded, with a hook), where they are
        trained, so that each has its own gradient, and where there is no grouped product for them.
        """
        maps = [one for expert in self.experts._modules.values() for one in expert._modules.values()]  # type: ignore[union-attr]
        self._use(_kernel_dtype(next(maps[0].parameters())))  # type: ignore[union-attr]
        trained = torch.is_grad_enabled() and any(weight.requires_grad for weight in self.experts.parameters())
        if trained or any(map(HOOKS, maps)) or any(map(HOOKS_BEFORE, maps)):
            self.grouped = None
            return
        if self.stacks is None or _addresses(maps) != self.addresses:
            self.stacks = self.grouped = None  # frees the memory before more is allocated
            self.stacks = _stacked(maps)  # type: ignore[arg-type]
            self.addresses = _addresses(maps)
        self.grouped = self.stacks
        if self.stacks is not None:
            stack, kind = self.stacks[0], self.stacks[0].device.type
            if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != stack.dtype:
                self.grouped = None  # autocast would cast the weights in every pass

    @property
    def waits(self) -> bool:
        return self.grouped is None or not _has_grouped_kernel(self.grouped[0])

    def _apply(self, *arguments: Any, **named: Any) -> "Experts":
        """Moves or casts the weights; they are no longer views of the stacks then."""
        self.stacks = self.grouped = None
        self._use(None)
        return super()._apply(*arguments, **named)

    def _use(self, kernels: torch.dtype | None) -> None:
        self.kernels = kernels
        self.gate.kernel = kernels is not None  # type: ignore[assignment]


def _addresses(maps: Sequence[Any]) -> list[int]:
    """The addresses of the maps' weights, 0 for a map without one. One comprehension: there are hundreds per layer."""
    return [0 if (weight := one._parameters.get("weight")) is None else weight.data_ptr() for one in maps]


def _grouped(rows: Tensor, picks: Tensor, gate_up: Tensor, down: Tensor, fast: bool) -> Tensor:
    """rows [n, d] sorted by their experts picks [n] -> the experts' outputs [n, d], without a host synchronisation."""
    experts = torch.arange(len(down), device=picks.device, dtype=picks.dtype)
    ends = torch.searchsorted(picks, experts, right=True, out_int32=True)
    both = F.grouped_mm(rows, gate_up.transpose(1, 2), offs=ends)
    return F.grouped_mm(_kernels().gated(both) if fast else _gated(both), down.transpose(1, 2), offs=ends)


_uncompiled = _disable_dynamo(_grouped)  # torch 2.11 to 2.13 compile the grouped product of bf16 alone


def _gated(both: Tensor) -> Tensor:
    """SwiGLU: both [n, 2 * inner], gate and up projections -> [n, inner]."""
    gate, up = both.chunk(2, dim=-1)
    return F.silu(gate) * up


def _sums(outputs: Tensor, place: Tensor, share: Tensor, dtype: torch.dtype, added: list[Tensor]) -> Tensor:
    """Weighted sums of outputs [T * k, d], of which token t's rows are place [T * k]; share [T, k] -> [T, d]."""
    by_token = outputs[place].unflatten(0, share.shape)  # [T, k, d] in the order of the choice: reproducible sums
    return sum(added, (by_token.to(share.dtype) * share[..., None]).sum(dim=1).to(dtype))


def _kernels() -> Any:
    from maskwise.kernels import moe

    return moe


def _kernel_dtype(weight: Tensor) -> torch.dtype | None:
    """Compute dtype if the kernels passed their self-test, else None."""
    if not weight.is_cuda:
        return None
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
    return dtype if dtype in GROUPED and _kernels_passed(weight.device, dtype) else None


@_disable_dynamo
def _kernels_passed(device: torch.device, dtype: torch.dtype) -> bool:
    return kernel("moe", device, dtype) is not None


def _stacked(maps: Sequence[nn.Module]) -> Stacks | None:
    """Stacks weights; maps: gate, up and down of each expert in turn."""
    plain = [one for one in maps if type(one) is nn.Linear and type(one.weight) is nn.Parameter]
    if len(plain) < len(maps) or not all(_can_be_grouped(one.weight) for one in plain):
        return None
    gates, downs = [one.weight for pair in zip(plain[::3], plain[1::3], strict=True) for one in pair], plain[2::3]
    whole = end_to_end(gates), end_to_end([one.weight for one in downs])
    return whole[0].unflatten(0, (len(downs), -1)), whole[1].unflatten(0, (len(downs), -1))


def _can_be_grouped(weight: Tensor) -> bool:
    """True if torch's grouped product takes them: these dtypes, rows aligned to 16 bytes."""
    aligned = weight.dim() == 2 and weight.shape[1] * weight.element_size() % 16 == 0
    return aligned and weight.dtype in GROUPED and not weight.is_meta


def _has_grouped_kernel(stack: Tensor) -> bool:
    """True if the grouped product is one kernel (Hopper, Blackwell); elsewhere torch loops over the groups."""
    half = stack.is_cuda and stack.dtype == torch.bfloat16
    return half and torch.cuda.get_device_capability(stack.device)[0] in WITH_GROUPED_KERNEL


def with_residual(mlp: nn.Module, normed: Tensor, x: Tensor) -> Tensor:
    """x + mlp(normed), all [T, d]: inside the experts' own sum, unless gradients are needed or a hook reads the
    MLP's output."""
    hooked = mlp._forward_hooks or mlp._forward_pre_hooks or "forward" in vars(mlp)
    if isinstance(mlp, Experts) and not (hooked or torch.is_grad_enabled()):
        return mlp(normed, x)
    return x + mlp(normed)


class ExpertsBlock(DreamBlock):
    """Dream's block with normed queries and keys, and experts in place of the MLP."""

    attention = NormedAttention
    takes_rows = False
    inner = ""  # the field of the configuration with the width of an expert
    normalised = False  # do the shares of the chosen experts add up to 1

    def make_mlp(self, config: Any) -> nn.Module:
        gate = Router(config.hidden_size, config.num_experts, config.num_experts_per_tok, self.normalised)
        inner = getattr(config, self.inner)
        return Experts(gate, [GatedMLP(config.hidden_size, inner) for _ in range(config.num_experts)])

    def forward(self, x: Tensor, rotary: Rotary, layout: Layout, store: Store | None) -> Tensor:
        """x [T, d] -> [T, d]."""
        x = x + self.self_attn(self.input_layernorm(x), rotary, layout, store)
        return with_residual(self.mlp, self.post_attention_layernorm(x), x)


def refuse_too_few_experts(config: Any) -> None:
    if config.num_experts_per_tok > config.num_experts:
        raise UserError(
            f"{config.num_experts_per_tok} experts a token of {config.num_experts}: download config.json again"
        )


class ExpertsBody(DreamBody):
    def prepare(self, layer: Any) -> None:
        """Stacks the weights of its experts, outside the layer, which may be compiled."""
        if isinstance(layer.mlp, Experts):
            layer.mlp.lay_out()


class ExpertsModel(DreamModel):
    """Dream's model with experts; initialises the routers too."""

    def make_body(self, config: Any) -> DreamBody:
        return ExpertsBody(config, self.block)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Router):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
