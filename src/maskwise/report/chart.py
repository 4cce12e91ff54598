"""Every figure of the report: a table with value, low and high becomes lines or points, in one panel or several.

One drawing serves light and dark: on the page its colours are CSS variables. matplotlib is imported inside the
functions, so that reading a summary never waits for it.
"""

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from maskwise.probes.probe import Figure
from maskwise.records.table import Table
from maskwise.scoring.estimates import POINTS, SHARE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Readers with any of the three colour blindnesses can tell them apart; marker and dash repeat the difference.
COLOURS = ("#0072b2", "#c24e00", "#00805d", "#8a2be2", "#5a004b", "#780000", "#6b7280")
MARKERS = "os^DvPX"
DASHES = ("-", (0, (5, 1.6)), (0, (1.4, 1.2)), (0, (5, 1.4, 1.2, 1.4)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)), "-")
INK, SOFT, GRID, PAPER = "#1b1f24", "#59616b", "#d9dde2", "#fffffe"
VARIABLES = {colour: f"--curve-{i}" for i, colour in enumerate(COLOURS)}
VARIABLES |= {INK: "--ink", SOFT: "--soft", GRID: "--grid", PAPER: "--paper"}
WIDE, FULL, NARROW = 6.4, 10.4, 3.5  # inches; the page shows an inch as 100 pixels, so text has one size in all three
CONTROL = "full stops"  # grey
WORDS = {
    "correct": "accuracy",
    "nll": "negative log-likelihood (nats)",
    "nll_allowed": "of it for the format (nats)",
    "nll_choice": "of it for the content (nats)",
    "entropy": "entropy (nats)",
    "nats": "negative log-likelihood of the answer (nats)",
    "length": "tokens before the end token",
    "empty": "empty answers",
    "cut": "cut answers",
}
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "maskwise",
    "text.parse_math": False,  # a model may be called `$x`
    "axes.titlelocation": "left",
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "ytick.major.size": 0,
    "grid.linewidth": 0.6,
    **dict.fromkeys(("font.size", "axes.titlesize"), 9),
    **dict.fromkeys(("text.color", "axes.titlecolor"), INK),
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), SOFT),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), GRID),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
}


@contextmanager
def style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # in the SVG it is text all the same
        yield


@style()
def draw(figure: Figure, table: Table, narrow: bool = False, width: float = WIDE) -> "Canvas":
    """The figure of a table with the columns it names, `value`, `low`, `high` and, of several models, `model`.

    Bands and thick lines: intervals over questions; thin lines: over tasks (tasks_low, tasks_high).
    """
    if (
        figure.kind == "line"
        and figure.series is not None
        and figure.series in table
        and table[figure.x].nunique() == 1
    ):  # no line to draw
        figure = replace(figure, kind="points", x=figure.series, series=None)
    table = named(figure, table)
    panels = [None] if figure.panel is None else list(dict.fromkeys(table[figure.panel]))
    names = list(dict.fromkeys(table["_name"]))
    places = list(dict.fromkeys(table[figure.x])) if figure.kind == "points" else []
    columns = 1 if narrow else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    height = 0.9 + len(places) * (0.14 + 0.14 * len(names)) if places else 2.9
    legend = [*names] if len(names) > 1 else []
    canvas = _canvas_class()(
        figsize=(NARROW if narrow else width if columns == 1 else FULL, height * rows), layout="constrained"
    )
    axes = list(canvas.subplots(rows, columns, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        own = table if panel is None else table[table[figure.panel] == panel]
        for turn, name in enumerate(names):
            line = own[own["_name"] == name]
            if len(line):
                _line(axis, figure, line, places, 0.7 * (turn - (len(names) - 1) / 2) / len(names))
        _axes(axis, figure, own, places, "" if panel is None else text_of(panel, figure.panel))
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    if legend and figure.kind == "line" and columns == 1 and not narrow and len(legend) < 7:
        _names_at_the_ends(axes[0], figure, table)
    elif legend:
        handles = {h.get_label(): h for axis in axes for h in axis.get_lines() if h.get_label() in legend}
        shown = [textwrap.fill(name, 40) for name in handles]
        where: dict[str, Any] = {"loc": "outside upper left", "ncols": 1 if narrow else 3}
        canvas.legend([*handles.values()], shown, frameon=False, labelcolor=INK, **where)
    return canvas


def named(figure: Figure, table: Table) -> Table:
    """With each line's name and look: of several models the colour is the model, the dash the series."""
    columns = [c for c in ("model", figure.series) if c is not None and c in table]
    parts = [table[c].map(lambda one, c=c: text_of(one, c) + f" {c}" * (not isinstance(one, str))) for c in columns]
    looks = [part.map({name: number for number, name in enumerate(dict.fromkeys(part))}) for part in parts]
    if len(parts) == 1:
        looks[0] = looks[0].where(parts[0] != CONTROL, 6)
    none = table.index.map(lambda _: 0)
    names = parts[0] if len(parts) == 1 else parts[0] + ", " + parts[1] if parts else table.index.map(lambda _: "")
    return table.assign(_name=names, _colour=looks[0] if looks else none, _dash=looks[-1] if looks else none)


@cache
def _canvas_class() -> "type[Canvas]":
    """Figures that a notebook shows: pyplot would teach notebooks that, but nothing here imports it."""
    from matplotlib.figure import Figure as Canvas

    class ShownFigure(Canvas):
        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png", dpi=120)
            return out.getvalue()

    return ShownFigure


def _line(axis: "Axes", figure: Figure, rows: Table, places: Sequence[Any], shift: float) -> None:
    """One series of one panel. At named places, one below the other, values run from left to right."""
    number, dash = int(rows["_colour"].iloc[0]) % 7, int(rows["_dash"].iloc[0]) % 7
    ends = {c: _numbers(rows, c) for c in ("value", "low", "high", "tasks_low", "tasks_high")}
    look: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[dash], "label": rows["_name"].iloc[0]}
    look |= {"markersize": 5, "markeredgecolor": PAPER, "markeredgewidth": 0.6, "linewidth": 1.8}
    colour = look["color"]
    if places:
        y = np.array([places.index(one) for one in rows[figure.x]]) + shift
        axis.hlines(y, ends["low"], ends["high"], color=colour, linewidth=7, alpha=0.35)
        axis.hlines(y, ends["tasks_low"], ends["tasks_high"], color=colour, linewidth=1)
        axis.plot(ends["value"], y, linestyle="none", **look)
        return
    order = np.argsort(x := _numbers(rows, figure.x), kind="stable")
    x, ends = x[order], {name: values[order] for name, values in ends.items()}
    if "published" in rows:
        open_diamonds: Any = {"markerfacecolor": "none", "markeredgecolor": INK, "markersize": 8, "zorder": 4}
        axis.plot(x, _numbers(rows, "published")[order], "D", **open_diamonds)
    if figure.kind == "line":
        axis.fill_between(x, ends["low"], ends["high"], color=colour, alpha=0.14, linewidth=0)
        axis.plot(x, ends["value"], linestyle=DASHES[dash], **look)
    else:
        axis.vlines(x, ends["low"], ends["high"], color=colour, linewidth=3, alpha=0.35)
        axis.plot(x, ends["value"], linestyle="none", **look)
    axis.vlines(x, ends["tasks_low"], ends["tasks_high"], color=colour, linewidth=0.8, alpha=0.8)


def _axes(axis: "Axes", figure: Figure, rows: Table, places: Sequence[Any], title: str) -> None:
    unit, value = unit_of(figure, rows), axis.xaxis if places else axis.yaxis
    if title:
        axis.set_title(textwrap.fill(title, 44))
    if unit in (SHARE, POINTS):
        sign = "+" if unit == POINTS else ""
        value.set_major_formatter(
            lambda v, _: (f"{100 * v:{sign if v else ''}.3g}" + " %" * (not sign)).replace("-", "−")
        )
    if unit == SHARE and np.nanmax(_numbers(rows, "value"), initial=0) > 0.5:
        (axis.set_xlim if places else axis.set_ylim)(min(0, np.nanmin(_numbers(rows, "value"))) - 0.02, 1.03)
    elif unit == POINTS:
        (axis.axvline if places else axis.axhline)(0, color=SOFT, linewidth=0.9)
        low, high = axis.get_xlim() if places else axis.get_ylim()
        (axis.set_xlim if places else axis.set_ylim)(min(low, -0.1), max(high, 0.05))  # small changes look small
    if figure.guessing is not None and unit == SHARE and set(rows.get("measure", ())) <= {"correct"}:
        (axis.axvline if places else axis.axhline)(figure.guessing, color=SOFT, linestyle=":", linewidth=1)
        at = (figure.guessing, 1.02, "left") if places else (1.0, figure.guessing + 0.01, "right")
        where = axis.get_xaxis_transform() if places else axis.get_yaxis_transform()
        axis.text(at[0], at[1], "guessing", ha=at[2], fontsize=8, color=SOFT, transform=where)
    if places:
        axis.set_yticks(range(len(places)), [textwrap.fill(text_of(one), 22) for one in places])
        axis.set_ylim(len(places) - 0.5, -0.5)
        axis.set(xlabel=figure.y)
        axis.locator_params(axis="x", nbins=4 if unit in (SHARE, POINTS) else 3)
        return
    if figure.kind == "diagonal":
        axis.axline((0, 0), (1, 1), color=SOFT, linestyle=":", linewidth=1)
    if figure.kind in ("diagonal", "scatter"):
        axis.xaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g} %")
    elif figure.log:
        axis.set_xscale("symlog", linthresh=2, linscale=0.35)
        axis.set_xlim(left=min(_numbers(rows, figure.x)) - 0.4)
    ticks = sorted(set(_numbers(rows, figure.x).tolist()))
    if figure.log:  # labels that would touch: the larger counts stay
        ticks = [at for at, more in zip(ticks, [*ticks[1:], np.inf], strict=True) if at < 1 or more / at > 1.3]
    if figure.kind == "line" and len(ticks) < 10:
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
    axis.set(xlabel=figure.label, ylabel=figure.y)


def _names_at_the_ends(axis: "Axes", figure: Figure, table: Table) -> None:
    """The name of each line beside its last value, at least a line's height apart."""
    last = table.sort_values(figure.x, kind="stable").groupby("_name", sort=False).tail(1).sort_values("value")
    low, high = axis.get_ylim()
    line, end = 0.07 * (high - low), -np.inf
    for name, colour, value in zip(last["_name"], last["_colour"], last["value"], strict=True):
        text = textwrap.fill(name, 24)
        half = line * (1 + text.count("\n")) / 2
        middle = max(float(value), end + half)
        end = middle + half
        axis.annotate(
            text,
            (1.01, middle),
            xycoords=axis.get_yaxis_transform(),
            va="center",
            color=COLOURS[int(colour) % 7],
            annotation_clip=False,
        )


def unit_of(figure: Figure, table: Table) -> str:
    units = set(table["unit"]) if "unit" in table else {figure.unit}
    return units.pop() if len(units) == 1 else ""


def minus(text: str) -> str:
    """The text with minus signs before its numbers."""
    return re.sub(r"(?<![\w-])-(?=[.\d])", "−", text)


def text_of(value: Any, column: str | None = None) -> str:
    """A name or a number of a column on one line, without control characters; measures in words."""
    value = WORDS.get(value, value) if column == "measure" else value
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())


def _numbers(rows: Table, column: str) -> np.ndarray:
    """As floats: nan where there is none."""
    if column not in rows:
        return np.full(len(rows), np.nan)
    return np.array([np.nan if one is None else float(one) for one in rows[column]])


# As files and on the page


def svg(canvas: "Canvas") -> str:
    out = io.StringIO()
    with style():
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)


def inline(drawn: str, prefix: str, label: str) -> Markup:
    """An SVG as part of the page: CSS variables for colours, ids made unique, `label` for screen readers."""
    text = drawn[drawn.index("<svg") :]
    for found, new in (
        (r'\bid="', f'id="{prefix}-'),
        (r'href="#', f'href="#{prefix}-'),
        (r"url\(#", f"url(#{prefix}-"),
    ):
        text = re.sub(found, new, text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    view = re.search(r'viewBox="0 0 ([\d.]+)[^"]*"', text)
    assert view is not None
    size = f'{view[0]} style="max-width: {float(view[1]) / 0.72:.0f}px"'  # an inch is 72 units
    return Markup(f'<svg role="img" aria-label="{escape(label)}" {size}>' + text[text.index(">") + 1 :])


def files(canvas: "Canvas") -> dict[str, bytes]:
    """{"svg": ..., "png": ...}"""
    drawn = svg(canvas).encode()
    png = io.BytesIO()
    canvas.set_layout_engine("none")  # what was laid out for the SVG stays where it is
    with style():
        canvas.savefig(png, format="png", dpi=160)
    return {"svg": drawn, "png": png.getvalue()}
