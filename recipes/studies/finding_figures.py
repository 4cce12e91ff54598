"""Draw the figures of docs/findings.md that no probe draws, from numbers of the studies.

    python recipes/studies/finding_figures.py docs/figures

Each number stands in the study that its figure names (tests/recipes/test_finding_figures.py).
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib.figure import Figure

from maskwise.report.figures.drawing import CURVES, INK, MARKERS, PAPER, SOFT, drawing_style, svg_of

Value = float | tuple[float, float, float]  # or with the ends of its interval


@dataclass(frozen=True)
class Dots:
    """A row per name, one value per series."""

    study: str
    series: tuple[str, ...]
    rows: dict[str, tuple[Value, ...]]
    label: str
    line: tuple[float, str] | None = None


FIGURES = {
    "finding-locality": Dots(
        "context-locality",
        ("example next to the question", "40 distractors between them"),
        {"tiny-llada": (98.5, 51.7), "tiny-qwen (autoregressive)": (99.8, 54.0), "tiny-dream": (100, 89.2)},
        "accuracy with 2 masks (%)",
        (33.3, "guessing"),
    ),
    "finding-tuning": Dots(
        "tuning-planted",
        ("2 masks", "200 masks"),
        {
            "10 relevant examples among 40: untuned": (99.2, 68.5),
            "10 relevant examples among 40: tuned": (98.8, 99.0),
            "1 relevant example among 6: untuned": (95.7, 57.7),
            "1 relevant example among 6: tuned": (95.0, 95.0),
        },
        "accuracy of the planted model (%)",
        (33.3, "guessing"),
    ),
    "finding-confidence": Dots(
        "coherence",
        ("share of AB at one token per step",),
        {"left to right": ((0.549, 0.547, 0.551),), "low-confidence": ((0.7199, 0.7196, 0.7203),), "factor": (0.77,)},
        "share of AB",
        (0.55, "the data"),
    ),
}


def draw(dots: Dots) -> Figure:
    """Rows from top to bottom; a marker and a colour per series, a little below each other: no marker hides one."""
    several = len(dots.series) > 1
    figure = Figure(figsize=(6.4, 0.8 + 0.34 * len(dots.rows) + 0.3 * several), layout="constrained")
    figure.set_facecolor(PAPER)
    axis = figure.subplots()
    for number, name in enumerate(dots.series):
        for row, values in enumerate(dots.rows.values()):
            value, place = values[number], row + 0.3 * (number - (len(dots.series) - 1) / 2)
            middle, low, high = value if isinstance(value, tuple) else (value, value, value)
            axis.hlines(place, low, high, color=CURVES[number], linewidth=1.6)
            axis.plot(
                middle,
                place,
                MARKERS[number],
                color=CURVES[number],
                markersize=7,
                label="" if row else name,
                zorder=3,
            )
    if dots.line:
        axis.axvline(dots.line[0], color=INK, linewidth=0.9, linestyle="--")
        axis.annotate(dots.line[1], (dots.line[0], -0.55), (4, 0), textcoords="offset points", color=SOFT, va="bottom")
    axis.set_yticks(range(len(dots.rows)), list(dots.rows))
    axis.set_ylim(len(dots.rows) - 0.5, -0.9 if dots.line else -0.5)
    axis.set_xlabel(dots.label)
    if several:
        figure.legend(loc="outside upper left", ncols=2, frameon=False)
    return figure


def main() -> None:
    for name, dots in FIGURES.items():
        with drawing_style():
            (Path(sys.argv[1]) / f"{name}.svg").write_text(svg_of(draw(dots)))


if __name__ == "__main__":
    main()
