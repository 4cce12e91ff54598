"""`--select-tasks`: questions of their own decide on which tasks the scores of the paper's protocol rest.

Each task is asked with 2 masks (format B) on a seed and contexts that no score uses; the rule is that of
scoring/task_room.py. Scores in shares then rest on the tasks with room for a loss; those in nats, which have no
ceiling, and all curves stay over all tasks. Condition: {"masks": 2}; 0 for autoregressive models.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from maskwise.probes.blocks import visible_counts
from maskwise.probes.examples import labelled
from maskwise.probes.few_shot import context_of, few_shot_items
from maskwise.probes.probe import Setup, Unit, Variant, units_of
from maskwise.scoring.task_room import LEAST_ROOM, MOST_ROOM, Room
from maskwise.support.randomness import seed_of
from maskwise.tasks.episodes import draw

NAME = "select-tasks"  # of its records, as of a probe
SUMMARY = "selected_tasks"  # its entry in the summary
BASELINE_MASKS, MOST_QUESTIONS = 2, 100  # of each task


def units(setup: Setup) -> Iterator[Unit]:
    settings = setup.settings
    masks = 0 if setup.model.causal else visible_counts(setup, NAME, (BASELINE_MASKS,))[0]
    count, seed = min(settings.points, MOST_QUESTIONS), seed_of("room", settings.seed)  # the name of version 0.2
    for number in settings.relevant:
        variants = [Variant(NAME, labelled({"masks": masks}, number), open=True, masks=masks)]
        for task in setup.tasks:
            if task.name in settings.tasks:
                episode = draw(task, setup.words, number, settings.distractors, count, seed, settings.held_out)
                make = partial(few_shot_items, setup.asker, context_of(setup, episode, afresh=True), variants)
                yield from units_of(count, len(variants), make)


def in_sentence(room: Room) -> str:
    """`3 of 16 tasks leave room for a loss (45 to 90 % right); 1 is too hard, 12 are too easy`"""
    left_out: Sequence[tuple[int, str]] = ((len(room.too_hard), "hard"), (len(room.too_easy), "easy"))
    counts = [f"{n} {'is' if n == 1 else 'are'} too {why}" for n, why in left_out if n]
    asked, kept = len(room.accuracy), len(room.tasks)
    have = f"{kept or 'none'} of {asked} task{'s' * (asked != 1)} {'leaves' if kept < 2 else 'leave'} room for a loss"
    bounds = f"{100 * LEAST_ROOM:.0f} to {100 * MOST_ROOM:.0f} % right"
    return f"{have} ({bounds})" + (f"; {', '.join(counts)}" if counts else "")
