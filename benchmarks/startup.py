"""Row k: how long a user waits for the first answer, each in a process of its own."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.measure import Bench, Line

COMMAND = "import sys; sys.argv = ['maskwise', *{!r}]; from maskwise.start import main; main()"
IMPORTS = "import torch; from transformers import PreTrainedModel"  # what no command that opens a model can do without
CASES = (
    ("import maskwise", "import maskwise", "pass", 0.3),
    ("maskwise models", COMMAND.format(["models"]), "pass", 1.0),
    ("an unknown strategy", COMMAND.format(["generate", "tiny-llada", "hi", "--rule", "bets"]), "pass", 1.0),
    ("maskwise generate tiny-llada hi", COMMAND.format(["generate", "tiny-llada", "hi"]), IMPORTS, 5.5),
)


def seconds(code: str, repeats: int) -> float:
    """The median of whole processes, after one that fills the file cache."""
    taken = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def startup(bench: Bench) -> Iterator[Line]:
    """Against a process that imports nothing, or the two packages alone; the bars are for two idle cores."""
    repeats = 3 if bench.full else 1
    for case, code, plain, bar in CASES:
        ours = seconds(code, repeats)
        yield Line("k", case, "s", ours, seconds(plain, repeats), bar=f"<= {bar:g} s, idle", met=ours <= bar)
