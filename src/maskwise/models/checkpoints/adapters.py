"""PEFT adapters on a model."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedModel

from maskwise.models.checkpoints.locations import read_object, stored_shapes
from maskwise.models.families import family_of_class
from maskwise.models.peft_access import refuse_endless_patterns, token_rows
from maskwise.support.errors import UserError, first_line
from maskwise.support.files import damaged

RANKS = ("r", "init_r", "target_r")  # of LoRA and its kin: the sizes that PEFT lays out before it reads a weight


def attach_adapters(
    net: PreTrainedModel, folders: Sequence[Path], mask_id: int | None = None
) -> PreTrainedModel | PeftModel:
    """Attaches adapters in order; all but the last are merged into the weights."""
    adapted: PreTrainedModel | PeftModel = net
    for folder in folders:
        adapted = attach_adapter(merged(adapted), folder, mask_id)
    return adapted


def merged(net: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The network with its adapter, if any, merged into the weights in their own precision."""
    if not isinstance(net, PeftModel):
        return net
    if getattr(net.config, "quantization_config", None) is not None:  # PEFT would round the sum, or not know how to add
        raise UserError("an adapter cannot be merged into quantised weights without rounding it: use the original")
    try:
        return net.merge_and_unload()  # type: ignore[operator]
    except (NotImplementedError, ValueError, RuntimeError) as problem:  # PEFT cannot merge every kind of adapter
        raise UserError(f"the adapter cannot be merged into the weights ({first_line(problem)}): use LoRA") from None


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The configuration of an adapter and the shapes of its weights; no weight is loaded."""
    if not (folder / "adapter_config.json").exists():
        raise UserError(f"{folder} has no adapter_config.json: give the folder that `maskwise tune` or PEFT wrote")
    given = read_object(folder / "adapter_config.json")
    weights = folder / "adapter_model.safetensors"
    if not weights.is_file():  # nor a pipe, which safetensors would wait for
        raise UserError(f"{folder} has no adapter_model.safetensors (pickled adapters are refused): save it again")
    try:
        return given, stored_shapes(weights)
    except (SafetensorError, OSError) as problem:
        raise damaged(weights, problem, "copy it again") from None


def attach_adapter(net: PreTrainedModel, folder: Path, mask_id: int | None = None) -> PeftModel:
    """Puts the adapter of a folder on the network; an adapter that does not fit in full is refused.
    Where embeddings and head are tied, the one row of them that it may train is the mask's, which has no logit."""
    given, stored = read_adapter(folder)
    refuse_endless_patterns(given, [name for name, _ in net.named_modules()], folder / "adapter_config.json")
    if given.get("layer_replication") is not None:  # PEFT would copy layers as often as a small file says
        raise UserError(f"the adapter in {folder} copies layers (layer_replication), which is not supported: use LoRA")
    # aLoRA layers never learn the token positions, so they would have no effect.
    if given.get("alora_invocation_tokens"):
        raise UserError(f"the adapter in {folder} is switched on by tokens (aLoRA), which is not supported: use LoRA")
    _refuse_larger_ranks(folder, given, max((size for shape in stored.values() for size in shape), default=0))
    _refuse_another_rank(folder, given, stored)
    try:
        config = PeftConfig.from_pretrained(str(folder))
        if config.is_prompt_learning:
            raise UserError(f"the adapter in {folder} adds tokens to the prompt, which is not supported: use LoRA")
        config.task_type = None  # PEFT's class for causal models needs methods that these do not have
        with quiet_peft():
            model = PeftModel.from_pretrained(net, str(folder), config=config)
    except (ValueError, RuntimeError) as problem:
        raise UserError(
            f"the adapter in {folder} is for another model: {first_line(problem)}: put it on its own base"
        ) from None
    except (LookupError, TypeError, AttributeError, ImportError, ArithmeticError, re.error) as problem:
        # A configuration it does not know.
        reason = first_line(problem)
        raise UserError(f"{folder / 'adapter_config.json'} is not one PEFT reads ({reason}): save it again") from None
    head = net.get_output_embeddings()
    replaced = {token for some in getattr(token_rows(head), "token_indices", {}).values() for token in some}
    if isinstance(head, BaseTunerLayer) or replaced - {mask_id}:
        raise UserError(f"the adapter in {folder} changes the output head, which is read past it: leave the head out")
    if token_rows(net.get_input_embeddings()) is not None and family_of_class(type(net)) is None:
        raise UserError(f"the adapter in {folder} trains rows of the embeddings: open it on a LLaDA or Dream model")
    # Left to itself PEFT looks the base model up on the network here, to see whether its vocabulary has grown.
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    expected = {key: tuple(value.shape) for key, value in own.items()}
    if expected != stored:
        odd = sorted(expected.items() ^ stored.items())[0][0]
        raise UserError(f"the adapter in {folder} is for another model: {odd} does not fit")
    return model


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Hides two warnings about PEFT's own code: a name that transformers deprecates, and copies to the meta device."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*copying from a non-meta parameter", UserWarning)
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


def _refuse_larger_ranks(folder: Path, given: dict[str, Any], largest: int) -> None:
    """Refuses ranks larger than the stored weights', which would fill the memory before they fail to fit."""
    pattern = given.get("rank_pattern")
    ranks = [(name, given.get(name)) for name in RANKS]
    for name, rank in (*ranks, *(pattern.items() if isinstance(pattern, dict) else ())):
        if isinstance(rank, int) and rank > largest:
            raise UserError(
                f"{folder / 'adapter_config.json'}: {name} is {rank}, larger than any weight of the adapter: save it "
                "again"
            )


def _refuse_another_rank(folder: Path, given: dict[str, Any], stored: Mapping[str, Sequence[int]]) -> None:
    """Where PEFT would name a weight that does not fit. Experts as parameters store the ranks of all experts in one."""
    if given.get("rank_pattern") or given.get("target_parameters"):
        return
    said = given.get("r", 8)  # PEFT's default
    ranks = {shape[0] for name, shape in stored.items() if name.endswith(".lora_A.weight") and len(shape) > 1}
    if len(ranks) == 1 and isinstance(said, int) and said not in ranks:
        raise UserError(
            f"{folder / 'adapter_config.json'}: r is {said}, but the adapter's weights have rank {ranks.pop()}: set r"
        )


def trained_rows(net: PreTrainedModel) -> tuple[str, list[int], Tensor] | None:
    """The name of the embeddings' weight, the tokens whose rows an adapter replaces, and those rows, or None."""
    embeddings = net.get_input_embeddings()
    layer = token_rows(embeddings)
    if layer is None:
        return None
    name = next(name for name, module in net.named_modules() if module is embeddings)
    return f"{name}.weight", list(layer.token_indices["default"]), layer.trainable_tokens_delta["default"].detach()
