"""The second paper's probes on the terminal: what each measures, the areas of the rules, and the verdicts."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

# What a probe measures, and how its column is called; the accuracy of the first token says little here.
MEASURED = {
    "marginals": {"entropy": "entropy", "confidence": "top", "common": "frequent", "tv_next": "to next",
                  "tv_unigram": "to unigram"},
    "total-correlation": {"tc": "nats", "tc_low": "low", "tc_high": "high", "forth": "forth", "back": "back"},
    "order": {"tau": "tau", "global1": "global@1", "global4": "global@4", "local1": "local@1", "local4": "local@4"},
}  # fmt: skip


def coherence_tables(summary: dict[str, Any]) -> Iterator[Table]:
    for probe, columns in MEASURED.items():
        if entries := summary["probes"].get(probe):
            yield _measures(probe, columns, entries)
    if areas := summary.get("aup"):
        yield _areas(areas)
    if claims := summary.get("claims"):
        yield _claims(claims)


def verdict_number(claim: dict[str, Any]) -> str:
    """66.6 %, 57.1 to 76.0; or 1.86 nats, 1.60 to 2.12; of a loss also what there was to lose."""
    share = claim["unit"] in ("share", "points")
    known = [number for number in (claim["value"], claim["low"], claim["high"]) if number is not None]
    value, *ends = [f"{100 * number:.1f}" if share else f"{number:.2f}" for number in known]
    unit = {"share": "\u00a0%", "points": "\u00a0points", "nats": "\u00a0nats", "": ""}[claim["unit"]]
    skill = f", of {100 * claim['skill']:.0f}\u00a0%" if "skill" in claim else ""
    return f"{value}{unit}{f', {ends[0]} to {ends[1]}' if ends else ''}{skill}".replace("-", "\u2212")


def _measures(probe: str, columns: dict[str, str], entries: list[dict[str, Any]]) -> Table:
    table = _table(probe)
    keys = list(entries[0]["condition"])
    for key in keys:
        table.add_column(Text(key))
    for name in ("n", *columns.values()):
        table.add_column(name, justify="right")
    for entry in entries:
        values = [entry.get(key) for key in columns]
        told = ["" if value is None else f"{value:.3f}" for value in values]
        table.add_row(*(Text(str(entry["condition"][key])) for key in keys), str(entry["n"]), *told)
    return table


def _areas(areas: dict[str, dict[str, dict[str, float]]]) -> Table:
    table = _table("coherence: area under accuracy against speed (perfect)")
    table.add_column("rule")
    for puzzle in areas:
        table.add_column(puzzle, justify="right")
    for rule in next(iter(areas.values())):
        cells = [rules.get(rule) for rules in areas.values()]
        table.add_row(rule, *(f"{cell['aup']:.2f} ({cell['ideal']:.2f})" if cell else "" for cell in cells))
    return table


def _claims(claims: list[dict[str, Any]]) -> Table:
    table = _table("the second paper's claims, 95 % intervals")
    for name in ("claim", "measured", "verdict"):
        table.add_column(name)
    for claim in claims:
        table.add_row(claim["claim"], f"{claim['measure']}: {verdict_number(claim)}", Text(claim["verdict"], "bold"))
    return table


def _table(title: str) -> Table:
    return Table(title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False, header_style="dim")
