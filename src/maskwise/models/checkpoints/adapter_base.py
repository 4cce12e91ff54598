"""Base check of adapters: a digest of the base's weight files, which training saves with the adapter.

A LoRA fits every model with the shapes of its base, so no other check detects that it is put on another one. Only
headers and some values of each weight are read: nothing is loaded.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from json import loads
from math import prod
from pathlib import Path

import numpy as np

from maskwise.models.checkpoints.locations import locate_checkpoint, read_object
from maskwise.models.checkpoints.networks import weight_files
from maskwise.support.errors import UserError, UserNotice

NOTES = ("settings.json", "training.json")  # of tune and train; of embedded adapters
FIELD = "base_files"
SAMPLED = 1024  # numbers of a weight that count, from its start and its middle
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def base_digest(files: Sequence[Path], adapters: Sequence[Path] = ()) -> str:
    """Twelve letters for the weights in these files, with adapters on them.
    Independent of how the weights are split into files, and of their type: values are compared as bfloat16."""
    digest = hashlib.sha256()
    for group in (files, *([folder / "adapter_model.safetensors"] for folder in adapters)):
        for name, shape, values in sorted(_sampled(group), key=lambda one: one[0]):
            digest.update(f"{name} {shape}".encode() + values)
    return digest.hexdigest()[:12]


def _sampled(files: Sequence[Path]) -> Iterator[tuple[str, list[int], bytes]]:
    """Name, shape and some values of each weight in safetensors files."""
    for file in files:
        with file.open("rb") as opened:
            start = 8 + int.from_bytes(opened.read(8), "little")
            header = loads(opened.read(start - 8))
            for name, about in header.items():
                if name != "__metadata__":
                    size = SIZES.get(about["dtype"])
                    first, last = about["data_offsets"]
                    count = min(SAMPLED, prod(about["shape"])) * size if size else min(SAMPLED, last - first)
                    middle = first + (last - first) // 2 // (size or 1) * (size or 1)
                    pieces = b""
                    for place in (first, middle):
                        opened.seek(start + place)
                        pieces += _as_bfloat16(opened.read(min(count, last - place)), about["dtype"])
                    yield name, about["shape"], pieces


def _as_bfloat16(data: bytes, dtype: str) -> bytes:
    """Rounded to the nearest, ties to even, as torch does; other types as they are."""
    if dtype not in ("F64", "F32", "F16"):
        return data
    words = np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]).astype("<f4").view("<u4")
    return ((words + (0x7FFF + ((words >> 16) & 1)).astype("<u4")) >> 16).astype("<u2").tobytes()


def digest_of(name: str) -> str | None:
    """The digest of the model that a name leads to; None where it has no safetensors files of its own."""
    try:
        folder, adapters = locate_checkpoint(name)
    except UserError:  # an open model may have any name
        return None
    files = base_files(folder)
    return base_digest(files, adapters) if files else None


def base_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint; none of one in another form."""
    return [file for name in weight_files(folder) if (file := folder / name).is_file()]


def check_bases(name: str, folder: Path, adapters: Sequence[Path]) -> None:
    """Refuses an adapter whose notes hold the digest of other weights.

    Without a digest, another base name is a warning, since a hub name and a local folder may be the same model.

    name: the model as the user calls it. folder: of its checkpoint. adapters: in the order they are put on.
    """
    files = base_files(folder)
    for number, adapter in enumerate(adapters):
        if not (adapter / "adapter_config.json").is_file():
            continue  # attach_adapter says what is missing
        trained = read_object(adapter / "adapter_config.json").get("base_model_name_or_path")
        below = adapters[number - 1].name if number else folder.name
        wanted = stored_digest(adapter) if files else None
        found = base_digest(files, adapters[:number]) if wanted is not None else None
        if found != wanted:
            raise UserError(
                f"the adapter in {adapter} was trained on {trained or 'another model'} (weights {wanted}), not on "
                f"{below} (weights {found}): put it on its own base, or add --any-base"
            )
        if wanted is None and isinstance(trained, str) and _last_part(trained) not in ("", below, _last_part(name)):
            warnings.warn(
                UserNotice(f"the adapter in {adapter} names {trained} as its base, and is put on {below}"), stacklevel=3
            )


def _last_part(name: str) -> str:
    """The last part of a path, a hub name, or MODEL+FOLDER."""
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def stored_digest(adapter: Path) -> str | None:
    """The digest of the base that training wrote; None where it did not."""
    notes = next((adapter / name for name in NOTES if (adapter / name).is_file()), None)
    found = None if notes is None else read_object(notes).get(FIELD)
    return found if isinstance(found, str) else None
