"""What screen.html.jinja shows of the first screens of one model or several."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from maskwise.probes.probe import Figure
from maskwise.records.sample import SampledPrompt
from maskwise.records.table import Table
from maskwise.report import chart
from maskwise.report.own_task_view import own_view
from maskwise.report.screen import OWN_TASK, Row, Screen, end_of, letters_of
from maskwise.scoring.estimates import POINTS, SHARE, Estimate
from maskwise.scoring.verdicts import GAIN, LOSS

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
    shown = [one for one in screens if one.lead]
    axis = axis_of([row.change for one in shown for row in one.rows.values()])
    return {
        "screens": shown,
        "rows": [list(_lines(screens, key, axis)) for key in ("masks", "stops", "distance")],
        "ticks": [(100 * (at - axis[0]) / (axis[1] - axis[0]), chart.minus(f"{100 * at:.0f}")) for at in _ticks(axis)],
        "own": [(one.label, own_view(one.tables)) for one in screens if OWN_TASK in one.tables],
        "together": [_together(one) for one in screens if one.together is not None],
        "advice": [(one.label, [(command, chart.minus(why)) for command, why in one.advice]) for one in shown],
        "figure": _figure(shown),
        "example": next((example_view(one, screens.index(one)) for one in _telling(shown) if one.example), None),
    }


def _telling(shown: Sequence[Screen]) -> list[Screen]:
    """Models whose lead is a loss come first."""
    return sorted(shown, key=lambda one: one.verdicts[one.lead].word != LOSS)


def axis_of(changes: Sequence[Estimate]) -> tuple[float, float]:
    """One axis for all changes, from below the lowest end to above the highest, in tenths."""
    ends = [getattr(one, end) for one in changes for end in ("value", "low", "high", "tasks_low", "tasks_high")]
    ends = [end for end in ends if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    return max(-1.0, min(-0.1, low // 0.1 / 10 - 0.1)), min(1.0, max(0.1, high // 0.1 / 10 + 0.2))


def _ticks(axis: tuple[float, float]) -> list[float]:
    step = next(one for one in (0.05, 0.1, 0.2, 0.5, 1.0) if (axis[1] - axis[0]) / one <= 5)
    return [step * at for at in range(-20, 21) if axis[0] <= step * at <= axis[1] - 0.02]


def _lines(screens: Sequence[Screen], key: str, axis: tuple[float, float]) -> Iterator[dict[str, Any]]:
    for place, screen in enumerate(screens):
        row = screen.rows.get(key)
        if row is not None:
            one, verdict = row.change, screen.verdicts[key]
            plot = interval_plot(row, f"var(--curve-{6 if key == 'stops' else place % 7})", axis)
            yield {
                "key": key,
                "model": place,
                "label": screen.label,
                "at": row.shown,
                "levels": " → ".join(level.text(level.value) for _, level in row.levels) + " %",
                "change": chart.minus(one.text(one.value)),
                "interval": "" if one.low is None else chart.minus(f"{one.text(one.low)} to {one.text(one.high)}"),
                "tasks": ""
                if one.tasks_low is None
                else chart.minus(f"{one.text(one.tasks_low)} to {one.text(one.tasks_high)}"),
                "plot": plot,
                "word": verdict.word or "no verdict",
                "why": verdict.why,
                "is_found": verdict.word in (LOSS, GAIN),
            }


def interval_plot(row: Row, c: str, axis: tuple[float, float]) -> Markup:
    """A dot with two intervals: over questions (thick), over tasks (thin). c: the colour."""
    one = row.change

    def x(value: float | None) -> float:
        return round(240 * (min(max(value or 0.0, axis[0]), axis[1]) - axis[0]) / (axis[1] - axis[0]), 1)

    thin = "" if one.tasks_low is None else f'<path d="M{x(one.tasks_low)} 8H{x(one.tasks_high)}" stroke-width="1.2"/>'
    thick = f'<path d="M{x(one.low)} 8H{x(one.high)}" stroke-width="4" stroke-linecap="round" opacity=".45"/>'
    return Markup(
        f'<svg viewBox="0 0 240 16" role="img" aria-label="{one.text(one.value)}" style="stroke: {c}; fill: {c}">'
        f'<path d="M{x(0)} 0V16" stroke="var(--grid)" stroke-width="1.5"/>{thin}{thick if one.low is not None else ""}'
        f'<circle cx="{x(one.value)}" cy="8" r="4.2" stroke="none"/></svg>'
    )


def _together(screen: Screen) -> dict[str, Any]:
    assert screen.together is not None
    near, far = screen.together
    said = {"near": near.text(near.value), "far": far.text(far.value), "apart": far.name}
    ends = "" if near.low is None else f"{near.text(near.low)} to {near.text(near.high)}"
    return said | {"label": screen.label, "interval": ends, "word": screen.verdicts["together"].word}


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
    return {"wide": wide, "narrow": narrow, "key": "masks" if figure.x == "masks" else "distance"}


def _changes(screen: Screen) -> Table:
    """The change from the baseline at every number of masks, and of full stops."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for series, changes in screen.curves.items():
        rows.append({"series": series, "masks": 2 if series == "masks" else 0, "value": 0.0, "low": 0.0, "high": 0.0})
        for count, one in changes:
            said = screen.stated.get(one.name)
            rows.append({"series": series, "masks": count, "published": said, **_interval(one)})
    return pd.DataFrame(rows)


def _ends(screen: Screen) -> Table:
    import pandas as pd

    levels = screen.rows["distance"].levels
    return pd.DataFrame(
        [
            {"where": f"example {at}", "tasks_low": e.tasks_low, "tasks_high": e.tasks_high, **_interval(e)}
            for at, e in levels
        ]
    )


def _interval(one: Estimate) -> dict[str, Any]:
    return {"value": one.value, "low": one.low, "high": one.high}


def example_view(screen: Screen, model: int) -> dict[str, Any]:
    """One question at both ends: its last lines, and the probability of each letter."""
    first = screen.example[0]
    return {
        "label": screen.label,
        "model": model,
        "task": first.task,
        "asked": "\n".join("".join(first.tokens[: first.row]).rstrip().splitlines()[-2:]),
        "masks": screen.lead == "masks",
        "flips": first.correct != screen.example[1].correct,
        "sides": [{"head": end_of(one), "options": list(_options(one))} for one in screen.example],
        "counts": screen.flips,
    }


def _options(prompt: SampledPrompt) -> Iterator[tuple[str, int, bool, bool]]:
    letters = letters_of(prompt)
    most = max(chance for _, chance in letters)
    for letter, chance in letters:
        yield letter, round(100 * chance), chance == most, letter == prompt.answer
