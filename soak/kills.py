"""Kills and full disks, at random moments and at every write: nothing is lost, and the results are equal.

A command is run once undisturbed, then in a folder of its own again and again: disturbed, then started anew until it
ends. What it leaves behind must never be taken for whole, and its result must be the undisturbed one.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from soak.commands import COMMANDS, SECONDS_A_RUN, Command, Ended, finished, run_forked, start, write_data
from soak.faults import DISKS, KILLS, Fault, needs_room

KILLS_A_RUN = 4
SECONDS_OF_IMPORTS = 12  # about
SECONDS_ALONE = 60  # in which a process ends whose companion was killed


@contextmanager
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        write_data(home)
        yield home


def kill_at_random(name: str, number: int, seed: int, stop: int = signal.SIGKILL) -> dict[str, Any]:
    """`number` SIGKILLs, or interrupts (SIGINT), at random moments, up to four before the command is let through.

    The first is of a process of its own, and may come while it imports; the others are of copies that have imported.
    """
    command, draw, kills, runs, early = COMMANDS[name], random.Random(f"kills {name} {seed}"), 0, 0, 0
    with _home() as home:
        wanted, _ = _undisturbed(command, home)
        began = time.monotonic()
        _goes_on(command, home / "timed", wanted, _again(command, home, home / "timed"), "nothing")
        seconds = time.monotonic() - began
        while kills < number:
            out, runs, here = home / f"run-{runs}", runs + 1, 0
            while here < KILLS_A_RUN and kills + here < number:
                if kills + here == 0:
                    ended = _stop_from_the_start(command, home, out, SECONDS_OF_IMPORTS * draw.random() + seconds, stop)
                else:
                    ended = run_forked(command.words(home, out), home, Fault(str(out)), seconds * draw.random(), stop)
                killed = ended.status == -signal.SIGKILL if stop == signal.SIGKILL else _was_interrupted(name, ended)
                _half_is_not_whole(command, out, wanted)
                if not killed:
                    early += 1  # it was quicker than the first time
                    assert early < 10 * number, f"{name} ends before it is killed"
                    break
                here += 1
            kills += here
            _goes_on(command, out, wanted, _again(command, home, out), f"{here} kills")
            shutil.rmtree(out)
    return {"kills" if stop == signal.SIGKILL else "interrupts": kills, "runs": runs}


def _stop_from_the_start(command: Command, home: Path, out: Path, seconds: float, stop: int) -> Ended:
    process = start(command.words(home, out), home)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(stop)
    return finished(process)


def _was_interrupted(name: str, ended: Ended) -> bool:
    """Ctrl-C is one line, or nothing where Python had not begun to run our code."""
    assert ended.in_one_line or ended.status == -signal.SIGINT, f"{name}: exit {ended.status}, {ended.said[-1500:]}"
    return ended.status != 0


def start_twice(name: str) -> dict[str, Any]:
    """Two processes of one command in one folder: one writes all of it, the other is refused in one line."""
    command = COMMANDS[name]
    with _home() as home:
        wanted, _ = _undisturbed(command, home)
        out = home / "both"
        both = [start(command.words(home, out), home) for _ in range(2)]
        ends = sorted((finished(process) for process in both), key=lambda ended: ended.status)
        assert all(ended.in_one_line for ended in ends), [ended.said[-800:] for ended in ends]
        assert ends[0].status == 0 and command.result(out) == wanted, f"{name}: {ends[0].said[-800:]}"
        if name in ("export", "convert"):  # the others resume: the second may find all of it done
            assert ends[1].status == 2, f"two of {name} both say that they wrote the folder"
    return {"runs": 2, "refusals": sum(ended.status == 2 for ended in ends)}


def kill_at_writes(name: str, share: int, shares: int) -> dict[str, Any]:
    """A kill before every write, and one within it; this share of them."""
    command, found = COMMANDS[name], {"writes": 0, **dict.fromkeys(KILLS, 0)}
    with _home() as home:
        wanted, writes = _undisturbed(command, home)
        found["writes"] = len(range(share, len(writes), shares))
        for number in range(share, len(writes), shares):
            for kind in KILLS:
                out = home / f"{kind}-{number}"
                ended = run_forked(command.words(home, out), home, Fault(str(out), kind, number))
                about = f"{kind} at write {number}, {writes[number]}"
                found[kind] += ended.status in (-signal.SIGKILL, -signal.SIGXFSZ)
                assert ended.status < 0 or ended.in_one_line, f"{name}, {about}: {ended.said[-1500:]}"
                _half_is_not_whole(command, out, wanted)
                _goes_on(command, out, wanted, _again(command, home, out), about)
                shutil.rmtree(out)
    return found


def fill_disks(name: str, share: int, shares: int) -> dict[str, Any]:
    """The disk is full from a write on, for every write that needs room: one line, then with room the same result."""
    command, found = COMMANDS[name], {"writes": 0, "refusals": 0, "completed": 0}
    assert _files_can_be_limited(), "this system does not limit the size of files (RLIMIT_FSIZE)"
    with _home() as home:
        wanted, writes = _undisturbed(command, home)
        places = [number for number, write in enumerate(writes) if needs_room(write)][share::shares]
        found["writes"] = len(places)
        for number in places:
            for kind in DISKS:
                out = home / f"{kind}-{number}"
                ended = run_forked(command.words(home, out), home, Fault(str(out), kind, number))
                about = f"disk {kind} at write {number}, {writes[number]}"
                assert ended.in_one_line, f"{name}, {about}: exit {ended.status}, {ended.said[-1500:]}"
                found["completed" if ended.status == 0 else "refusals"] += 1
                _half_is_not_whole(command, out, wanted)
                _goes_on(command, out, wanted, _again(command, home, out), about)
                shutil.rmtree(out)
    return found


def _undisturbed(command: Command, home: Path) -> tuple[Any, list[str]]:
    out = home / "whole"
    ended = run_forked(command.words(home, out), home, Fault(str(out)))
    assert ended.status == 0, f"{command.name}: {ended.said[-1500:]}"
    return command.result(out), list(ended.writes)


def _again(command: Command, home: Path, out: Path) -> Ended:
    return run_forked(command.words(home, out), home, Fault(str(out)))


def _goes_on(command: Command, out: Path, wanted: Any, ended: Ended, about: str) -> None:
    # An exported or converted checkpoint that was whole already is not written over.
    fine = ended.status == 0 or (command.name in ("export", "convert") and ended.in_one_line)
    assert fine, f"{command.name} does not go on after {about}: exit {ended.status}, {ended.said[-1500:]}"
    assert command.result(out) == wanted, f"{command.name}: another result after {about}"


def _half_is_not_whole(command: Command, out: Path, wanted: Any) -> None:
    """What says that it is finished is."""
    marker = {"diagnose": "manifest.json", "tune": "result.json", "train": "result.json", "cures": "cures.json"}
    marker |= {"export": "config.json", "convert": "config.json"}
    if not (out / marker[command.name]).exists():
        return
    if command.name == "diagnose" and b'"complete": true' not in (out / "manifest.json").read_bytes():
        return
    assert command.result(out) == wanted, f"{command.name}: half a result is taken for whole"


def _files_can_be_limited() -> bool:
    """Asked in a copy of this process, which keeps the limit."""
    child = os.fork()
    if child == 0:
        from soak.faults import _limit_files

        try:
            _limit_files(0)
            with tempfile.TemporaryFile() as file:
                file.write(b"x")
            os._exit(1)
        except OSError:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def kill_one_of_two(name: str, seed: int) -> dict[str, Any]:
    """Two processes (gloo) share a run; one is killed: the other ends in one line, and started again both end well.

    They have met before: of one that is lost earlier the launcher's timeout tells.
    """
    command, draw = COMMANDS[name], random.Random(f"ranks {name} {seed}")
    with _home() as home:
        processes = _pair(command, home, home / "whole")
        began = _have_met(home / "whole")
        for ended in map(finished, processes):
            assert ended.status == 0, ended.said[-1500:]
        wanted, seconds = command.result(home / "whole"), time.monotonic() - began
        out, lost = home / "out", seed % 2
        processes = _pair(command, home, out)
        _have_met(out)
        time.sleep(0.5 * seconds * draw.random())
        killed = processes[lost].poll() is None
        processes[lost].kill()
        finished(processes[lost])
        began = time.monotonic()
        alone = finished(processes[1 - lost], SECONDS_ALONE)
        waited = time.monotonic() - began
        assert alone.in_one_line, f"{name}: exit {alone.status}, {alone.said[-1500:]}"
        for ended in map(finished, _pair(command, home, out)):
            assert ended.status == 0, ended.said[-1500:]
        assert command.result(out) == wanted, f"{name}: another result after one of two was killed"
    return {"kills": int(killed), "seconds_alone": round(waited, 1), "status_alone": alone.status}


def _have_met(out: Path) -> float:
    """Waits until the folder is there, which is made after the processes have met; returns the time."""
    over = time.monotonic() + SECONDS_A_RUN
    while not out.exists():
        assert time.monotonic() < over, "two processes do not begin"
        time.sleep(0.02)
    return time.monotonic()


def _pair(command: Command, home: Path, out: Path) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [start(command.words(home, out), home, RANK=rank, LOCAL_RANK=rank, **shared) for rank in ("0", "1")]
