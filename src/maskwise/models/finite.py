"""Checks for NaN and infinity in weights and logits, with the name of the first layer that gives them.

Logits are checked by the largest of each row, which costs no further pass: torch takes NaN and plus infinity as the
maximum of a row.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.support.errors import UserError


def nonfinite_weights(model: nn.Module) -> list[str]:
    """Names of the weights that hold NaN or infinity: one pass over all of them, and one wait for the device."""
    names, ends = [], []
    parts = ((name, part) for name, weight in stored_weights(model) for part in stored_tensors(weight))
    for name, values in parts:
        if values.is_floating_point() and values.numel() and not values.is_meta:
            values = values.to_local() if is_sharded(values) else values  # type: ignore[attr-defined]  # no waiting for other processes
            values = values.float() if values.element_size() == 1 else values  # float8 has no minimum of its own
            names.append(name)
            ends.append(torch.stack(values.aminmax()).float())
    if not ends:
        return []
    finite = torch.stack([pair.to(ends[0].device) for pair in ends]).isfinite().all(dim=1)
    return list(dict.fromkeys(name for name, fine in zip(names, finite.tolist(), strict=True) if not fine))


def stored_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters, then what else a checkpoint holds: a map that gptq, awq or bitsandbytes quantised has its numbers
    or its scales in buffers, or in a state of its own.
    """
    for name, weight in model.named_parameters():
        yield name, weight.detach()
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, value in model.state_dict().items():
        if name not in known and isinstance(value, Tensor):
            yield name, value


def is_sharded(tensor: Tensor) -> bool:
    """True for a DTensor. Does not import torch.distributed.tensor, which takes .7 s: without it there is none."""
    defined = sys.modules.get("torch.distributed.tensor")
    return defined is not None and isinstance(tensor, defined.DTensor)


def stored_tensors(weight: Tensor) -> list[Tensor]:
    """The plain tensors that a quantised weight is made of, numbers and scales; of any other weight itself."""
    if is_sharded(weight) or not hasattr(weight, "__tensor_flatten__"):
        return [weight]
    names, _ = weight.__tensor_flatten__()
    return [part for name in names for part in stored_tensors(getattr(weight, name))]


def refuse_nonfinite_weights(model: Model) -> None:
    names = nonfinite_weights(model.net)
    if names:
        more = f" and in {len(names) - 1} more" if len(names) > 1 else ""
        raise UserError(
            f"{model.name or model.kind} has NaN or infinity in its weights, in {names[0]}{more}: "
            "download it again, or choose another --dtype if they are too large for this one"
        )


def rows_are_finite(logits: Tensor, tokens: Tensor) -> Tensor:
    """Whether each row's chosen token has a finite logit. [.., V], [..] -> [..]."""
    return logits.gather(-1, tokens[..., None])[..., 0].isfinite()


def refuse_nonfinite_rows(model: Model, ids: Sequence[int], what: str) -> None:
    """Raises an error that names the first layer with NaN or infinity; called where logits are not finite."""
    begins, dtype = first_nonfinite_layer(model, ids) or "the output head", model.dtype_name
    raise UserError(
        f"the logits of {what} are not finite, from {begins} on: {model.name or model.kind} overflows in {dtype} (use "
        "--dtype float32), or its weights are damaged"
    )


@torch.no_grad()
def first_nonfinite_layer(model: Model, ids: Sequence[int]) -> str | None:
    """The first module whose output for one sequence is not finite, or None where all are."""
    found: list[str] = []

    def watch(name: str) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            parts = output if isinstance(output, tuple) else (output,)
            tensors = (part for part in parts if isinstance(part, Tensor) and part.is_floating_point())
            if not found and not all(bool(tensor.isfinite().all()) for tensor in tensors):
                found.append(name)

        return look

    leaves = [(name, module) for name, module in model.core.named_modules() if not list(module.children())]
    hooks = [module.register_forward_hook(watch(name)) for name, module in leaves]
    try:
        with torch.compiler.set_stance("force_eager"):
            model.hidden(Batch.pack([list(ids)], model.device))
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
