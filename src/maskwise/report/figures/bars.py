"""Horizontal bars as a figure of their own: shares that add up to one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maskwise.report.figures.drawing import CURVES, INK, NARROW, PAPER, SOFT, WIDE, Drawing, pretty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 46  # characters, which a phone's width holds on a line of its own
HATCHES = ("", "////", "....", "xx")  # so that the parts differ without colour


@dataclass(frozen=True)
class Bar:
    """One line: its parts from left to right, and what is written after it."""

    name: str
    parts: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True)
class Chart(Drawing):
    """`parts` names the segments, in a legend. caption: what is drawn, below the figure of a page."""

    bars: tuple[Bar, ...]
    parts: tuple[str, ...]
    title: str
    x_label: str
    caption: str

    def draw(self, narrow: bool, titled: bool) -> "Figure":
        """narrow: the names above their bars."""
        from matplotlib.figure import Figure

        height = 0.75 + (0.38 if narrow else 0.3) * len(self.bars) + (0.5 if narrow else 0.3)
        figure = Figure(figsize=(NARROW if narrow else WIDE + 1.2, height), layout="constrained")
        figure.set_facecolor(PAPER)
        axis = figure.subplots()
        places = range(len(self.bars))
        for number, part in enumerate(self.parts):
            starts = [sum(bar.parts[:number]) for bar in self.bars]
            widths, height = [bar.parts[number] for bar in self.bars], 0.42 if narrow else 0.62
            look: Any = {"hatch": HATCHES[number % len(HATCHES)], "edgecolor": PAPER, "linewidth": 0.5}
            axis.barh(places, widths, height, starts, color=CURVES[number], label=part, **look)
        for place, bar in zip(places, self.bars, strict=True):
            _write(axis, place, bar, narrow)
        names = [pretty(bar.name, LONGEST_NAME) for bar in self.bars]
        axis.set_yticks([] if narrow else places, [] if narrow else names)
        axis.set_ylim(len(self.bars) - 0.6, -0.75 if narrow else -0.6)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(self.x_label)
        axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axis.set_xlim(0, 1.0)
        if titled:
            axis.set_title(self.title, loc="left", pad=10)
        figure.legend(loc="outside lower left", ncols=2 if narrow else len(self.parts), frameon=False)
        return figure


def _write(axis: "Axes", place: int, bar: Bar, narrow: bool) -> None:
    """Writes the note at the end of the bar; in the narrow figure the name and the note stand above the bar."""
    if narrow:
        axis.annotate(pretty(bar.name, LONGEST_NAME), (0, place - 0.28), va="bottom", fontsize=8.5, color=INK)
        axis.annotate(bar.note, (1, place - 0.28), va="bottom", ha="right", fontsize=8, color=SOFT)
        return
    end = (sum(bar.parts), place)
    axis.annotate(bar.note, end, (7, 0), textcoords="offset points", va="center", ha="left", color=SOFT)
