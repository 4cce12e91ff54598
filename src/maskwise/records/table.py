"""The answers of a probe as one pandas table, a row each.

Columns: probe, task, point, masks_seen, predicted, answer, correct (0 or 1), confidence, entropy, nll, nll_allowed,
nll_choice, place_in_block, masks_visible (nan where a record has none), one for each entry of the condition and one for
each entry of the evidence. An entry called like one of the others ends in _found.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from maskwise.records.groups import Group, StoredRecords, groups_of
from maskwise.records.record import Record

Table: TypeAlias = Any  # a pandas.DataFrame; pandas takes half a second, so it is imported where a table is made
Tables = Mapping[str, Table]  # by probe

PAPER_RELEVANT = 10  # what conditions of earlier versions do not name
COLUMNS = {"masks": "masks_seen", "offset": "place_in_block", "visible": "masks_visible"}
NUMBERS = ("confidence", "entropy", "nll", "offset", "visible", "nll_allowed", "nll_choice")


def table_of(records: Sequence[Record], names_relevant: bool) -> Table:
    """names_relevant: the probe's conditions have the number of relevant examples."""
    import pandas as pd

    parts = [_part(group, names_relevant) for group in groups_of(records)]
    table = pd.concat(parts, ignore_index=True)
    return table.assign(task=table["task"].astype("category"), probe=parts and records[0].probe)


def _part(group: Group, names_relevant: bool) -> Table:
    import pandas as pd

    stored = group.records if isinstance(group.records, StoredRecords) else None
    found: dict[str, Any] = {}
    if stored is not None:
        found["task"] = np.array(stored.tasks, dtype=object)[stored.task_codes]
        found["point"], found["masks_seen"] = stored.points, stored.masks
        found |= {name: stored.texts[name] for name in ("predicted", "answer")}
        found["correct"] = stored.column("correct")
        evidence: Sequence[Any] = stored.evidence or []
    else:
        records = list(group)
        found["task"] = [record.task for record in records]
        found["point"], found["masks_seen"] = [r.point for r in records], [r.masks for r in records]
        found |= {name: [getattr(record, name) for record in records] for name in ("predicted", "answer")}
        found["correct"] = group.column("correct")
        evidence = [record.evidence for record in records]
    found |= {COLUMNS.get(name, name): group.column(name) for name in NUMBERS}
    known = set(found)
    unnamed = names_relevant and "shots" not in group.condition
    condition = ({"relevant": PAPER_RELEVANT} if unnamed else {}) | group.condition
    for name, value in condition.items():
        column = f"{name}_found" if name in known else name
        found[column] = pd.Series([value] * len(found["point"]))
    known |= condition.keys()
    for name in dict.fromkeys(name for one in evidence for name in one):
        column = f"{name}_found" if name in known else name
        found[column] = pd.Series([one.get(name) for one in evidence])
    return pd.DataFrame(found)
