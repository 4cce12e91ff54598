"""Definition of a sweep: models and settings, from a YAML file or from Python, and their jobs."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import isdir
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from maskwise.models.checkpoints.locations import name_from_anywhere, split_name
from maskwise.records.folder import MANIFEST, read_manifest
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean
from maskwise.support.typed import convert
from maskwise.support.yaml_files import read_yaml

REMEDY = "a sweep has models (a list), and may have settings (named, with arguments of mw.diagnose) and slurm"


class DiagnoseOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of `mw.diagnose` that jobs can have, with its defaults."""

    probes: str | list[str] | None = None
    preset: Literal["quick", "default", "full", "paper"] = "default"
    points: int | None = None
    tasks: list[str] | None = None
    relevant: int | list[int] | None = None
    distractors: int | None = None
    precision: float | None = None
    seed: int = 0
    chat: bool = False
    words: str | None = None
    text: str | None = None
    data: dict[str, str] | list[str] | None = None
    templates: str | None = None
    batch_tokens: int | None = None
    exact: bool = False
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str | None = None
    adapter: str | None = None
    check_weights: bool = True
    weights: Literal["fp8"] | None = None
    any_base: bool = False
    device_map: Literal["auto"] | None = None

    def given(self) -> dict[str, Any]:
        """The options that differ from the defaults, by name."""
        return msgspec.to_builtins(self)


class SweepFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The YAML file of `maskwise sweep`. slurm: further options of sbatch, by name."""

    models: list[str]
    settings: dict[str, DiagnoseOptions] = {}
    slurm: dict[str, str | int | bool] = {}


@dataclass(frozen=True)
class DiagnoseJob:
    """One run of diagnose. `setting` is the name of its settings, empty where all jobs have the same."""

    name: str
    model: str
    setting: str
    options: DiagnoseOptions
    folder: Path

    @property
    def is_finished(self) -> bool:
        """Whether its run is complete. Where a file of the model is newer than the run, diagnose has to say whether
        it is the same model."""
        try:
            complete = read_manifest(self.folder).complete
        except UserError:
            return False
        written = (self.folder / MANIFEST).stat().st_mtime
        parts = [part for part in (*split_name(self.model), self.options.adapter) if part and isdir(part)]
        return complete and not any(file.stat().st_mtime > written for part in parts for file in Path(part).iterdir())


def read_sweep(file: Path) -> SweepFile:
    return read_yaml(file, SweepFile, REMEDY)


def settings_of(
    settings: Mapping[str, DiagnoseOptions | Mapping[str, Any]] | None, options: Mapping[str, Any]
) -> dict[str, DiagnoseOptions]:
    """Named settings, each with these options where it does not change them; the options alone where there are none."""
    known = DiagnoseOptions.__struct_fields__
    found = {}
    for name, own in (settings or {"": {}}).items():
        values = {**options, **(own.given() if isinstance(own, DiagnoseOptions) else own)}
        for option in values:
            if option not in known:
                raise UserError(f"jobs have no setting {option!r}{did_you_mean(option, known)}")
        try:
            found[name] = convert(msgspec.to_builtins(values, enc_hook=str), DiagnoseOptions)
        except ValueError as problem:
            raise UserError(f"{f'settings {name}: ' if name else ''}{problem}") from None
    return found


def jobs_of(models: Sequence[str], settings: Mapping[str, DiagnoseOptions], out: Path) -> list[DiagnoseJob]:
    """A job for each model under each of the settings, with a folder named after both."""
    if not models:
        raise UserError("no model named: give models, or a YAML file with a list of them")
    if twice := [model for model in models if models.count(model) > 1]:
        raise UserError(f"{twice[0]} is named twice: name each model once")
    jobs = {}
    for model in models:
        for setting, options in settings.items():
            whole = json.dumps([name_from_anywhere(model), msgspec.to_builtins(options)])
            short = re.sub(r"[^\w.+-]", "-", model.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]) or "model"
            parts = [short, re.sub(r"[^\w.+-]", "-", setting), hashlib.sha256(whole.encode()).hexdigest()[:6]]
            name = "-".join(filter(None, parts))
            jobs[name] = DiagnoseJob(name, model, setting, options, out / name)
    return list(jobs.values())
