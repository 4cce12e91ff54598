"""Data sets of the task files: the questions of one task, drawn as the probes draw them."""

from typing import Any

from datasets import Dataset

from maskwise.support.errors import UserError
from maskwise.tasks.episodes import Question, draw, mixed
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words


def load(task: str, points: int = 1000, seed: int = 0, **others: Any) -> dict[str, Dataset]:
    """The examples of a task, mixed, and its test questions.
    lm-eval passes its --metadata here (points, seed) and, among it, the model's own arguments, which are not ours."""
    found = next((known for known in TASKS if known.name == task), None)
    if found is None:
        raise UserError(f"no task {task!r}: choose one of {', '.join(known.name for known in TASKS)}")
    episode = draw(found, load_words(), points=int(points), seed=int(seed))
    return {"examples": _documents(mixed(episode)), "test": _documents(episode.tests)}


def _documents(questions: tuple[Question, ...]) -> Dataset:
    return Dataset.from_list(
        [{"asked": question.asked, "answered": question.answered, "letter": question.letter} for question in questions]
    )
