"""Run folders under one root: their list, the page of one, and the page that compares two."""

from contextlib import suppress
from pathlib import Path

from maskwise.experiments.compare import compare_runs
from maskwise.records.folder import MANIFEST
from maskwise.report.pages.advice import is_search
from maskwise.report.pages.page import build
from maskwise.report.readings import read_all
from maskwise.report.words.comparison import rows_of
from maskwise.support.errors import UserError

MOST_FOLDERS = 200


def found_runs(root: Path) -> list[str]:
    """Names of the run folders in `root`, the latest first; symbolic links are skipped, they may lead anywhere."""
    found = []
    with suppress(OSError):  # somebody may be deleting some
        for place in root.iterdir():
            if not place.is_symlink() and (place / MANIFEST).is_file() and not is_search(place):
                found.append((-place.stat().st_mtime, place.name))
    return [name for _, name in sorted(found)[:MOST_FOLDERS]]


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
