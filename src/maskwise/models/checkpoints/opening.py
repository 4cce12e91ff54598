"""Opening a model by folder or name, and wrapping a network in the model interface (model.py)."""

from collections.abc import Callable
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

import maskwise.models.auto  # noqa: F401  registers our classes with transformers
from maskwise.models.batch import Batch
from maskwise.models.checkpoints import configuration, networks, placement
from maskwise.models.checkpoints.adapter_base import check_bases
from maskwise.models.checkpoints.locations import locate_checkpoint, refuse_published_experts, refuse_unknown_map
from maskwise.models.families import AUTOREGRESSIVE, FAMILIES, MASKED_LM, WRAPPED, Family, family_of_class, padded
from maskwise.models.finite import refuse_nonfinite_weights
from maskwise.models.forward import RAGGED, largest_difference
from maskwise.models.model import Model
from maskwise.models.peft_access import without_adapter
from maskwise.models.tokenizers.tokenizer import load_tokenizer
from maskwise.support.errors import UserError, first_line
from maskwise.support.imports import imported


class _BuiltIn(tuple[Family, ...]):
    """The families of this package, printed by their name: in full they would fill a signature with 15,000 letters."""

    def __repr__(self) -> str:
        return "FAMILIES"


BUILT_IN = _BuiltIn(FAMILIES)


def open(
    name: str | Path,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    adapter: str | Path | None = None,
    families: tuple[Family, ...] = BUILT_IN,
    check_weights: bool = True,
    weights: str | None = None,
    any_base: bool = False,
    device_map: str | None = None,
) -> Model:
    """Opens a checkpoint folder, an embedded model or a published name, optionally with a PEFT adapter on it.

    Arguments:
        name: a folder, a name, an adapter's folder, which names its base, or MODEL+FOLDER, as the model with `adapter`
            is called. Where the base is an adapted model itself, its adapters are merged into it in memory.
        dtype: auto is the checkpoint's own on CUDA and float32 on CPU; or float32, bfloat16, float16.
        device: cpu, cuda, ...; None is CUDA where there is one.
        adapter: the folder of a PEFT adapter.
        families: FAMILIES and any of your own, families=(*FAMILIES, mine).
        check_weights: look for NaN and infinity in one pass over all weights.
        weights: fp8 quantises the layers' linear maps, with the adapter merged into them.
        any_base: put an adapter also on another base than the one it was trained on.
        device_map: auto lets accelerate put the layers on all GPUs of this machine.

    Returns:
        The model, in evaluation mode.

    >>> import maskwise as mw
    >>> model = mw.open("tiny-llada", device="cpu")
    >>> ids = model.tokenizer("Answer:[")["input_ids"]
    >>> model.predict([ids + [model.mask_id]], [[len(ids)]])[0].shape  # float32 logits, of the row asked for alone
    torch.Size([1, 2048])
    """
    refuse_unknown_map(device_map)
    place = placement.pick_device(device if device_map is None else placement.first_gpu(device))
    if weights is not None:
        refuse_published_experts(str(name), weights)
    folder, adapters = locate_checkpoint(str(name), adapter)
    name = name if adapter is None else f"{name}+{adapter}"
    family = configuration.read_family(folder, families)
    networks.check_weight_files(folder, family)
    if adapters and not any_base:
        check_bases(str(name), folder, adapters)
    settings = configuration.read_settings(folder)
    stored = placement.pick_dtype(dtype, place, settings)
    if device_map is not None:
        placement.refuse_with_device_map(settings, weights)
    if weights is not None:
        stored = placement.quantisable_dtype(weights, name, folder, settings, dtype, stored, place)
    with configuration.as_described(folder):
        config = configuration.read_config(folder, family)  # refuses a type that only remote code defines
        networks.refuse_oversized(folder, config.to_dict() | settings)  # what the file leaves out has its class's size
        places: dict[str, Any] = {"": place if weights is None else torch.device("cpu")}
        if device_map is not None:
            bare = networks.network_without_weights(config, family)
            places = placement.plan_device_map(bare, stored, placement.free_memory())
        net = networks.load_network(family, folder, config, stored, places)
        model = as_model(net, load_tokenizer(folder, family), str(name), families=families)
        configuration.note_odd_mask(net, model.tokenizer, model.mask_id)
        if model.stored_quantised:  # packages check few sizes, and lay the weights out at the first pass
            model.eval().predict([[0, 0]], [[1]])
    if adapters:
        from maskwise.models.checkpoints.adapters import attach_adapters

        model.net = attach_adapters(model.core, adapters, model.mask_id)
    if weights is not None:
        _quantise(model, place)
    if check_weights:
        refuse_nonfinite_weights(model)
    return model.eval()


def _quantise(model: Model, device: torch.device) -> None:
    from maskwise.models.families.quantise import quantise

    if model.net is not model.core:
        from maskwise.models.checkpoints.adapters import merged

        model.net = merged(model.net)  # type: ignore[arg-type]
    quantise(model.core, device)
    model.weights = "fp8"


OF_OPEN = {name: one.default for name, one in signature(open).parameters.items()}
# Those that an opened model does not take.
AT_OPENING = ("dtype", "adapter", "weights", "device_map")


def opened_model(model: str | Path | Model, **options: Any) -> Model:
    """Opens a model given by name, with the options of `open`; an opened model is returned as it is and takes none."""
    if not isinstance(model, Model):
        return open(model, **options)
    if unknown := [name for name in options if name not in OF_OPEN]:
        raise TypeError(f"there is no option {unknown[0]!r} of mw.open")
    chosen = any(options.get(name, OF_OPEN[name]) != OF_OPEN[name] for name in AT_OPENING)
    device = options.get("device")
    if chosen or (device is not None and torch.device(device) != model.device):
        raise UserError(
            "the model is open already: give dtype, device, adapter, weights and device_map to mw.open, or a name here"
        )
    return model


def as_model(
    net: PreTrainedModel,
    tokenizer: Any,
    name: str,
    mask_id: int | None = None,
    shift: bool | None = None,
    families: tuple[Family, ...] = BUILT_IN,
) -> Model:
    """A network in memory as a Model. What is no class of a family must be a causal language model of transformers.
    mask_id and shift: None is what the configuration, the tokenizer or the family says."""
    family, config = family_of_network(net, families), net.config.get_text_config()
    if mask_id is None:
        mask_id = configuration.find_mask_id(net, tokenizer, family)
    if family.framed:
        shift = family.shift
    elif shift is None:
        shift = configuration.find_shift(net.config, family)
    body, frame = imported(family.body), None
    if family.framed:
        frame = padded.frame_of(tokenizer)
        body = body(frame)
    if family.framed and net._supports_sdpa:
        net.set_attn_implementation("sdpa")
    elif not family.native and not family.framed:
        configuration.refuse_own_attention(net)
        net.set_attn_implementation(RAGGED)
    positions = padded.context_length(net, tokenizer) if family.framed else config.max_position_embeddings
    model = Model(
        net,
        body,
        family=family,
        window=positions,
        shift=shift,
        causal=family.causal,
        mask_id=mask_id,
        tokenizer=tokenizer,
        name=name,
        trained_window=family.trained_context_length(positions),
        block=getattr(net.config, "attention_block", None),
    )
    if family.framed:
        model.eval()
    if not family.native:
        refuse_if_different(model, f"{type(net).__name__} does not fit the model interface", frame)
    return model


def family_of_network(net: PreTrainedModel, families: tuple[Family, ...] = BUILT_IN) -> Family:
    """The family of a network's class; of transformers' own classes the masked or the causal language models."""
    found = family_of_class(type(net), families)
    return found or (MASKED_LM if padded.is_masked_lm(type(net).__name__) else AUTOREGRESSIVE)


def wrap(
    hf_model: PreTrainedModel,
    tokenizer: Any = None,
    mask_id: int | None = None,
    shift: bool | None = None,
    causal: bool = False,
    head: Callable[[Tensor], Tensor] | None = None,
    families: tuple[Family, ...] = BUILT_IN,
) -> Model:
    """Gives a user's own transformers model the model interface.

    Arguments:
        hf_model: a masked or causal language model of transformers, or PEFT's wrapper of one.
        tokenizer: its tokenizer; without one, token ids are all it takes.
        mask_id: the mask's token; else the configuration's or the tokenizer's.
        shift: the logits of position i come from hidden state i - 1; by default in causal models, and in networks of a
            family as their configuration says.
        causal: is it autoregressive?
        head: maps hidden rows [n, d] to logits [n, V] where they are not just a product. A masked language model whose
            head has layers of its own is wrapped like this: mw.wrap(bert, tokenizer, head=bert.cls)
        families: FAMILIES and any of your own.

    Returns:
        The model, in evaluation mode. Its logits are compared with those of the class's own forward.

    >>> import maskwise as mw
    >>> net = mw.open("tiny-llada").net  # any PreTrainedModel
    >>> mw.wrap(net, mask_id=1).kind
    'llada'
    """
    if not hasattr(hf_model, "config"):
        raise UserError("mw.wrap takes a loaded model of transformers: open a name or a folder with mw.open")
    if isinstance(tokenizer, str | Path):
        raise UserError(f"tokenizer is {str(tokenizer)!r}: give the loaded tokenizer, not its name")
    bare = without_adapter(hf_model)
    if mask_id is None and not causal:
        mask_id = getattr(hf_model.config, "mask_token_id", None)
    if mask_id is None and not causal and tokenizer is not None:
        mask_id = tokenizer.mask_token_id
    if mask_id is None and not causal:
        raise UserError("the model has no mask token: pass mask_id")
    known = bare.get_input_embeddings().weight.shape[0]  # type: ignore
    if mask_id is not None and not 0 <= mask_id < known:
        raise UserError(f"mask_id {mask_id} is outside 0..{known - 1}: give the model's mask token")
    framed = head is None and not causal and family_of_network(bare, families).framed
    if framed and tokenizer is not None and not padded.frame_of(tokenizer):
        tokenizer = deepcopy(tokenizer)  # the caller's keeps writing its special tokens
        padded.take_frame(tokenizer)
    if framed or family_of_class(type(bare), families) is not None:
        native = as_model(bare, tokenizer, type(bare).__name__, mask_id, shift, families)
        configuration.note_odd_mask(bare, tokenizer, mask_id)
        native.net = hf_model
        return native.eval()
    positions = getattr(hf_model.config, "max_position_embeddings", None) or 2**31
    model = Model(
        hf_model,
        padded.PaddedBody(own_head=head is not None),
        family=WRAPPED,
        window=positions,
        shift=causal if shift is None else shift,
        causal=causal,
        mask_id=mask_id,
        tokenizer=tokenizer,
        head=head,
        name=type(hf_model).__name__,
    ).eval()
    try:
        refuse_if_different(model, "its logits are not its last hidden states times its output embeddings: pass head=")
    except UserError:
        raise
    except Exception as problem:  # the network's own code may raise anything
        raise UserError(f"{model.name} does not run on ids and a mask of 1 and 0: {first_line(problem)}") from problem
    return model


def rounding_tolerance(dtype: torch.dtype) -> float:
    """How far two orders of the same sums may move a logit, relative to the largest."""
    return 1e-3 if dtype == torch.float32 else 3e-2


@torch.no_grad()
def refuse_if_different(model: Model, problem: str, frame: padded.SpecialTokens | None = None) -> None:
    """Compares the logits of the model interface with those of the class's own forward on a few tokens."""
    ids = [token % model.vocab for token in range(1, 8)]
    batch = Batch.pack([ids], model.device)
    mask_id, model.mask_id = model.mask_id, None  # the class's own logits keep the mask token
    ours = model.head(model.hidden(batch))
    model.mask_id = mask_id
    tolerance = rounding_tolerance(model.dtype)
    start, end = ((), ()) if frame is None else (frame.start, frame.end)
    difference = largest_difference(model.core, ours, ids, start, end)
    if not difference < tolerance:
        raise UserError(f"{problem} (largest difference {difference:.2g} of the largest logit)")
