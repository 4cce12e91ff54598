"""What reaches a terminal. Names, keys, tokens and generated text come from strangers: control characters are shown
as escapes, for a terminal would obey them."""

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# C0 and C1 controls and DEL, marks that turn the direction of writing, line and paragraph separators, and halves of
# surrogate pairs, which cannot be written at all. Line breaks and tabs are kept in texts.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    return _NAMED.get(letter) or (f"\\x{ord(letter):02x}" if letter < "\x80" else f"\\u{ord(letter):04x}")


def safe_text(text: str) -> str:
    """A text of any number of lines with control characters escaped."""
    return _OBEYED.sub(_escape, text)


def one_line(text: object) -> str:
    """A name on one line: its line breaks and tabs are escaped too."""
    return re.sub("[\n\t]", _escape, safe_text(str(text)))


def safe_json(written: str) -> str:
    """JSON text with the same characters escaped in JSON's own way: the value stays the same."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """1 pass, 2 passes: a number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


class SafeConsole(Console):
    """rich's console, which writes the control characters in a text as they are, with them escaped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(safe_text(segment.text), segment.style)


def open_console(stderr: bool = False) -> SafeConsole:
    """A console that writes text, also in notebooks, where rich would need ipywidgets."""
    return SafeConsole(stderr=stderr, highlight=False, force_jupyter=False)
