"""The campaigns cut into parts of a minute or so, each a process of its own: python -m soak.parts NAME FILE."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES = 20_000  # fuzz cases of a part
KILLS = 5  # of a part
SHARES = {
    "diagnose": 4,
    "tune": 8,
    "train": 8,
    "export": 2,
    "convert": 2,
    "cures": 4,
}  # parts that a command's writes are divided into
PAIRS = 6  # times that one of two processes is killed, for each command


def part_names(fuzz: int, kills: int, prompts: int, records: int, seed: int = 0) -> list[str]:
    """The longest first, then what fills the time that is left. seed: of the fuzz cases, named where it is not 0."""
    commands = list(SHARES)
    named = [f"prompts {prompts}", f"records {records}", "torn", "sockets", "places", "outputs", "bombs"]
    named += [f"twice {command}" for command in commands]
    named += [f"ranks {command} {seed}" for seed in range(PAIRS) for command in ("diagnose", "tune", "train")]
    each = range(0, kills, KILLS)
    named += [
        f"{kind} {commands[n % len(commands)]} {n // len(commands)} {min(KILLS, kills - first)}"
        for kind in ("kills", "interrupts")
        for n, first in enumerate(each)
    ]
    for kind in ("writes", "disks"):
        named += [f"{kind} {command} {share}" for command in commands for share in range(SHARES[command])]
    seeded = f" {seed}" if seed else ""
    return named + [f"fuzz {first} {min(first + CASES, fuzz)}{seeded}" for first in range(0, fuzz, CASES)]


def run_part(name: str) -> dict[str, Any]:
    kind, *given = name.split()
    return _WORK[kind](*given)


def _fuzz(first: str, last: str, seed: str = "0") -> dict[str, Any]:
    from soak.fuzz import fuzz

    found = fuzz(range(int(first), int(last)), seed=int(seed), silent=True)
    assert found.memory < 2, f"{found.memory:.2f} GB"
    return found.summary() | ({"failed": f"{len(found.failures)} kinds"} if found.failures else {})


def _kills(command: str, seed: str, number: str) -> dict[str, Any]:
    from soak.kills import kill_at_random

    return kill_at_random(command, int(number), int(seed))


def _interrupts(command: str, seed: str, number: str) -> dict[str, Any]:
    import signal

    from soak.kills import kill_at_random

    return kill_at_random(command, int(number), int(seed), signal.SIGINT)


def _twice(command: str) -> dict[str, Any]:
    from soak.kills import start_twice

    return start_twice(command)


def _places() -> dict[str, Any]:
    from soak.places import try_places

    return try_places()


def _outputs() -> dict[str, Any]:
    from soak.places import try_outputs

    return try_outputs()


def _ranks(command: str, seed: str) -> dict[str, Any]:
    from soak.kills import kill_one_of_two

    return kill_one_of_two(command, int(seed))


def _writes(command: str, share: str) -> dict[str, Any]:
    from soak.kills import kill_at_writes

    return kill_at_writes(command, int(share), SHARES[command])


def _disks(command: str, share: str) -> dict[str, Any]:
    from soak.kills import fill_disks

    return fill_disks(command, int(share), SHARES[command])


def _torn() -> dict[str, Any]:
    from soak.records import cut_everywhere

    return cut_everywhere()


def _bombs() -> dict[str, Any]:
    from soak.records import parquet_bombs

    return parquet_bombs()


def _sockets() -> dict[str, Any]:
    from soak.records import without_sockets

    return without_sockets()


def _prompts(number: str) -> dict[str, Any]:
    from soak.records import many_prompts

    return many_prompts(int(number))


def _records(number: str) -> dict[str, Any]:
    from soak.records import many_records

    return many_records(int(number))


_WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "fuzz": _fuzz,
    "kills": _kills,
    "interrupts": _interrupts,
    "twice": _twice,
    "places": _places,
    "outputs": _outputs,
    "ranks": _ranks,
    "writes": _writes,
    "disks": _disks,
    "torn": _torn,
    "bombs": _bombs,
    "sockets": _sockets,
    "prompts": _prompts,
    "records": _records,
}


def main(name: str, file: Path) -> None:
    from soak.commands import environment

    os.environ.update(environment())  # before transformers is imported: it writes some of it into tokenizer files
    from maskwise.support.files import replace_file, to_json

    try:
        found = run_part(name)
    except Exception as problem:
        said = str(problem) if isinstance(problem, AssertionError) else traceback.format_exc()
        found = {"failed": said[-3000:] or "an assertion without words"}
    replace_file(file, [to_json(found)])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
