"""python -m soak.studio [--clients 20] [--seconds 60]: many people at the studio at once, without an error or growth.

With --probe MODEL instead: the processor time of one probe, the answer and then the attribution.

1. Start `maskwise studio` and connect the clients, each a session of its own; every client asks once, which warms up.
2. Each asks again and again: three in four probe a question under another number of masks, one decodes.
3. Nothing may fail, and the server's memory must be flat: at the end at most a tenth more than after a third.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
GROWTH = 1.1
# The canvases and caches asked for; a strategy's parameters have the defaults of their sliders.
CONTROLS = ("low-confidence", (0, 0, "fixed", 8, "none")), ("threshold", (0, 8, "growing", 8, "prefix"))


@dataclass(frozen=True)
class Outcome:
    clients: int
    seconds: float
    answered: int
    failures: list[str]
    slowest_s: float
    memory_gb: list[float]  # of the server, at equal distances of time

    @property
    def flat(self) -> bool:
        return max(self.memory_gb) <= GROWTH * self.memory_gb[len(self.memory_gb) // 3]


@contextmanager
def running_studio(folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """The studio as a process of its own, as a user starts it: its address and its process's number."""
    paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    with (folder / "studio.err").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "maskwise.cli", "studio", "--port", "0", *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"PYTHONPATH": paths},
        )
        try:
            assert process.stdout is not None
            found = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
            if found is None:
                raise RuntimeError((folder / "studio.err").read_text())
            yield found[0], process.pid
        finally:
            process.terminate()
            process.wait(20)
    said = (folder / "studio.err").read_text()
    if "Traceback" in said:
        raise RuntimeError(said)


def memory_gb(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1e6


def ask(client: Any, number: int, turn: int) -> None:
    """One request; what comes back must be what was asked for, not the line of a problem."""
    if number % 4 == 3:
        from maskwise.decoding.strategies import STRATEGIES

        defaults = [parameter.default for strategy in STRATEGIES for parameter in strategy.parameters]
        controls = [value for rule, others in CONTROLS for value in (rule, *defaults, *others)]
        prompt = f"Once upon a time {number}"
        *_, right = client.predict("tiny-llada", prompt, 8, *controls, api_name="/decode")[:3]
        expected, found = "8 of 8 tokens", right if isinstance(right, str) else str(right)
    else:
        masks = 1 + (37 * number + 11 * turn) % 200
        question = f"The number after {number} is"
        found = client.predict(
            "tiny-llada", "none", "", question, "", "animal-largest", 0, 1, 4, 50, masks, api_name="/probe"
        )
        expected = f"goes to the {masks} {'mask' if masks == 1 else 'masks'}"
    if expected not in found:
        raise RuntimeError(f"expected {expected!r}, found {found[:300]!r}")


def soak(clients: int, seconds: float, folder: Path) -> Outcome:
    from gradio_client import Client

    failures: list[str] = []
    times: list[float] = []
    memory: list[float] = []
    with running_studio(folder) as (address, pid):
        opened = [Client(address, verbose=False, analytics_enabled=False) for _ in range(clients)]

        def work(number: int, until: float) -> None:
            turn = 0
            while turn == 0 or time.monotonic() < until:
                began = time.monotonic()
                try:
                    ask(opened[number], number, turn)
                except Exception as problem:  # whatever it is, it is what is looked for
                    failures.append(f"client {number}, turn {turn}: {problem!r}")
                    return
                times.append(time.monotonic() - began)
                turn += 1

        def all_at_work(span: float) -> None:
            until = time.monotonic() + span
            workers = [Thread(target=work, args=(number, until)) for number in range(clients)]
            for worker in workers:
                worker.start()
            while any(worker.is_alive() for worker in workers):
                memory.append(memory_gb(pid))
                time.sleep(0.5)
            for worker in workers:
                worker.join()

        all_at_work(0)
        times.clear()
        memory.clear()
        began = time.monotonic()
        all_at_work(seconds)
        took = time.monotonic() - began
    return Outcome(
        clients, round(took, 1), len(times), failures, round(max(times, default=0), 2), [round(gb, 3) for gb in memory]
    )


def probe_times(name: str) -> Iterator[dict[str, Any]]:
    """Of a usual prompt, one with 200 masks behind it, and the longest: each asked twice, the second time measured."""
    from maskwise.models.checkpoints.opening import open as open_model
    from maskwise.studio.probing import (
        MOST_DISTRACTORS,
        MOST_MASKS,
        MOST_RELEVANT,
        ContextQuestion,
        attributed,
        draw_question,
        probe,
    )

    model = open_model(name)
    for relevant, distractors, masks in ((1, 10, 0), (1, 10, 200), (MOST_RELEVANT, MOST_DISTRACTORS, MOST_MASKS)):
        drawn = draw_question("animal-largest", 4, relevant)
        asked = ContextQuestion(
            drawn.context, drawn.question, drawn.answer, "animal-largest", 4, relevant, distractors, 1.0, masks
        )
        attributed(probe(model, asked))
        began = time.process_time()
        found = probe(model, asked)
        answered = time.process_time()
        attributed(found)
        yield {
            "tokens": len(found.prompt.ids),
            "masks": masks,
            "answer_s": round(answered - began, 3),
            "attribution_s": round(time.process_time() - answered, 3),
        }


def main() -> None:
    given = argparse.ArgumentParser(prog="python -m soak.studio", description=(__doc__ or "").splitlines()[0])
    given.add_argument("--clients", type=int, default=20)
    given.add_argument("--seconds", type=float, default=60)
    given.add_argument("--probe", metavar="MODEL")
    chosen = given.parse_args()
    if chosen.probe:
        for line in probe_times(chosen.probe):
            sys.stdout.write(json.dumps(line) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        outcome = soak(chosen.clients, chosen.seconds, Path(folder))
    sys.stdout.write(json.dumps(asdict(outcome) | {"flat": outcome.flat}) + "\n")
    sys.exit(0 if outcome.flat and not outcome.failures else 1)


if __name__ == "__main__":
    main()
