"""A command is killed or starved at some of its writes, then started again: its result is the undisturbed one.

    python tests/robust/kills.py diagnose 4 FOLDER        # every fourth write; the folder holds `small` and pairs.jsonl

What the command leaves behind must never be taken for whole. Each attempt is a copy (fork) of this process, which has
imported everything and computed nothing: threads do not survive the copy.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from faults import DISKS, KILLS, Fault

from maskwise import start

WRITE = "write: "
IMPORTS = ("maskwise.cli", "maskwise.runs.diagnose", "maskwise.report.page", "maskwise.training.tune", "peft")
IMPORTS += ("matplotlib.figure", "safetensors.torch", "scipy.stats", "transformers.trainer")
SHORT = "--steps 4 --save-every 2 --batch 2 --accumulation 1 --many 10 --held-out 0 --lora-rank 2 --no-tensorboard"


class Command(NamedTuple):
    line: str
    last: str  # the file that says that the folder is finished
    says: bytes
    result: str  # the file that is equal whatever happened

    def is_whole(self, out: Path) -> bool:
        return (out / self.last).exists() and self.says in (out / self.last).read_bytes()


COMMANDS = {
    "diagnose": Command(
        "diagnose SMALL --quick --probes location --questions 1 --deterministic --device cpu --json --out OUT",
        "manifest.json",
        b'"complete": true',
        "records.jsonl",
    ),
    "tune": Command(
        f"tune SMALL --data PAIRS --out OUT {SHORT} --context 96 --max-masks 16 --device cpu",
        "result.json",
        b'"losses"',
        "adapter_model.safetensors",
    ),
}


def disturb(command: Command, home: Path, every: int) -> Counter[str]:
    """How the disturbed commands ended."""
    found: Counter[str] = Counter()
    status, said = run(command, home, home / "whole", Fault(str(home / "whole")))
    assert status == 0, said
    wanted = (home / "whole" / command.result).read_bytes()
    writes = [line for line in said.splitlines() if line.startswith(WRITE)]
    for number in range(0, len(writes), every):
        for kind in (*KILLS, *DISKS):
            out = home / f"{kind}-{number}"
            status, said = run(command, home, out, Fault(str(out), kind, number))
            about = f"{kind} at {writes[number]}: exit {status}, {said[-1500:]}"
            killed = kind in KILLS and status in (-signal.SIGKILL, -signal.SIGXFSZ)
            assert killed or status == 0 or (status == 2 and said.count("maskwise: ") == 1), about
            assert "Traceback" not in said, about
            whole = not command.is_whole(out) or (out / command.result).read_bytes() == wanted
            assert whole, f"half is taken for whole: {about}"
            found["killed" if killed else "refused" if status else "finished"] += 1
            status, said = run(command, home, out, Fault(str(out)))
            assert status == 0, f"does not go on after {about}; then {said}"
            assert (out / command.result).read_bytes() == wanted, f"another result after {about}"
            shutil.rmtree(out)
    return found


def run(command: Command, home: Path, out: Path, fault: Fault) -> tuple[int, str]:
    """Exit status (negative: killed by that signal) and standard error; where nothing is disturbed, its writes too."""
    places = {"OUT": out, "PAIRS": home / "pairs.jsonl", "SMALL": home / "small"}
    words = [str(places.get(word, word)) for word in command.line.split()]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir(home)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(write, 2)
        _become(words, fault)
    os.close(write)
    with os.fdopen(read, errors="replace") as errors:
        said = errors.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def _become(words: list[str], fault: Fault) -> None:
    """The child's life: it never returns."""
    status = 1
    try:
        signal.alarm(120)  # ends it where nothing else does
        sys.argv = ["maskwise", *words]
        fault.install()
        start.main()
        status = 0
    except SystemExit as stop:
        status = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        if fault.at < 0:
            os.write(2, "".join(f"{WRITE}{write}\n" for write in fault.seen).encode())
        os._exit(status)


def main() -> None:
    for module in IMPORTS:
        import_module(module)
    name, every, home = sys.argv[1:]
    print(json.dumps(disturb(COMMANDS[name], Path(home).resolve(), int(every))))


if __name__ == "__main__":
    main()
