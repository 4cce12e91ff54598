"""Damaged files: bytes flipped, cut or inserted, JSON with values of other types, a folder in a file's place."""

import json
import os
import random
from pathlib import Path
from typing import Any

# What has broken readers before: in place of a value of JSON, and as raw text at any place.
VALUES: list[Any] = [
    None, True, 0, -1, 2**31, 2**63, 10**30, -0.5, 1e308, "", "x", "\x00", "\x1b[2J", "../../x", "/etc/passwd",
    "\ud800", "a" * 5000, [], {}, [[]], [None], {"": None}, [1, "2"], {"a": {"b": []}}, ["x"] * 50, "(x+x+)+y",
    "{% for i in range(10**9) %}{% endfor %}", "{{ 'x' * 10**10 }}", "{{ '%9999999999d' % 1 }}", "<|mask|>", "float8",
]  # fmt: skip
TEXTS = [
    b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"\x00", b"\n\n",
    b'"', b"}", b"\\ud800", b"\xef\xbb\xbf", b"\r", b"null", b"{}", (2**61).to_bytes(8, "little"),
]  # fmt: skip
KINDS = ("missing", "folder", "empty", "loop", "fifo", "device")
HEAD = 4000  # bytes in which half of the changes to a larger file lie


def damage(file: Path, kind: str, draw: random.Random) -> None:
    """Damages one file in one of the ways of KINDS, or, for another word, changes its bytes or a value of its JSON."""
    content = file.read_bytes()
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "empty":
        file.touch()
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind != "missing":
        changed = _other_json(content, draw) if draw.random() < 0.6 and len(content) < 400_000 else None
        file.write_bytes(_other_bytes(content, draw) if changed is None else changed)


def _other_bytes(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange((len(data) if draw.random() < 0.5 else min(HEAD, len(data))) + 1)
        change = draw.randrange(4)
        if change == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif change == 1:
            del data[place:]
        elif change == 2:
            data[place:place] = draw.choice(TEXTS)
        else:
            data[place : place + draw.randrange(20)] = draw.randbytes(draw.randrange(8))
    return bytes(data)


def _other_json(content: bytes, draw: random.Random) -> bytes | None:
    """One value of a JSON file, or of one line of a JSON lines file, changed; None where it is neither."""
    lines = content.split(b"\n") if _parsed(content) is None else [content]
    number = draw.randrange(len(lines))
    if (value := _parsed(lines[number])) is None:
        return None
    lines[number] = json.dumps(_changed(value, draw)).encode()  # halves of surrogate pairs as escapes
    return b"\n".join(lines)


def _parsed(text: bytes) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict | list) and found else None


def _changed(value: Any, draw: random.Random) -> Any:
    """The same value with one entry, at any depth, changed, removed or renamed."""
    if not isinstance(value, dict | list) or not value or draw.random() < 0.1:
        return draw.choice(VALUES)
    place = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
    inner, action = value[place], draw.random()
    if isinstance(inner, dict | list) and inner and action < 0.6:
        value[place] = _changed(inner, draw)
    elif action < 0.8:
        value[place] = draw.choice(VALUES)
    elif action < 0.9 or isinstance(value, list):
        del value[place]
    else:
        value[str(draw.choice(VALUES))] = inner
    return value
