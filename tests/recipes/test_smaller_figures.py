"""The rewritten SVG file is smaller and draws the same marks and texts."""

import xml.etree.ElementTree as ET

import smaller_figures
from maskwise.report.figures.curves import Curve, Panel, svg_and_png


def test_a_smaller_figure_keeps_its_marks_and_texts():
    curves = (Curve("a", 0, (0.0, 1.0, 2.0), (0.2, 0.5, 0.9), (0.1, 0.4, 0.8), (0.3, 0.6, 1.0)),)
    before, _ = svg_and_png([Panel("", "x", "right", curves, chance=0.5)])
    after = smaller_figures.smaller(before)

    def drawn(svg: str) -> tuple[int, list[str | None]]:
        nodes = list(ET.fromstring(svg).iter())
        return sum(node.tag.endswith("use") for node in nodes), [n.text for n in nodes if n.tag.endswith("text")]

    assert drawn(after) == drawn(before)
    assert len(after) < 0.8 * len(before)
