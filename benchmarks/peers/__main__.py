"""The same work done by other software's own code and by ours, in one run.

    python -m benchmarks.peers --peers FOLDER --out FILE       # the published shapes on CUDA, toys on CPU

FOLDER holds checkouts named LLaDA, Fast-dLLM, dllm and dInfer; docs/benchmarks.md says which commits. Their code is run
as it lies there (benchmarks/peer_code.py says on what stand-ins), on the same random weights as ours, so take only
checkouts that you trust.

Random weights are never sure, so the number of tokens per step is given to every engine. Each part has a process of its
own. All compile at the same time, and when all have, they measure one after the other: `--parts` names those that the
card's memory holds together (an H200: llada and the batch of 32 each alone).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from benchmarks import peer_code
from benchmarks.measure import Bench
from benchmarks.peers.dinfer import dinfer
from benchmarks.peers.llada import all_of_llada, many_prompts
from benchmarks.peers.lora import lora
from benchmarks.peers.report import Report, ready_file, show

PARTS: dict[str, Callable[[Report], None]] = {
    "llada": all_of_llada,
    "dinfer-1": partial(dinfer, size=1),
    "dinfer-8": partial(dinfer, size=8),
    "lora": lora,
    "llada-32": many_prompts,
    "dinfer-32": partial(dinfer, size=32),
}


def main() -> int:
    options = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__.splitlines()[0])
    options.add_argument("--peers", type=Path, required=True, help="the folder of checkouts")
    options.add_argument("--out", type=Path, required=True, help="figures, a JSON object a line")
    options.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}, separated by commas")
    options.add_argument("--limit", type=float, default=900.0, help="seconds after which what is there is shown")
    options.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    parts = given.parts.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        options.error(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    if given.turns:
        cuda = torch.cuda.is_available()
        report = Report(Bench(torch.device("cuda" if cuda else "cpu"), cuda, 1.0), given.peers, given.out, turns=True)
        peer_code.put_back()
        with report.attempt(f"part {parts[0]}"):
            PARTS[parts[0]](report)
        return 0
    given.out.unlink(missing_ok=True)
    ready_file(given.out).unlink(missing_ok=True)
    apart(parts, given)
    ready_file(given.out).unlink(missing_ok=True)
    show([json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines()])
    return 0


def apart(parts: list[str], given: argparse.Namespace) -> None:
    """On CUDA all start at once, as compiling is most of it; each gets a signal when it is its turn to measure."""
    deadline = time.monotonic() + given.limit
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers",
        "--peers",
        given.peers,
        "--out",
        given.out,
        "--turns",
        "--parts",
    ]
    few = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "4"}
    at_once = torch.cuda.is_available()
    waiting = [subprocess.Popen([*command, part], stdin=subprocess.PIPE, env=few) for part in parts if at_once]
    wait_for_all(waiting, ready_file(given.out), deadline)
    for number, part in enumerate(parts):
        process = waiting[number] if at_once else subprocess.Popen([*command, part], stdin=subprocess.PIPE, env=few)
        print(f"{part}, {given.limit - deadline + time.monotonic():.0f} s", flush=True)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(b"go\n", timeout=max(deadline - time.monotonic(), 0.1))
        process.kill()


def wait_for_all(processes: Sequence[subprocess.Popen], ready: Path, deadline: float) -> None:
    """Until each has compiled or is over: who measures while others compile measures their noise."""
    while time.monotonic() < deadline:
        compiled = ready.read_text(encoding="utf-8").split() if ready.exists() else []
        if all(process.poll() is not None or str(process.pid) in compiled for process in processes):
            return
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
