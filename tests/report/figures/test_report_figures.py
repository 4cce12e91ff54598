"""Figures draw the numbers they are given, and keep their labels apart."""

import re
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.contrast import contrast
from helpers.records import entry as plain_entry
from helpers.records import manifest, summary
from maskwise.probes import PROBES
from maskwise.probes.section import Entry
from maskwise.records.folder import RunOnDisk
from maskwise.report.figures.curves import Curve, Mark, Panel, apart, covered_by, draw, svg_and_png
from maskwise.report.figures.drawing import CURVES, DASHES, MARKERS, VARIABLES, drawing_style, inline, pretty
from maskwise.report.figures.panels import COVERED, how_to_read, panels
from maskwise.report.readings import Asked, Reading


def entry(accuracy: float, masks: int = 1, /, **condition: Any) -> Entry:
    return plain_entry(
        condition=condition, masks=masks, n=10, accuracy=accuracy, low=accuracy - 0.1, high=accuracy + 0.1
    )


def reading(label: str, **probes: list[Entry]) -> Reading:
    named = {name.replace("_", "-"): entries for name, entries in probes.items()}
    return Reading(
        label,
        RunOnDisk(Path(label), manifest(), []),
        summary(probes=named),
        {name: Asked(("t",), 1, 1, 1) for name in named},
    )


def section(probe: str) -> Any:
    return next(one for one in PROBES if one.name == probe).sections[0]


def test_the_filler_control_is_drawn_with_the_masks() -> None:
    one = reading("m", mask_count=[entry(0.8, 2, masks=2)], filler=[entry(0.7, fillers=100, filler=".")])
    (panel,) = panels(section("filler"), [one])
    assert [(curve.name, curve.x, curve.y) for curve in panel.curves] == [
        ("masks", (2,), (0.8,)),
        ("full stops", (100,), (0.7,)),
    ]


def test_the_drawing_holds_the_numbers() -> None:
    curve = Curve("a", 0, (2, 20, 200), (0.8, None, 0.5), (0.7, None, 0.4), (0.9, None, 0.6))
    figure = draw([Panel("", "k", "right", (curve,), chance=1 / 3, spread=True)], narrow=False)
    (axis,) = figure.axes
    line = next(line for line in axis.lines if line.get_label() == "a")
    assert list(line.get_xdata()) == [2, 20, 200]
    assert line.get_ydata()[0] == 0.8 and line.get_ydata()[2] == 0.5
    bottom, top = axis.get_ylim()
    assert bottom < 1 / 3 and top > 0.9
    assert "guessing (33 %)" in [text.get_text() for text in axis.texts]
    assert {"80 %", "50 %"} <= {text.get_text() for text in axis.texts}


def test_a_value_at_the_foot_of_the_axis_is_written_above_the_names_below_it() -> None:
    values = (0.0, 0.0, 0.3)
    curve = Curve("a", 0, (0, 1, 2), values, values, (0.5, 0.5, 0.8))
    (axis,) = draw([Panel("", "k", "right", (curve,), x_names=("one", "two", "three"))], narrow=False).axes
    assert [text.get_va() for text in axis.texts if text.get_text() == "0 %"] == ["bottom", "bottom"]


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize(("count", "narrow"), [(1, False), (2, False), (4, False), (4, True)])
def test_words_and_numbers_below_the_axes_keep_clear_of_each_other(count: int, narrow: bool, spread: bool) -> None:
    x = (0, 1, 2, 5, 10, 20, 50, 100, 150, 200)
    curves = tuple(Curve(name, i, x, (0.5,) * 10, (0.4,) * 10, (0.6,) * 10) for i, name in enumerate(("a", "b")))
    label = "Distracting examples before the block (further right: nearer the question)"
    with drawing_style():
        figure = draw([Panel("", label, "Accuracy", curves, spread=spread) for _ in range(count)], narrow)
        figure.canvas.draw()
    for axis in figure.axes:
        numbers = [tick.get_window_extent() for tick in axis.get_xticklabels()]
        assert [tick.get_text() for tick in axis.get_xticklabels()][:: len(numbers) - 1] == ["0", "200"]
        assert all(right.x0 - left.x1 > 3 for left, right in pairwise(numbers))  # of a hundred to an inch
        words, line = axis.xaxis.label.get_window_extent(), axis.get_window_extent()
        assert line.x0 <= words.x0 and words.x1 <= line.x1


def test_panels_of_one_quantity_share_their_scale() -> None:
    low = Curve("a", 0, (0, 1), (0.1, 0.2), (0.1, 0.2), (0.1, 0.2))
    high = Curve("a", 0, (0, 1), (0.8, 0.9), (0.8, 0.9), (0.8, 0.9))
    figure = draw([Panel(name, "x", "right", (curve,)) for name, curve in (("l", low), ("h", high))], narrow=True)
    first, second = figure.axes
    assert first.get_ylim() == second.get_ylim()


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_axis_of_equal_shares_has_no_number_below_0_or_above_100_percent(value: float) -> None:
    curve = Curve("a", 0, (0, 1), (value,) * 2, (None,) * 2, (None,) * 2)
    for narrow in (False, True):
        (axis,) = draw([Panel("", "x", "right", (curve,))], narrow).axes
        bottom, top = axis.get_ylim()
        ticks = [tick for tick in axis.get_yticks() if bottom <= tick <= top]
        assert min(ticks) >= -1e-9 and max(ticks) <= 1 + 1e-9 and bottom < value < top
        assert value in [round(tick, 6) for tick in ticks]


def test_equal_curves_are_drawn_one_inside_the_other_and_the_page_says_so() -> None:
    first, second, apart_from_both = (0.2, 0.5, 0.9), (0.2, 0.5, 0.8), (0.4, 0.6, 0.7)
    curves = tuple(
        Curve(name, i, (0, 1, 2), y, (None,) * 3, (None,) * 3)
        for i, (name, y) in enumerate((("a", first), ("b", second), ("c", apart_from_both)))
    )
    panel = Panel("", "x", "right", curves)
    assert [covered_by(panel, turn) for turn in range(3)] == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
    lines = draw([panel], narrow=True).axes[0].get_lines()
    rim, own = (one for one in lines if one.get_color() == CURVES[0])
    assert rim.get_linewidth() > own.get_linewidth() and rim.get_markersize() > own.get_markersize()
    assert [y == y for y in rim.get_ydata()] == [True, True, False]  # not where the curves differ
    assert COVERED in how_to_read(section("mask-count"), [panel])
    assert COVERED not in how_to_read(section("mask-count"), [replace(panel, curves=curves[1:])])


def test_the_page_sets_the_colours() -> None:
    curves = tuple(Curve(str(i), i, (0, 1), (0.1, 0.2), (0.1, 0.2), (0.1, 0.2)) for i in range(len(CURVES)))
    svg, png = svg_and_png([Panel("", "x", "right", curves, chance=0.5)])
    page = inline(svg, "p0", 'a "label" & <more>')
    assert not [colour for colour in VARIABLES if colour in page]
    assert all(f"var({VARIABLES[colour]})" in page for colour in CURVES)
    assert 'aria-label="a &#34;label&#34; &amp; &lt;more&gt;"' in page
    assert set(re.findall(r'id="([^-]+)-', page)) == {"p0"}
    assert png.startswith(b"\x89PNG") and svg.startswith("<?xml")


def test_every_colour_has_a_light_and_a_dark_value() -> None:
    css = resources.files("maskwise.report.pages").joinpath("colours.css").read_text(encoding="utf-8")
    for colour, variable in VARIABLES.items():
        light, dark = re.findall(rf"{variable}: (#[0-9a-f]{{6}});", css)
        assert light == colour != dark


def mixed(colour: str, paper: str, share: float) -> str:
    channels = [(int(colour[i : i + 2], 16), int(paper[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * over + (1 - share) * under):02x}" for over, under in channels)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_can_be_read(mode: str) -> None:
    """WCAG AA, 4.5 : 1, of text on what lies under it, the colours of attribution at their strongest."""
    css = resources.files("maskwise.report.pages").joinpath("colours.css").read_text(encoding="utf-8")
    parts = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in css.split("@media")]
    colours = parts[0] if mode == "light" else parts[0] | parts[1]
    pairs = [(ink, paper) for ink in ("ink", "soft", "accent") for paper in ("paper", "wash", "card")]
    pairs += [(name, paper) for name in colours if name.startswith("curve-") for paper in ("paper", "card")]
    pairs += [("ink", "warn"), ("ink", "grid")]
    found = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    for curve, share in (("curve-1", 0.5), ("curve-0", 0.28), ("curve-1", 0.28), ("curve-1", 0.07)):
        found[curve, str(share)] = contrast(colours["ink"], mixed(colours[curve], colours["card"], share))
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < 4.5} == {}


def test_curves_differ_in_more_than_colour() -> None:
    assert len(set(MARKERS)) == len(CURVES) == len(MARKERS) == len(DASHES)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_labels_keep_their_distance_and_their_order(heights: list[float]) -> None:
    heights = sorted(heights)
    placed = apart(heights, gap=0.065)
    assert len(placed) == len(heights)
    assert all(b - a >= 0.065 - 1e-9 for a, b in pairwise(placed))
    if all(b - a >= 0.065 for a, b in pairwise(heights)):
        assert placed == pytest.approx(heights)


def test_names_in_figures_are_one_short_line() -> None:
    assert pretty("a\nb\x00c") == "a b c"
    assert len(pretty("x" * 99)) == 34


def test_a_legend_names_curves_alone() -> None:
    """Not the zero line, nor the marks, which have their names next to them."""
    curves = tuple(
        Curve(name, i, (2, 200), (0.0, -9.0), (None,) * 2, (None,) * 2) for i, name in enumerate(("a", "_b"))
    )
    panel = Panel("", "x", "y", curves, percent=False, points=True, marks=(Mark("Dream", 20, (-6.0, -8.0)),))
    assert [text.get_text() for text in draw([panel], narrow=True).legends[0].get_texts()] == ["a", " _b"]
