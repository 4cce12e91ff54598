"""Conversion of an autoregressive checkpoint to a masked diffusion one."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, PreTrainedModel, Qwen2Config

from maskwise.models.checkpoints.configuration import read_settings
from maskwise.models.checkpoints.locations import PACKAGED, SPARE_ID, locate_plain
from maskwise.models.checkpoints.opening import open
from maskwise.models.checkpoints.placement import stored_dtype
from maskwise.models.checkpoints.saving import written_aside
from maskwise.models.families import DREAM
from maskwise.models.families.dream import DreamConfig, DreamModel
from maskwise.support.errors import UserError
from maskwise.support.files import give_usual_mode, refuse_occupied

MASK_TOKEN = "<|mask|>"
COPIED = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"]
COPIED += ["max_position_embeddings", "hidden_act", "initializer_range", "rms_norm_eps", "rope_parameters"]
COPIED += ["tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"]


def convert(source: str | Path, out: str | Path, shift: bool = True) -> Path:
    """Writes a Llama or Qwen2 checkpoint as a Dream one: the same weights, bidirectional, with a mask token.

    The mask is the tokenizer's own if it has one, else an embedding row no token uses, else a new row. What comes out
    must be trained before it is any good.

    Arguments:
        source: a name or folder of a Llama or Qwen2 checkpoint. out: a new folder.
        shift: the logits of position i come from hidden state i - 1, as in the source and in Dream; False is written to
            config.json as "shift": false, for training that predicts each position from its own hidden state.

    Returns:
        The folder, which opens with `mw.open`.

    >>> import maskwise as mw
    >>> mw.open(mw.convert("tiny-qwen", "converted")).kind
    'dream'
    """
    out = Path(out)
    refuse_occupied(out)
    folder = locate_plain(str(source), "convert")
    stated = read_settings(folder)
    if stated.get("quantization_config") is not None:
        raise UserError(f"{source} is quantised, so its weights cannot be copied: convert the original")
    kind = stated.get("model_type")
    if kind not in (None, "llama", "qwen2"):  # before the weights are looked for
        raise UserError(f"{kind} checkpoints cannot be converted: give a Llama or Qwen2 checkpoint")
    model = open(source, dtype=stored_dtype(stated), device="cpu")
    _refuse_unlike(model.core.config)
    spare = SPARE_ID if str(source) == PACKAGED[0] and not Path(source).is_dir() else None
    mask_id = _mask_row(model.core, model.tokenizer, spare)
    config = model.core.config
    settings: dict[str, Any] = {name: getattr(config, name) for name in COPIED}
    if shift != DREAM.shift:
        settings["shift"] = shift
    dream_config = DreamConfig(
        vocab_size=config.vocab_size,
        qkv_bias=isinstance(config, Qwen2Config),
        head_dim=getattr(config, "head_dim", None),
        mask_token_id=mask_id,
        **settings,
    )
    dream: Any = DreamModel(dream_config)
    dream.to(model.dtype)
    dream.load_state_dict(model.core.state_dict())
    with written_aside(out) as aside:
        dream.save_pretrained(aside)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(aside)
        for file in aside.iterdir():
            give_usual_mode(file)
    return out


def _refuse_unlike(config: Any) -> None:
    if type(config) not in (LlamaConfig, Qwen2Config):
        raise UserError(f"{config.model_type} checkpoints cannot be converted: give a Llama or Qwen2 checkpoint")
    odd = [name for name in ("attention_bias", "mlp_bias", "use_sliding_window") if getattr(config, name, False)]
    if odd:
        raise UserError(f"a checkpoint with {', '.join(odd)} cannot be converted: the Dream class has no such part")


def _mask_row(net: PreTrainedModel, tokenizer: Any, spare: int | None) -> int:
    """The mask's id; its embedding, where nothing was learnt for it, starts as the mean of all others.
    spare: a token of the vocabulary to become the mask."""
    rows = net.config.vocab_size
    known = None if tokenizer is None else tokenizer.mask_token_id
    if known is not None and known < rows:
        return known
    mask_id = rows if known is None else known
    if spare is not None:
        mask_id, tokenizer.mask_token = spare, tokenizer.convert_ids_to_tokens(spare)
    elif tokenizer is not None and known is None:
        tokenizer.add_special_tokens({"mask_token": MASK_TOKEN})
        mask_id = tokenizer.mask_token_id
    if mask_id >= rows:
        net.resize_token_embeddings(mask_id + 1, mean_resizing=False)
    others = torch.arange(rows) != mask_id if spare is not None else torch.arange(rows) < mask_id
    with torch.no_grad():
        for table in {net.get_input_embeddings(), net.get_output_embeddings()}:
            table.weight[mask_id] = table.weight[:rows][others].float().mean(0).to(table.weight.dtype)  # type: ignore
    return mask_id
