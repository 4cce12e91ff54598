"""Schematics of the probes, drawn when the site is built.

A page holds a schematic as a block of text: the probe's name, then a line per condition with a label and its cells.
Here it becomes rows of coloured cells; the caption is the probe's own line for the help.
"""

import re
from collections.abc import Sequence
from html import escape

BLOCK = re.compile(r"^```text\n([a-z-]+)\n((?:[^\n`]+ {2,}[^\n`]+\n)+)```$", re.MULTILINE)
# What a cell is, and its class in site.css.
CELLS = {
    "R": ("relevant example", "relevant"),
    "d": ("distractor", "distractor"),
    "n": ("example near in space", "relevant"),
    "f": ("example far away", "distractor"),
    "Q": ("question", "question"),
    "w": ("the same, reworded", "question"),
    "p": ("pair of words", "distractor"),
    "K": ("pair of the key", "relevant"),
    "t": ("text", "distractor"),
    "a": ("token of the answer", "answer"),
    "?": ("mask, scored", "scored"),
    "_": ("mask", "mask"),
    "x": ("mask, hidden", "hidden"),
    ".": ("full stop", "filler"),
    "e": ("end token", "filler"),
    "!": ("wrong token", "wrong"),
    "|": ("border of a block", "border"),
}
STEP = ("mask, filled at this step", "scored")
LABEL, CELL, ROW = 112, 24, 28  # widths and height


def conditions(block: str) -> list[tuple[str, list[str]]]:
    """Label and cells of each line."""
    lines = [re.split(r" {2,}", line, maxsplit=1) for line in block.splitlines()]
    return [(label, cells.split()) for label, cells in lines]


def meaning(cell: str) -> tuple[str, str]:
    return STEP if cell.isdigit() else CELLS[cell]


def draw(rows: Sequence[tuple[str, list[str]]]) -> str:
    width, height = LABEL + CELL * max(len(cells) for _, cells in rows), ROW * len(rows)
    parts = [f'<svg viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img">']
    for number, (label, cells) in enumerate(rows):
        y = number * ROW
        parts.append(f'<text x="0" y="{y + 18}">{escape(label)}</text>')
        for place, cell in enumerate(cells):
            x, kind = LABEL + place * CELL, meaning(cell)[1]
            left, across = (x + 9, 3) if kind == "border" else (x, CELL - 3)
            parts.append(f'<rect class="{kind}" x="{left}" y="{y + 2}" width="{across}" height="23" rx="3"/>')
            if kind not in ("border", "mask"):
                parts.append(f'<text class="mid" x="{x + (CELL - 3) / 2:g}" y="{y + 18}">{escape(cell)}</text>')
    return "".join([*parts, "</svg>"])


def figure(name: str, about: str, rows: Sequence[tuple[str, list[str]]]) -> str:
    """One line of HTML, as Markdown needs it."""
    used = dict.fromkeys("1" if cell.isdigit() else cell for _, cells in rows for cell in cells)
    key = " ".join(
        f'<span><i class="{meaning(cell)[1]}">{"" if cell in "_|" else escape(cell)}</i>{meaning(cell)[0]}</span>'
        for cell in used
    )
    caption = f"<figcaption><b>{name}</b>: {escape(about)}<br>{key}</figcaption>"
    return f'<figure class="schematic">{draw(rows)}{caption}</figure>'


def drawn(markdown: str, about: dict[str, str]) -> str:
    """The page with its schematics drawn; `about` has a line for each probe."""

    def replaced(found: re.Match[str]) -> str:
        name, block = found.groups()
        return figure(name, about[name], conditions(block)) if name in about else found[0]

    return BLOCK.sub(replaced, markdown)
