"""The part of a model card that states what a run measured, in Markdown: it holds no path of this machine."""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from maskwise.models.checkpoints.cards import public_name
from maskwise.records.manifest import Manifest
from maskwise.report.measured import MeasuredRun
from maskwise.report.result import NO_QUESTIONS
from maskwise.report.screen import WHAT, finding_of

HEADS = ("", "right answers", "change in points (95 %: questions; tasks)", "verdict")


def card_of(run: MeasuredRun) -> str:
    screen, manifest = run.screen, run.manifest
    rows = [
        (
            WHAT[key],
            ", ".join(f"{at}: {level.short}" for at, level in row.levels),
            row.change.text(row.change.value) + row.change.brackets(tasks=True),
            str(screen.verdicts[key]),
        )
        for key, row in screen.rows.items()
    ]
    listed = [(probe, one.name, one.short, f"{one.n:,}") for probe, found in run.measured.items() for one in found]
    parts = [
        "## Sensitivity to appended masks and use of context",
        finding_of(screen),
        f"Measured with maskwise {manifest.versions.get('maskwise', '')}; the measures are those of Piskorz et al., "
        "arXiv 2511.21338. Intervals are 95 %.",
        "" if manifest.complete else "**The run is unfinished.**",
        f"**Planted**: this model has a fault put into it on purpose, {escaped(manifest.model.planted)}."
        if manifest.model.planted
        else "",
        table(HEADS, rows) if rows else "",
        table(("probe", "estimate", "value", "questions"), listed),
        table(("setting", "value"), [(name, str(value)) for name, value in asked_of(manifest).items()]),
        command_of(manifest.command or ""),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def asked_of(manifest: Manifest) -> dict[str, Any]:
    """The model, what changes a question, and the versions, on a line each."""
    settings = {name: value for name, value in manifest.settings.to_dict().items() if name not in NO_QUESTIONS}
    listed = settings | {"tasks": ", ".join(manifest.settings.tasks), "relevant": manifest.settings.relevant}
    model = {"model": public_name(manifest.model.name), "kind": manifest.model.kind}
    return {**model, "dtype": manifest.model.dtype, **listed, **manifest.versions}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(map(escaped, line)) for line in (head, *rows)]
    lines.insert(1, ("---",) * len(head))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """On one line, with the characters escaped that Markdown or HTML would read."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", "".join(c if c.isprintable() else " " for c in text))


def command_of(command: str) -> str:
    """The command line, with the names of folders instead of their paths; empty where it is no command of ours."""
    try:
        words = shlex.split(command[:2000])
    except ValueError:
        return ""
    plain = shlex.join(public_name(word) if "/" in word or "\\" in word else word for word in words)
    return f"    {''.join(c if c.isprintable() else ' ' for c in plain)}" if words else ""
