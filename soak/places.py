"""Paths that a stranger types and outputs that cannot be written: each command ends well or in one line."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak.commands import SECONDS_A_RUN, Ended, environment, run_forked, write_data
from soak.faults import Fault
from soak.readers import _run as write_small_run

NOBODY = 65534
# PLACE is the path: read in the first lines, written to in the last.
LINES = """
report PLACE
run-card PLACE
models PLACE
compare PLACE tiny-llada --quick
diagnose PLACE --quick
diagnose tiny-llada --words PLACE
diagnose tiny-llada --probes natural-text --text PLACE
diagnose tiny-llada --probes generation-length --data prompts=PLACE
generate PLACE hi
generate tiny-llada --file PLACE -n 2
generate tiny-llada hi --adapter PLACE -n 2
score tiny-llada --data PLACE
advise tiny-llada --exact --data PLACE
tune tiny-llada --data PLACE
train tiny-llada --data PLACE --out OUT
cures tiny-llada --adapter PLACE
diagnose tiny-llada --quick --out PLACE
compare tiny-llada tiny-dream --quick --out PLACE
advise tiny-llada --out PLACE
cures --out PLACE
toy --out PLACE
tune tiny-llada --preset quick --out PLACE
export tiny-llada+ma --out PLACE
convert tiny-qwen --out PLACE
generate tiny-llada hi -n 2 --out PLACE
"""
PRINTING = (
    "--help",
    "models",
    "models --json",
    "run-card RUN",
    "report RUN --json",
    "generate tiny-llada hi -n 2 --json",
)


def try_places() -> dict[str, Any]:
    """Every line with every kind of bad path, as a user without rights: root may enter every folder."""
    return _as_nobody(_try_places)


def _try_places() -> dict[str, Any]:
    found = {"cases": 0, "refusals": 0}
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        write_data(home)
        for line in LINES.strip().splitlines():
            for kind, place in _bad_places(home).items():
                words = [word.replace("PLACE", place).replace("OUT", str(home / "new")) for word in line.split()]
                ended = run_forked(words, home, Fault(str(home / "new")))
                assert ended.in_one_line and ended.status == 2, f"{line}, {kind}: {ended.status} {ended.said[-800:]}"
                found["cases"] += 1
                found["refusals"] += 1
        (home / "closed").chmod(0o700)
    return found


def _bad_places(home: Path) -> dict[str, str]:
    """A path in a folder that may not be entered, a name that is too long, a path below a file, a FIFO, a device and a
    link to itself."""
    closed = home / "closed"
    if not closed.exists():
        closed.mkdir()
        closed.chmod(0)
        os.mkfifo(home / "fifo")
        (home / "loop").symlink_to(home / "loop")
        (home / "zero").symlink_to("/dev/zero")
    paths = {"closed": closed / "x", "long": home / ("x" * 300), "below a file": home / "pairs.jsonl" / "x"}
    paths |= {name: home / name for name in ("fifo", "zero", "loop")}
    return {kind: str(path) for kind, path in paths.items()}


def try_outputs() -> dict[str, Any]:
    """Standard output closed, or on a full disk; standard error closed."""
    found = {"cases": 0, "silent": 0}
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        (home / "run").mkdir()
        write_small_run(home / "run")
        for line in PRINTING:
            for redirection in (">/dev/full", ">&-", "2>&-", ">&- 2>&-"):
                ended = _redirected(line.replace("RUN", str(home / "run")).split(), home, redirection)
                assert ended.in_one_line or ended.status == 2, (
                    f"{line} {redirection}: {ended.status} {ended.said[-800:]}"
                )
                assert "Traceback" not in ended.said, f"{line} {redirection}: {ended.said[-800:]}"
                found["cases"] += 1
                found["silent"] += not ended.said
    return found


def _redirected(words: list[str], home: Path, redirection: str) -> Ended:
    command = [sys.executable, "-c", "from maskwise.start import main; main()", *words]
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command]
    done = subprocess.run(
        shell, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(), cwd=home, timeout=SECONDS_A_RUN
    )
    return Ended(done.returncode, done.stderr.decode(errors="replace"))


def _as_nobody(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of `work`; where this process is root's, in a copy of it that has given up its rights."""
    if os.geteuid() != 0:
        return work()
    back, front = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.environ |= {"HOME": "/nonexistent", "TMPDIR": "/tmp"}
        try:
            answer: Any = work()
        except BaseException as problem:
            answer = {"failed": str(problem)[-2000:] or type(problem).__name__}
        os.write(front, json.dumps(answer).encode())
        os._exit(0)
    os.close(front)
    with os.fdopen(back) as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(child, 0)
    return answer
