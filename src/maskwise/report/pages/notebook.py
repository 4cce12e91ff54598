"""The first screen of a page for a notebook's cell: the finding, its chart, and the scores with their intervals."""

from base64 import b64encode

from markupsafe import escape

from maskwise.report.figures.curves import svg_and_png
from maskwise.report.readings import Reading, records_as_strangers_wrote_them
from maskwise.report.words.finding import finding
from maskwise.report.words.tiles import tiles


def first_screen(reading: Reading) -> str:
    """HTML of a few lines. The chart is an image: notebooks put several cells on one page, and ids would clash."""
    with records_as_strangers_wrote_them([reading.folder]):
        found, scores = finding([reading]), tiles(reading)
        chart = "" if found.panel is None else _image(svg_and_png([found.panel])[0], found.caption)
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(tile.name)}</th><td>{escape(tile.value)}</td>"
        f"<td style='text-align:left'>{escape(tile.interval)}</td></tr>"
        for tile in scores
        if tile.marks is not None
    )
    unfinished = "" if reading.manifest.complete else " (unfinished run)"
    return (
        f"<h3>{escape(reading.label)}{unfinished}</h3><p><strong>{escape(found.sentence)}</strong></p>{chart}"
        f"<table>{rows}</table>"
    )


def _image(svg: str, caption: str) -> str:
    content = b64encode(svg.encode()).decode()
    return (
        f"<figure><img alt='{escape(caption)}' src='data:image/svg+xml;base64,{content}'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
