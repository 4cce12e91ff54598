"""Figures and sections of probes: what of a table is drawn and stands in the page's table."""

import re

import pandas as pd
import pytest

from maskwise.probes.probe import Figure, Probe
from maskwise.report.chart import draw, inline, svg
from maskwise.report.section import Section, rows_of
from maskwise.scoring.estimates import NATS, POINTS, SHARE, curve, share

ENDS = {"low": 0.1, "high": 0.9, "tasks_low": 0.05, "tasks_high": 0.95}


def figure(kind="line", **more):
    return Figure(lambda table, others: table, "masks", "Masks", kind=kind, **more)


def rows(*values, x=(2, 20, 200), **more):
    return pd.DataFrame(
        [{"masks": at, "value": value, "n": 7} | ENDS | more for at, value in zip(x, values, strict=False)]
    )


@pytest.mark.parametrize("kind", ["line", "points", "diagonal", "scatter"])
@pytest.mark.parametrize("narrow", [False, True])
def test_every_kind_draws_all_values_and_both_intervals(kind, narrow):
    places = ("near", "mid", "far") if kind == "points" else (0.2, 0.4, 0.8)
    canvas = draw(figure(kind, guessing=1 / 3), rows(0.8, 0.6, 0.5, x=places), narrow)
    (axis,) = canvas.axes
    line = next(line for line in axis.get_lines() if len(line.get_xdata()) == 3)
    assert list(line.get_xdata() if kind == "points" else line.get_ydata()) == [0.8, 0.6, 0.5]
    ends = {
        round(float(end), 2) for drawn in axis.collections for path in drawn.get_paths() for end in path.vertices.flat
    }
    assert {0.05, 0.1, 0.9, 0.95} <= ends
    assert canvas.get_figwidth() == (3.5 if narrow else 6.4)


def test_lines_of_models_and_series_are_told_apart():
    table = pd.concat(
        [rows(v, v / 2, kind=k, model=m) for m, v in (("a", 0.9), ("b", 0.5)) for k in ("masks", "stops")]
    )
    (axis,) = draw(figure(series="kind"), table, narrow=True).axes
    looks = {(line.get_color(), line.get_marker()) for line in axis.get_lines()}
    assert len(looks) == 4 and len({colour for colour, _ in looks}) == 2  # the colour is the model


def test_values_without_an_interval_and_missing_ones_are_drawn():
    table = rows(0.8, None).assign(low=None, high=None, tasks_low=None, tasks_high=None)
    page = inline(svg(draw(figure(), table)), "p", "a < b")
    assert "var(--curve-0)" in page and 'aria-label="a &lt; b"' in page and "#0072b2" not in page
    assert all(name.startswith("p") for name in re.findall(r'id="([^"]+)"', page))


def test_the_table_of_a_figure_has_its_units_and_intervals():
    table = rows(0.8, 0.5, unit=SHARE).assign(change=[None, -0.3], change_low=[None, -0.5], change_high=[None, 0.0])
    heads, cells = rows_of(figure(), table)
    assert heads == ["Masks", "Accuracy", "over tasks", "change", "n"]
    assert cells[1] == ["20", "50.0 % (10.0 to 90.0)", "5.0 to 95.0", "-30.0 points (-50.0 to 0.0)", "7"]
    assert rows_of(figure(y="Loss"), rows(0.25, unit=NATS))[1][0][1] == "0.250 nats (0.100 to 0.900)"
    assert rows_of(figure(y="Change"), rows(-0.25, unit=POINTS))[1][0][1] == "-25.0 points (+10.0 to +90.0)"


def answered(right, relevant=10):
    listed = [
        {"task": "t", "point": p, "masks": m, "relevant": relevant, "correct": r}
        for m, r in right.items()
        for p in range(20)
    ]
    return pd.DataFrame(listed).astype({"task": "category"})


def made():
    drawn = Figure(lambda table, others: curve(table, ["masks"], {"correct": SHARE}), "masks", "Masks")
    by_column = lambda table, others: [share("right", table.set_index(["task", "point"]).correct)]  # noqa: E731
    return Probe(
        "known", "Known: is it?\n\n    R Q _\n\nText.", lambda setup: [], by_column, [drawn], advice=lambda found: "Do."
    )


def test_a_section_has_each_number_of_examples_and_each_model():
    one = pd.concat([answered({2: 1.0}), answered({2: 0.0}, relevant=1)])
    found = Section(made(), {"a": {"known": one}, "b": {"known": answered({2: 0.0})}, "c": {}})
    assert [e.name for e in found.estimates["a"]] == ["right", "right, 1 example"] and "c" not in found.estimates
    assert [(title, list(table.model)) for _, title, table in found.figures] == [
        ("(10 relevant)", ["a", "b"]),
        ("(1 relevant)", ["a"]),
    ]
    view = found.view("s", {})
    assert view["text"] == [(True, "R Q _"), (False, "Text.")] and view["advice"] == {"a": "Do.", "b": "Do."}
    assert (view["name"], view["title"], view["question"]) == ("known", "Known", "Is it?")
    assert len(view["figures"]) == 2
