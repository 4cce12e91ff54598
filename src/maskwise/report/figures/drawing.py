"""The style of our figures, and their conversion to files and to a part of the page.

matplotlib is imported inside the functions, so that reading a summary never waits for it.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that readers with any of the three colour blindnesses can tell apart, dark enough to write in (4.5 : 1 on
# white, after Okabe and Ito for the first three); the marker and the dash repeat the difference.
# Each light colour is also a name: in the page it is replaced by a CSS variable, so one drawing serves light and dark.
CURVES = ("#0072b2", "#c24e00", "#00805d", "#8a2be2", "#5a004b", "#780000", "#6b7280")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.6)), (0, (1.4, 1.2)), (0, (5, 1.4, 1.2, 1.4)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)), "-")
INK, SOFT, GRID, PAPER = "#1b1f24", "#59616b", "#d9dde2", "#fffffe"
VARIABLES = {colour: f"--curve-{i}" for i, colour in enumerate(CURVES)} | {
    INK: "--ink",
    SOFT: "--soft",
    GRID: "--grid",
    PAPER: "--paper",
}
POINTS_PER_INCH = 72
WIDE, FULL, NARROW = 6.4, 10.4, 3.5  # inches; the page shows an inch as 100 pixels, so text has one size in all three


def pretty(name: str, longest: int = 34) -> str:
    """A name for a figure: one line, no control characters, shortened to the figure's width."""
    line = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def figure_files(figure: "Figure") -> tuple[str, bytes]:
    """(SVG, PNG) of a finished drawing."""
    svg = svg_of(figure)
    figure.set_layout_engine("none")  # what was laid out for the SVG stays where it is
    return svg, _png_of(figure, 160)


def _png_of(figure: "Figure", dpi: int) -> bytes:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=dpi)
    return png.getvalue()


def inline(svg: str, prefix: str, label: str) -> Markup:
    """An SVG file made part of the page: CSS variables for colours, ids made unique, `label` for screen readers."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None
    return Markup(f'<svg role="img" aria-label="{escape(label)}" {view[0]}>' + svg[svg.index(">") + 1 :])


@cache
def figure_class() -> "type[Figure]":
    """Figures that a notebook shows: pyplot would teach notebooks that, but nothing here imports it."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            return _png_of(self, 120)

    return ShownFigure


def svg_of(figure: "Figure") -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)


@contextmanager
def drawing_style() -> Iterator[None]:
    """matplotlib's settings while we draw. Text stays text, never mathematics: a model may be called `$x`."""
    import matplotlib

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "maskwise",
        "text.parse_math": False,
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlecolor": INK,
        "axes.labelsize": 9,
        "axes.labelcolor": SOFT,
        "axes.edgecolor": GRID,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": GRID,
        "ytick.color": GRID,
        "xtick.labelcolor": SOFT,
        "ytick.labelcolor": SOFT,
        "ytick.major.size": 0,
        "legend.fontsize": 8.5,
        "legend.labelcolor": INK,
        "text.color": INK,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A name in a script the font lacks is still text in the SVG; only the PNG shows boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
