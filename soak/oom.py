"""python -m soak.oom [MODEL] [--out FILE]: a CUDA device runs out of memory in a run; the result is the same.

1. Diagnose the model with all memory, and note the most that was allocated.
2. Diagnose it again with a half of that, a third, ... (torch.cuda.set_per_process_memory_fraction) until an allocation
   fails. The batch halves each time one does.
3. Both runs must be complete and give the same answers to the same questions. Their digits may differ by rounding,
   since the batches are others: the largest difference is output.
"""

import argparse
import gc
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from maskwise.cli import app
from maskwise.records.folder import read_run
from maskwise.records.record import Record, key_of
from maskwise.support.files import to_json

SHARES = (0.5, 0.35, 0.25, 0.15, 0.1)  # of the memory that the first run took
NUMBERS = ("confidence", "entropy", "nll")


def main() -> None:
    given = argparse.ArgumentParser(prog="python -m soak.oom", description=(__doc__ or "").splitlines()[0])
    given.add_argument("model", nargs="?", default="tiny-llada")
    given.add_argument("--out", type=Path, help="JSON file of what was found")
    asked = given.parse_args()
    if not torch.cuda.is_available():
        sys.exit("soak.oom needs a CUDA device")
    found = run_out_of_memory(asked.model)
    print(to_json(found, indent=1))
    if asked.out is not None:
        asked.out.write_text(to_json(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if found["same_answers"] else 1)


def run_out_of_memory(model: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        torch.cuda.reset_peak_memory_stats()
        with_all = _diagnosed(model, Path(made) / "whole")
        most, total = torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory
        for share in SHARES:
            gc.collect()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_stats()["num_ooms"]
            torch.cuda.set_per_process_memory_fraction(share * most / total)
            with_less = _diagnosed(model, Path(made) / f"limited-{share}")
            failed = torch.cuda.memory_stats()["num_ooms"] - before
            if failed:
                break
        else:
            raise AssertionError(f"no allocation failed with {SHARES[-1]:.0%} of {most / 1e9:.2f} GB")
    about = {"model": model, "device": torch.cuda.get_device_name(), "gb_with_all": round(most / 1e9, 3)}
    return (
        about
        | {"gb_allowed": round(share * most / 1e9, 3), "failed_allocations": failed}
        | compare(with_all, with_less)
    )


def _diagnosed(model: str, out: Path, device: str = "cuda") -> list[Record]:
    """The run's records; what it prints is not looked at."""
    line = f"diagnose {model} --quick --probes location,mask-count --points 32 --device {device} --json --out {out}"
    app(line.split(), standalone_mode=False)
    assert json.loads((out / "manifest.json").read_text())["complete"]
    return read_run(out).records


def compare(wanted: list[Record], found: list[Record]) -> dict[str, Any]:
    """Whether the same questions have the same answers, and how far their numbers are apart at most."""
    ours, theirs = ({key_of(record): record for record in records} for records in (wanted, found))
    shared = ours.keys() & theirs.keys()
    changed = [key for key in shared if ours[key]["predicted"] != theirs[key]["predicted"]]
    apart = max((abs(ours[key][name] - theirs[key][name]) for key in shared for name in NUMBERS), default=0.0)
    same = not changed and len(shared) == len(ours) == len(theirs)
    return {"records": len(ours), "changed_answers": len(changed), "same_answers": same, "largest_difference": apart}


if __name__ == "__main__":
    main()
