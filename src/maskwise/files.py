"""Files and folders that a user names."""

from pathlib import Path

from maskwise.errors import UserError


def read_text(file: Path, remedy: str) -> str:
    """The whole of a UTF-8 file; one that cannot be read, or is something else, is refused in one line."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as problem:
        raise UserError(f"cannot read {file}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text: {remedy}") from None


def refuse_occupied(out: Path) -> None:
    """A checkpoint is written into a new or empty folder: nothing there is overwritten, not even its own source."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty: choose another --out")
