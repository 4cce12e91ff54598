"""The second table of the first screen: a user's own questions in one pass and decoded, for terminal and page."""

from typing import Any

from maskwise.probes.library.own_task import DECODED, NAME, ONE_PASS, own_table
from maskwise.records.table import Tables
from maskwise.scoring.estimates import POINTS, SHARE, in_unit
from maskwise.tasks.checkable import EMBEDDED

ASKED = {ONE_PASS: "first token, {} more masks", DECODED: "decoded, canvas of {}"}
SAID = {"nats": "{} nats", "length": "{} tokens", "empty": "{} % empty", "cut": "{} % cut"}


def own_view(tables: Tables) -> dict[str, Any]:
    """title; rows: asked, right, change, and what else is said of the answers. Empty where own-task was not asked."""
    import pandas as pd

    if NAME not in tables:
        return {}
    questions = tables[NAME][["task", "point"]].drop_duplicates()
    sets = ", ".join(questions.task.unique())
    title = "On few-shot questions" if sets == EMBEDDED else f"On your task ({sets})"
    rows: dict[tuple[bool, int], dict[str, str]] = {}
    for one in own_table(tables[NAME]).to_dict("records"):
        how, masks, measure, value = (one[name] for name in ("how", "masks", "measure", "value"))
        row = rows.setdefault((how == DECODED, masks), {"asked": ASKED[how].format(masks or "no"), "said": ""})
        if measure in SAID:
            row["said"] += f"{', ' if row['said'] else ''}{SAID[measure].format(in_unit(value, one['unit']))}"
            continue
        ends = [one.get(end) for end in ("change", "change_low", "change_high")]
        row["right"] = f"{in_unit(value, SHARE)} %"
        row["change"] = "{} ({} to {})".format(*(in_unit(e, POINTS) for e in ends)) if all(map(pd.notna, ends)) else ""
    return {"title": f"{title}, {len(questions):,} questions", "rows": [rows[key] for key in sorted(rows)]}


def own_lines(tables: Tables) -> list[str]:
    """The table for a terminal."""
    view = own_view(tables)
    if not view:
        return []
    lines = [f"{view['title']:<40}change (95 %)"]
    for row in view["rows"]:
        lines.append(f"{row['asked']:<28}{row['right']:>8}    {row['change']:<24}{row['said']}".rstrip())
    return lines
