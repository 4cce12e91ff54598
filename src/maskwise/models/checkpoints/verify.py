"""Numerical parity of our classes with the checkpoint's original code, on a checkpoint the user has."""

import gc
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

from maskwise.models.attention.ragged import block_reach
from maskwise.models.checkpoints.configuration import read_family, read_settings
from maskwise.models.checkpoints.locations import locate_plain, original_class, read_object
from maskwise.models.checkpoints.opening import open, rounding_tolerance
from maskwise.models.checkpoints.original_code import class_from_code, original_net
from maskwise.models.model import Model
from maskwise.models.tokenizers.chat import render_chat
from maskwise.support.errors import UserError, first_line

TEXTS = (
    "Masked diffusion models fill in the blanks.",
    "Options: (A) knit, (B) quirky, (C) persuade\nAnswer:[B].\n\n",
    "Größe, naïve café, 北京, 12345 + 67890 = ?\n\tdef f(x): return x**2",
)
CHAT = [{"role": "user", "content": "What is 2 + 2?"}]
MASKS = 4


def verify(
    name: str,
    dtype: str = "float32",
    device: str | None = None,
    running: Callable[[Path, list[str]], None] = lambda folder, elsewhere: None,
) -> dict[str, Any]:
    """Runs our class, then the checkpoint's own code, on the same inputs, so that one copy at a time is in memory.

    `running` is called right before code is run, with the checkpoint's folder and the hub repositories that some of the
    code would be fetched from.
    Returns the number of texts whose token ids differ, whether the chat prompts agree, the largest difference of the
    logits, the number of positions where the greedy tokens differ, and whether all agree up to rounding.
    """
    folder = locate_plain(name, "verify")
    settings = read_settings(folder)
    entry = original_class(name, settings)
    family = read_family(folder)
    if family.causal:
        raise UserError(f"{name} is autoregressive and runs as transformers' own class: there is nothing to verify")
    ours = open(name, dtype=dtype, device=device)
    assert ours.mask_id is not None
    prompts = _prompts(ours)
    # In the original's layout: row i predicts position i, or i + 1 in a shifted model.
    rows = [[position + int(ours.shift) for position in range(len(prompt))] for prompt in prompts]
    our_logits = ours.predict(prompts, rows)
    our_tokens, our_chat = _text_side(ours.tokenizer)
    place, precision, dtype, mask_id, block = ours.device, ours.dtype, ours.dtype_name, ours.mask_id, ours.block
    del ours
    gc.collect()
    running(folder, code_from_elsewhere(folder))
    # The checkpoint's own code may raise anything: the user gets one line.
    try:
        their_tokens, their_chat = _text_side(_original_tokenizer(folder))
        # Published files may ask for an attention package the user need not have. SDPA takes a mask of True and False.
        attention = "eager" if block is None else "sdpa"
        net = original_net(folder, entry, settings["auto_map"]["AutoConfig"], precision, place, attention)
        their_logits = [_their_logits(net, prompt, block) for prompt in prompts]
    except UserError:
        raise
    except Exception as problem:
        reason = f"{type(problem).__name__}: {first_line(problem)}"
        raise UserError(f"the original code of {folder} does not run here ({reason})") from problem
    our_rows, their_rows = (_without(torch.cat(logits), mask_id) for logits in (our_logits, their_logits))
    if not their_rows.isfinite().all():
        raise UserError(f"the original code of {folder} gives logits that are NaN or infinite: there is no comparison")
    compared = our_tokens is not None and their_tokens is not None
    other_ids = sum(a != b for a, b in zip(our_tokens or [], their_tokens or [], strict=compared))
    same_chat = None if not compared or our_chat is their_chat is None else our_chat == their_chat
    difference, largest = float((our_rows - their_rows).abs().max()), float(their_rows.abs().max())
    return {
        "model": name,
        "dtype": dtype,
        "texts": len(TEXTS) if compared else 0,
        "texts_with_other_ids": other_ids,
        "chat_prompts_agree": same_chat,
        "positions": len(our_rows),
        "largest_logit_difference": difference,
        "largest_logit": largest,
        "greedy_tokens_that_differ": int((our_rows.argmax(-1) != their_rows.argmax(-1)).sum()),
        "agrees": not other_ids and same_chat is not False and difference <= rounding_tolerance(precision) * largest,
    }


def code_from_elsewhere(folder: Path) -> list[str]:
    """The repositories of entries like OWNER/NAME--module.Class, by which a checkpoint names code it does not carry."""
    found: set[str] = set()
    for name in ("config.json", "tokenizer_config.json"):
        auto_map = read_object(folder / name).get("auto_map") if (folder / name).exists() else None
        for entry in auto_map.values() if isinstance(auto_map, dict) else []:
            parts = entry if isinstance(entry, list) else [entry]
            found |= {part.split("--")[0] for part in parts if isinstance(part, str) and "--" in part}
    return sorted(found)


def _prompts(model: Model) -> list[list[int]]:
    """Short sequences with masks behind them: real text where there is a tokenizer, spread-out ids otherwise.

    Those of a block diffusion model are repeated until they fill two blocks.
    """
    assert model.mask_id is not None
    if model.tokenizer is None:
        plain = [[(7 * i + 11 * s) % model.mask_id for i in range(12)] for s in range(len(TEXTS))]
    else:
        plain = [model.tokenizer(text)["input_ids"] for text in TEXTS]
    times = [1 if model.block is None else -(-2 * model.block // len(ids)) for ids in plain]
    return [ids * count + [model.mask_id] * MASKS for ids, count in zip(plain, times, strict=True)]


def _without(logits: Tensor, mask_id: int) -> Tensor:
    """Drops the mask token's column: the original has a logit there, ours has not."""
    return torch.cat((logits[:, :mask_id], logits[:, mask_id + 1 :]), dim=1)


def _text_side(tokenizer: Any) -> tuple[list[list[int]] | None, str | None]:
    if tokenizer is None:
        return None, None
    chat = None
    if tokenizer.chat_template:
        chat = render_chat(tokenizer, CHAT, add_generation_prompt=True)
    return [tokenizer(text)["input_ids"] for text in TEXTS], chat


def _original_tokenizer(folder: Path) -> Any:
    if not (folder / "tokenizer_config.json").exists():
        return None
    entry = json.loads((folder / "tokenizer_config.json").read_text()).get("auto_map", {}).get("AutoTokenizer")
    if entry is None:
        return AutoTokenizer.from_pretrained(folder)
    code = entry if isinstance(entry, str) else next(part for part in entry if part)
    return class_from_code(code, folder).from_pretrained(folder)


@torch.no_grad()
def _their_logits(net: Any, prompt: list[int], block: int | None) -> Tensor:
    """The original's logits; block diffusion code builds its mask from a block size (Fast-dLLM v2) or takes one."""
    ids = torch.tensor([prompt], device=net.device)
    seen: dict[str, Any] = {}
    if block is not None and "block_size" in inspect.signature(net.forward).parameters:
        seen = {"block_size": block}
    elif block is not None:
        places = torch.arange(len(prompt), device=net.device)
        seen = {"attention_mask": block_reach(places, places, block)[None, None]}
    return net(ids, **seen).logits[0].float().cpu()
