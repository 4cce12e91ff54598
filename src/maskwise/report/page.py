"""The report: one self-contained HTML file for one run or several, and its figures as files.

The first screen (screen.py), then a section for each probe (section.py), prompts as the model was given them, and how
the run was made. English stands in the templates and in the docstrings of the probes.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from maskwise.probes import PROBES
from maskwise.records.folder import RunOnDisk
from maskwise.report.measured import MeasuredRun, as_strangers_wrote_them, labels_of, screens_of
from maskwise.report.prompts import environment
from maskwise.report.screen_view import screen_view
from maskwise.report.section import Section, sections
from maskwise.support.errors import UserError
from maskwise.support.files import OTHER_FOLDER, refuse_links, replace_file, writing
from maskwise.support.version import __version__

MOST_PROMPTS = 6  # shown of a probe
HERE = Path(__file__).parent


def write_page(runs: Sequence[MeasuredRun], out: Path, rows: Sequence[Any] = ()) -> Path:
    """Draws the page of these runs into `out`; returns its path. rows: of a comparison with the first run.

    Everything is drawn before anything is written, and the page comes last: it never names what is not there."""
    with as_strangers_wrote_them(runs):
        page, drawings = build(runs, rows)
    path = out / "report.html"
    with writing(f"the report into {out}", OTHER_FOLDER):
        refuse_links(out)
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for name, content in drawings.items():
            replace_file(out / "figures" / name, content)
        replace_file(path, [page])
    return path


def build(runs: Sequence[MeasuredRun], rows: Sequence[Any] = ()) -> tuple[str, dict[str, bytes]]:
    """The page's text, and the figures by file name."""
    for run in runs:
        refuse_empty(run)
    screens, shown = screens_of(runs), sections_of(runs)
    drawings = {
        f"{section.probe.name}{'' if number == 0 else f'-{number}'}.{kind}": content
        for section in shown
        for number, files in enumerate(section.drawn)
        for kind, content in files.items()
    }
    page = (
        environment()
        .get_template("page.html.jinja")
        .render(
            version=__version__,
            css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
            title=", ".join(one.label for one in screens),
            models=screens,
            first=screen_view(screens),
            rows=rows,
            sections=[one.view(f"s{n}-", {own.label: own.stated for own in screens}) for n, one in enumerate(shown)],
            prompts=[(own.label, prompt) for own in screens for prompt in own.prompts],
            most_prompts=MOST_PROMPTS,
            differing=differing_settings(runs),
            settings=settings_table(runs),
            commands=[one for one in dict.fromkeys(run.manifest.command for run in runs) if isinstance(one, str)],
        )
    )
    return page, drawings


def first_screen(runs: Sequence[MeasuredRun]) -> str:
    """The first screen alone, as HTML for a notebook's cell: a frame, so that several cells do not share ids."""
    with as_strangers_wrote_them(runs):
        body = environment().get_template("screen.html.jinja").render(first=screen_view(screens_of(runs)))
    page = f"<style>{(HERE / 'page.css').read_text(encoding='utf-8')}</style>{body}"
    return f'<iframe srcdoc="{escape(page)}" style="width: 100%; height: 52rem; border: 0"></iframe>'


def sections_of(runs: Sequence[RunOnDisk]) -> list[Section]:
    tables = {label: run.tables for label, run in zip(labels_of(runs), runs, strict=True)}
    return sections(PROBES, tables)


def refuse_empty(run: RunOnDisk) -> None:
    if not any(probe.name in run.tables for probe in PROBES):
        raise UserError(f"{run.folder} holds no records of a probe yet; run maskwise diagnose --out {run.folder} first")


def home_of(runs: Sequence[RunOnDisk]) -> Path:
    """The default folder of a page: its run's, or for several runs one next to the first, named after them all."""
    if len(runs) == 1:
        return runs[0].folder
    names = "\n".join(str(run.folder.resolve()) for run in runs)
    return runs[0].folder.resolve().parent / f"side-by-side-{hashlib.sha256(names.encode()).hexdigest()[:6]}"


# What the template shows


def differing_settings(runs: Sequence[RunOnDisk]) -> list[str]:
    """The settings that are not the same in all runs; not the list of probes: one left out draws no curve."""
    first, *others = [run.manifest.settings for run in runs]
    names = sorted({name for settings in (first, *others) for name in settings} - {"probes"})
    return [n.replace("_", " ") for n in names if any(getattr(one, n) != getattr(first, n) for one in others)]


def settings_table(runs: Sequence[RunOnDisk]) -> list[tuple[str, list[Any]]]:
    """(setting, its value in each run)"""
    parts = [{**run.manifest.settings.to_dict(), **run.manifest.versions} for run in runs]
    names = dict.fromkeys(name for part in parts for name in part)
    return [(name.replace("_", " "), [part.get(name, "") for part in parts]) for name in names]
