"""Run folders under one root: their list with the main scores, the page of one, and the page that compares two."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from maskwise.experiments.compare import compare_runs
from maskwise.records.folder import MANIFEST, RECORDS, read_manifest
from maskwise.report.pages.advice import is_search
from maskwise.report.pages.page import build
from maskwise.report.pages.registry import run_table
from maskwise.report.readings import read_all
from maskwise.report.words.comparison import rows_of
from maskwise.report.words.task_skill import in_short, limit_of_run
from maskwise.support.errors import UserError

MOST_FOLDERS = 200
MAIN_SCORES = 4


@dataclass(frozen=True)
class ListedRun:
    """scores: by title and unit; empty until the records are read."""

    name: str
    model: str
    date: str
    preset: str
    scores: Mapping[str, float] = field(default_factory=dict)


def found_runs(root: Path) -> list[str]:
    """Names of the run folders in `root`, the latest first; symbolic links are skipped, they may lead anywhere."""
    found = []
    with suppress(OSError):  # somebody may be deleting some
        for place in root.iterdir():
            if place.is_symlink() or not (place / MANIFEST).is_file():
                continue
            with suppress(UserError):  # opening it says what is wrong
                if is_search(place):
                    continue
            found.append((-place.stat().st_mtime, place.name))
    return [name for _, name in sorted(found)[:MOST_FOLDERS]]


def listed_runs(root: Path) -> Iterator[list[ListedRun]]:
    """The runs by their manifests, at once; then again while the scores, which need the records, become known."""
    runs = [_by_manifest(root / name) for name in found_runs(root)]
    yield list(runs)
    for number, run in enumerate(runs):
        with suppress(Exception):  # a stranger's records; opening the run says what is wrong, the others stay listed
            changed = (root / run.name / RECORDS).stat().st_mtime_ns
            scores, limit = _scores(root / run.name, changed)
            runs[number] = replace(run, model=f"{run.model}{limit}", scores=scores)
        if number % 8 == 7:
            yield list(runs)
    yield runs


def run_rows(runs: Sequence[ListedRun]) -> tuple[list[str], list[list[str | float | None]]]:
    """Titles and rows of the list; of the scores those that most runs have."""
    known = Counter(title for run in runs for title in run.scores)
    main = [title for title, _ in known.most_common(MAIN_SCORES)]
    rows = [[run.name, run.model, run.date, run.preset, *(run.scores.get(title) for title in main)] for run in runs]
    return ["Run", "Model", "Date", "Preset", *main], rows


def page_of(root: Path, first: str | None, second: str | None = None) -> str:
    """The report page of a run, redrawn from its records; with a second run, the comparison."""
    folders = [_folder(root, name) for name in (first, second) if name]
    if not folders:
        raise UserError("choose a run folder")
    if len(folders) == 1:
        return build(read_all(folders))[0]
    result, readings = compare_runs(folders)
    return build(readings, rows_of(result.models, result.changes))[0]


def _folder(root: Path, name: str) -> Path:
    if name not in found_runs(root):
        raise UserError(f"no run folder {name!r} in {root}: read the list again")
    return root / name


def _by_manifest(folder: Path) -> ListedRun:
    try:
        written = datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime)
        manifest = read_manifest(folder)
    except (UserError, OSError):
        return ListedRun(folder.name, "–", "–", "–")
    model = f"{manifest.model.name}{' (planted)' if manifest.model.planted else ''}"
    preset = f"{manifest.settings.preset}{'' if manifest.complete else ', unfinished'}"
    return ListedRun(folder.name, model, f"{written:%Y-%m-%d %H:%M}", preset)


@lru_cache(maxsize=MOST_FOLDERS)
def _scores(folder: Path, changed: int) -> tuple[dict[str, float], str]:
    """The scores of the run that are shown, in percent or nats, and why it can show no loss, in brackets.

    changed: when its records were, in nanoseconds.
    """
    (reading,) = read_all([folder])
    table, limit, found = run_table([reading]), limit_of_run(reading), {}
    for column, cell in zip(table.columns, table.rows[0], strict=True):
        if isinstance(cell.order, float) and cell.text.endswith("nats"):
            found[column.title] = round(cell.order, 2)  # the title names the unit
        elif isinstance(cell.order, float):
            found[f"{column.title} (%)"] = round(100 * cell.order, 1)
    return found, f" ({in_short(limit)})" if limit else ""
