"""python -m soak [--fuzz N] [--kills N] [--prompts N] [--records N] [--out FOLDER]: the campaigns, in parts.

Each part that is done is written to FOLDER/soak.json at once; started again, the campaign goes on with the next part.
The full figures: --fuzz 1000000 --kills 200 --prompts 10000 --records 1000000.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwise.files import replace_file, to_json

PART = 10_000  # fuzz cases that are done between two writes


def main() -> None:
    given = argparse.ArgumentParser(prog="python -m soak", description=(__doc__ or "").splitlines()[0])
    for name, number in (("fuzz", 10_000), ("kills", 12), ("prompts", 200), ("records", 100_000)):
        given.add_argument(f"--{name}", type=int, default=number)
    given.add_argument("--out", type=Path, default=Path("runs/soak"))
    asked = given.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    parts = {f"fuzz {first}": lambda first=first: _fuzz(first, asked.fuzz) for first in range(0, asked.fuzz, PART)}
    parts |= {
        f"kills {asked.kills}": lambda: _module("kills").kill(asked.kills),
        "disks": lambda: _module("kills").fill_disks(),
        "torn": lambda: _module("records").cut_everywhere(),
        "sockets": lambda: _module("records").without_sockets(),
        f"prompts {asked.prompts}": lambda: _module("records").many_prompts(asked.prompts),
        f"records {asked.records}": lambda: _module("records").many_records(asked.records),
    }
    sys.exit(1 if run(parts, asked.out / "soak.json") else 0)


def run(parts: dict[str, Callable[[], Any]], file: Path) -> int:
    """Runs the parts that the file does not hold yet; returns the number of failures."""
    done = json.loads(file.read_text()) if file.exists() else {}
    for name, part in parts.items():
        if name in done and "failed" not in done[name]:
            continue
        began = time.monotonic()
        try:
            done[name] = part()
        except AssertionError as problem:
            done[name] = {"failed": str(problem)[:2000]}
        done[name] |= {"seconds": round(time.monotonic() - began, 1)}
        replace_file(file, [to_json(done, indent=1)])
        sys.stderr.write(f"{name}: {to_json(done[name])}\n")
    return sum("failed" in done[name] for name in parts)


def _fuzz(first: int, last: int) -> dict[str, Any]:
    found = _module("fuzz").fuzz(range(first, min(first + PART, last)))
    summary: dict[str, Any] = found.summary()
    return summary | ({"failed": f"{len(found.failures)} kinds"} if found.failures else {})


def _module(name: str) -> Any:
    """Imported when its turn comes: a killed part's torch would stay in memory."""
    import importlib

    return importlib.import_module(f"soak.{name}")


if __name__ == "__main__":
    main()
