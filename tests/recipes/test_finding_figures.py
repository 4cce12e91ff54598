"""Each number in a figure of the findings stands in the study that the figure names."""

import re

import pytest

import finding_figures
from helpers.wheel import ROOT


@pytest.mark.parametrize("name", finding_figures.FIGURES)
def test_the_numbers_of_a_figure_stand_in_its_study(name):
    dots = finding_figures.FIGURES[name]
    text = (ROOT / "docs" / "studies" / f"{dots.study}.md").read_text()
    known = [float(number) for number in re.findall(r"(?<![\w.])-?(?:\d+\.?\d*|\.\d+)", text)]
    drawn = [
        one
        for values in dots.rows.values()
        for value in values
        for one in (value if isinstance(value, tuple) else (value,))
    ]
    assert [one for one in drawn if not {one, 100 * one} & {*known}] == []
    assert f"{name}.svg" in (ROOT / "docs" / "findings.md").read_text()
