"""`--select-tasks`: questions of their own decide on which tasks the numbers of the paper's protocol rest.

A task can show a loss only where 45 to 90 % of the answers are right with the fewest masks. Selecting by the answers
that are scored would bias the loss (regression to the mean), so each task is asked with 2 masks (format B; none of
autoregressive models) on a seed and contexts that no number uses. Shares, changes and ratios then rest on the tasks
with room for a loss; nats, which have no ceiling, and all curves stay over all tasks.
"""

from collections.abc import Iterator
from dataclasses import replace

from maskwise.probes.blocks import visible_counts
from maskwise.probes.questions import Questions, few_shot, with_masks
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import of_relevant, relevant_numbers
from maskwise.support.randomness import seed_of

NAME = "select-tasks"  # of its records, as of a probe
BASELINE_MASKS, MOST_QUESTIONS = 2, 100  # of each task
LEAST_ROOM, MOST_ROOM = 0.45, 0.90


def ask(setup: Setup) -> Iterator[Questions]:
    settings = setup.settings
    masks = 0 if setup.model.causal else visible_counts(setup, NAME, (BASELINE_MASKS,))[0]
    seed = seed_of("room", settings.seed)  # the name of version 0.2
    other = replace(settings, questions=min(settings.questions, MOST_QUESTIONS), seed=seed)
    for source in few_shot(replace(setup, settings=other), afresh=True):
        yield source.under([{"masks": masks}], with_masks)


def with_room(tables: Tables) -> Tables:
    """The tables, of few-shot questions with the answers of tasks with room alone; all where nothing was selected.

    Of several numbers of relevant examples the main one decides, which the first screen shows."""
    if NAME not in tables:
        return tables
    asked = tables[NAME]
    tasks = tasks_with_room(of_relevant(asked, relevant_numbers(asked)[0], is_main=True))
    return {name: table[table.task.isin(tasks)] if "relevant" in table else table for name, table in tables.items()}


def tasks_with_room(table: Table) -> list[str]:
    """Of these separate questions' answers: the tasks that can show a loss."""
    right = table[table.masks_seen == table.masks_seen.min()].groupby("task", observed=True).correct.mean()
    return [str(task) for task in right[right.between(LEAST_ROOM, MOST_ROOM)].index]
