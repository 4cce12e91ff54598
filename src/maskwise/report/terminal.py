"""A run's summary on the terminal: the scores, then each probe's curve with its mask counts."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from maskwise.probes.settings import COHERENCE_PROBES
from maskwise.report.coherence_tables import coherence_tables
from maskwise.report.words import MEANINGS, Row, between, nothing_differed, number, percent

BAR = 20


def print_summary(summary: dict[str, Any]) -> None:
    """On standard output. Names come from data, so they are printed as they are and never read as markup."""
    console = Console(highlight=False)
    console.print(Text(f"\n{summary['model']}", style="bold"))
    console.print(_scores(summary))
    for probe, entries in summary["probes"].items():
        if probe in COHERENCE_PROBES:
            continue
        short = [entry for entry in entries if not {"example", "layer"} & entry["condition"].keys()]
        if short:
            console.print(_curve(probe, short))
        elif entries:
            console.print(Text(f"{probe}: {len(entries)} values, drawn in the report", style="dim"))
    for table in coherence_tables(summary):
        console.print(table)


def _scores(summary: dict[str, Any]) -> Table:
    table = Table("score", "value", "95 % interval", "what it is", box=None, pad_edge=False, header_style="dim")
    for key, (name, meaning) in MEANINGS.items():
        score = summary["scores"][key]
        interval = between(score["low"], score["high"]) if score["value"] is not None else ""
        interval = nothing_differed(key, summary) or interval
        table.add_row(name, Text(percent(score["value"]), style="bold"), interval, Text(meaning, style="dim"))
    return table


def _curve(probe: str, entries: list[dict[str, Any]]) -> Table:
    """A row per condition. The condition's columns are whatever the probe varied."""
    keys = list(dict.fromkeys(key for entry in entries for key in entry["condition"] if key != "masks"))
    with_nll = any("nll" in entry for entry in entries)
    with_evidence = any("evidence" in entry for entry in entries)
    table = Table(title=Text(probe, style="bold"), title_justify="left", box=None, pad_edge=False, header_style="dim")
    for key in keys:
        table.add_column(Text(key))
    more = [*(["NLL"] if with_nll else []), *(["measured"] if with_evidence else [])]
    for name in ["masks", "n", "right", "95 % interval", *more]:
        table.add_column(name, justify="right")
    table.add_column("", no_wrap=True)
    for entry in entries:
        accuracy = entry["accuracy"]
        table.add_row(
            *(Text(str(entry["condition"].get(key, ""))) for key in keys),
            str(entry["masks"]),
            str(entry["n"]),
            percent(accuracy, 1),
            between(entry["low"], entry["high"], 1),
            *([number(entry.get("nll"))] if with_nll else []),
            *([number(entry.get("evidence"))] if with_evidence else []),
            Text("━" * round(BAR * accuracy) if accuracy is not None else "", style="blue"),
        )
    return table


def print_changes(labels: Sequence[str], rows: Sequence[Row]) -> None:
    """A comparison on standard output: each measure of each model, and the change from the first."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    changed = ["change"] if len(labels) == 2 else [f"change: {label}" for label in labels[1:]]
    for name in ("", *labels, *changed):
        table.add_column(Text(name))
    for row in rows:
        table.add_row(row.name, *(Text(value, style="bold") for value in row.values), *map(Text, row.changes))
    Console(highlight=False).print(table)
