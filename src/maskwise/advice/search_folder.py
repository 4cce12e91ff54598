"""The folder of a search: manifest.json says what is searched, records.jsonl holds a line per setting and question."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from maskwise.records.folder import ADVISE, MANIFEST, RECORDS, append, record_files, write_manifest
from maskwise.support.errors import UserError
from maskwise.support.files import parse_json, read_bytes, read_text, replace_file, to_json
from maskwise.support.typed import AtLeast1, Count, Typed, decode

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
REMEDY = "choose another --out, or remove the folder"


@dataclass(frozen=True)
class SettingAnswer:
    """How a setting answered a question (its number in the file, from 0)."""

    setting: str
    question: Count
    quality: float
    passes: Count
    seconds: Seconds
    text: str


class StoredPlan(Typed, frozen=True, kw_only=True):
    """The plan of a search that has begun (selection.Plan), and the speed that it rests on."""

    rounds: list[AtLeast1]
    held: AtLeast1
    seconds_per_pass: Seconds


class BegunSearch(Typed, frozen=True, kw_only=True):
    """manifest.json of a search, as far as resuming reads it."""

    command: str
    identity: Mapping[str, Any]
    plan: StoredPlan | None


def begin(folder: Path, identity: dict[str, Any], described: dict[str, Any]) -> None:
    """Makes the manifest of a new search, or checks that of one that is resumed.

    described: what a reader wants to know besides.
    """
    if (folder / MANIFEST).exists():
        read_manifest(folder, identity)
    elif record_files(folder):
        raise UserError(f"{folder} holds records without a manifest; choose another --out or remove it")
    else:
        write_manifest(folder, {"command": ADVISE, "identity": identity, **described, "plan": None, "complete": False})


def read_manifest(folder: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Of a search with the same model, questions, measure and settings; any other is refused."""
    manifest = _manifest(folder)
    for name, new in identity.items():
        if manifest["identity"].get(name) != new:
            raise UserError(f"{folder} was made with another {name}: choose another --out or remove it")
    return manifest


def read_plan(folder: Path, questions: int) -> StoredPlan:
    plan = decode(to_json(_manifest(folder)), BegunSearch).plan
    if plan is None or not plan.rounds or sorted(plan.rounds) != plan.rounds or plan.rounds[-1] + plan.held > questions:
        raise UserError(f"{folder / MANIFEST} has no plan for {questions} questions: {REMEDY}")
    return plan


def _manifest(folder: Path) -> Any:
    file = folder / MANIFEST
    text = read_text(file, REMEDY)
    try:
        manifest = parse_json(text)
        if isinstance(manifest, dict) and manifest.get("command") != ADVISE:
            raise UserError(f"{folder} is not a folder of maskwise advise: choose another --out")
        decode(text, BegunSearch)
    except ValueError as problem:
        raise UserError(f"{file} is not the manifest of a search ({problem}): {REMEDY}") from None
    return manifest


def append_answers(folder: Path, answers: list[SettingAnswer], rank: int = 0) -> None:
    append(folder, rank, [asdict(answer) for answer in answers])


def read_answers(folder: Path, settings: set[str], questions: int) -> dict[tuple[str, int], SettingAnswer]:
    """The answers on file, of all processes. A last line without its end was torn by a kill and is left out."""
    found: dict[tuple[str, int], SettingAnswer] = {}
    for file in record_files(folder):
        whole = read_bytes(file).rpartition(b"\n")[0]
        for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
            try:
                answer = decode(line, SettingAnswer)
            except ValueError:
                answer = None
            if answer is None or answer.setting not in settings or answer.question >= questions:
                raise UserError(f"{file} line {number} is not an answer of this search: remove the line to go on")
            found.setdefault((answer.setting, answer.question), answer)
    return found


def gather_answers(folder: Path, answers: Iterable[SettingAnswer]) -> None:
    """All processes' answers in one file, in an order that does not depend on who gave them; torn lines are gone."""
    ordered = sorted(answers, key=lambda answer: (answer.setting, answer.question))
    replace_file(folder / RECORDS, [to_json(asdict(answer)) + "\n" for answer in ordered])
    for file in record_files(folder):
        if file.name != RECORDS:
            file.unlink()
