"""python -m soak [--processes N] [--minutes M]: the campaigns, in parts, several side by side.

FOLDER/soak.json (--out FOLDER) holds what is done and its totals; it is written after every part, and started again
the campaign goes on with the parts it does not hold, those that failed last. After M minutes no part is begun, and
those that have not ended two minutes later are stopped and begun again the next time. The full figures: --fuzz 1000000
--kills 200 --prompts 10000 --records 1000000. Other fuzz cases, and nothing else: --only fuzz --seed 1.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from maskwise.support.files import replace_file, to_json
from soak.parts import part_names

SECONDS_TO_END = 120  # for parts under way when the time is over
SECONDS_A_PART = 1500  # unless said otherwise; one that takes longer hangs

# What the parts of a kind add up to, and what is the largest of them.
SUMS = ("cases", "results", "refusals", "tracebacks", "hangs", "kills", "interrupts", "runs", "writes", "kill", "torn",
        "completed", "cuts", "commands", "silent", "prompts", "records")  # fmt: skip
LARGEST = ("slowest_seconds", "memory_gb", "seconds_alone", "wall_seconds", "cpu_seconds", "gb")

Done = dict[str, dict[str, Any]]


def main() -> None:
    given = argparse.ArgumentParser(prog="python -m soak", description=(__doc__ or "").splitlines()[0])
    for name, number in (("fuzz", 10_000), ("kills", 12), ("prompts", 200), ("records", 100_000)):
        given.add_argument(f"--{name}", type=int, default=number)
    given.add_argument("--processes", type=int, default=1, help="parts that run side by side")
    given.add_argument("--minutes", type=float, default=float("inf"), help="after which it stops by itself")
    given.add_argument("--part-seconds", type=float, default=SECONDS_A_PART, help="a part that takes longer hangs")
    given.add_argument("--only", help="kinds of parts with commas between them, for example fuzz,disks")
    given.add_argument("--seed", type=int, default=0, help="of the fuzz cases")
    given.add_argument("--out", type=Path, default=Path("runs/soak"))
    asked = given.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    names = part_names(asked.fuzz, asked.kills, asked.prompts, asked.records, asked.seed)
    if asked.only:
        names = [name for name in names if name.split()[0] in asked.only.split(",")]
    done = run(names, asked.out / "soak.json", asked.processes, 60 * asked.minutes, asked.part_seconds)
    print(table(names, done))
    sys.exit(1 if any("failed" in done.get(name, {}) for name in names) else 0)


def run(
    names: Sequence[str],
    file: Path,
    processes: int = 1,
    seconds: float = float("inf"),
    part_seconds: float = SECONDS_A_PART,
) -> Done:
    """Runs the parts that the file does not hold yet, then those that failed; returns all that are done."""
    done: Done = json.loads(file.read_text())["parts"] if file.exists() else {}
    left = [name for name in names if name not in done] + [name for name in names if "failed" in done.get(name, {})]
    over = time.monotonic() + seconds
    running: list[_Part] = []
    with tempfile.TemporaryDirectory() as made:
        try:
            while running or (left and time.monotonic() < over):
                while left and len(running) < processes and time.monotonic() < over:
                    running.append(_Part(left.pop(0), Path(made), part_seconds))
                time.sleep(0.05)
                for part in [part for part in running if part.has_ended()]:
                    running.remove(part)
                    done[part.name] = part.found()
                    replace_file(file, [to_json({"totals": totals(done), "machine": _machine(), "parts": done})])
                    sys.stderr.write(f"{part.name}: {to_json(done[part.name])}\n")
                if time.monotonic() > over + SECONDS_TO_END:
                    break
        finally:
            for part in running:
                part.stop()
    return done


class _Part:
    """A part under way, in a process that leads a group of its own: what it started ends with it."""

    def __init__(self, name: str, folder: Path, seconds: float) -> None:
        self.name, self.began, self.seconds = name, time.monotonic(), seconds
        self.hung = False
        self.file = folder / f"{name.replace(' ', '-')}.json"
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        line = [sys.executable, "-m", "soak.parts", name, str(self.file)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(
            line, env=environment, stdout=nowhere, stderr=self.errors, start_new_session=True
        )

    def has_ended(self) -> bool:
        if time.monotonic() - self.began > self.seconds and self.process.poll() is None:
            self.hung = True
            self.stop()
        return self.process.poll() is not None

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def found(self) -> dict[str, Any]:
        took = {"seconds": round(time.monotonic() - self.began, 1)}
        if self.file.exists():
            return json.loads(self.file.read_text()) | took
        if self.hung:
            return {"failed": f"the part did not end in {self.seconds:g} s", "hangs": 1} | took
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace")[-2000:]
        return {"failed": f"the part ended with status {self.process.returncode}: {said}"} | took


def totals(done: Done) -> Done:
    """Of each kind of part, and of each command that was disturbed."""
    found: Done = {}
    for name, result in done.items():
        kind, *rest = name.split()
        label = kind if kind == "fuzz" or not rest or rest[0].isdigit() else f"{kind} {rest[0]}"
        total = found.setdefault(label, {"parts": 0, "failures": 0, "seconds": 0.0})
        total["parts"] += 1
        total["failures"] += "failed" in result
        total["seconds"] = round(total["seconds"] + result["seconds"], 1)
        for key in SUMS:
            if key in result:
                total[key] = total.get(key, 0) + result[key]
        for key in LARGEST:
            if key in result:
                total[key] = max(total.get(key, 0), result[key])
    return found


def table(names: Sequence[str], done: Done) -> str:
    """What was done, a line for each kind, then every failure."""
    lines = [
        f"{label:16} {', '.join(f'{key} {value}' for key, value in total.items())}"
        for label, total in totals({name: done[name] for name in names if name in done}).items()
    ]
    failed = [f"FAILED {name}: {done[name]['failed'][:600]}" for name in names if "failed" in done.get(name, {})]
    left = sum(name not in done for name in names)
    return "\n".join([*lines, *failed, f"{len(names) - left} of {len(names)} parts are done"])


def _machine() -> dict[str, Any]:
    from importlib.metadata import version

    packages = {name: version(name) for name in ("torch", "transformers", "peft", "accelerate")}
    return {"python": platform.python_version(), "cores": os.cpu_count(), **packages}


if __name__ == "__main__":
    main()
