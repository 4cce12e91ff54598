"""Quality against cost as a figure: the settings that were confirmed, their frontier, and the losers in grey."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskwise.report.figures.drawing import CURVES, FULL, GRID, INK, NARROW, PAPER, SOFT, Drawing, draw_dot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEAR = 0.06  # of the axis: dots closer than this touch, and share their letters


@dataclass(frozen=True)
class Spot:
    """A setting: its costs in the order of `Frontier.costs`, its quality, and the ends of its interval.

    letter: what it is called in the figure; empty is a loser, which is drawn in grey and has no interval.
    """

    costs: tuple[float, ...]
    quality: float
    ends: tuple[float, float] | None = None
    letter: str = ""
    on_frontier: bool = False


@dataclass(frozen=True)
class Frontier(Drawing):
    """`costs` are the labels of the x axes, one panel each; `percent`: the quality is a share."""

    spots: tuple[Spot, ...]
    costs: tuple[str, ...]
    quality: str
    percent: bool
    title: str

    def draw(self, narrow: bool, titled: bool) -> "Figure":
        """narrow: one panel below the other."""
        from matplotlib.figure import Figure

        panels = len(self.costs)
        rows, columns = (panels, 1) if narrow else (1, panels)
        size = (NARROW, 2.6 * rows) if narrow else (FULL, 3.5)
        figure = Figure(figsize=size, layout="constrained")
        figure.set_facecolor(PAPER)
        axes = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flatten())
        for panel, axis in enumerate(axes):
            _panel(axis, self, panel)
            axis.set_xlabel(self.costs[panel])
            if narrow or panel == 0:
                axis.set_ylabel(self.quality)
        if titled:
            figure.suptitle(self.title, x=0.01, ha="left", fontsize=9.5, fontweight="bold", color=INK)
        return figure


def steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The best quality that a cost buys: level up to the next better setting, (cost, quality) in, corners out."""
    corners: list[tuple[float, float]] = []
    for cost, quality in sorted(points):
        if not corners or quality > corners[-1][1]:
            corners += [(cost, corners[-1][1])] if corners else []
            corners.append((cost, quality))
    return corners


def _panel(axis: "Axes", chart: Frontier, panel: int) -> None:
    losers = [spot for spot in chart.spots if not spot.letter]
    best = [(spot.costs[panel], spot.quality) for spot in chart.spots if spot.letter]
    x, y = [spot.costs[panel] for spot in losers], [spot.quality for spot in losers]
    axis.plot(x, y, "o", markersize=5, color=SOFT, alpha=0.45, markeredgewidth=0)
    corners = steps(best)
    right = max(spot.costs[panel] for spot in chart.spots) * 1.08 or 1.0
    corners.append((right, corners[-1][1]))
    axis.plot(*zip(*corners, strict=True), color=CURVES[0], linewidth=1.4, alpha=0.6)
    for spot in sorted(chart.spots, key=lambda spot: spot.on_frontier):  # those on the frontier on top
        if not spot.letter:
            continue
        if spot.ends is not None:
            axis.vlines(spot.costs[panel], *spot.ends, color=CURVES[0], alpha=0.55, linewidth=1.4)
        draw_dot(axis, spot.costs[panel], spot.quality, spot.on_frontier)
    _name(axis, chart, panel)
    axis.set_xlim(0, right)
    axis.spines["left"].set_visible(True)
    axis.spines["left"].set_color(GRID)
    if chart.percent:
        axis.yaxis.set_major_formatter(lambda value, _: f"{round(100 * value, 1):g} %")


def _name(axis: "Axes", chart: Frontier, panel: int) -> None:
    """Letters to the right of their dots; those of dots that touch are joined at the rightmost."""
    width = max(spot.costs[panel] for spot in chart.spots) or 1.0
    height = max(spot.quality for spot in chart.spots) - min(spot.quality for spot in chart.spots) or 1.0
    groups: list[list[Spot]] = []

    def touch(one: Spot, other: Spot) -> bool:
        across, up = one.costs[panel] - other.costs[panel], abs(one.quality - other.quality)
        return across < NEAR * width and up < NEAR * height

    for spot in sorted((spot for spot in chart.spots if spot.letter), key=lambda spot: spot.costs[panel]):
        near = next((group for group in groups if touch(spot, group[-1])), None)
        if near is None:
            groups.append([spot])
        else:
            near.append(spot)
    for group in groups:
        letters, place = ", ".join(spot.letter for spot in group), (group[-1].costs[panel], group[-1].quality)
        axis.annotate(letters, place, (7, 5), textcoords="offset points", color=INK, fontsize=9, fontweight="bold")
