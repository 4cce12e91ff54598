"""The commands that are killed and starved, each with what must be equal whatever happened to it."""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak.faults import Fault

ROOT = Path(__file__).parent.parent
SECONDS_A_RUN = 900  # of one command on a busy machine; most take ten


@dataclass(frozen=True)
class Command:
    """A command line with OUT for its folder, PAIRS or TEXT for its data, SMALL for a random model of two layers."""

    name: str
    line: str
    result: Callable[[Path], Any]

    def words(self, home: Path, out: Path) -> list[str]:
        places = {"OUT": out, "PAIRS": home / "pairs.jsonl", "TEXT": home / "text.txt", "SMALL": home / "small"}
        if "SMALL" in self.line and not places["SMALL"].exists():
            _write_model(places["SMALL"])
        return [str(places.get(word, word)) for word in self.line.split()]


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (negative: killed by that signal) and its standard error."""

    status: int
    said: str
    writes: Sequence[str] = ()

    @property
    def in_one_line(self) -> bool:
        """Well, or refused in one line."""
        lines = [line for line in self.said.splitlines() if line.startswith("maskwise: ")]
        return "Traceback" not in self.said and (self.status == 0 or (self.status == 2 and len(lines) == 1))


def _records(out: Path) -> Any:
    assert json.loads((out / "manifest.json").read_text())["complete"], "the run is not complete"
    return (out / "records.jsonl").read_bytes()


def _trained(out: Path) -> Any:
    return json.loads((out / "result.json").read_text())["losses"], (out / "adapter_model.safetensors").read_bytes()


def _mitigated(out: Path) -> Any:
    found = json.loads((out / "cures.json").read_text())
    return found["n"], found["two_masks"], [(row["cure"], row["accuracy"], row["two_masks"]) for row in found["cures"]]


def _files(out: Path) -> Any:
    return {file.name: file.read_bytes() for file in sorted(out.iterdir())}


_SHORT = "--steps 6 --save-every 2 --batch 2 --accumulation 1 --many 10 --held-out 0 --lora-rank 2 --no-tensorboard"
COMMANDS = {
    command.name: command
    for command in (
        Command(
            "diagnose", "diagnose tiny-llada --quick --probes location --points 1 --exact --json --out OUT", _records
        ),
        Command(
            "tune",
            f"tune tiny-llada --data PAIRS --out OUT {_SHORT} --context 96 --max-masks 16 --device cpu",
            _trained,
        ),
        Command("train", f"train tiny-llada --data TEXT --out OUT {_SHORT} --context 64 --device cpu", _trained),
        Command("export", "export tiny-llada+ma --out OUT --json", _files),
        Command("convert", "convert tiny-qwen --out OUT --json", _files),
        Command("cures", "cures SMALL --points 1 --json --device cpu --out OUT", _mitigated),
    )
}


def write_data(home: Path) -> None:
    lines = [{"prompt": f"Say the word {n}:", "answer": f"word {n}"} for n in range(16)]
    (home / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    story = "The otter went to the lamp and said nothing to anyone. It slept under the table until noon. "
    (home / "text.txt").write_text("\f".join(f"Story {n}. {story * 4}" for n in range(24)))


def _write_model(folder: Path) -> None:
    """In a process of its own: nothing may be computed in this one before it is copied (`run_forked`)."""
    aside = folder.with_suffix(".part")
    aside.mkdir(exist_ok=True)
    code = "import sys, pathlib, soak.readers as r; r._checkpoint(pathlib.Path(sys.argv[1]), window=2048)"
    subprocess.run([sys.executable, "-c", code, str(aside)], env=environment(), cwd=ROOT, check=True)
    aside.rename(folder)  # a killed one leaves none that looks whole


def environment(**more: str) -> dict[str, str]:
    fixed = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"} | fixed | more


def start(words: Sequence[str], home: Path, **more: str) -> subprocess.Popen[str]:
    """A process of its own, from its first import on."""
    code = "from maskwise.start import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(**more),
        cwd=home,
        text=True,
    )


def finished(process: subprocess.Popen[str], seconds: float = SECONDS_A_RUN) -> Ended:
    """Waits for it; one that hangs is killed and is a failure."""
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        raise AssertionError(f"hang: {process.args} after {seconds} s: {said[-500:]}") from None
    return Ended(process.returncode, said)


def run_forked(
    words: Sequence[str], home: Path, fault: Fault, seconds: float | None = None, stop: int = signal.SIGKILL
) -> Ended:
    """The command in a copy of this process, which has imported everything: a second instead of ten.

    Sent the signal `stop` after so many seconds, if any are given. Nothing may have been computed here before: threads
    do not survive the copy.
    """
    import accelerate  # noqa: F401
    import peft  # noqa: F401
    import transformers  # noqa: F401

    import maskwise.cli  # noqa: F401
    from maskwise.start import main

    back, front = os.pipe()
    output, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _become(words, home, fault, front, tell, main)
    os.close(front)
    os.close(tell)
    os.read(output, 1)  # the command begins now: a signal before would be answered by the harness
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, stop)  # it is ours until it is waited for, ended or not
    with os.fdopen(back, errors="replace") as errors, os.fdopen(output) as writes:
        said = errors.read()
        seen = writes.read().split("\n")[:-1]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status != -signal.SIGALRM, f"hang: {' '.join(words)}: {said[-500:]}"
    return Ended(status, said, seen)


def _become(words: Sequence[str], home: Path, fault: Fault, front: int, tell: int, main: Callable[[], None]) -> None:
    """The child's life: it never returns."""
    status = 1
    try:
        os.environ.update(environment())
        os.chdir(home)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(front, 2)
        signal.alarm(SECONDS_A_RUN)  # ends it where nothing else does
        sys.argv = ["maskwise", *words]
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        fault.install()
        os.write(tell, b"\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os.write(tell, "".join(f"{write}\n" for write in fault.seen).encode())
        os._exit(status)
