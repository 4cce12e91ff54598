"""Figures of curves: panels in, SVG and PNG out. What a panel shows is decided in sections.py.

matplotlib is imported inside the functions, so that reading a summary never waits for it.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maskwise.report.figures.drawing import (
    CURVES,
    DASHES,
    FULL,
    INK,
    MARKERS,
    NARROW,
    PAPER,
    POINTS_PER_INCH,
    SOFT,
    WIDE,
    drawing_style,
    figure_class,
    figure_files,
    pretty,
    svg_of,
)
from maskwise.tasks.episodes import CHANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
AXIS_INCHES = 0.85  # inches of a panel that the numbers and the name of its y axis take
LETTERS_PER_INCH = 14  # of a label; a browser's letters may be wider than matplotlib's
CALIBRATED = "calibrated"
RIM = 3.8  # points by which a covered curve is wider than the one over it
BEYOND = 0.06  # of an axis of shares, below 0 and above 100 %
SAME_PLACE = 0.01  # of the axis: marks closer than that cover each other
MARGIN = 0.05  # of the x axis on either side of the curves


@dataclass(frozen=True)
class Curve:
    """One line of a panel: the value at each x with the ends of its interval (None where it is not known).

    `style` is the number of its colour, marker and dash: the same for one model or series all over the page. A curve
    without a name is the only one, and the page names its model. `joined`: by a line.
    """

    name: str
    style: int
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    joined: bool = True


@dataclass(frozen=True)
class Mark:
    """Published values at one place of the x axis, under one name and without a curve.

    `style`: the number of the curve's colour that they belong to; None: of no one's.
    """

    name: str
    x: float
    y: tuple[float, ...]
    style: int | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `spread` widens small counts (of 2 to 200). `points`: values are changes in points.

    `x_names` are places on the x axis (0, 1, ...) that are no numbers; they and a `scatter` are not joined by a line.
    `diagonal`: both axes are shares, and the line on which they are equal is drawn.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    percent: bool = True
    chance: float | None = None
    spread: bool = False
    x_names: tuple[str, ...] = ()
    scatter: bool = False
    points: bool = False
    marks: tuple[Mark, ...] = ()
    diagonal: bool = False


def is_full_width(panels: Sequence[Panel]) -> bool:
    return len(panels) > 2


def svg_and_png(panels: Sequence[Panel]) -> tuple[str, bytes]:
    """The figure as files of their own: light, on white."""
    with drawing_style():
        return figure_files(draw(panels, narrow=False))


def narrow_svg(panels: Sequence[Panel]) -> str:
    with drawing_style():
        return svg_of(draw(panels, narrow=True))


def draw(panels: Sequence[Panel], narrow: bool) -> "Figure":
    """Panels side by side, or one below the other where the page is narrow."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    order = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    direct = len(panels) == 1 and not narrow and not (panels[0].scatter or panels[0].x_names or panels[0].diagonal)
    columns = 1 if narrow else _columns(panels)
    rows = math.ceil(len(panels) / columns)
    width = NARROW if narrow else FULL if is_full_width(panels) else WIDE
    legend_rows = 0 if direct else math.ceil((len(order) + 1) / _legend_columns(order, width))
    layout = ConstrainedLayoutEngine(h_pad=0.1 if rows > 1 else 0.05)
    figure = figure_class()(figsize=(width, (2.55 if narrow else 3.1) * rows + 0.5 + 0.2 * legend_rows), layout=layout)
    figure.set_facecolor(PAPER)
    axes = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for axis, panel in zip(axes, panels, strict=False):
        _draw_panel(axis, panel, inches=width / columns - AXIS_INCHES)
        if direct:
            _label_directly(axis, panel)
    for unused in axes[len(panels) :]:
        unused.remove()
    _share_heights(axes[: len(panels)], panels)
    if not direct:
        _legend(figure, axes[: len(panels)], order, width)
    return figure


def _columns(panels: Sequence[Panel]) -> int:
    """A row for each quantity where there are many panels, else all in one row; never more than four side by side."""
    quantities = len({panel.y_label for panel in panels})
    return min(4, len(panels) // quantities if is_full_width(panels) else len(panels))


def _draw_panel(axis: "Axes", panel: Panel, inches: float) -> None:
    """inches: the width between the ends of the x axis."""
    if panel.spread:
        import numpy as np

        axis.set_xscale("function", functions=(lambda x: np.log1p(np.maximum(x, -0.9)), np.expm1))
    ticks = sorted({x for curve in panel.curves for x in curve.x})
    for turn, curve in enumerate(panel.curves):
        i = curve.style % len(CURVES)
        y = [math.nan if v is None else v for v in curve.y]
        known = [v is not None and w is not None for v, w in zip(curve.low, curve.high, strict=True)]
        low = [math.nan if v is None else v for v in curve.low]
        high = [math.nan if v is None else v for v in curve.high]
        joined = curve.joined and not (panel.x_names or panel.scatter)
        if joined:
            axis.fill_between(curve.x, low, high, where=known, color=CURVES[i], alpha=0.14, linewidth=0)
        axis.vlines(curve.x, low, high, color=CURVES[i], alpha=0.55, linewidth=0.9)
        if joined:
            _draw_rims(axis, curve, covered_by(panel, turn))
        axis.plot(
            curve.x,
            y,
            color=CURVES[i],
            marker=MARKERS[i],
            linestyle=DASHES[i] if joined else "none",
            linewidth=1.7,
            markersize=6.6 if MARKERS[i] in "^v" else 5.6,
            markeredgecolor=PAPER,
            markeredgewidth=0.8,
            label=curve.name,
        )
    if panel.chance is not None:
        axis.axhline(panel.chance, color=SOFT, linewidth=1.0, linestyle=(0, (2, 2)), label=_chance_name(panel.chance))
    if panel.points:
        axis.axhline(0, color=SOFT, linewidth=1.0, zorder=1)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    _draw_marks(axis, panel.marks)
    if panel.x_names:
        _named_ticks(axis, panel.x_names, inches)
        axis.set_xlim(-0.4, len(panel.x_names) - 0.6)
    elif panel.diagonal:
        axis.axline((0, 0), (1, 1), color=SOFT, linewidth=1.0, linestyle=(0, (2, 2)), label=CALIBRATED)
        axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axis.set_xlim(0, 1)
    elif panel.scatter and any(x % 1 for x in ticks):  # shares, not places 1, 2, ...
        axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    else:
        axis.set_xticks(_readable(ticks, panel.spread, inches))
        axis.set_xticklabels([f"{x:g}" for x in axis.get_xticks()])
    axis.minorticks_off()
    axis.set_title(pretty(panel.title), loc="left")
    axis.set_xlabel(textwrap.fill(panel.x_label, int(inches * LETTERS_PER_INCH)))
    axis.set_ylabel(panel.y_label)
    if panel.percent:
        axis.yaxis.set_major_formatter(lambda value, _: f"{round(100 * value, 1):g} %")
    if not (panel.x_names or panel.diagonal):
        axis.margins(x=MARGIN)
    if len(panel.curves) == 1 and not (panel.scatter or panel.diagonal):
        _write_values(axis, panel)


def covered_by(panel: Panel, turn: int) -> list[int]:
    """At each point of a curve, the number of later curves with a mark at the same place."""
    near_x, near_y = (_near(panel, axis) for axis in ("x", "y"))
    own = panel.curves[turn]
    later = [one for one in panel.curves[turn + 1 :] if one.joined and own.joined]

    def over(curve: Curve, x: float, y: float) -> bool:
        pairs = zip(curve.x, curve.y, strict=True)
        return any(v is not None and abs(u - x) <= near_x and abs(v - y) <= near_y for u, v in pairs)

    return [0 if y is None else sum(over(one, x, y) for one in later) for x, y in zip(own.x, own.y, strict=True)]


def _near(panel: Panel, axis: str) -> float:
    """The distance at which marks cover each other."""
    values = [value for curve in panel.curves for value in getattr(curve, axis) if value is not None]
    reach = 1.0 if panel.diagonal else max(values) - min(values) if values else 0.0
    return SAME_PLACE * reach


def _draw_rims(axis: "Axes", curve: Curve, covered: Sequence[int]) -> None:
    """Where other curves cover this one, it is also drawn wider, so that it shows on either side of them."""
    colour, marker = CURVES[curve.style % len(CURVES)], MARKERS[curve.style % len(CURVES)]
    for more in range(1, max(covered, default=0) + 1):
        y = [v if v is not None and count >= more else math.nan for v, count in zip(curve.y, covered, strict=True)]
        line, mark = 1.7 + RIM * more, 5.6 + RIM * more
        axis.plot(curve.x, y, color=colour, marker=marker, mec=PAPER, mew=0.8, lw=line, ms=mark)


def _draw_marks(axis: "Axes", marks: Sequence[Mark]) -> None:
    """Open diamonds; names below them to the left, where curves that end at the right leave space, on paper."""
    for mark in marks:
        at, colour = [mark.x] * len(mark.y), SOFT if mark.style is None else CURVES[mark.style % len(CURVES)]
        axis.plot(at, mark.y, marker="D", linestyle="-", markersize=5.5, color=colour, markerfacecolor=PAPER, zorder=4)
        if not mark.name:
            continue
        axis.annotate(mark.name, (mark.x, min(mark.y)), (5, -5), textcoords="offset points", ha="right", va="top",
                      color=colour, fontsize=8, zorder=3,
                      bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.0, "alpha": 0.8})  # fmt: skip


def _write_values(axis: "Axes", panel: Panel) -> None:
    """Writes the first, last and lowest value of a single curve, each on the side away from the line."""
    known = [(x, y) for x, y in zip(panel.curves[0].x, panel.curves[0].y, strict=True) if y is not None]
    telling = {0, len(known) - 1, min(range(len(known)), key=lambda i: known[i][1])} if known else set()
    for i in range(len(known)) if panel.x_names else telling:
        x, y = known[i]
        inner = known[1:2] if i == 0 else known[i - 1 : i]
        above = all(neighbour <= y for _, neighbour in inner) and (i in (0, len(known) - 1))
        side, across = {0: ("left", 4), len(known) - 1: ("right", -4)}.get(i, ("center", 0))
        if panel.x_names and axis.transLimits.transform((x, y))[1] < 0.1:  # the names below, its interval above
            above, side, across = True, side.replace("center", "left"), across or 4
        text = f"{100 * y:.0f} %" if panel.percent else f"{y:+.1f}" if panel.points else f"{y:.2f}"
        up, edge = (5, "bottom") if above else (-5, "top")
        look: Any = {"textcoords": "offset points", "color": INK, "fontsize": 8.5}
        axis.annotate(text, (x, y), (across, up), ha=side, va=edge, **look)


def _named_ticks(axis: "Axes", names: Sequence[str], inches: float) -> None:
    """In lines of the width that each has; slanted where a word is longer than that."""
    letters = min(14, int(LETTERS_PER_INCH * inches / len(names)) - 1)
    slanted = max(len(word) for name in names for word in name.split()) > letters
    shown = [name if slanted else textwrap.fill(name, letters) for name in names]
    axis.set_xticks(range(len(names)), shown)
    if slanted:
        axis.tick_params("x", rotation=35)
        for label in axis.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def _readable(ticks: list[float], spread: bool, inches: float) -> list[float]:
    """The measured x values, less those too close to another to be printed side by side; both ends stay."""
    if len(ticks) < 3:
        return ticks
    place = [math.log1p(x) if spread else x for x in ticks]
    longest = max(len(f"{x:g}") for x in ticks)
    gap = (1 + 2 * MARGIN) * (place[-1] - place[0]) * (0.075 * longest + 0.1) / inches
    kept = [len(ticks) - 1]
    for i in range(len(ticks) - 2, 0, -1):
        if place[kept[-1]] - place[i] >= gap and place[i] - place[0] >= gap:
            kept.append(i)
    return [ticks[i] for i in sorted([0, *kept])]


def _share_heights(axes: Sequence["Axes"], panels: Sequence[Panel]) -> None:
    """Panels of one quantity get one scale, so heights compare across them; shares never leave 0..100 %."""
    for label in {panel.y_label for panel in panels}:
        same = [i for i, panel in enumerate(panels) if panel.y_label == label]
        values = [v for i in same for curve in panels[i].curves for v in (*curve.y, *curve.low, *curve.high)]
        values += [panels[i].chance for i in same]
        values += [y for i in same for mark in panels[i].marks for y in mark.y]
        values += [end for i in same if panels[i].diagonal for end in (0.0, 1.0)]
        known = [v for v in values if v is not None]
        if not known:
            continue
        pad = 0.07 * (max(known) - min(known)) or 0.05 * (abs(known[0]) or 1.0)
        for i in same:
            bottom, top = min(known) - pad, max(known) + pad
            if panels[i].percent and not panels[i].scatter:
                # Room for marks at 0 and 100 %, less than the least distance of two ticks: none is drawn beyond.
                bottom, top = max(bottom, -min(0.015, BEYOND * top)), min(top, 1 + min(0.015, BEYOND * (1 - bottom)))
            axes[i].set_ylim(bottom, top)


def _chance_name(chance: float) -> str:
    return f"guessing ({100 * chance:.0f} %)"


def _label_directly(axis: "Axes", panel: Panel) -> None:
    """Names at the right end of their curves, pushed apart where they would touch."""
    labels = []
    for curve in panel.curves:
        known = [v for v in curve.y if v is not None]
        if known and curve.name:
            labels.append((known[-1], pretty(curve.name, 34), CURVES[curve.style % len(CURVES)]))
    if panel.chance is not None:
        labels.append((panel.chance, _chance_name(panel.chance), SOFT))
    _share_heights([axis], [panel])
    bottom, top = axis.get_ylim()
    labels.sort(key=lambda label: label[0])
    heights = apart([(label[0] - bottom) / (top - bottom) for label in labels], gap=0.065)
    look: Any = {"xycoords": "axes fraction", "va": "center", "ha": "left", "fontsize": 8.5, "annotation_clip": False}
    for height, (_, text, colour) in zip(heights, labels, strict=True):
        axis.annotate(text, (1.015, height), color=colour, **look)


def apart(heights: list[float], gap: float) -> list[float]:
    """The nearest ascending heights at least `gap` apart, for ascending `heights`; clusters keep their centre."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _spread_around(groups[-2], gap)[-1] + gap > _spread_around(groups[-1], gap)[0]:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [height for group in groups for height in _spread_around(group, gap)]


def _spread_around(group: list[float], gap: float) -> list[float]:
    centre = sum(group) / len(group)
    return [centre + gap * (i - (len(group) - 1) / 2) for i in range(len(group))]


def _legend_columns(order: list[str], width: float) -> int:
    longest = max(len(pretty(name)) for name in [*order, _chance_name(CHANCE)])
    return max(1, min(len(order) + 1, int(width * POINTS_PER_INCH / (34 + 5.2 * longest))))


def _legend(figure: "Figure", axes: Sequence["Axes"], order: list[str], width: float) -> None:
    # Not get_legend_handles_labels: to matplotlib a name that begins with _ is one to leave out.
    found = {str(line.get_label()): line for axis in axes for line in axis.get_lines() if line.get_label()}
    # Lines and marks without a name of ours are called _child0 and so on.
    more = [name for name in found if name not in order and not re.fullmatch(r"_child\d+", name)]
    lines = [name for name in order if name] + more
    names = [f" {pretty(name)}" if name.startswith("_") else pretty(name) for name in lines]
    look: Any = {"frameon": False, "handlelength": 2.6, "borderaxespad": 0.2, "columnspacing": 1.4}
    handles, columns = [found[name] for name in lines], _legend_columns(order, width)
    figure.legend(handles, names, loc="outside upper left", ncols=columns, **look)
