"""The report: one self-contained HTML file for one run or several, and its figures as files.

The first screen (screen.py), then a section for each probe (section.py), prompts as the model was given them, and how
the run was made. All English stands in page.html.jinja and in the docstrings of the probes.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from maskwise.probes import PROBES
from maskwise.records.folder import RunOnDisk
from maskwise.records.sample import read_sample
from maskwise.report.prompts import environment
from maskwise.report.screen import screen_of
from maskwise.report.screen_view import screen_view
from maskwise.report.section import Section, sections
from maskwise.support.errors import UserError
from maskwise.support.files import OTHER_FOLDER, refuse_links, replace_file, writing
from maskwise.support.version import __version__

LONGEST_LABEL, MOST_PROMPTS = 48, 6  # characters; prompts shown of a probe
HERE = Path(__file__).parent


def write_page(runs: Sequence[RunOnDisk], out: Path, rows: Sequence[Any] = ()) -> Path:
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


def build(runs: Sequence[RunOnDisk], rows: Sequence[Any] = ()) -> tuple[str, dict[str, bytes]]:
    """The page's text, and the figures by file name."""
    for run in runs:
        refuse_empty(run)
    labels = labels_of(runs)
    prompts = {label: read_sample(run.folder, run.manifest) for label, run in zip(labels, runs, strict=True)}
    shown = sections_of(runs)
    drawings = {
        f"{section.probe.name}{'' if number == 0 else f'-{number}'}.{kind}": content
        for section in shown
        for number, files in enumerate(section.drawn)
        for kind, content in files.items()
    }
    screens = [screen_of(run, label) for label, run in zip(labels, runs, strict=True)]
    page = (
        environment()
        .get_template("page.html.jinja")
        .render(
            version=__version__,
            css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
            title=", ".join(labels),
            models=screens,
            first=screen_view(screens),
            rows=rows,
            sections=[one.view(f"s{n}-", {own.label: own.stated for own in screens}) for n, one in enumerate(shown)],
            prompts=[(label, one) for label, listed in prompts.items() for one in listed],
            most_prompts=MOST_PROMPTS,
            differing=differing_settings(runs),
            settings=settings_table(runs),
            commands=[one for one in dict.fromkeys(run.manifest.command for run in runs) if isinstance(one, str)],
        )
    )
    return page, drawings


def first_screen(runs: Sequence[RunOnDisk]) -> str:
    """The first screen alone, as HTML for a notebook's cell: a frame, so that several cells do not share ids."""
    with as_strangers_wrote_them(runs):
        first = screen_view([screen_of(run, label) for label, run in zip(labels_of(runs), runs, strict=True)])
        body = environment().get_template("screen.html.jinja").render(first=first)
    page = f"<style>{(HERE / 'page.css').read_text(encoding='utf-8')}</style>{body}"
    return f'<iframe srcdoc="{escape(page)}" style="width: 100%; height: 52rem; border: 0"></iframe>'


def sections_of(runs: Sequence[RunOnDisk]) -> list[Section]:
    tables = {label: run.tables for label, run in zip(labels_of(runs), runs, strict=True)}
    return sections(PROBES, tables)


@contextmanager
def as_strangers_wrote_them(runs: Sequence[RunOnDisk]) -> Iterator[None]:
    """Turns errors from malformed answers into a UserError.

    The fields of each line are checked, but in an untrusted folder numbers may be too large to be drawn or summed, or
    all answers of a condition may be missing."""
    try:
        with np.errstate(over="raise"):
            yield
    except (LookupError, ValueError, ArithmeticError, StopIteration) as problem:
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise UserError(
            f"{', '.join(str(run.folder) for run in runs)}: the records do not hold what their probes measure "
            f"({reason}); if maskwise wrote them, this is a bug of ours: please report it"
        ) from problem


def refuse_empty(run: RunOnDisk) -> None:
    if not any(probe.name in run.tables for probe in PROBES):
        raise UserError(f"{run.folder} holds no records of a probe yet; run maskwise diagnose --out {run.folder} first")


# Names


def home_of(runs: Sequence[RunOnDisk]) -> Path:
    """The default folder of a page: its run's, or for several runs one next to the first, named after them all."""
    if len(runs) == 1:
        return runs[0].folder
    names = "\n".join(str(run.folder.resolve()) for run in runs)
    return runs[0].folder.resolve().parent / f"side-by-side-{hashlib.sha256(names.encode()).hexdigest()[:6]}"


def labels_of(runs: Sequence[RunOnDisk]) -> list[str]:
    """The last part of each model's name (`GSAI-ML/LLaDA-8B-Base` is LLaDA-8B-Base), with more only where two agree."""
    models = [run.manifest.model for run in runs]
    names = [f"{model.name} (planted)" if model.planted else model.name for model in models]
    labels = list(map(last_part, names))
    labels = [own if labels.count(own) == 1 else name for own, name in zip(labels, names, strict=True)]
    folders = [run.folder.resolve().name for run in runs]
    labels = [own if labels.count(own) == 1 else f"{own} ({f})" for own, f in zip(labels, folders, strict=True)]
    return [own if labels.count(own) == 1 else f"{own} #{labels[: at + 1].count(own)}" for at, own in enumerate(labels)]


def last_part(name: str) -> str:
    """The last part of a path or a hub name; any other text on one line, shortened."""
    if re.fullmatch(r"[\w.:~ /\\+()-]+", name):
        name = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or name
    line = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 1] + "…"


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
