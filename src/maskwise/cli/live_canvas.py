"""The generation canvas shown in the terminal while it fills in."""

from itertools import groupby

from rich.console import Console
from rich.live import Live
from rich.text import Text

from maskwise.decoding.generate import Snapshot
from maskwise.models.model import Model
from maskwise.support.terminal import safe_text

MASK = "░"
STYLES = {"prompt": "dim", "mask": "bright_black", "new": "bold green", "old": ""}


class LiveCanvas:
    """Shows the first canvas of a decoding; `show` is the callback for `on_step`.

    A terminal cannot redraw lines that have scrolled out of it. Of a canvas taller than the terminal the last lines are
    shown during decoding, and the whole canvas once at the end.
    """

    def __init__(self, model: Model, prompt: list[int], note: str, console: Console) -> None:
        self.model, self.prompt, self.note = model, prompt, note
        self.before = list(prompt)
        self.picture = Text()
        self.live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> "LiveCanvas":
        self.live.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self.live.update(self.picture)
        self.live.__exit__(*problem)  # type: ignore[arg-type]

    def show(self, snapshot: Snapshot) -> None:
        canvas = snapshot.canvases[0]
        left = canvas.count(self.model.mask_id)  # type: ignore[arg-type]
        self.picture = self.paint(canvas)
        self.picture.append(f"\n\n{self.note} · step {snapshot.step + 1} · {left} masks left", style="dim")
        console = self.live.console
        lines = self.picture.wrap(console, console.width)
        self.live.update(Text("\n").join(lines[-(console.height - 1) :]), refresh=True)
        self.before = canvas

    def paint(self, canvas: list[int]) -> Text:
        """The canvas as text; runs of one kind are decoded together, for a token alone need not be whole characters."""
        picture = Text()
        for kind, run in groupby(enumerate(canvas), key=lambda entry: self._kind(*entry)):
            ids = [token for _, token in run]
            words = MASK * len(ids) if kind == "mask" else self.model.tokenizer.decode(ids, skip_special_tokens=True)
            picture.append(safe_text(words), style=STYLES[kind])
        return picture

    def _kind(self, place: int, token: int) -> str:
        if token == self.model.mask_id:
            return "mask"
        if place < len(self.prompt) and self.prompt[place] == token:
            return "prompt"
        return "old" if place < len(self.before) and self.before[place] == token else "new"
