"""Terminal display during decoding: the generation canvas as it fills in, or a progress bar of steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby

from rich.console import Console
from rich.live import Live
from rich.text import Text

from maskwise.decoding.generate import Snapshot
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.support.progress import progress_bar
from maskwise.support.terminal import safe_text

MASK = "░"
STYLES = {"prompt": "dim", "mask": "bright_black", "new": "bold green", "old": ""}


class LiveCanvas:
    """Shows the canvases of one prompt after another; `show` is the callback for `on_step`, with batches of one prompt.

    A terminal cannot redraw lines that have scrolled out of it. Of a canvas taller than the terminal the last lines are
    shown during decoding, and the whole canvas once at the end.
    """

    def __init__(self, model: Model, note: str, console: Console) -> None:
        self.model, self.note, self.console = model, note, console
        self.prompt: list[int] = []
        self.before: list[int] = []
        self.picture = Text()
        self.live: Live | None = None

    def __enter__(self) -> "LiveCanvas":
        return self

    def __exit__(self, *problem: object) -> None:
        if self.live is not None:
            self.live.update(self.picture)
            self.live.stop()
            self.live = None

    def _begin(self, prompt: list[int]) -> Live:
        self.__exit__()
        self.prompt, self.before = prompt, list(prompt)
        self.live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
        self.live.start()
        return self.live

    def show(self, snapshot: Snapshot) -> None:
        live = self._begin(snapshot.prompts[0]) if snapshot.step == 0 or self.live is None else self.live
        canvas = snapshot.canvases[0]
        left = canvas.count(self.model.mask_id)  # type: ignore[arg-type]
        self.picture = self.paint(canvas)
        self.picture.append(f"\n\n{self.note} · step {snapshot.step + 1} · {left} masks left", style="dim")
        lines = self.picture.wrap(self.console, self.console.width)
        live.update(Text("\n").join(lines[-(self.console.height - 1) :]), refresh=True)
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


@contextmanager
def decoding_display(
    model: Model, options: DecodingOptions, live: Console | None
) -> Iterator[Callable[[Snapshot], None] | None]:
    """The callback of each step. live: the console on which the canvas of one prompt at a time is shown."""
    if live is not None:
        with LiveCanvas(model, f"{options.strategy.name} · cache {options.cache}", live) as canvas:
            yield canvas.show
        return
    with progress_bar(terminal_only=True) as bar:
        if model.causal:
            bar.add_task("Decoding prompts", total=None)
            yield None
            return
        total = None if options.strategy.adaptive else options.steps or options.max_new_tokens
        task = bar.add_task("Decoding steps", total=total)

        def advance(snapshot: Snapshot) -> None:
            bar.update(task, completed=snapshot.step + 1)

        yield advance
