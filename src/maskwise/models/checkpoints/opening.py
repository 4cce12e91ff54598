"""Opening a model by folder or name, and wrapping a network in the model interface (model.py)."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from maskwise.models import register_families
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.adapter_base import check_bases
from maskwise.models.checkpoints.configuration import (
    as_described,
    find_mask_id,
    find_shift,
    note_odd_mask,
    read_config,
    read_family,
    read_settings,
    refuse_own_attention,
)
from maskwise.models.checkpoints.gguf_llama import gguf_in
from maskwise.models.checkpoints.locations import locate_checkpoint, refuse_published_experts, weights_folder
from maskwise.models.checkpoints.networks import (
    check_weight_files,
    load_network,
    network_without_weights,
    refuse_oversized,
)
from maskwise.models.checkpoints.placement import (
    main_device,
    memory_limits,
    pick_device,
    pick_dtype,
    plan_device_map,
    quantisable_dtype,
    refuse_other_device_map,
    refuse_with_spread,
)
from maskwise.models.checkpoints.quantised_files import refuse_uninstalled_quantiser
from maskwise.models.families import AUTOREGRESSIVE, FAMILIES, MASKED_LM, WRAPPED, Family, family_of_class
from maskwise.models.families.masked_lm import (
    MaskedLMBody,
    SpecialTokens,
    context_length,
    frame_of,
    is_masked_lm,
    take_frame,
)
from maskwise.models.finite import refuse_nonfinite_weights
from maskwise.models.forward import RAGGED, largest_difference, padded_body
from maskwise.models.model import Model
from maskwise.models.peft_access import without_adapter
from maskwise.models.tensor_parallel import join_replica, refuse_indivisible
from maskwise.models.tokenizers.tokenizer import load_tokenizer
from maskwise.support.argument_kinds import checked_arguments
from maskwise.support.errors import UserError
from maskwise.support.imports import imported

register_families()  # with transformers' Auto classes


class _BuiltIn(tuple[Family, ...]):
    """The families of this package, printed by their name: in full they would fill a signature with 15,000 letters."""

    def __repr__(self) -> str:
        return "FAMILIES"


BUILT_IN = _BuiltIn(FAMILIES)


@checked_arguments
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
    max_memory: Mapping[int | str, int | str] | None = None,
    tensor_parallel: int = 1,
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
        weights: fp8 or int4 quantises the layers' linear maps, with the adapter merged into them.
        any_base: put an adapter also on another base than the one it was trained on.
        device_map: auto lets accelerate put layers on several GPUs, in main memory and on disk, as far as each fits.
        max_memory: of a device map: the most weights on each GPU and in main memory, {0: "10GiB", "cpu": "30GiB"}.
        tensor_parallel: under torchrun: processes that share the layers of a model.

    Returns:
        The model, in evaluation mode.

    >>> import maskwise as mw
    >>> model = mw.open("tiny-llada", device="cpu")
    >>> ids = model.tokenizer("Answer:[")["input_ids"]
    >>> model.predict([ids + [model.mask_id]], [[len(ids)]])[0].shape  # float32 logits, of the row asked for alone
    torch.Size([1, 2048])
    """
    refuse_other_device_map(device_map, max_memory)
    place = pick_device(device if device_map is None else main_device(device))
    if weights is not None:
        refuse_published_experts(str(name), weights)
    folder, adapters = locate_checkpoint(str(name))
    if adapter is not None:
        name, adapters = f"{name}+{adapter}", (*adapters, Path(adapter))
    family = read_family(folder, families)
    check_weight_files(folder, family)
    if adapters and not any_base:
        check_bases(str(name), folder, adapters)
    settings = read_settings(folder)
    refuse_uninstalled_quantiser(folder, settings)
    stored = pick_dtype(dtype, place, settings)
    shared = tensor_parallel > 1
    if device_map is not None or shared:
        gguf = gguf_in(weights_folder(folder)) is not None
        refuse_with_spread(settings, weights, gguf, len(adapters), device_map is not None, shared)
    if weights is not None:
        stored = quantisable_dtype(weights, name, folder, settings, dtype, stored, place)
    with as_described(folder):
        config = read_config(folder, family)  # refuses a type that only remote code defines
        refuse_oversized(folder, config.to_dict() | settings)  # what the file leaves out has its class's size
        places: dict[str, Any] = {"": place if weights is None else torch.device("cpu")}
        if device_map is not None:
            bare = network_without_weights(config, family)
            places = plan_device_map(bare, stored, place, memory_limits(max_memory, place))
        if shared:
            refuse_indivisible(imported(str(family.net_class)), config, tensor_parallel)
            join_replica(tensor_parallel)
        net = load_network(family, folder, config, stored, places, tensor_parallel)
        model = as_model(net, load_tokenizer(folder, family), str(name), families=families)
        note_odd_mask(net, model.tokenizer, model.mask_id)
        if model.stored_quantised:  # packages check few sizes, and lay the weights out at the first pass
            model.eval().predict([[0, 0]], [[1]])
    if adapters:
        from maskwise.models.checkpoints.adapters import attach_adapters

        model.net = attach_adapters(model.core, adapters, model.mask_id)
    if weights is not None:
        _quantise(model, weights, place)
    if check_weights:
        refuse_nonfinite_weights(model)
    return model.eval()


def _quantise(model: Model, weights: str, device: torch.device) -> None:
    from maskwise.models.families.quantise import quantise

    if model.net is not model.core:
        from maskwise.models.checkpoints.adapters import merged

        model.net = merged(model.net)  # type: ignore[arg-type]
    quantise(model.core, weights, device)
    model.weights = weights


def opened_model(
    model: str | Path | Model,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    adapter: str | Path | None = None,
    check_weights: bool = True,
    weights: str | None = None,
    any_base: bool = False,
    device_map: str | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
    tensor_parallel: int = 1,
) -> Model:
    """Opens a model given by name; an opened model is returned as it is and takes no options."""
    if not isinstance(model, Model):
        return open(
            model,
            dtype,
            device,
            adapter,
            check_weights=check_weights,
            weights=weights,
            any_base=any_base,
            device_map=device_map,
            max_memory=max_memory,
            tensor_parallel=tensor_parallel,
        )
    chosen = (dtype, adapter, weights, device_map, max_memory, tensor_parallel) != ("auto", None, None, None, None, 1)
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

    mask_id and shift: None is what the configuration, the tokenizer or the family says.
    """
    family = family_of_network(net, families)
    if family.framed:
        return _masked_lm(net, tokenizer, name, mask_id)
    if family.noised:
        return _random_canvas(net, tokenizer, name, family)
    if not family.native:
        refuse_own_attention(net)
        net.set_attn_implementation(RAGGED)
    positions = net.config.max_position_embeddings
    model = Model(
        net,
        imported(family.body),
        family=family,
        window=positions,
        shift=find_shift(net.config, family) if shift is None else shift,
        causal=family.causal,
        mask_id=find_mask_id(net, tokenizer, family) if mask_id is None else mask_id,
        tokenizer=tokenizer,
        name=name,
        trained_window=family.trained_context_length(positions),
        block=getattr(net.config, "attention_block", None),
    )
    if not family.native:
        refuse_if_different(model, f"{type(net).__name__} does not fit the model interface")
    return model


def family_of_network(net: PreTrainedModel, families: tuple[Family, ...] = BUILT_IN) -> Family:
    """The family of a network's class; of transformers' own classes the masked or the causal language models."""
    found = family_of_class(type(net), families)
    return found or (MASKED_LM if is_masked_lm(type(net).__name__) else AUTOREGRESSIVE)


def _masked_lm(net: PreTrainedModel, tokenizer: Any, name: str, mask_id: int | None) -> Model:
    if net._supports_sdpa:
        net.set_attn_implementation("sdpa")
    model = Model(
        net,
        MaskedLMBody.of(net.config, tokenizer),
        family=MASKED_LM,
        window=context_length(net, tokenizer),
        shift=False,
        mask_id=find_mask_id(net, tokenizer, MASKED_LM) if mask_id is None else mask_id,
        tokenizer=tokenizer,
        name=name,
    ).eval()
    refuse_if_different(model, f"{type(net).__name__} does not fit the model interface", frame_of(tokenizer))
    return model


def _random_canvas(net: PreTrainedModel, tokenizer: Any, name: str, family: Family) -> Model:
    from maskwise.models.families.diffusion_gemma import CanvasBody, CanvasHead

    net.set_attn_implementation("sdpa")
    mask_id = find_mask_id(net, tokenizer, family)
    assert mask_id is not None
    return Model(
        net,
        CanvasBody(mask_id),
        family=family,
        window=net.config.get_text_config().max_position_embeddings,
        shift=False,
        mask_id=mask_id,
        tokenizer=tokenizer,
        head=CanvasHead(net),
        name=name,
    ).eval()


@checked_arguments
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
    bare = without_adapter(hf_model)
    if family_of_network(bare, families).noised:
        return as_model(bare, tokenizer, type(bare).__name__, families=families)
    if mask_id is None and not causal:
        mask_id = getattr(hf_model.config, "mask_token_id", None)
    if mask_id is None and not causal and tokenizer is not None:
        mask_id = tokenizer.mask_token_id
    if mask_id is None and not causal:
        raise UserError("the model has no mask token: pass mask_id")
    masked_lm = head is None and not causal and family_of_network(bare, families).framed
    if masked_lm and tokenizer is not None and not frame_of(tokenizer):
        tokenizer = deepcopy(tokenizer)  # the caller's keeps writing its special tokens
        take_frame(tokenizer)
    if masked_lm or family_of_class(type(bare), families) is not None:
        native = as_model(bare, tokenizer, type(bare).__name__, mask_id, shift, families)
        native.net = hf_model
        return native.eval()
    positions = getattr(hf_model.config, "max_position_embeddings", None) or 2**31
    model = Model(
        hf_model,
        padded_body,
        family=WRAPPED,
        window=positions,
        shift=causal if shift is None else shift,
        causal=causal,
        mask_id=mask_id,
        tokenizer=tokenizer,
        head=head,
        name=type(hf_model).__name__,
    ).eval()
    refuse_if_different(model, "its logits are not its last hidden states times its output embeddings: pass head=")
    return model


@torch.no_grad()
def refuse_if_different(model: Model, problem: str, frame: SpecialTokens | None = None) -> None:
    """Compares the logits of the model interface with those of the class's own forward on a few tokens."""
    ids = [token % model.vocab for token in range(1, 8)]
    batch = Batch.pack([ids], model.device)
    mask_id, model.mask_id = model.mask_id, None  # the class's own logits keep the mask token
    ours = model.head(model.hidden(batch))
    model.mask_id = mask_id
    tolerance = 1e-3 if model.dtype == torch.float32 else 3e-2
    start, end = ((), ()) if frame is None else (frame.start, frame.end)
    difference = largest_difference(model.core, ours, ids, start, end)
    if not difference < tolerance:
        raise UserError(f"{problem} (largest difference {difference:.2g} of the largest logit)")
