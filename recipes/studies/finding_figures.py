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
from smaller_figures import smaller

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
        {"tiny-llada": (93.8, 35.8), "tiny-qwen (autoregressive)": (99.8, 54.0), "tiny-dream": (100, 89.2)},
        "accuracy with 2 masks (%)",
        (33.3, "guessing"),
    ),
    "finding-tuning": Dots(
        "cure-both-ends",
        ("2 masks", "200 masks"),
        {
            "familiar words: untuned": (95.3, 65.3),
            "familiar words: tuned, preset": (95.3, 94.0),
            "unfamiliar words: untuned": (73.3, 17.2),
            "unfamiliar words: tuned, preset": (67.9, 43.9),
            "unfamiliar words: tuned, varied words": (76.6, 73.4),
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
    "finding-caches": Dots(
        "caches-and-canvases",
        ("tokens equal to exact decoding", "tokens computed"),
        {"exact": (100.0, 100), "prefix cache": (93.0, 20), "dual cache": (88.7, 15)},
        "% of the tokens (tiny-llada, 8 prompts)",
    ),
    "finding-smol": Dots(
        "smol-training-choices",
        ("200 masks instead of 2",),
        {
            "short training, full recipe": ((0.7, -2.2, 3.6),),
            "without clean-prefix rows and teacher": ((-9.4, -13.3, -5.4),),
            "also whole rows only": ((-7.2, -10.5, -3.9),),
            "also each mask at its own row": ((-12.4, -16.0, -8.7),),
        },
        "change of accuracy (points), 95 % interval over word sets",
        (0.0, "no change"),
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
            (Path(sys.argv[1]) / f"{name}.svg").write_text(smaller(svg_of(draw(dots))))


if __name__ == "__main__":
    main()
