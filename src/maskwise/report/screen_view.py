"""What screen.html.jinja shows of the first screens of one model or several."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from maskwise.probes.probe import Figure
from maskwise.records.table import Table
from maskwise.report import chart
from maskwise.report.own_task_view import own_view
from maskwise.report.screen import OWN_TASK, PROBE_OF, Screen, end_of, letters_of
from maskwise.scoring.estimates import POINTS, SHARE, Estimate
from maskwise.scoring.verdicts import LOSS

MASKS_DRAWN = Figure(
    lambda table, others: table,
    "masks",
    "Masks after the question",
    "Change of accuracy (points)",
    series="series",
    unit=POINTS,
    log=True,
)
ENDS_DRAWN = Figure(lambda table, others: table, "where", "", "Accuracy", unit=SHARE, guessing=1 / 3, kind="points")


def screen_view(screens: Sequence[Screen]) -> dict[str, Any]:
    """place: each model's number, for its colour. x: the place of a change on the axis of all of them, in percent."""
    shown = [one for one in screens if one.lead]
    low, high = axis_of([row.change for one in shown for row in one.rows.values()])

    def x(value: float) -> float:
        return round(100 * (min(max(value, low), high) - low) / (high - low), 1)

    by_loss = sorted(shown, key=lambda one: one.verdicts[one.lead].word != LOSS)
    return {
        "all": screens,
        "screens": shown,
        "place": {one.label: number % 7 for number, one in enumerate(screens)},
        "x": x,
        "end_of": end_of,
        "letters_of": letters_of,
        "ticks": [(x(at), chart.minus(f"{100 * at:.0f}")) for at in _ticks((low, high))],
        "own": [(one.label, own_view(one.tables)) for one in screens if OWN_TASK in one.tables],
        "figure": _figure(shown),
        "example": next((one for one in by_loss if one.example), None),
    }


def axis_of(changes: Sequence[Estimate]) -> tuple[float, float]:
    """One axis for all changes, from below the lowest end to above the highest, in tenths."""
    ends = [getattr(one, end) for one in changes for end in ("value", "low", "high", "tasks_low", "tasks_high")]
    ends = [end for end in ends if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    return max(-1.0, min(-0.1, low // 0.1 / 10 - 0.1)), min(1.0, max(0.1, high // 0.1 / 10 + 0.2))


def _ticks(axis: tuple[float, float]) -> list[float]:
    step = next(one for one in (0.05, 0.1, 0.2, 0.5, 1.0) if (axis[1] - axis[0]) / one <= 5)
    return [step * at for at in range(-20, 21) if axis[0] <= step * at <= axis[1] - 0.02]


def lead_figure(screens: Sequence[Screen]) -> tuple[Figure, Table] | None:
    """Of models with masks the change of accuracy with their number; of others the two ends of the distance."""
    import pandas as pd

    with_masks = [one for one in screens if one.lead == "masks"]
    figure, own = (MASKS_DRAWN, with_masks) if with_masks else (ENDS_DRAWN, [one for one in screens if one.lead])
    tables = [_changes(one) if with_masks else _ends(one) for one in own]
    if not tables:
        return None
    if len(screens) > 1:
        tables = [table[table.series == "masks"] if with_masks else table for table in tables]
        tables = [table.assign(model=one.label) for table, one in zip(tables, own, strict=True)]
        figure = replace(figure, series=None)
    return figure, pd.concat(tables, ignore_index=True)


def _figure(screens: Sequence[Screen]) -> dict[str, Any] | None:
    drawn = lead_figure(screens)
    if drawn is None:
        return None
    figure, table = drawn
    wide, narrow = (
        chart.inline(chart.svg(chart.draw(figure, table, n, width=5.2)), f"lead{'wn'[n]}", "The first row, drawn")
        for n in (False, True)
    )
    has_published = "published" in table and table.published.notna().any()
    return {"wide": wide, "narrow": narrow, "key": figure.x, "has_published": has_published}


def _changes(screen: Screen) -> Table:
    """The change from the baseline at every number of masks, and of full stops."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for key, series in (("masks", "masks"), ("stops", "full stops")):
        if key in screen.rows:
            row = screen.rows[key]
            for count in (count for count in row.right if count >= row.shown[0]):
                one = row.between(row.shown[0], count)
                ends = [0.0] * 3 if count == row.shown[0] else [one.value, one.low, one.high]
                said = screen.stated.get((PROBE_OF[key], one.name))
                rows.append({"series": series, "masks": count, "published": said and said.published})
                rows[-1] |= zip(("value", "low", "high"), ends, strict=True)
    return pd.DataFrame(rows)


def _ends(screen: Screen) -> Table:
    import pandas as pd

    return pd.DataFrame([{"where": f"example {at}"} | one.row for at, one in screen.rows["distance"].levels])
