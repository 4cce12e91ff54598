"""Trace of a decoding: the canvas after each forward pass, with the probability of each committed token."""

from dataclasses import dataclass, replace

from maskwise.decoding.generate import Snapshot, decode
from maskwise.decoding.known_names import listed_options
from maskwise.decoding.prompt_ids import text_ids
from maskwise.models.model import Model
from maskwise.studio.probing import check_number, check_text
from maskwise.support.errors import UserError

MOST_NEW = 128


@dataclass(frozen=True)
class Cell:
    """A place of the canvas. step: that wrote it, from 1; 0 for a mask. shown: whether the model sees the place yet."""

    text: str = ""
    step: int = 0
    confidence: float | None = None
    shown: bool = True


@dataclass(frozen=True)
class Trace:
    """title: the model and its settings. frames[n]: the new tokens' places after n forward passes."""

    title: str
    prompt: str
    forwards: int
    frames: tuple[tuple[Cell, ...], ...]


def trace(model: Model, title: str, prompt: str, settings: str, new: int) -> Trace:
    """Decodes a prompt as it is (no chat template). settings: options of `generate`, such as steps=16,block=8."""
    check_text("prompt", prompt)
    check_text("settings", settings)
    check_number("new tokens", new, MOST_NEW)
    listed = listed_options(settings, new)
    if len(listed) != 1 or listed[0].max_new_tokens > MOST_NEW or (listed[0].steps or 0) > MOST_NEW:
        raise UserError(f"{settings!r}: write options of generate separated by commas, of at most {MOST_NEW} steps")
    if model.causal:
        raise UserError(f"{model.name} is autoregressive and has no unmasking strategy: choose another model")
    ids = text_ids(model, prompt)
    frames: list[tuple[Cell, ...]] = [(Cell(),) * listed[0].max_new_tokens]

    def keep(now: Snapshot) -> None:
        cells = []
        for place, (token, old) in enumerate(zip(now.canvases[0][len(ids) :], frames[-1], strict=True), len(ids)):
            written = Cell(model.tokenizer.decode([token]), now.step + 1, now.confidences[0].get(place))
            cell = Cell() if token == model.mask_id else old if old.step else written
            cells.append(replace(cell, shown=place < now.shown[0]))
        frames.append(tuple(cells))

    (found,) = decode(model, [ids], listed[0], on_step=keep)
    frames[0] = tuple(Cell(shown=cell.shown) for cell in frames[1])
    return Trace(f"{title}, {settings}", prompt, found.forwards, tuple(frames))
