"""Horizontal bars or dots as a figure of their own: shares that add up to one, or values with intervals."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maskwise.report.figures.drawing import CURVES, INK, NARROW, PAPER, SOFT, WIDE, Drawing, draw_dot, pretty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 46  # characters, which a phone's width holds on a line of its own
HATCHES = ("", "////", "....", "xx")  # so that the parts differ without colour


@dataclass(frozen=True)
class Bar:
    """One line: its parts from left to right (one part where it is a single value), and what is written after it.

    `marked`: of dots, filled; the others are open.
    """

    name: str
    parts: tuple[float, ...]
    interval: tuple[float, float] | None = None
    note: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Chart(Drawing):
    """`parts` names the segments; where there is more than one they get a legend. dots: a dot for each value in place
    of a bar. caption: what is drawn, below the figure of a page; else the title."""

    bars: tuple[Bar, ...]
    parts: tuple[str, ...]
    title: str
    x_label: str
    dots: bool = False
    caption: str = ""

    def draw(self, narrow: bool, titled: bool) -> "Figure":
        """narrow: the names above their bars."""
        from matplotlib.figure import Figure

        several = len(self.parts) > 1
        height = 0.75 + (0.38 if narrow else 0.3) * len(self.bars) + (0.5 if narrow else 0.3) * several
        figure = Figure(figsize=(NARROW if narrow else WIDE + 1.2, height), layout="constrained")
        figure.set_facecolor(PAPER)
        axis = figure.subplots()
        places = range(len(self.bars))
        for number, part in enumerate(() if self.dots else self.parts):
            starts = [sum(bar.parts[:number]) for bar in self.bars]
            widths, height = [bar.parts[number] for bar in self.bars], 0.42 if narrow else 0.62
            look: Any = {"hatch": HATCHES[number % len(HATCHES)], "edgecolor": PAPER, "linewidth": 0.5}
            axis.barh(places, widths, height, starts, color=CURVES[number], label=part, **look)
        for place, bar in zip(places, self.bars, strict=True):
            if bar.interval is not None:
                axis.hlines(place, *bar.interval, color=CURVES[0] if self.dots else INK, linewidth=1.6)
            if self.dots:
                draw_dot(axis, bar.parts[0], place, bar.marked)
            _write(axis, place, bar, narrow, self.dots)
        names = [pretty(bar.name, LONGEST_NAME) for bar in self.bars]
        axis.set_yticks([] if narrow else places, [] if narrow else names)
        axis.set_ylim(len(self.bars) - 0.6, -0.75 if narrow else -0.6)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(self.x_label)
        axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axis.set_xlim(*((-0.02, 1.02) if self.dots else (0, 1.0 if several or narrow else None)))
        if titled:
            axis.set_title(self.title, loc="left", pad=10)
        if several:
            figure.legend(loc="outside lower left", ncols=2 if narrow else len(self.parts), frameon=False)
        return figure


def _write(axis: "Axes", place: int, bar: Bar, narrow: bool, dots: bool) -> None:
    """Writes the note at the end of the bar. In the narrow figure the name is above the bar, with the note on the same
    line unless a dot leaves room for it."""
    low, high = bar.interval or (sum(bar.parts), sum(bar.parts))
    if narrow:
        axis.annotate(pretty(bar.name, LONGEST_NAME), (0, place - 0.28), va="bottom", fontsize=8.5, color=INK)
    if narrow and not dots:
        axis.annotate(bar.note, (1, place - 0.28), va="bottom", ha="right", fontsize=8, color=SOFT)
        return
    left = narrow and low > 0.5
    end, offset, align = (low, -7, "right") if left else (max(sum(bar.parts), high), 7, "left")
    axis.annotate(bar.note, (end, place), (offset, 0), textcoords="offset points", va="center", ha=align, color=SOFT)
