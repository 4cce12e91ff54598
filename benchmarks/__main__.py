"""Speed and memory, each row against a plain reference in the same run.

    make bench                # every row: toy shapes on CPU, the full published ones on CUDA
    make bench ROWS=a,c,c-dream
    python -m benchmarks --rows a,c --out results.json

Each row first compares results, then prints the medians of ours and of the plain reference, their ratio, the share of
the matrix-product ceiling measured in the same run (MFU), and peak memory. Bars hold for full shapes only.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.decode import decoding
from benchmarks.fewer_bits import fewer_bits
from benchmarks.linear_ce_tv import linear_ce_tv
from benchmarks.measure import Bench, Line, matrix_ceiling
from benchmarks.moe import moe
from benchmarks.probe import long_prompts
from benchmarks.short import short_generations
from benchmarks.step import tuning_step
from benchmarks.training_step import training_step

ROWS: dict[str, Callable[[Bench], Iterable[Line]]] = {
    "a": partial(long_prompts, kind="llada"),
    "c": partial(tuning_step, kind="llada"),
    "c-dream": partial(tuning_step, kind="dream"),
    "d": linear_ce_tv,
    "f": partial(decoding, kind="llada"),
    "f-dream": partial(decoding, kind="dream"),
    "j": training_step,
    "l": moe,
    "m": short_generations,
    "n": fewer_bits,
}
LONGEST_ROW = 300  # seconds, compilation included; the measuring itself takes less than two minutes
HEADINGS = ("row", "case", "ours", "plain", "unit", "ratio", "MFU", "plain MFU", "GiB", "plain GiB", "bar", "met")


def main() -> int:
    options = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    options.add_argument("--rows", default=",".join(ROWS), help=f"some of {','.join(ROWS)}, separated by commas")
    options.add_argument("--out", type=Path, help="also write everything as JSON to this file")
    given = options.parse_args()
    rows = given.rows.split(",")
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        options.error(f"no row {', '.join(unknown)}: there are {', '.join(ROWS)}")
    cuda = torch.cuda.is_available()
    # On CUDA each row has a process of its own: what one leaves in memory, or breaks, is nothing to the next.
    run = apart if cuda and len(rows) > 1 else here
    found: dict[str, Any] = {
        "machine": machine("cuda" if cuda else "cpu"),
        "ceilings": [],
        "seconds": {},
        "lines": [],
        "failed": [],
    }
    for row in rows:
        print(f"row {row} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        run(row, torch.device("cuda" if cuda else "cpu"), found, given.out)
        found["seconds"][row] = round(time.monotonic() - began)
    save(found, given.out)
    show(found)
    return 1 if found["failed"] else 0


def here(row: str, device: torch.device, found: dict[str, Any], out: Path | None) -> None:
    """Adds the lines of a row as they come, and writes them, so that a row cut short keeps what it has."""
    bench = Bench(device, device.type == "cuda", matrix_ceiling(device))
    found["ceilings"].append(bench.ceiling / 1e12)
    try:
        for entry in ROWS[row](bench):
            found["lines"].append(entry.as_json())
            save(found, out)
    except (AssertionError, RuntimeError):  # results that differ, and whatever torch says; the other rows go on
        traceback.print_exc()
        found["failed"].append(row)
    save(found, out)


def apart(row: str, device: torch.device, found: dict[str, Any], out: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        command = [sys.executable, "-m", "benchmarks", "--rows", row, "--out", str(file)]
        try:
            status = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=LONGEST_ROW).returncode
        except subprocess.TimeoutExpired:
            print(f"row {row} took more than {LONGEST_ROW} s: what it had is kept", file=sys.stderr, flush=True)
            status = 1
        part = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"lines": [], "ceilings": []}
    found["lines"] += part["lines"]
    found["ceilings"] += part["ceilings"]
    found["failed"] += [row] if status else []
    save(found, out)


def save(found: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def machine(kind: str) -> dict[str, str]:
    card = torch.cuda.get_device_name() if kind == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    packages = {name: version(name) for name in ("torch", "transformers", "peft")}
    return {"device": card, "python": platform.python_version(), **packages}


def show(found: dict[str, Any]) -> None:
    """A short table, last of all that is printed."""
    print(", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    print("matrix product ceiling, TFLOP/s:", ", ".join(f"{value:.3g}" for value in found["ceilings"]))
    print("seconds, all included:", ", ".join(f"row {row} {taken}" for row, taken in found["seconds"].items()))
    table = [HEADINGS, *(_cells(entry) for entry in found["lines"])]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if found["failed"]:
        print(f"failed: {', '.join(found['failed'])}")


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: ""}[entry["met"]]
    ours, plain, *rest = (
        "" if entry[name] is None else f"{entry[name]:.3g}"
        for name in ("ours", "plain", "ratio", "mfu", "plain_mfu", "peak", "plain_peak")
    )
    return (entry["row"], entry["case"], ours, plain, entry["unit"], *rest, entry["bar"], met)


if __name__ == "__main__":
    sys.exit(main())
