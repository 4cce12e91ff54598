"""Questions asked several times, as consecutive points: resampling is over questions.

The answers to a question under a condition become one row of means: "correct" is the share of right answers. Intervals
over these rows are for new questions.
"""

import numpy as np

from maskwise.records.groups import ColumnGroup, Group

AVERAGED = ("correct", "nll", "nll_allowed", "nll_choice")


def by_question(group: Group, times: int, in_full: bool = False) -> Group:
    """One row per question, over its answers so far; in_full: only questions that were asked all of these times."""
    if times == 1:
        return group
    tasks, questions, rows = [], [], []
    for task, places in group.rows.items():
        numbers = group.points()[places] // times
        for question in dict.fromkeys(numbers.tolist()):
            own = places[numbers == question]
            if len(own) == times or not in_full:
                tasks.append(task)
                questions.append(question)
                rows.append(own)
    columns = {name: np.array([group.column(name)[own].mean() for own in rows]) for name in AVERAGED}
    return ColumnGroup(group.probe, group.condition, tasks, questions, columns)
