"""Exporting an adapted model: the original's files with the adapter added to the weights it touches.

The weight files are rewritten one by one under their own names, every tensor with its own name, dtype and shape, so
every loader of the original (its own code, serving engines, `open`) also loads the export.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peft import PeftModel
from peft.tuners.lora import Linear
from rich.progress import track
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from maskwise.models.checkpoints.adapter_base import check_bases
from maskwise.models.checkpoints.adapters import trained_rows
from maskwise.models.checkpoints.cards import merged_card
from maskwise.models.checkpoints.configuration import read_settings
from maskwise.models.checkpoints.locations import (
    NOTHING_TO_MERGE,
    locate_checkpoint,
    stored_shapes,
    tokenizer_file,
)
from maskwise.models.checkpoints.networks import weight_files
from maskwise.models.checkpoints.opening import open
from maskwise.models.checkpoints.placement import stored_dtype
from maskwise.models.checkpoints.saving import written_aside
from maskwise.support.errors import UserError
from maskwise.support.files import give_usual_mode, refuse_occupied, replace_file
from maskwise.support.terminal import open_console

# Weights in other forms, which would contradict the merged ones, and notes of download tools.
LEFT_BEHIND = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".lock")

NOTES = ("settings.json", "result.json")  # of a tuning run, which wrote the checkpoint but is not part of it

# Ways to start a LoRA that leave the base model's weights as they are; PiSSA, OLoRA, CorDA and LoftQ change them.
KEEP_THE_BASE = (True, False, "gaussian", "orthogonal", "eva")


def export(source: str | Path, out: str | Path, adapter: str | Path | None = None, *, any_base: bool = False) -> Path:
    """Writes a checkpoint with its LoRA adapters merged into it; config.json and tokenizer files are copied.

    Each sum is formed in float32 and rounded once to the stored dtype; what no adapter touches keeps its bytes.

    Arguments:
        source: the checkpoint's name or folder. out: a new folder.
        adapter: the adapter's folder; not needed where `source` is an adapted model already (BASE+NAME).
        any_base: merge it also into another base than the one it was trained on.

    Returns:
        The folder, which opens like the original.

    >>> import maskwise as mw
    >>> mw.open(mw.export("tiny-llada+distracted", "merged")).kind
    'llada'
    """
    folder, adapters = locate_checkpoint(str(source), adapter)
    if not adapters:
        raise UserError(NOTHING_TO_MERGE.format(source))
    if read_settings(folder).get("quantization_config") is not None:
        raise UserError(f"{source} is quantised, so nothing can be added to its weights: export with the original")
    _refuse_outside_links(folder)
    if not any_base:
        check_bases(str(source), folder, adapters)
    out = Path(out)
    refuse_occupied(out)
    return _write_export(str(source), folder, adapters, out)


def _refuse_outside_links(folder: Path) -> None:
    """An exported folder is uploaded: a link in a stranger's checkpoint must not bring a private file into it.
    The hub's cache stores the files of a snapshot as links to the blobs of the same repository; these are its own."""
    home = folder.resolve()
    own = [home, home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [home]
    for file in beside_the_weights(folder):
        if file.is_symlink() and not any(file.resolve().is_relative_to(place) for place in own):
            raise UserError(f"{file} is a link to a file outside the checkpoint, which would be exported: remove it")


def _write_export(source: str, folder: Path, adapters: Sequence[Path], out: Path) -> Path:
    changes: dict[str, Tensor] = {}
    rows: dict[str, ReplacedRows] = {}
    for one in adapters:
        added, replaced = weight_changes(folder, one)
        rows |= replaced
        for name, change in added.items():
            changes[name] = changes[name] + change if name in changes else change
    files = weight_files(folder)
    homes = {name: file for file in files for name in stored_shapes(folder / file)}
    strays = sorted((changes.keys() | rows.keys()) - homes.keys())
    if strays:
        raise UserError(f"the adapter touches {strays[0]}, which the checkpoint's files do not hold: it cannot merge")
    with written_aside(out) as aside:
        for name in track(files, "Merging", console=open_console(stderr=True), transient=True):
            _write_merged(folder / name, aside / name, changes, rows)
        for file in beside_the_weights(folder):
            shutil.copyfile(file, aside / file.name)
        replace_file(aside / "README.md", [merged_card(source, list(adapters), folder)])
    return out


ReplacedRows = tuple[list[int], Tensor]  # the numbers of rows, and their values


def weight_changes(folder: Path, adapter: Path) -> tuple[dict[str, Tensor], dict[str, ReplacedRows]]:
    """The adapter's additions to each weight, float32, and the rows that it replaces, by the weight's name."""
    model = open(folder, dtype=stored_dtype(read_settings(folder)), device="cpu", adapter=adapter, any_base=True)
    assert isinstance(model.net, PeftModel)
    changes = {}
    for name, module in model.core.named_modules():
        if isinstance(module, Linear):
            up, down = (layers["default"].get_parameter("weight").float() for layers in (module.lora_B, module.lora_A))
            delta = module.scaling["default"] * (up @ down)
            changes[f"{name}.weight"] = (delta.t().contiguous() if module.fan_in_fan_out else delta).detach()
    config: Any = model.net.peft_config["default"]
    found = trained_rows(model.core)
    rows = {} if found is None else {found[0]: (found[1], found[2])}
    # Two weights for each map, one for replaced rows and no others: a bias or a magnitude would be left behind.
    whole = len(stored_shapes(adapter / "adapter_model.safetensors")) == 2 * len(changes) + len(rows)
    if config.peft_type != "LORA" or config.use_dora or config.init_lora_weights not in KEEP_THE_BASE or not whole:
        raise UserError(f"the adapter in {adapter} is not plain LoRA on linear maps: it cannot be merged")
    return changes, rows


def beside_the_weights(folder: Path) -> list[Path]:
    """The other files of a checkpoint: configuration, tokenizer, index, licences and the model's own code."""
    shared = tokenizer_file(folder)
    return [
        file
        for file in sorted({*folder.iterdir(), *([shared] if shared.is_file() else [])})
        if file.is_file() and file.suffix not in LEFT_BEHIND and not file.name.startswith((".", *NOTES))
    ]


def _write_merged(source: Path, target: Path, changes: dict[str, Tensor], rows: dict[str, ReplacedRows]) -> None:
    with safe_open(source, framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    for name in tensors.keys() & changes.keys():
        tensors[name] = (tensors[name].float() + changes[name]).to(tensors[name].dtype)
    for name in tensors.keys() & rows.keys():
        places, values = rows[name]
        tensors[name][places] = values.to(tensors[name].dtype)
    save_file(tensors, target, metadata=metadata)
    give_usual_mode(target)  # safetensors leaves it readable for its owner alone
