"""Shared code of the few-shot probes: episodes of the 16 tasks, and prompts built from variants."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from maskwise.probes.examples import labelled, one_context_per_task
from maskwise.probes.probe import Asker, Item, Setup, Unit, Variant, units_of
from maskwise.records.record import Key, make_key
from maskwise.tasks.episodes import Episode, Question, blocked, draw, draw_afresh, example_words, mixed
from maskwise.tasks.prompts import Encoded, Place, Prompt, closed, encode_question, opened


def episodes(setup: Setup, relevant: int, distractors: int, points: int) -> Iterator[Episode]:
    """The episode of each task asked for."""
    settings = setup.settings
    for task in setup.tasks:
        if task.name in settings.tasks:
            yield draw(task, setup.words, relevant, distractors, points, settings.seed, settings.held_out)


def few_shot_units(setup: Setup, variants: Sequence[Variant]) -> Iterator[Unit]:
    """All variants of all probes with the same number of relevant examples together: equal prompts are asked once."""
    for number, some in by_number(setup, variants).items():
        yield from episode_units(setup, some, number, setup.settings.distractors, not one_context_per_task(number))


def by_number(setup: Setup, variants: Sequence[Variant]) -> dict[int, list[Variant]]:
    """The variants by their number of relevant examples, which their conditions name from here on."""
    found: dict[int, list[Variant]] = {}
    for variant in variants:
        number = setup.settings.main_relevant if variant.relevant is None else variant.relevant
        named = replace(variant, relevant=number, condition=labelled(variant.condition, number))
        found.setdefault(number, []).append(named)
    return found


def context_of(setup: Setup, episode: Episode, afresh: bool) -> Callable[[int], Episode]:
    """The episode as a test point sees it: its own examples where they are drawn afresh."""
    if not afresh:
        return lambda point: episode
    return partial(draw_afresh, episode, example_words(setup.words, setup.settings.held_out))


def episode_units(
    setup: Setup, variants: Sequence[Variant], relevant: int, distractors: int, afresh: bool = False
) -> Iterator[Unit]:
    points = setup.settings.points
    for episode in episodes(setup, relevant, distractors, points):
        make = partial(few_shot_items, setup.asker, context_of(setup, episode, afresh), variants)
        yield from units_of(points, len(variants), make)


def few_shot_items(
    asker: Asker,
    context: Callable[[int], Episode],
    variants: Sequence[Variant],
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    """The items of these test points that are not yet done."""
    for point in points:
        episode = context(point)
        test = episode.tests[point]
        encoded: dict[tuple[int | None, int | None, Place], Encoded] = {}
        for variant in variants:
            key = make_key(variant.probe, episode.task.name, point, variant.condition)
            if key in done:
                continue
            order = variant.location, variant.distractors, variant.place
            if order not in encoded:
                examples = _order(episode, variant)
                encoded[order] = encode_question(asker.tokenizer, examples, test, variant.place, asker.chat)
            yield Item(key, variant.condition, _prompt(asker, encoded[order], variant), test.letter)


def _order(episode: Episode, variant: Variant) -> tuple[Question, ...]:
    fewer = episode if variant.distractors is None else episode.with_distractors(variant.distractors)
    return mixed(fewer) if variant.location is None else blocked(fewer, variant.location)


def _prompt(asker: Asker, encoded: Encoded, variant: Variant) -> Prompt:
    ending = opened if variant.open else closed
    filler = asker.filler_id if variant.filler_id is None else variant.filler_id
    return ending(encoded, asker.mask_id, variant.masks, [filler] * variant.fillers)
