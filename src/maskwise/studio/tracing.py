"""Trace of a decoding: the canvas after each forward pass, with the probability of each committed token."""

from collections.abc import Mapping
from dataclasses import dataclass

from maskwise.decoding.checks import for_model
from maskwise.decoding.generate import Snapshot, decode
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.prompt_ids import text_ids
from maskwise.decoding.strategies import find_strategy
from maskwise.models.model import Model
from maskwise.studio.sizes import check_text, check_whole
from maskwise.support.errors import UserError

MOST_NEW, MOST_STEPS = 128, 128


@dataclass(frozen=True)
class Cell:
    """One place of the canvas. step: the one that wrote it, from 1; 0 for a mask. confidence: the token's probability
    then. shown: whether the model sees the place yet."""

    text: str
    step: int
    confidence: float | None
    shown: bool


@dataclass(frozen=True)
class Trace:
    """frames[n]: the new tokens' places after n forward passes."""

    text: str
    forwards: int
    frames: tuple[tuple[Cell, ...], ...]


def empty_trace(new: int) -> Trace:
    """The canvas before the first decoding: masks alone."""
    return Trace("", 0, ((Cell("", 0, None, True),) * new,))


def decoding_options(
    new: int, rule: str, parameters: Mapping[str, float], steps: int, block: int, canvas: str, window: int, cache: str
) -> DecodingOptions:
    """Decoding options of one set of controls. Adaptive strategies take no steps; with a block `fixed` is `blocks`."""
    return DecodingOptions(
        max_new_tokens=new,
        rule=rule,
        parameters=parameters or None,
        steps=None if find_strategy(rule).adaptive else steps or None,
        block=block or None,
        canvas=None if canvas == "fixed" else canvas,
        cache=cache,
        window=window if canvas == "window" else None,
    )


def in_words(model: Model, options: DecodingOptions) -> str:
    """Description of the strategy, canvas and cache used with this model."""
    taken = for_model(model, options)
    named = [f"{name}={value:g}" for name, value in taken.all_parameters.items()]
    block = f" of {taken.block}" if taken.chosen_canvas == "blocks" else ""
    cache = [f"cache {taken.cache}"] if taken.cache != "none" else []
    return ", ".join([taken.strategy.name, *named, f"canvas {taken.chosen_canvas}{block}", *cache])


def trace(model: Model, prompt: str, options: DecodingOptions) -> Trace:
    """Decodes one prompt greedily, as the text it is (no chat template), and keeps every step."""
    check_text("prompt", prompt)
    check_whole("new tokens", options.max_new_tokens, 1, MOST_NEW)
    if options.steps is not None:
        check_whole("steps", options.steps, 1, MOST_STEPS)
    if model.causal:
        raise UserError(f"{model.name} is autoregressive and has no unmasking strategy: choose a masked model")
    if model.tokenizer is None:
        raise UserError(f"{model.name or model.kind} has no tokenizer, so it reads no text: choose another model")
    ids = text_ids(model, prompt)
    start, new = len(ids), options.max_new_tokens
    frames: list[tuple[Cell, ...]] = [(Cell("", 0, None, True),) * new]

    def keep(now: Snapshot) -> None:
        canvas, sure, shown = now.canvases[0][start:], now.confidences[0], now.shown[0] - start
        frames.append(
            tuple(
                _cell(model, token, before, now.step + 1, sure.get(start + place), place < shown)
                for place, (token, before) in enumerate(zip(canvas, frames[-1], strict=True))
            )
        )

    (found,) = decode(model, [ids], options, on_step=keep)
    frames[0] = tuple(Cell("", 0, None, cell.shown) for cell in frames[1])
    return Trace(found.text, found.forwards, tuple(frames))


def _cell(model: Model, token: int, before: Cell, step: int, confidence: float | None, shown: bool) -> Cell:
    if token == model.mask_id:
        return Cell("", 0, None, shown)
    if before.step:
        return Cell(before.text, before.step, before.confidence, shown)
    return Cell(model.tokenizer.decode([token]), step, confidence, shown)
