"""Results that are not runs (toy, cures): one JSON file and one figure in a folder."""

import json
from pathlib import Path
from typing import Any

from maskwise.errors import UserError


def make_folder(folder: Path) -> Path:
    """Made before the work begins, so that a bad name costs nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _cannot_write(folder, problem) from None
    return folder


def write_result(folder: Path, name: str, summary: dict[str, Any], figure: tuple[str, bytes]) -> None:
    """NAME.json, NAME.svg and NAME.png."""
    svg, png = figure
    try:
        (folder / f"{name}.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{name}.png").write_bytes(png)
    except OSError as problem:
        raise _cannot_write(folder, problem) from None


def _cannot_write(folder: Path, problem: OSError) -> UserError:
    return UserError(f"cannot write into {folder}: {problem.strerror}; name another folder with --out")
