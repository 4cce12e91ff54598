"""Which tasks leave room for a loss, judged on questions that no score uses.

A task can show a loss only where 45 to 90 % of the answers are right with the fewest masks. Selecting by the answers
that are scored would bias the score (regression to the mean), so the selection has questions and contexts of its own.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, structs

from maskwise.records.record import Record
from maskwise.scoring.intervals import by_task
from maskwise.scoring.scores import Score, null_score
from maskwise.support.typed import Typed

LEAST_ROOM, MOST_ROOM = 0.45, 0.90
Fitness = Literal["room", "too hard", "too easy"]


def verdict_of(accuracy: float) -> Fitness:
    """Whether a task with this accuracy, at the fewest masks, can show a loss."""
    if accuracy < LEAST_ROOM:
        return "too hard"
    return "too easy" if accuracy > MOST_ROOM else "room"


class Room(Typed, frozen=True, kw_only=True):
    """The tasks that leave room for a loss, and those that do not."""

    accuracy: Annotated[dict[str, float], Meta(description="of each task with the fewest masks, selection questions")]
    questions: Annotated[int, Meta(description="selection questions, over all tasks")]
    tasks: Annotated[list[str], Meta(description="45 to 90 % right: scores rest on these")]
    too_hard: Annotated[list[str], Meta(description="below 45 %: left out")]
    too_easy: Annotated[list[str], Meta(description="above 90 %: left out")]

    @property
    def left_out(self) -> dict[str, Fitness]:
        return {task: verdict for task, found in self.accuracy.items() if (verdict := verdict_of(found)) != "room"}


def room_of(selection: Sequence[Record]) -> Room:
    """From the records of selection questions with the fewest masks."""
    fewest = min((record.masks for record in selection), default=0)
    right = by_task((record.task, record.correct) for record in selection if record.masks == fewest)
    accuracy = {task: float(found.mean()) for task, found in sorted(right.items())}
    by_verdict: dict[Fitness, list[str]] = defaultdict(list)
    for task, found in accuracy.items():
        by_verdict[verdict_of(found)].append(task)
    return Room(
        accuracy=accuracy,
        questions=sum(map(len, right.values())),
        tasks=by_verdict["room"],
        too_hard=by_verdict["too hard"],
        too_easy=by_verdict["too easy"],
    )


def with_room(records: Sequence[Record], room: Room) -> list[Record]:
    return [record for record in records if record.task in room.tasks]


def resting_on(score: Score, room: Room) -> Score:
    """The score of the tasks with room, which says so; null where there are none."""
    found = score if room.tasks else null_score(no_room(room))
    return structs.replace(found, tasks=room.tasks, left_out=dict(room.left_out))


def no_room(room: Room) -> str:
    """`no task leaves room for a loss (11 below 45 % right, 1 above 90 % right)`"""
    ends = (room.too_hard, "below", LEAST_ROOM), (room.too_easy, "above", MOST_ROOM)
    counted = [f"{len(tasks)} {side} {100 * end:.0f} % right" for tasks, side, end in ends if tasks]
    return f"no task leaves room for a loss ({', '.join(counted) or 'none was asked'})"
