"""A task outside the package: a rule over words, asked among distractors of both number rules."""

from maskwise.tasks.rules import WordRule, tasks_of

FRUIT = WordRule("fruit", ("fruit",), ("object", "animal"))
FRUIT_TASKS = tasks_of(FRUIT)
