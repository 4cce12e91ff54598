"""Figures as they come, and the table of them."""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import GIB, Bench


class Report:
    """Figures as they come, printed and appended to a file."""

    def __init__(self, bench: Bench, peers: Path, out: Path, turns: bool) -> None:
        self.bench, self.peers, self.out, self.turns = bench, peers, out, turns

    def add(self, work: str, who: str, value: float, unit: str, **more: Any) -> None:
        entry = {"work": work, "who": who, "value": value, "unit": unit, **more}
        if self.bench.full:
            entry["peak"] = round(torch.cuda.max_memory_allocated() / GIB, 1)
            torch.cuda.reset_peak_memory_stats()
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        print(entry, flush=True)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """What fails is said and the rest goes on: it is others' code, on other versions than it was made for."""
        try:
            yield
        except Exception as error:
            traceback.print_exc(limit=-4)
            self.add("failed", what, 0.0, f"{type(error).__name__}: {str(error)[:200]}")
            torch.cuda.empty_cache()

    def wait(self) -> None:
        """Says that this part has compiled; until the parts before it are over: the card is then this one's alone."""
        torch.cuda.empty_cache()
        if self.turns:
            with ready_file(self.out).open("a", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
            sys.stdin.readline()


def ready_file(out: Path) -> Path:
    """A line for each part that has compiled: the number of its process."""
    return out.with_name(f"{out.name}.ready")


def show(found: list[dict[str, Any]]) -> None:
    """A row for each kind of work, a column for each engine; steps in milliseconds."""
    names = list(dict.fromkeys(entry["who"] for entry in found if entry["work"] != "failed"))
    rows: dict[str, dict[str, str]] = {}
    for entry in (entry for entry in found if entry["work"] != "failed"):
        details = [
            f"{name.replace('at_once', 'tokens')} {entry[name]}"
            for name in ("batch", "cache", "at_once")
            if name in entry
        ]
        seconds = entry["unit"] == "s"
        value = f"{entry['value'] * 1e3:.4g}" if seconds else f"{entry['value']:.4g}"
        row = ", ".join([entry["work"], *details, "ms" if seconds else entry["unit"]])
        rows.setdefault(row, {})[entry["who"]] = value
    for row, cells in rows.items():
        print(f"{row}: " + ", ".join(f"{name} {cells[name]}" for name in names if name in cells))
    for entry in found:
        if entry["work"] == "failed":
            print(f"failed: {entry['who']}: {entry['unit']}")
