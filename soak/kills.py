"""SIGKILLs at random moments and full disks at every write: nothing is lost, and the results are equal.

A command is run once undisturbed, then again and again in a folder of its own: killed after a random time and started
anew until it ends, or with a limit on the size of files that grows until it fits.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MOST_STARTS = 40  # of one command; one that does not end by then makes no progress


@dataclass(frozen=True)
class Campaign:
    """A command line with OUT for its folder, and what must be equal whatever happened to it."""

    name: str
    line: str
    result: Callable[[Path], Any]


def _records(out: Path) -> Any:
    assert json.loads((out / "manifest.json").read_text())["complete"]
    return (out / "records.jsonl").read_bytes()


def _losses(out: Path) -> Any:
    found = json.loads((out / "result.json").read_text())
    return [round(loss, 4) for loss in found["losses"]]


def _weights(out: Path) -> Any:
    return {file.name: file.read_bytes() for file in sorted(out.iterdir()) if file.is_file()}


CAMPAIGNS = (
    Campaign("diagnose", "diagnose tiny-llada --quick --probes location --points 1 --exact --json --out OUT", _records),
    Campaign("tune", "tune tiny-llada --data PAIRS --out OUT --steps 6 --save-every 2 --batch 2 --accumulation 1 "
             "--context 96 --max-masks 16 --many 10 --held-out 0 --lora-rank 2 --no-tensorboard --device cpu", _losses),
    Campaign("export", "export tiny-llada+ma --out OUT --json", _weights),
)  # fmt: skip


def kill(number: int, seed: int = 0) -> dict[str, Any]:
    """`number` kills, spread over the commands in turn; raises AssertionError where a result differs."""
    draw = random.Random(f"kills {seed}")
    found = {campaign.name: {"kills": 0, "runs": 0} for campaign in CAMPAIGNS}
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        _write_pairs(home / "pairs.jsonl")
        wanted, seconds = {}, {}
        for campaign in CAMPAIGNS:
            began = time.monotonic()
            assert _start(campaign, home, home / campaign.name).wait() == 0, campaign.name
            wanted[campaign.name], seconds[campaign.name] = (
                campaign.result(home / campaign.name),
                time.monotonic() - began,
            )
        place = 0
        while sum(entry["kills"] for entry in found.values()) < number:
            campaign = CAMPAIGNS[place % len(CAMPAIGNS)]
            place += 1
            out = home / f"{campaign.name}-{place}"
            left = number - sum(entry["kills"] for entry in found.values())
            found[campaign.name]["kills"] += _disturbed(campaign, home, out, seconds[campaign.name], draw, left)
            found[campaign.name]["runs"] += 1
            assert campaign.result(out) == wanted[campaign.name], f"{campaign.name}: another result after kills"
            shutil.rmtree(out)
    return found


def _disturbed(campaign: Campaign, home: Path, out: Path, seconds: float, draw: random.Random, most: int) -> int:
    """Kills and starts anew until the command ends by itself; returns the number of kills."""
    kills = 0
    for _ in range(MOST_STARTS):
        process = _start(campaign, home, out)
        if kills < min(4, most):
            try:
                process.wait(timeout=seconds * (0.2 + 0.9 * draw.random()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                continue
        assert process.wait() == 0, f"{campaign.name} does not go on after {kills} kills: {process.args}"
        return kills
    raise AssertionError(f"{campaign.name} does not end")


def fill_disks() -> dict[str, Any]:
    """Every command with room for files of 0, 1, 4, 16 ... KiB gives one line, and then with all room its result."""
    found = {}
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        _write_pairs(home / "pairs.jsonl")
        for campaign in CAMPAIGNS:
            assert _start(campaign, home, home / campaign.name).wait() == 0
            wanted, out, refusals = campaign.result(home / campaign.name), home / f"{campaign.name}-full", 0
            for room in (0, 1, 4, 16, 64, 256, 1024, 4096):
                done = _start(campaign, home, out, room, subprocess.PIPE)
                _, said = done.communicate()
                lines = [line for line in said.decode().splitlines() if line.startswith("maskwise: ")]
                assert done.returncode in (0, 2) and b"Traceback" not in said, said.decode()[-2000:]
                assert done.returncode == 0 or len(lines) == 1, said.decode()[-2000:]
                refusals += done.returncode == 2
            assert _start(campaign, home, out).wait() == 0 or campaign.name == "export"
            assert campaign.result(out) == wanted, campaign.name
            found[campaign.name] = {"refusals": refusals}
    return found


def _start(campaign: Campaign, home: Path, out: Path, room: int | None = None, errors: int = subprocess.DEVNULL) -> Any:
    line = campaign.line.replace("OUT", str(out)).replace("PAIRS", str(home / "pairs.jsonl")).split()
    # The limit comes after the imports: libraries need a usable folder for temporary files.
    limited = (
        "import tempfile, resource, torch, transformers; tempfile.gettempdir(); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({(room or 0) * 1024},) * 2); "
    )
    code = f"{'' if room is None else limited}from maskwise.start import main; main()"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *line]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment, cwd=home)


def _write_pairs(file: Path) -> None:
    lines = [{"prompt": f"Say the word {n}:", "answer": f"word {n}"} for n in range(16)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
