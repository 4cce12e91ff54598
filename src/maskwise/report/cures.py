"""The league of cures as a person sees it: a table, a figure, and what it shows."""

from typing import Any

from rich.table import Table

from maskwise.report.bars import Bar, draw_bars
from maskwise.report.words import between, p_value, percent, points

NEEDS_ADAPTER = "needs --adapter"


def cures_table(found: dict[str, Any]) -> Table:
    table = Table("cure", box=None, pad_edge=False, header_style="dim", title_justify="left",
                  title=f"{found['model']}, {found['masks']} masks, {found['n']} questions")  # fmt: skip
    for name in ("right", "95 % interval", "against nothing", "tokens a pass"):
        table.add_column(name, justify="right", no_wrap=name != "tokens a pass")
    table.add_column("training")
    two = found["two_masks"]
    table.add_row("two masks only", percent(two["accuracy"], 1), between(two["low"], two["high"], 1), "", "", "none")
    for entry in found["cures"]:
        speed = f"{entry['tokens_per_pass']:g}"
        if entry["accuracy"] is None:
            table.add_row(entry["cure"], "", "", "", speed, NEEDS_ADAPTER)
            continue
        interval = between(entry["low"], entry["high"], 1)
        table.add_row(entry["cure"], percent(entry["accuracy"], 1), interval, _against(entry), speed, entry["training"])
    return table


def _against(entry: dict[str, Any]) -> str:
    if entry["cure"] == "nothing":
        return ""
    return f"{points(entry['difference'])}, {p_value(entry['p'])}"


def cures_figure(found: dict[str, Any]) -> tuple[str, bytes]:
    """(SVG, PNG)"""
    two = found["two_masks"]
    bars = [Bar("two masks only", (two["accuracy"],), (two["low"], two["high"]), "for comparison")]
    for entry in found["cures"]:
        if entry["accuracy"] is not None:
            trained = "" if entry["training"] == "none" else ", trained"
            note = f"{entry['tokens_per_pass']:g} tokens a pass{trained}"
            bars.append(Bar(entry["cure"], (entry["accuracy"],), (entry["low"], entry["high"]), note))
    title = f"{found['model']}: right answers with {found['masks']} masks under each cure"
    return draw_bars(bars, ("right",), title, "Right answers (line: 95 % interval over tasks)")


def what_it_shows(found: dict[str, Any]) -> list[str]:
    """Two sentences: what the masks cost, and which cures bring it back."""
    measured = [entry for entry in found["cures"] if entry["accuracy"] is not None]
    nothing, two = measured[0], found["two_masks"]
    lost = two["accuracy"] - nothing["accuracy"]
    helped = [entry for entry in measured[1:] if entry["p"] < 0.05 and entry["difference"] > 0]
    best = max(measured, key=lambda entry: entry["accuracy"])
    cost = (
        f"With {found['masks']} masks instead of two, {percent(nothing['accuracy'])} of the answers are right instead "
        f"of {percent(two['accuracy'])} ({points(-lost)})."
    )
    if not helped:
        return [cost, f"No cure is better than nothing beyond chance (p < .05) on these {found['n']} questions."]
    names = ", ".join(entry["cure"] for entry in helped)
    return [
        cost,
        f"Better than nothing beyond chance (p < .05): {names}; the most right answers come from {best['cure']} "
        f"({percent(best['accuracy'])}, {best['tokens_per_pass']:g} tokens a pass).",
    ]
