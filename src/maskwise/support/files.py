"""Files and folders that a user names."""

import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, BinaryIO, NoReturn

try:
    import fcntl
except ImportError:  # Windows has no such locks: there two processes are not kept apart
    fcntl = None  # type: ignore[assignment]

from maskwise.support.errors import UserError

OTHER_FOLDER = "name another folder with --out"
Records = str | Path | Iterable[Mapping[str, Any]]  # a JSON lines file, or what it holds


def open_regular(file: Path) -> BinaryIO:
    """Opens a regular file for reading; refuses devices and FIFOs, which an untrusted link may lead to."""
    opened = open(file, "rb", opener=_open_at_once)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise UserError(f"{file} is not a regular file: save what it gives to one")
    return opened


def _open_at_once(file: str, flags: int) -> int:
    """Opens without waiting for the writer of a FIFO."""
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0))


def refuse_irregular(folder: Path) -> None:
    """Refuses a folder that holds a device or a FIFO, or a link to one: reading it would not end."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.exists() and not (entry.is_file() or entry.is_dir()):
            raise UserError(f"{entry} is not a regular file: remove it")


def read_bytes(file: Path) -> bytes:
    """The whole of a regular file."""
    try:
        with open_regular(file) as opened:
            return opened.read()
    except (OSError, ValueError) as problem:  # a name with a null byte is a ValueError
        folder = "; give a file, not a folder" if isinstance(problem, IsADirectoryError) else ""
        raise UserError(f"cannot read {file}: {getattr(problem, 'strerror', None) or problem}{folder}") from None


# How files begin that people give for text.
BEGINNINGS = {b"PK\x03\x04": "an Excel workbook or a zip archive", b"%PDF": "a PDF", b"\x89PNG": "a picture"}
BEGINNINGS |= {b"\xff\xd8\xff": "a picture", b"PAR1": "a Parquet file", b"\x1f\x8b": "compressed"}
BEGINNINGS |= {b"\xd0\xcf\x11\xe0": "an Excel or Word file", b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text"}


def damaged(file: Path, problem: object, remedy: str) -> UserError:
    """The line for a file of weights or of a tokenizer that cannot be read, with what makes it whole."""
    with suppress(OSError), open_regular(file) as opened:  # the problem may be that it cannot be opened
        if opened.read(40).startswith(b"version https://git-lfs"):
            return UserError(f"{file} is a Git LFS pointer, not the file itself: run git lfs pull in its folder")
    return UserError(f"{file} is corrupt or cut short{f' ({problem})' if problem else ''}: {remedy}")


def refusal_of_bytes(file: Path, content: bytes, remedy: str) -> UserError:
    """The line for a file that is not UTF-8 text: what it is, where its beginning says so, and what to give."""
    kind = next((f" but {kind}" for beginning, kind in BEGINNINGS.items() if content.startswith(beginning)), "")
    known = kind and not kind.endswith("text")  # text in another encoding needs no other format
    return UserError(f"{file} is not UTF-8 text{kind}: {remedy if known else 'save it in the encoding UTF-8'}")


def read_text(file: Path, remedy: str) -> str:
    """The whole of a UTF-8 file; one that cannot be read, or is something else, is refused in one line."""
    content = read_bytes(file)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise refusal_of_bytes(file, content, remedy) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_writable(text: str) -> bool:
    """True if a text can be encoded as UTF-8: invalid arguments and input arrive as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON: NaN and infinity raise ValueError.
    Structs are written by json too: msgspec's own encoder writes NaN and infinity as null without a word."""
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=_fields_of)


def _fields_of(value: Any) -> dict[str, Any]:
    """The fields of a typed value (support/typed.py)."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def short_json(value: Any, most: int = 60) -> str:
    """A value as JSON in at most so many characters, for messages."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[: most - 3] + "..."


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def parse_json(text: str) -> Any:
    """Parses untrusted JSON; any problem is a ValueError of one line.

    Also refused: NaN and infinity, numbers of thousands of digits, brackets nested too deeply, and lone surrogates,
    which no file and no tokenizer takes.
    """
    try:
        value = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it holds half a surrogate pair") from None
    except ValueError as problem:
        if "integer string conversion" in str(problem):
            raise ValueError("it holds a number of thousands of digits") from None
        raise
    return value


def read_json(file: Path, remedy: str) -> Any:
    """The content of a JSON file; an unreadable or invalid file is refused in one line."""
    try:
        return parse_json(read_text(file, remedy))
    except ValueError as problem:
        raise UserError(f"{file} is not valid JSON ({problem}): {remedy}") from None


def partial_of(file: Path) -> Path:
    """The temporary path of a file while it is being written."""
    return file.with_name(file.name + ".partial")


def open_own(file: Path, append: bool = False) -> BinaryIO:
    """Opens a file of an output folder for writing or appending; symbolic links are not followed."""
    how = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC) | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.fdopen(os.open(file, how, 0o666), "ab" if append else "wb")
    except OSError as problem:
        if file.is_symlink():
            raise OSError(problem.errno, f"{file.name} is a link, which is not followed") from None
        raise


def refuse_links(folder: Path) -> None:
    """Refuses an output folder that holds links, which could lead outside it."""
    links = [entry for entry in folder.iterdir() if entry.is_symlink()] if folder.is_dir() else []
    if links:
        raise UserError(f"{links[0]} is a link: remove it, or choose another --out")


def replace_file(file: Path, parts: Iterable[str] | bytes) -> None:
    """Writes a file atomically: a killed write leaves the old one."""
    partial = partial_of(file)
    with open_own(partial) as opened:
        opened.writelines([parts] if isinstance(parts, bytes) else (part.encode("utf-8") for part in parts))
        opened.flush()
        os.fsync(opened.fileno())
    partial.replace(file)


def give_usual_mode(file: Path) -> None:
    """Gives a file the permissions of a new file under the umask."""
    mask = os.umask(0)
    os.umask(mask)
    file.chmod(0o666 & ~mask)


def refuse_occupied(out: Path) -> None:
    """Refuses an output folder that is not empty: nothing is overwritten."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty: choose another --out")


def refuse_checkpoint_folder(out: Path) -> None:
    """Refuses the folder of a model as output folder."""
    if any(os.path.exists(out / name) for name in ("config.json", "adapter_config.json")):  # no error if locked
        raise UserError(f"{out} is the folder of a model: choose another --out")


def make_folder(out: Path) -> Path:
    """Makes an output folder before the work begins, so that a bad name costs nothing."""
    refuse_checkpoint_folder(out)
    with writing(f"into {out}", OTHER_FOLDER):
        out.mkdir(parents=True, exist_ok=True)
    return out


def refuse_unwritable_folder(out: Path) -> None:
    """Refuses an output folder that cannot be created, before any work is done; leaves nothing behind."""
    with writing(f"into {out}", "choose another --out"):
        nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists() or folder.is_symlink())
        if nearest == out and not (out.is_dir() and os.access(out, os.W_OK | os.X_OK)):
            raise OSError(errno.EACCES if out.is_dir() else errno.ENOTDIR, "not a folder you may write to")
        if nearest != out:
            os.rmdir(mkdtemp(dir=nearest))


def refuse_unwritable(out: Path | None) -> None:
    """Refuses an output file that exists, or whose folder does not."""
    if out is not None and (out.exists() or out.is_symlink()):
        raise UserError(f"{out} exists already: choose another file, or remove it")
    if out is not None and not out.absolute().parent.is_dir():
        raise UserError(f"there is no folder {out.parent}: make it, or name another --out")
    if out is not None and out.suffix.lower() in (".csv", ".tsv", ".parquet", ".xlsx"):
        raise UserError(f"{out} would hold JSON lines: name a .jsonl file")


def is_plain_name(name: str) -> bool:
    """True if a name read from a file is a plain file name without a path."""
    return name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"} and len(name.encode()) <= 255


@contextmanager
def writing(what: object, remedy: str) -> Iterator[None]:
    """What fails inside for the sake of a file or folder is one line: `cannot write WHAT: reason; REMEDY`."""
    try:
        yield
    except OSError as problem:
        raise UserError(f"cannot write {what}: {problem.strerror}; {remedy}") from None


@contextmanager
def only_user_of(folder: Path) -> Iterator[None]:
    """Locks an output folder against a second process; the lock ends with the process, even if killed."""
    if fcntl is None:
        yield
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError as problem:
        raise UserError(f"cannot read {folder}: {problem.strerror}; choose another --out") from None
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder} is in use by another process: wait until it ends, or choose another --out"
            ) from None
        except OSError:
            pass  # a file system without locks: there two processes are not kept apart
        yield
    finally:
        os.close(opened)
