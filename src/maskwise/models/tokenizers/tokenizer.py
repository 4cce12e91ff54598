"""Tokenizers, without remote code."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from maskwise.models.checkpoints.locations import tokenizer_file
from maskwise.models.families import Family
from maskwise.models.families.padded import take_frame
from maskwise.models.tokenizers.tokenizer_limits import refuse_unbounded
from maskwise.support.errors import UserError
from maskwise.support.files import damaged, parse_json, read_bytes

# Tokens that end an answer or a turn in the families' chat formats; the end-of-text token is in the configuration.
TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|endofturn|>")

# The files a tokenizer is read from, and what must be in each.
PARTS: dict[str, set[str]] = {"tokenizer.json": {"model", "added_tokens"}, "tokenizer_config.json": set()}
PARTS |= {"vocab.json": set(), "special_tokens_map.json": set(), "added_tokens.json": set()}


def load_tokenizer(folder: Path, family: Family) -> Any:
    """The folder's tokenizer, or None when it has none.

    A tokenizer.json is used unchanged: the Auto classes would rebuild it as the model family's tokenizer, with other
    splits, and LLaDA and Dream name classes that only their remote code defines. Dream publishes vocab.json and
    merges.txt instead, which are Qwen2's byte-level BPE.
    """
    source = tokenizer_file(folder).parent
    check_tokenizer_files(folder)
    try:
        tokenizer = _read_tokenizer(source, family)
        if tokenizer is not None:
            tokenizer.name_or_path = str(folder)
            tokenizer.decode(tokenizer("Hello")["input_ids"])  # what it was given may surface only when it is used
            if family.framed:
                take_frame(tokenizer)
        return tokenizer
    except UserError as problem:
        raise UserError(f"{folder}: {problem}") from None
    except BaseException as problem:  # the tokenizers library has no error of its own
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":  # Rust's, no Exception
            raise
        reason = str(problem).strip().split("\n")[0]
        raise UserError(f"the tokenizer of {folder} cannot be read ({reason}): download it again") from None


def check_tokenizer_files(folder: Path) -> None:
    """Refuses what is broken in the tokenizer's files; a checkpoint may have none."""
    source = tokenizer_file(folder).parent
    for name, needed in PARTS.items():
        _refuse_broken(source / name, needed)


def _read_tokenizer(folder: Path, family: Family) -> Any:
    has_bpe = (folder / "vocab.json").exists() and (folder / "merges.txt").exists()
    if (folder / "tokenizer.json").exists():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        if not family.framed or tokenizer.mask_token is not None:
            return tokenizer
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)  # whose class knows the mask token
    if family.native and has_bpe:
        return Qwen2Tokenizer.from_pretrained(folder)
    if has_bpe or any((folder / name).exists() for name in ("tokenizer.model", "vocab.txt", "spiece.model")):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return None


def _refuse_broken(file: Path, needed: set[str]) -> None:
    if not file.exists():
        return
    try:
        content = parse_json(read_bytes(file).decode("utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or not needed <= content.keys():
        raise damaged(file, "", "download it again")
    if file.name == "tokenizer.json":
        refuse_unbounded(file, content)
    if not _merges_fit(content.get("model")):
        raise UserError(f"{file}: a merge does not begin with its continuing_subword_prefix: download it again")


def _merges_fit(model: Any) -> bool:
    """True if the second part of each BPE merge begins with the prefix; the tokenizers library does not check it."""
    if not isinstance(model, dict):
        return True
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not isinstance(prefix, str) or not isinstance(merges, list):
        return True
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]  # "a b" or ["a", "b"]
    seconds = [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    return all(second.startswith(prefix) for second in seconds if isinstance(second, str))
