"""The folder of a search: manifest.json says what is searched, records.jsonl holds a line per setting and question."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwise.errors import UserError
from maskwise.files import parse_json, read_json, replace_file
from maskwise.records.folder import ADVISE, MANIFEST, RECORDS, append, make_run_folder, write_manifest

__all__ = ["Answer", "append_answers", "begin", "read_answers", "write_manifest"]


@dataclass(frozen=True)
class Answer:
    """How a setting answered a question (its number in the file, from 0)."""

    setting: str
    question: int
    quality: float
    passes: int
    seconds: float
    text: str


def begin(folder: Path, identity: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a new search, or of one with the same model, questions, measure and settings.

    described: what a reader wants to know beside it."""
    make_run_folder(folder)
    file = folder / MANIFEST
    if not file.exists():
        if (folder / RECORDS).exists():
            raise UserError(f"{folder} holds records without a manifest; choose another --out or remove it")
        manifest: dict[str, Any] = {
            "command": ADVISE, "identity": identity, **described, "plan": None, "complete": False,
        }  # fmt: skip
        write_manifest(folder, manifest)
        return manifest
    manifest = read_json(file, "choose another --out, or remove the folder")
    if not isinstance(manifest, dict) or manifest.get("command") != ADVISE:
        raise UserError(f"{folder} is not a folder of maskwise advise: choose another --out")
    for name, new in identity.items():
        if manifest["identity"].get(name) != new:
            raise UserError(f"{folder} was made with another {name}: choose another --out or remove it")
    return manifest


def append_answers(folder: Path, answers: list[Answer]) -> None:
    append(folder, 0, [asdict(answer) for answer in answers])


def read_answers(folder: Path, settings: set[str], questions: int) -> dict[tuple[str, int], Answer]:
    """The answers on file. A last line torn by a kill is cut off, so that the next one begins on a line of its own."""
    file = folder / RECORDS
    if not file.exists():
        return {}
    whole, end, torn = file.read_bytes().rpartition(b"\n")
    if torn:
        replace_file(file, whole + end)
    found = {}
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        answer = _answer(line, settings, questions)
        if answer is None:
            raise UserError(f"{file} line {number} is not an answer of this search: remove the line to go on")
        found[answer.setting, answer.question] = answer
    return found


def _answer(line: bytes, settings: set[str], questions: int) -> Answer | None:
    """What a line says, None where it is no answer to what is asked here."""
    try:
        answer = Answer(**parse_json(line.decode("utf-8")))
        numbers = [float(answer.quality), float(answer.seconds)]
        known = answer.setting in settings and answer.question in range(questions) and answer.passes >= 0
    except (TypeError, ValueError):
        return None
    return answer if known and isinstance(answer.text, str) and all(map(math.isfinite, numbers)) else None
