"""Horizontal bars as a figure of their own: shares that add up to one, or values with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from maskwise.report.figures import CURVES, INK, PAPER, SOFT, WIDE, drawing_style, figure_files, pretty

HATCHES = ("", "////", "....", "xx")  # tell the parts apart without colour


@dataclass(frozen=True)
class Bar:
    """One line: its parts from left to right (one part where it is a single value), and what is written after it."""

    name: str
    parts: tuple[float, ...]
    interval: tuple[float, float] | None = None
    note: str = ""


def draw_bars(bars: Sequence[Bar], parts: Sequence[str], title: str, x_label: str) -> tuple[str, bytes]:
    """(SVG, PNG). `parts` names the segments; where there is more than one they get a legend."""
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(WIDE + 1.2, 0.9 + 0.3 * len(bars) + 0.3 * (len(parts) > 1)), layout="constrained")
        figure.set_facecolor(PAPER)
        axis = figure.subplots()
        heights = range(len(bars))
        for number, part in enumerate(parts):
            starts = [sum(bar.parts[:number]) for bar in bars]
            axis.barh(heights, [bar.parts[number] for bar in bars], left=starts, color=CURVES[number], height=0.62,
                      label=part, hatch=HATCHES[number % len(HATCHES)], edgecolor=PAPER, linewidth=0.5)  # fmt: skip
        for height, bar in zip(heights, bars, strict=True):
            if bar.interval is not None:
                axis.hlines(height, *bar.interval, color=INK, linewidth=1.4)
            end = max(sum(bar.parts), bar.interval[1] if bar.interval else 0.0)
            axis.annotate(bar.note, (end, height), (5, 0), textcoords="offset points", va="center", color=SOFT)
        axis.set_yticks(heights, [pretty(bar.name) for bar in bars])
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(x_label)
        axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axis.set_xlim(0, 1.0 if len(parts) > 1 else None)
        axis.set_title(title, loc="left", pad=10)
        if len(parts) > 1:
            figure.legend(loc="outside lower left", ncols=len(parts), frameon=False)
        return figure_files(figure)
