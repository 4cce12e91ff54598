"""Tokenizers, without remote code."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer


def load_tokenizer(folder: Path, native: bool) -> Any:
    """The folder's tokenizer, or None when it has none.

    LLaDA and Dream name classes that only their remote code defines; the files themselves are ordinary fast tokenizers
    (tokenizer.json) or Qwen2's byte-level BPE (vocab.json and merges.txt, as Dream publishes it).
    """
    has_fast = (folder / "tokenizer.json").exists()
    has_bpe = (folder / "vocab.json").exists() and (folder / "merges.txt").exists()
    if native and has_fast:
        return PreTrainedTokenizerFast.from_pretrained(folder)
    if native and has_bpe:
        return Qwen2Tokenizer.from_pretrained(folder)
    if has_fast or has_bpe or (folder / "tokenizer.model").exists():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return None
