"""The few-shot probes as data: each is a list of variants, the ways in which it puts the same test question."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from maskwise.probes.records import Condition, Key, make_key
from maskwise.tasks.episodes import Episode, Question, blocked, mixed
from maskwise.tasks.prompts import Encoded, Place, Prompt, closed, encode_question, opened


@dataclass(frozen=True)
class Variant:
    """One way to put a question. `condition` is what the record says of it; the rest is how the prompt is built.

    location None mixes relevant examples and distractors at random; `open` is format B (the prompt ends in masks), else
    format A (the answer alone is masked). A float in `masks` is a share of the length. distractors None means all.
    """

    probe: str
    condition: Condition = field(hash=False)
    location: int | None = None
    place: Place = "right"
    distractors: int | None = None
    open: bool = False
    masks: int | float = 1
    fillers: int = 0


@dataclass(frozen=True)
class Asker:
    """What turns text into ids for one model. `mask_id` None is an autoregressive model."""

    tokenizer: Any
    mask_id: int | None
    filler_id: int
    chat: bool = False


@dataclass(frozen=True)
class Item:
    """One test point under one condition: what is given to the model, and the answer that counts."""

    key: Key
    condition: Condition = field(hash=False)
    prompt: Prompt
    answer: str


def few_shot_items(
    asker: Asker, episode: Episode, variants: Sequence[Variant], points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    """The items of these test points that are not yet done."""
    orders = {(v.location, v.distractors): _order(episode, v) for v in variants}
    for point in points:
        test = episode.tests[point]
        encoded: dict[tuple[int | None, int | None, Place], Encoded] = {}
        for variant in variants:
            key = make_key(variant.probe, episode.task.name, point, variant.condition)
            if key in done:
                continue
            order = (variant.location, variant.distractors)
            if (*order, variant.place) not in encoded:
                encoded[*order, variant.place] = encode_question(
                    asker.tokenizer, orders[order], test, variant.place, asker.chat
                )
            yield Item(key, variant.condition, _prompt(asker, encoded[*order, variant.place], variant), test.letter)


def _order(episode: Episode, variant: Variant) -> tuple[Question, ...]:
    fewer = episode if variant.distractors is None else episode.with_distractors(variant.distractors)
    return mixed(fewer) if variant.location is None else blocked(fewer, variant.location)


def _prompt(asker: Asker, encoded: Encoded, variant: Variant) -> Prompt:
    ending = opened if variant.open else closed
    return ending(encoded, asker.mask_id, variant.masks, [asker.filler_id] * variant.fillers)
