"""What the few-shot probes share: episodes of the 16 tasks, and prompts built from variants."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from maskwise.probes.probe import Asker, Item, Setup, Unit, Variant, slices
from maskwise.records.record import Key, make_key
from maskwise.tasks.episodes import Episode, Question, blocked, draw, mixed
from maskwise.tasks.prompts import Encoded, Place, Prompt, closed, encode_question, opened
from maskwise.tasks.rules import TASKS


def episodes(setup: Setup, relevant: int, distractors: int, points: int) -> Iterator[Episode]:
    """The episode of each task asked for."""
    settings = setup.settings
    for task in TASKS:
        if task.name in settings.tasks:
            yield draw(task, setup.words, relevant, distractors, points, settings.seed, settings.held_out)


def few_shot_units(setup: Setup, variants: Sequence[Variant]) -> Iterator[Unit]:
    """All variants of all probes together, so that equal prompts are asked once."""
    settings = setup.settings
    if variants:
        yield from episode_units(setup, variants, settings.relevant, settings.distractors)


def episode_units(setup: Setup, variants: Sequence[Variant], relevant: int, distractors: int) -> Iterator[Unit]:
    points = setup.settings.points
    for episode in episodes(setup, relevant, distractors, points):
        for some in slices(points):
            yield Unit(some, len(variants), partial(few_shot_items, setup.asker, episode, variants))


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
