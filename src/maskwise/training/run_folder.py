"""The folder of a tuning or training run: its files, which checkpoints can be resumed, and errors of saving.

settings.json                  every setting, the data's hash, versions; written first
checkpoints/checkpoint-STEP/   the Trainer's state; resumable once complete.json, which is written last, lists its files
adapter_*, result.json         the adapter (or a whole checkpoint) and the figures; written at the end
"""

import errno
import hashlib
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from maskwise.support.errors import UserError, first_line
from maskwise.support.files import parse_json, partial_of, read_json, refuse_occupied, replace_file, to_json
from maskwise.support.processes import is_left_alone

MARKER = "complete.json"
LITTLE_ROOM = 1 << 20  # bytes; a write that fails with less than this free failed because the disk is full


def write_json(path: Path, value: Any) -> None:
    replace_file(path, [to_json(value, indent=2)])


def refuse_other_run(out: Path, description: dict[str, Any], defaults: dict[str, Any]) -> None:
    """`out` must be new, empty, or hold a run of exactly this description.
    defaults: the values of settings that the folder does not name, because they are newer than it."""
    stored = out / "settings.json"
    if not stored.exists():
        # A kill while the first file was written leaves its first half, and nothing else.
        begun = out.is_dir() and [file.name for file in out.iterdir()] == [partial_of(stored).name]
        return None if begun else refuse_occupied(out)
    try:
        before = _flat(read_json(stored, "choose another --out")["identity"])
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{stored} is not what a tuning run wrote: choose another --out") from None
    before = _flat(parse_json(to_json(defaults))) | before
    now = _flat(parse_json(to_json(description)))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise UserError(
                f"{out} holds a run with other settings ({name} is {before.get(name)} there and {now.get(name)} here): "
                "choose another --out, or use the same settings to resume it"
            )


def refuse_other_base(out: Path, base: str) -> None:
    """Refuses to resume a run with other weights, configuration or tokenizer than it began with."""
    stored = out / "settings.json"
    before = read_json(stored, "choose another --out") if stored.exists() else {}
    if isinstance(before, dict) and before.get("base", base) != base:
        raise UserError(
            f"{out} holds a run on another model of this name (fingerprint {before['base']} there and {base} here: "
            "other weights, dtype, configuration or tokenizer): choose another --out"
        )


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for name, inner in value.items():
        pairs |= _flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) else {prefix + name: inner}
    return pairs


def checkpoint_step(folder: Path) -> int:
    return int(folder.name.rsplit("-", 1)[1])


def vouch(checkpoint: Path, step: int) -> None:
    """Write the marker: the size and the SHA-256 of every file of a checkpoint."""
    files = sorted(file for file in checkpoint.rglob("*") if file.is_file() and file.name != MARKER)
    sums = {file.relative_to(checkpoint).as_posix(): _size_and_sum(file) for file in files}
    write_json(checkpoint / MARKER, {"step": step, "files": sums})


def _size_and_sum(file: Path) -> list[int | str]:
    with file.open("rb") as opened:
        return [file.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()]


def damage_of(checkpoint: Path) -> str | None:
    """The damage of a checkpoint in words; None if every file matches the marker."""
    try:
        files = read_json(checkpoint / MARKER, "")["files"]
        for name, wanted in files.items():
            if not (checkpoint / name).is_file():
                return f"{name} is missing"
            if _size_and_sum(checkpoint / name) != wanted:
                return f"{name} is not what was saved"
    except (UserError, LookupError, TypeError, AttributeError, OSError):
        return f"{MARKER} vouches for no files"
    return None


def newest_whole(folder: Path, skipped: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose files are all as they were saved; `skipped` is called for each newer one."""
    for checkpoint in reversed(complete_checkpoints(folder)):
        damage = damage_of(checkpoint)
        if damage is None:
            return checkpoint
        skipped(f"{checkpoint} is not used: {damage}")
    return None


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints with a marker, oldest first."""
    return sorted((path for path in _checkpoints(folder) if (path / MARKER).exists()), key=checkpoint_step)


def _checkpoints(folder: Path) -> list[Path]:
    """The run's checkpoints; other folders, such as checkpoint-4-backup, are ignored."""
    return [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-[0-9]{1,18}", path.name)]


def refuse_unreadable(checkpoint: Path) -> None:
    """The Trainer's own state is the one pickle that is read, and only as plain tensors and numbers."""
    for name in ("optimizer.pt", "scheduler.pt"):
        if (checkpoint / name).exists():
            try:
                torch.load(checkpoint / name, weights_only=True, map_location="meta")
            except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as problem:
                reason = str(problem).strip().splitlines()[0]
                raise UserError(
                    f"{checkpoint / name} cannot be resumed ({reason}): delete {checkpoint.name} to go on from an "
                    "earlier one"
                ) from None


def drop_incomplete(folder: Path) -> None:
    """Delete what an interrupted save left behind."""
    for path in _checkpoints(folder):
        if not (path / MARKER).exists():
            shutil.rmtree(path)


def keep_newest(folder: Path, count: int) -> None:
    for path in complete_checkpoints(folder)[:-count]:
        (path / MARKER).unlink()  # first, so that a half-deleted one is never taken for whole
        shutil.rmtree(path)


@contextmanager
def saving(what: Path, kept: str) -> Iterator[None]:
    """Turn an error of saving into one line that says what is kept; `what` is removed if it is a folder."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as problem:
        if is_left_alone(problem):
            raise
        # torch and safetensors wrap the system's error in types and words of their own.
        there = what if what.exists() else what.parent
        room = shutil.disk_usage(there).free if there.exists() else None
        shutil.rmtree(what, ignore_errors=True)
        full = isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or (room is not None and room < LITTLE_ROOM):
            reason, remedy = "no space left on the disk", "make room and run the same command again"
        else:
            reason, remedy = first_line(problem), "run the same command again"
        if isinstance(problem, OSError) and problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            reason, remedy = str(problem.strerror).lower(), "choose an --out that you may write to"
        raise UserError(f"could not write {what} ({reason}): {kept}; {remedy}") from None
