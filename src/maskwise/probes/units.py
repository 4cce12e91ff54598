"""What a run consists of: units of points under conditions, and how each is answered."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from maskwise.probes import natural
from maskwise.probes.records import Condition, Key
from maskwise.probes.runner import Answerer, ask
from maskwise.probes.settings import Settings, few_shot_variants
from maskwise.probes.variants import Asker, Item, few_shot_items
from maskwise.tasks.episodes import Episode, draw
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import Words

POINTS_A_UNIT = 100  # what is prepared, sorted by length and asked together


@dataclass(frozen=True)
class Unit:
    """Some points of one task under all its conditions: how many items they are, and how to make those not yet done.

    `answer` is how they are asked; `cost` the memory a token takes then, beside plain asking: batches shrink by it.
    """

    points: Sequence[int]
    conditions: int
    items: Callable[[Sequence[int], set[Key]], Iterator[Item]]
    answer: Answerer = ask
    cost: int = 1


def episodes(settings: Settings, words: Words, relevant: int, distractors: int, points: int) -> Iterator[Episode]:
    """The episode of each task asked for."""
    for task in TASKS:
        if task.name in settings.tasks:
            yield draw(task, words, relevant, distractors, points, settings.seed, settings.held_out)


def few_shot_units(asker: Asker, settings: Settings, words: Words, causal: bool) -> Iterator[Unit]:
    variants = few_shot_variants(settings, causal)
    if not variants:
        return
    for episode in episodes(settings, words, settings.relevant, settings.distractors, settings.points):
        for points in slices(settings.points):
            yield Unit(points, len(variants), partial(few_shot_items, asker, episode, variants))


def read_passages(settings: Settings, text: str, probe: str) -> list[natural.Passage]:
    if probe not in settings.probes:
        return []
    return natural.passages(text, settings.passages, settings.passage_words)


def text_units(asker: Asker, passages: Sequence[natural.Passage], conditions: Sequence[Condition]) -> Iterator[Unit]:
    for points in slices(len(passages)):
        yield Unit(points, len(conditions), partial(natural.text_items, asker, passages, conditions))


def slices(points: int) -> list[range]:
    return [range(first, min(first + POINTS_A_UNIT, points)) for first in range(0, points, POINTS_A_UNIT)]
