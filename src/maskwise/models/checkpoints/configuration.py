"""config.json of a checkpoint, read and checked: family, shift and mask id."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from maskwise.models.checkpoints.locations import read_object
from maskwise.models.families import AUTOREGRESSIVE, FAMILIES, MASKED_LM, Family, family_of_architecture
from maskwise.models.families.padded import is_masked_lm
from maskwise.support.errors import UserError, UserNotice, first_line
from maskwise.support.files import short_json
from maskwise.support.imports import imported
from maskwise.support.removed import removed

# Fields of config.json by what they must be; each may also be left out, and null where its class gives it a meaning.
SIZES = (
    "d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size", "embedding_size", "max_sequence_length",
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "head_dim",
    "max_position_embeddings", "vocab_size", "expert_intermediate_size", "num_experts", "num_experts_per_tok",
    "moe_intermediate_size", "num_shared_experts", "n_group", "topk_group", "block_size", "bd_size",
)  # fmt: skip
LAYERS = ("n_layers", "num_hidden_layers", "num_experts")
FACTORS: tuple[str, ...] = ("mlp_ratio", "rope_theta", "rms_norm_eps", "init_std", "initializer_range")
FACTORS += ("partial_rotary_factor", "routed_scaling_factor")
# Of rotary positions, in an object of their own, which may also hold rope_theta and partial_rotary_factor.
ROPE_FACTORS = ("attention_factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor")
# A base below 1 turns every pair faster than a radian per token; a tiny one by infinity, and all logits are NaN.
ROPE_FROM_ONE = ("rope_theta", "factor", "original_max_position_embeddings")
ROPE_FROM_ZERO = ("llama_4_scaling_beta", "mscale", "mscale_all_dim")
LARGEST = 2**31  # of a size
MOST_LAYERS = 1024  # laid out one by one, before a weight is read
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")  # one or several

# What transformers and torch raise on a configuration they did not expect.
UNEXPECTED: tuple[type[Exception], ...] = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
UNEXPECTED += (RuntimeError, OSError, MemoryError, AssertionError, ImportError, StrictDataclassError, re.error)

Kind = tuple[tuple[str, ...], str, Callable[[Any], bool]]  # names of fields, what each must be, whether a value is


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return (_is_whole(value) or isinstance(value, float)) and 0 < value < 1e18


FROM_ONE = ("a number from 1 to 1e18", lambda v: _is_positive(v) and v >= 1)


def read_settings(folder: Path) -> dict[str, Any]:
    """The fields of config.json, each of the type it must have."""
    file = folder / "config.json"
    if not file.exists():
        raise UserError(f"{folder} has no config.json: give the folder of a checkpoint")
    settings = read_object(file)
    _check_numbers(file, settings)
    return settings


def _check_numbers(file: Path, settings: dict[str, Any]) -> None:
    """Checks the types of numbers, which would otherwise fail later inside torch."""
    kinds: list[Kind] = [
        (SIZES, "a whole number, 1 or more", lambda v: _is_whole(v) and v >= 1),
        (SIZES, f"at most {LARGEST}", lambda v: v <= LARGEST),
        (LAYERS, f"at most {MOST_LAYERS}", lambda v: v <= MOST_LAYERS),
        (FACTORS, "a positive number below 1e18", _is_positive),
        (TOKENS, "a token's number", lambda v: all(_is_whole(one) for one in (v if isinstance(v, list) else [v]))),
        (("mask_token_id",), "a token's number", _is_whole),
        (("shift",), "true or false", lambda v: isinstance(v, bool)),
        (("rope_parameters", "rope_scaling"), "an object", lambda v: isinstance(v, dict)),
        (("hidden_act",), "an activation that transformers knows", lambda v: isinstance(v, str) and v in ACT2FN),
        (("architectures",), "a list of names", lambda v: isinstance(v, list) and all(isinstance(n, str) for n in v)),
        (("dtype", "torch_dtype"), "a type of torch", lambda v: isinstance(getattr(torch, str(v), None), torch.dtype)),
        (("rope_theta", "original_max_position_embeddings"), *FROM_ONE),
    ]
    _check_kinds(file, settings, kinds)
    rope_kinds: list[Kind] = [
        (FACTORS + ROPE_FACTORS, "a positive number below 1e18", _is_positive),
        (ROPE_FROM_ONE, *FROM_ONE),
        (ROPE_FROM_ZERO, "a number from 0 to 1e18", lambda v: _is_positive(v) or (v == 0 and not isinstance(v, bool))),
    ]
    for name in ("rope_parameters", "rope_scaling"):
        rope = settings.get(name) or {}
        layer_types = {f"{name}.{inner}": part for inner, part in rope.items() if isinstance(part, dict)}
        for part_name, part in {name: rope, **layer_types}.items():
            _check_kinds(file, part, rope_kinds, f"{part_name}.")


def _check_kinds(file: Path, settings: dict[str, Any], kinds: Sequence[Kind], prefix: str = "") -> None:
    for names, wanted, fits in kinds:
        for name in names:
            value = settings.get(name)
            if value is not None and not fits(value):
                raise UserError(
                    f"{file}: {prefix}{name} is {short_json(value)}, not {wanted}: correct it or download it again"
                )


@contextmanager
def as_described(folder: Path) -> Iterator[None]:
    """Turns any error of transformers or torch on an unexpected configuration into a UserError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise UserError(f"{folder} does not fit into the memory: use a smaller --dtype or another --device") from None
    except UNEXPECTED as problem:
        raise UserError(
            f"{folder} cannot be opened as its config.json describes it ({type(problem).__name__}: "
            f"{first_line(problem)[:200]}): correct it or download it again"
        ) from problem


def read_family(folder: Path, families: tuple[Family, ...] = FAMILIES) -> Family:
    """The family of the class a checkpoint names; `ar` for a causal language model of transformers."""
    architecture = (read_settings(folder).get("architectures") or ["none named"])[0]
    family = family_of_architecture(architecture, families)
    if family is not None:
        return family
    if (gone := removed("family", architecture)) is not None:
        raise UserError(f"{folder}: {gone}")
    if is_masked_lm(architecture):
        return MASKED_LM
    if architecture not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        known = ", ".join(family.architecture for family in families if family.architecture)
        raise UserError(
            f"{folder}: unknown architecture {architecture!r}; supported are {known} and "
            "transformers' causal and masked language models"
        )
    return AUTOREGRESSIVE


def read_config(folder: Path, family: Family) -> PreTrainedConfig:
    """A folder's configuration as its family reads it; code that comes with the checkpoint is never run."""
    config = _read_config(folder, family)
    for name in (*SIZES, *FACTORS):
        if getattr(type(config), name, None) is not None and getattr(config, name) is None:
            raise UserError(f"{folder / 'config.json'}: {name} is null, not a number: correct it or download it again")
    stated = getattr(config, "mask_token_id", None)
    if not family.causal and stated is not None:
        _refuse_outside(stated, getattr(config, "embedding_size", None) or config.vocab_size)  # before weights are read
    return config


def _read_config(folder: Path, family: Family) -> PreTrainedConfig:
    if family.native:
        assert family.config_class is not None
        return imported(family.config_class).from_pretrained(folder)
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except StrictDataclassError as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{folder / 'config.json'} is not a configuration of its class ({reason})") from None
    except ValueError:
        unknown = read_settings(folder).get("model_type")
        line = f"{folder}: transformers knows no model type {unknown!r}, and remote code is never run"
        raise UserError(line) from None


def configured_block(folder: Path, family: Family) -> int | None:
    """The block size of a block diffusion checkpoint by its config.json alone; None for any other model."""
    if not family.blockwise:
        return None
    with as_described(folder):
        return read_config(folder, family).attention_block


def find_shift(config: PreTrainedConfig, family: Family) -> bool:
    """`shift` of the configuration, then the family's. In a causal model it is no choice."""
    stated = getattr(config, "shift", None)
    return family.shift if stated is None or family.causal else stated


def find_mask_id(net: PreTrainedModel, tokenizer: Any, family: Family) -> int | None:
    """From the configuration, then the tokenizer, then the family; None in a causal model."""
    if family.causal:
        return None
    stated = (getattr(net.config, "mask_token_id", None), getattr(tokenizer, "mask_token_id", None), family.mask_id)
    found = next((one for one in stated if one is not None), None)
    known: int = net.get_input_embeddings().weight.shape[0]  # type: ignore
    return _refuse_outside(found, known)


def note_odd_mask(net: PreTrainedModel, tokenizer: Any, mask_id: int | None) -> None:
    """One line where the mask is a token that means something else, or not the tokenizer's."""
    if mask_id is None or mask_id >= net.get_input_embeddings().weight.shape[0]:  # type: ignore
        return
    ends = getattr(net.config, "eos_token_id", None)
    own = getattr(tokenizer, "mask_token_id", None)
    if mask_id in (ends if isinstance(ends, list) else [ends, getattr(tokenizer, "eos_token_id", None)]):
        never = f"token {mask_id} is both the mask and the end of text: the model can never end a text; set "
        warnings.warn(never + "mask_token_id in config.json", UserNotice, stacklevel=3)
    elif own is not None and own != mask_id:
        both = f"the mask of config.json is token {mask_id}, that of the tokenizer is {own} ({tokenizer.mask_token})"
        warnings.warn(f"{both}: {mask_id} is used; make them agree if it is wrong", UserNotice, stacklevel=3)
    elif own is None and tokenizer is not None and _is_foreign(net, tokenizer, mask_id):
        warnings.warn(
            f"the tokenizer has {len(tokenizer):,} tokens, and token {mask_id}, the model's mask, is "
            f"{tokenizer.convert_ids_to_tokens(mask_id)!r} there: it seems to be another model's; use the model's own",
            UserNotice,
            stacklevel=3,
        )


def _is_foreign(net: PreTrainedModel, tokenizer: Any, mask_id: int) -> bool:
    """Whether the tokenizer has more tokens than the model, or an ordinary token in the mask's place."""
    special = {*getattr(tokenizer, "added_tokens_decoder", ()), *tokenizer.all_special_ids}
    return len(tokenizer) > net.get_input_embeddings().weight.shape[0] or mask_id not in special  # type: ignore


def _refuse_outside(mask_id: int | None, known: int) -> int:
    if mask_id is None or not 0 <= mask_id < known:
        raise UserError(
            f"no mask token ({mask_id} is outside 0..{known - 1}): set mask_token_id in config.json or "
            "mask_token in the tokenizer"
        )
    return mask_id


def refuse_own_attention(net: PreTrainedModel) -> None:
    """Refuses AR classes that bypass transformers' attention interface (Bloom, Falcon, Mamba)."""
    if not net._supports_attention_backend:
        raise UserError(
            f"{type(net).__name__} does not fit the model interface (its attention cannot be replaced): use another"
        )
