"""The report page: one self-contained HTML file drawn from run folders, and the figures as files."""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import track

from maskwise.models.families import FAMILIES
from maskwise.probes.examples import in_words
from maskwise.probes.section import Section
from maskwise.report.figures import curves as figures
from maskwise.report.figures import drawing
from maskwise.report.figures.panels import caption_of, how_to_read, panels
from maskwise.report.pages.drill import prompts_by_probe, records_table, small_multiples
from maskwise.report.pages.figure_table import cell, figure_table
from maskwise.report.pages.jinja_environment import render
from maskwise.report.readings import Reading, differing_settings, records_as_strangers_wrote_them, sections_of
from maskwise.report.sections import sections_for
from maskwise.report.words.comparison import Row
from maskwise.report.words.effects import headings
from maskwise.report.words.finding import advice_lines, finding
from maskwise.report.words.published_values import PUBLISHED_HEAD, published_rows, setting_in_words
from maskwise.report.words.sentences import (
    advice_apart,
    finding_of_models,
    findings_by_model,
    opening,
    verdict_lines,
    what_this_run_shows,
    with_conditions,
)
from maskwise.report.words.tiles import Tile, asked_differently, tiles_of
from maskwise.scoring.power import power_in_words
from maskwise.scoring.scores import NOT_MEASURED
from maskwise.support.files import OTHER_FOLDER, refuse_links, replace_file, writing
from maskwise.support.grouping import grouped
from maskwise.support.terminal import open_console

KINDS = {family.name: family.title for family in FAMILIES}


def write_page(readings: Sequence[Reading], out: Path, changes: Sequence[Row] = ()) -> Path:
    """Draws the page of one run, or of several side by side, into `out`; returns the page's path.

    Everything is drawn before anything is written, and the page comes last: it never names what is not there.
    `changes` are the rows of a comparison (comparison.py) with the first run.
    """
    with records_as_strangers_wrote_them([reading.folder for reading in readings]):
        page, drawings = build(readings, changes)
    path = out / "report.html"
    with writing(f"the report into {out}", OTHER_FOLDER):
        refuse_links(out)
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for name, content in drawings.items():
            replace_file(out / "figures" / name, content)
        replace_file(path, [page])
    return path


def home_of(readings: Sequence[Reading]) -> Path:
    """The default folder of a page: its run's, or for several runs a folder next to the first."""
    return readings[0].folder if len(readings) == 1 else shared_folder([reading.folder for reading in readings])


def shared_folder(folders: Sequence[Path]) -> Path:
    """The default folder for several runs: next to the first, with a name of these runs in this order."""
    names = "\n".join(str(folder.resolve()) for folder in folders)
    return folders[0].resolve().parent / f"side-by-side-{hashlib.sha256(names.encode()).hexdigest()[:6]}"


def build(readings: Sequence[Reading], changes: Sequence[Row] = ()) -> tuple[str, dict[str, bytes]]:
    """The page's text, and the figures by file name."""
    drawings: dict[str, bytes] = {}
    shown: list[dict[str, Any]] = []
    prompts = prompts_by_probe(readings)
    chosen = sections_for(readings)
    stated = headings(chosen, readings)
    for probe, section in track(chosen, "Drawing", console=open_console(stderr=True), transient=True):
        view, files = _section_view(probe, section, readings, stated[len(shown)], f"p{len(shown)}")
        own = [prompt for prompt in prompts.get(probe, []) if prompt.relevant == section.relevant]
        first_of_probe = not any(earlier["of"] == (probe, section.relevant) for earlier in shown)
        shown.append(view | {"of": (probe, section.relevant), "prompts": own if first_of_probe else []})
        drawings |= files
    first = finding(readings, compared=bool(changes))
    wide = narrow = None
    if first.panel is not None:
        svg, png = figures.svg_and_png([first.panel])
        drawings |= {"finding.svg": svg.encode(), "finding.png": png}
        wide = drawing.inline(svg, "fw", first.sentence)
        narrow = drawing.inline(figures.narrow_svg([first.panel]), "fn", first.sentence)
    labels = [reading.label for reading in readings]
    models = [_model_view(*one, readings) for one in zip(readings, tiles_of(readings), strict=True)]
    compared = [row for row in changes if set(row.values) != {"–"}]
    context: dict[str, Any] = dict(
        title=labels[0] if len(labels) == 1 else "Side by side: " + ", ".join(labels),
        finding=first,
        wide=wide,
        narrow=narrow,
        advice=[*filter(None, [first.steps]), *advice_lines(readings)],
        models=models,
        power=list(dict.fromkeys(power_in_words(one) for r in readings for one in r.summary.power or ())),
        scores=[
            {
                "meaning": _meaning_for_all(row),
                "tiles": row,
                "apart": asked_differently([tile["score"] for tile in row], readings),
            }
            for row in zip(*(model["tiles"] for model in models), strict=True)
            if row[0]["name"].lower() not in {change.name.lower() for change in compared}
            and {tile["interval"] for tile in row} != {NOT_MEASURED}
        ],
        topics=_topics(models),
        changes=compared,
        sections=shown,
        ported=[section.view(f"s{number}") for number, section in enumerate(sections_of(readings))],
        records=records_table(readings),
        published_head=PUBLISHED_HEAD,
        notes=[f"{one.label}: {note}" if len(labels) > 1 else note for one in readings for note in one.manifest.notes],
        differing=[name.replace("_", " ") for name in differing_settings(readings)],
        settings=_settings_tables(readings),
        commands=_commands(readings, compared=bool(changes)),
    )
    return render("page.html.jinja", **context), drawings


def _model_view(reading: Reading, scores: Sequence[Tile], readings: Sequence[Reading]) -> dict[str, Any]:
    model = reading.manifest.model
    facts = [
        model["name"],
        KINDS.get(model["kind"], model["kind"]),
        "" if model.parameters is None else f"{_short_count(model.parameters)} parameters",
        "" if model.window is None else f"context length {model.window}",
        f"blocks of {model['block']} tokens" if "block" in model else "",
        str(model["dtype"]),
        f"{model['weights']} weights" if "weights" in model else "",
        f"planted on purpose: {model['planted']}" if model.get("planted") else "",
    ]
    return {
        "label": reading.label,
        "folder": str(reading.folder),
        "complete": reading.manifest.complete,
        "paper": setting_in_words(reading.summary),
        "published": published_rows(reading.summary),
        "facts": [fact for fact in facts if fact not in ("", reading.label)],
        "sentences": opening(reading, readings),
        "tiles": [_tile_view(tile) for tile in scores if len(readings) > 1 or tile.interval != NOT_MEASURED],
    }


def _topics(models: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sentences of several models by topic; a claim that all of them share is stated once."""
    said = [(style % 7, model["label"], one) for style, model in enumerate(models) for one in model["sentences"]]
    topics = []
    for topic, stated in grouped((sentence.topic, (style, label, sentence)) for style, label, sentence in said).items():
        claims = {sentence.claim for _, _, sentence in stated}
        common = claims.pop() if len(claims) == 1 and len(stated) == len(models) else ""
        alike = common and len({sentence.evidence for _, _, sentence in stated}) == 1
        each = [{"style": style, "label": label, "claim": "" if common else s.claim, "evidence": s.evidence}
                for style, label, s in stated]  # fmt: skip
        topics.append({"name": topic, "claim": common, "same": stated[0][2].evidence if alike else "",
                       "each": [] if alike else each})  # fmt: skip
    return topics


def _tile_view(tile: Tile) -> dict[str, Any]:
    """The little drawing under a score, 200 units wide: -25 % to 100 %, or -100 % to 100 % where that is too short."""
    bar = None
    if tile.marks is not None:
        start = -0.25 if tile.marks[0] >= -0.25 else -1.0

        def place(value: float) -> float:
            return round(4 + 192 * (min(1.0, max(start, value)) - start) / (1 - start), 1)

        low, value, high = map(place, tile.marks)
        bar = {"low": low, "value": value, "high": high, "left": place(start), "zero": place(0), "right": place(1)}
    return asdict(tile) | {"meaning": with_conditions(tile.meaning, tile.over), "plain": tile.meaning, "bar": bar}


def _meaning_for_all(row: Sequence[dict[str, Any]]) -> str:
    """The definition of a score, with its conditions if they are the same for all models that have it."""
    over = {tile["over"] for tile in row if tile["over"]}
    return with_conditions(row[0]["plain"], over.pop() if len(over) == 1 else "")


def _section_view(
    probe: str, section: Section, readings: Sequence[Reading], heading: str, prefix: str
) -> tuple[dict[str, Any], dict[str, bytes]]:
    drawn = panels(section, readings)
    shows, verdicts = what_this_run_shows(section, readings), verdict_lines(section, readings)
    found, to_do = advice_apart(shows)
    label = f"{section.title} {' '.join(f'{line}.' for line in shows)}"
    svg, png = figures.svg_and_png(drawn)
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in section.name or probe)
    answers = {} if heading else findings_by_model(section, readings)
    view = {
        "id": f"{prefix}-{name}",
        "probe": section.name or probe,
        "kicker": (section.name or probe).replace(f"-{section.relevant}", f", {in_words(section.relevant)}"),
        "title": section.title,
        "heading": heading or finding_of_models(section, answers, shows),
        "answers": answers,
        "question": section.question,
        "paper": section.paper,
        "how_to_read": how_to_read(section, drawn),
        "caption": caption_of(section, drawn),
        "shows": found if section.says else verdicts,  # a line per curve would repeat the figure
        "to_do": to_do,
        "full": figures.is_full_width(drawn),
        "thumb": drawing.inline(figures.narrow_svg(drawn[:1]), f"{prefix}t", section.title),
        "wide": drawing.inline(svg, f"{prefix}w", label),
        "narrow": drawing.inline(figures.narrow_svg(drawn), f"{prefix}n", label),
        "settings": _asked_lines(probe, section, readings),
        "tasks": [{"model": reading.label, "drawn": small_multiples(probe, section, reading)} for reading in readings],
        "table": figure_table(section, readings),
    }
    return view, {f"{name}.svg": svg.encode(), f"{name}.png": png}


def _asked_lines(probe: str, section: Section, readings: Sequence[Reading]) -> str:
    """The numbers of questions and masks, once for all models that share them."""
    labels = grouped((_asked_line(probe, section, reading), reading.label) for reading in readings)
    return " ".join(line if len(readings) == 1 else f"{', '.join(names)}: {line}" for line, names in labels.items())


def _asked_line(probe: str, section: Section, reading: Reading) -> str:
    if probe not in reading.asked:
        return "not run."
    asked = reading.asked[probe]
    if section.masks is not None:
        masks = section.masks(reading)
    else:
        counts = sorted({point.entry.masks for point in section.points(reading)})
        masks = f"masks: {', '.join(map(str, counts))}" if counts != [0] else "no masks"
    each = f"{asked.fewest:,}" if asked.fewest == asked.most else f"{asked.fewest:,} to {asked.most:,}"
    tasks = f"{len(asked.tasks)} tasks with {each} test points each" if len(asked.tasks) > 1 else f"{each} test points"
    hidden = (reading.manifest.not_visible or {}).get(probe, [])
    beyond = f" Not visible to an answer, which sees no token after its block: {', '.join(map(str, hidden))}."
    return f"{tasks}; {masks}.{beyond if hidden else ''}"


def _settings_tables(readings: Sequence[Reading]) -> list[dict[str, Any]]:
    tables = []
    for key in ("model", "settings", "versions"):
        rows = []
        for name in dict.fromkeys(name for reading in readings for name in reading.manifest[key]):
            values = [reading.manifest[key].get(name) for reading in readings]
            differs = key == "settings" and any(value != values[0] for value in values)
            rows.append({"name": name.replace("_", " "), "cells": list(map(cell, values)), "differs": differs})
        tables.append({"title": key.capitalize(), "rows": rows})
    return tables


def _short_count(count: int) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def _commands(readings: Sequence[Reading], compared: bool) -> dict[str, Any]:
    folders = " ".join(shlex.quote(str(reading.folder)) for reading in readings)
    measured = dict.fromkeys(reading.manifest.command for reading in readings)
    return {
        "measure": [command for command in measured if command],
        "draw": f"maskwise {'compare' if compared else 'report'} {folders}",
    }
