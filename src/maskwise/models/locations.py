"""Where a model's name leads: a folder, an embedded model, or a published checkpoint. Imports no torch."""

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from maskwise.errors import UserError
from maskwise.files import read_json
from maskwise.terminal import one_line

ZOO = Path(__file__).parent / "zoo"


def embedded_models() -> list[str]:
    """Names of the models that come with the package, adapters as BASE+NAME."""
    names = []
    for folder in sorted(ZOO.iterdir()) if ZOO.exists() else []:
        if (folder / "model.safetensors").exists() or (folder / "adapter_model.safetensors").exists():
            names.append(folder.name)
    return names


def locate_checkpoint(name: str, named_by: str = "") -> tuple[Path, Path | None]:
    """The folder of a checkpoint and, where the name is an adapter's or MODEL+FOLDER, the adapter's folder too.

    `named_by` says, for the line about a download, who named it if it was not the user.
    """
    base, adapter = split_name(name)
    if adapter is not None:
        folder, another = locate_checkpoint(base)
        refuse_two_adapters(base, another)
        return folder, Path(adapter)
    folder = Path(name) if Path(name).is_dir() else ZOO / name
    if Path(name).is_dir() or name in embedded_models():
        if _is_adapter(folder):
            base = _base_of(folder)
            return locate_checkpoint(base, f", the base model that the adapter in {folder} names,")[0], folder
        return folder, None
    if Path(name).exists():
        raise UserError(f"{name} is a file: give the folder of a checkpoint")
    if is_hub_name(name):
        return _from_hub(name, named_by), None
    known = ", ".join(embedded_models()) or "none yet"
    raise UserError(
        f"no model {name!r}: give a checkpoint folder, a published name (maskwise models) or one of: {known}"
    )


def is_hub_name(name: str) -> bool:
    """OWNER/NAME as the hub spells it. A path whose first part is a folder here was mistyped: nothing is asked then."""
    owner = name.partition("/")[0]
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name) is not None and not Path(owner).exists()


def split_name(name: str) -> tuple[str, str | None]:
    """MODEL+FOLDER, with an adapter's folder, in its parts."""
    if not Path(name).exists():
        for place, letter in enumerate(name):  # either part may have a + in its own name
            if letter == "+" and _is_adapter(Path(name[place + 1 :])):
                return name[:place], name[place + 1 :]
    return name, None


def refuse_two_adapters(name: str, adapter: Path | None) -> None:
    if adapter is not None:
        raise UserError(f"{name} has an adapter already: name its base model with the other one")


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").exists() and not (folder / "config.json").exists()


def _base_of(adapter: Path) -> str:
    """The model an adapter says it was trained on, which is not an adapter again."""
    base = read_object(adapter / "adapter_config.json").get("base_model_name_or_path")
    if not isinstance(base, str) or not base or _is_adapter(Path(base)) or _is_adapter(ZOO / base):
        raise UserError(f"the adapter in {adapter} does not name its base model: open that, and give this as adapter")
    return base


def _from_hub(name: str, named_by: str) -> Path:
    """A published checkpoint: from the hub's local cache if it is whole, else fetched, which one line says. No code."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    with suppress(LocalEntryNotFoundError, HFValidationError, OSError):
        cached = Path(snapshot_download(name, allow_patterns=wanted, local_files_only=True))
        if _is_whole(cached):
            return cached
    sys.stderr.write(f"maskwise: fetching {one_line(name + named_by)} from the Hugging Face hub\n")
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"{name} is not a folder here and could not be fetched from the hub ({reason}): check "
                        "the name, or give a folder") from None  # fmt: skip


def _is_whole(folder: Path) -> bool:
    """Whether a download was finished: the configuration and every weight file are there."""
    index = folder / "model.safetensors.index.json"
    weights = read_object(index).get("weight_map") if index.exists() else {"": "model.safetensors"}
    names = weights.values() if isinstance(weights, dict) else ["?"]
    return (folder / "config.json").exists() and all((folder / str(name)).exists() for name in names)


def read_object(file: Path) -> dict[str, Any]:
    """A JSON file of a checkpoint: config.json, adapter_config.json or the index of the weight files."""
    read = read_json(file, "download it again")
    if not isinstance(read, dict):
        raise UserError(f"{file} does not hold a configuration: download it again")
    return read
