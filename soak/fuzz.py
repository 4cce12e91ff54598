"""Damaged files given to every reader: each must end in a result or in one line (UserError), in time and in memory."""

import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from maskwise.support.errors import UserError
from soak.mutate import damage
from soak.readers import Reader, readers

SECONDS_A_CASE = 20  # of processor time, which a busy machine does not stretch; most take milliseconds
SECONDS_OF_WAITING = 300  # for what hangs without computing


class _Hang(BaseException):
    pass


@dataclass
class Found:
    """What the cases ended in. `failures` names each kind of failure once, with the number of the first case."""

    cases: int = 0
    results: int = 0
    refusals: int = 0
    hangs: int = 0
    slowest: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def memory(self) -> float:
        """The most this process has held, in GB."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6

    def summary(self) -> dict[str, Any]:
        numbers = {"cases": self.cases, "results": self.results, "refusals": self.refusals, "hangs": self.hangs}
        failed = {"tracebacks": sum(self.counts.values()), "failures": self.failures}
        return numbers | failed | {"slowest_seconds": round(self.slowest, 2), "memory_gb": round(self.memory, 2)}


def fuzz(cases: Sequence[int], seed: int = 0, only: str | None = None, silent: bool = False) -> Found:
    """Runs these cases; a case depends on its number and the seed alone, so that any can be run again."""
    found = Found()
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = [reader for reader in readers() if only is None or reader.name == only]
        sources = {reader.name: _sound(reader, Path(made) / "sound" / reader.name) for reader in chosen}
        for bell in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(bell, _ring)
        copies = {name: Path(shutil.copytree(source, Path(made) / name)) for name, source in sources.items()}
        for case in cases:
            draw = random.Random(f"{seed} {case}")
            reader = draw.choices(chosen, [one.weight for one in chosen])[0]
            _run_case(case, reader, draw, sources[reader.name], copies[reader.name], found)
            if not silent and case % 1000 == 999:
                sys.stderr.write(
                    f"fuzz: {case + 1} cases, {sum(found.counts.values())} tracebacks, {found.hangs} hangs\n"
                )
    return found


def _sound(reader: Reader, folder: Path) -> Path:
    folder.mkdir(parents=True)
    reader.make(folder)
    reader.read(folder)  # what is damaged below was sound
    return folder


def _run_case(case: int, reader: Reader, draw: random.Random, source: Path, folder: Path, found: Found) -> None:
    name = draw.choice(reader.files)
    how = damage(folder, name, draw)
    found.cases += 1
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS_A_CASE)
    signal.alarm(SECONDS_OF_WAITING)
    try:
        reader.read(folder)
        found.results += 1
    except UserError as problem:
        found.refusals += 1
        if "\n" in str(problem):
            _failed(found, case, f"{reader.name}: a message of several lines", str(problem))
    except _Hang:
        found.hangs += 1
        _failed(found, case, f"{reader.name}: hang", f"{name}, {how}")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # a panic of Rust is no Exception
        place = traceback.extract_tb(problem.__traceback__)[-1]
        kind = f"{reader.name}: {type(problem).__name__} in {Path(place.filename).name}:{place.lineno}"
        _failed(found, case, kind, f"{name}, {how}: {str(problem)[:200]}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        found.slowest = max(found.slowest, time.process_time() - began)
    _mend(folder / name, source / name)


def _mend(damaged: Path, sound: Path) -> None:
    if damaged.is_dir() and not damaged.is_symlink():
        damaged.rmdir()
    else:
        damaged.unlink(missing_ok=True)
    shutil.copyfile(sound, damaged)


def _failed(found: Found, case: int, kind: str, detail: str) -> None:
    found.counts[kind] += 1
    found.failures.setdefault(kind, f"case {case}: {detail}")


def _ring(number: int, frame: FrameType | None) -> None:
    raise _Hang
