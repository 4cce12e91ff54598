"""Damaged files: bytes flipped, cut or inserted, JSON with values of other types, a folder in a file's place."""

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

# What has broken readers before: in place of a value of JSON, and as raw text at any place.
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, 10**9, 10**15, 10**30, -0.5, 1.5, 1e308, "", " ", "x", "\x00",
    "\x1b[2J", "../../x", "/etc/passwd", "\u202e", "\ud800", "a" * 5000, [], {}, [[]], [None], {"": None}, [1, "2"],
    {"a": {"b": []}}, ["x"] * 50, "{% for i in range(10**9) %}{% endfor %}", "{{ 10**10**8 }}",
    "{{ '%9999999999d' % 1 }}", "{{ 'x' * 10**10 }}", "{{ ('x' | center(10**10)) }}", "{{ range(10**9) | list }}",
    "(x+x+)+y", "(a|a)*b", "a" * 1_000_000, "<|mask|>", "`x` | y", "{{ strftime_now('%f') }}",
    "float8", "int64", "nan",
]  # fmt: skip
TEXTS = [
    b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"\xed\xa0\x80",
    b"\x00", b"\n\n", b'"', b",", b"}", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\r", b"null", b"{}", b"[]",
    b"\x1b]0;x\x07", b"1" * 400,
]  # fmt: skip
# Counts, lengths and offsets of a binary header.
COUNTS = [struct.pack(form, number) for form in ("<I", "<Q") for number in (0, 1, 255, 2**16, 2**31, 2**32 - 1)]
COUNTS += [struct.pack("<Q", number) for number in (2**32, 2**40, 2**61, 2**63, 2**64 - 1)]
HEAD = 4000  # bytes in which half of the changes to a larger file lie
LONGEST = 400_000  # bytes of a file that is parsed as JSON to be changed; larger ones are changed as bytes


def damage(folder: Path, name: str, draw: random.Random) -> str:
    """Damages one file of a folder and says how."""
    file = folder / name
    kinds = ("json", "bytes", "remove", "folder", "empty", "loop", "fifo", "device", "outside")
    kind = draw.choices(kinds, (60, 31, 2, 2, 1, 1, 1, 1, 1))[0]
    if kind == "json" and file.stat().st_size < LONGEST:
        changed = _other_json(file.read_bytes(), draw)
        if changed is not None:
            file.write_bytes(changed)
            return "json"
    if kind in ("json", "bytes"):
        file.write_bytes(_other_bytes(file.read_bytes(), draw))
        return "bytes"
    content = file.read_bytes()
    file.unlink()
    if kind == "outside":  # a sound file, by a link that leaves the folder
        outside = folder.parent / f"{folder.name}.outside"
        outside.write_bytes(content)
        file.symlink_to(outside)
    elif kind == "folder":
        file.mkdir()
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    return kind


def wild_text(draw: random.Random) -> str:
    """A text as no person writes it, among them texts that no tokenizer and no file takes."""
    alphabets = ["ab ", "\x00\x1b\x7f\x9b", "\ud800\udfff", "\U0010ffff\u202e", "<|mask|><|end|>", "\n\r\t", "{}%$[]\\"]
    return "".join(draw.choice(draw.choice(alphabets)) for _ in range(draw.choice((0, 1, 5, 60))))


def _other_bytes(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange((len(data) if draw.random() < 0.5 else min(HEAD, len(data))) + 1)
        change = draw.randrange(6)
        if change == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif change == 1:
            del data[place:]
        elif change == 2:
            data[place:place] = draw.choice(TEXTS)
        elif change == 3:
            data[place : place + draw.randrange(20)] = draw.randbytes(draw.randrange(8))
        elif change == 4:
            count = draw.choice(COUNTS)
            data[place : place + len(count)] = count
        else:
            first, last = sorted(draw.randrange(len(data) + 1) for _ in range(2))
            data[place:place] = data[first : min(last, first + 200)]
    return bytes(data)


def _other_json(content: bytes, draw: random.Random) -> bytes | None:
    """One value of a JSON file, or of one line of a JSON lines file, changed; None where it is neither."""
    try:
        lines = content.decode().split("\n")
        whole = _parsed(content.decode())
        if whole is not None:
            return _written(_changed(whole, draw))
        number = draw.randrange(len(lines))
        value = _parsed(lines[number])
    except UnicodeDecodeError:
        return None
    if value is None:
        return None
    lines[number] = _written(_changed(value, draw)).decode(errors="replace")
    return "\n".join(lines).encode(errors="replace")


def _parsed(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, (dict, list)) and found else None


def _written(value: Any) -> bytes:
    return json.dumps(value).encode()  # halves of surrogate pairs as escapes


def _changed(value: Any, draw: random.Random) -> Any:
    """The same value with one entry, at any depth, changed, removed, renamed or doubled."""
    if not isinstance(value, (dict, list)) or not value or draw.random() < 0.1:
        return draw.choice(VALUES)
    places = list(value) if isinstance(value, dict) else range(len(value))
    place = draw.choice(places)
    inner, action = value[place], draw.random()
    if isinstance(inner, (dict, list)) and inner and action < 0.6:
        value[place] = _changed(inner, draw)
    elif action < 0.8:
        value[place] = draw.choice(VALUES)
    elif action < 0.9:
        del value[place]
    elif isinstance(value, dict):
        value[str(draw.choice(VALUES))] = inner
    else:
        value.append(inner)
    return value
