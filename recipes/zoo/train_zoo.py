"""Train all embedded models on one GPU within one call, examine them, and pack what is to be kept.

1. Two chains run side by side, each training a process of its own (train_tiny.py): tiny-qwen and then tiny-dream from
   it; tiny-llada. `--also OPTIONS` adds a tiny-llada with other options, or another seed to see how much a run varies.
2. Each model is examined at the end of its training (exams.py: one example near and far, the paper's 10 + 40, recall).
3. Every model's folder is packed into OUT/NAME.tar, the exams go to OUT/exams.json, the logs to OUT/log.txt, and the
   table of all models is printed last.

Hardware: one H200 and 16 CPU cores, 9.3 minutes. With NVIDIA's multi-process service three trainings get about 2 M
tokens/s each. The embedded models:

    python recipes/zoo/corpus.py english.txt.xz english.npy
    nvidia-cuda-mps-control -d
    PYTHONPATH=src python recipes/zoo/train_zoo.py --english english.npy --out OUT --also "--grow 0.35 0.7"

Without the second tiny-llada the others get more tokens in the same time:

    python recipes/zoo/train_zoo.py --english english.npy --out OUT
    python recipes/zoo/train_zoo.py --english english.npy --out OUT --toy       # two CPU cores, 2 minutes
"""

import argparse
import json
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from exams import table
from maskwise.support.files import replace_file

RECIPE = Path(__file__).parent / "train_tiny.py"
KEPT = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "training.json",
    "README.md",
    "tokenizer.json",
    "tokenizer_config.json",
)


@dataclass(frozen=True)
class Run:
    """One training: the model, the folder's name, its seconds, and further options of train_tiny.py."""

    model: str
    name: str
    seconds: float
    options: tuple[str, ...] = ()


def plan(arguments: argparse.Namespace, work: Path) -> list[list[Run]]:
    """Chains of runs; a chain's runs follow one another."""
    dream = Run("tiny-dream", "tiny-dream", arguments.dream, ("--start", str(work / "tiny-qwen")))
    chains = [[Run("tiny-qwen", "tiny-qwen", arguments.qwen), dream]] if arguments.qwen else []
    chains.append([Run("tiny-llada", "tiny-llada", arguments.llada)])
    for number, options in enumerate(arguments.also):
        chains.append([Run("tiny-llada", f"tiny-llada-{number + 2}", arguments.llada, tuple(options.split()))])
    return chains


def run_chain(chain: list[Run], arguments: argparse.Namespace, work: Path, deadline: float) -> None:
    """Runs one after another, each line of their output printed and kept; ends what outlasts the deadline."""
    for run in chain:
        command = [
            sys.executable,
            "-u",
            str(RECIPE),
            run.model,
            "--english",
            str(arguments.english),
            "--out",
            str(work / run.name),
            "--minutes",
            str(run.seconds / 60),
            *run.options,
        ]
        if arguments.toy:
            command.append("--toy")
        with open(work / f"{run.name}.log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            try:
                code = process.wait(timeout=max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        if code:
            print(f"{run.name} ended with {code}:", *(work / f"{run.name}.log").read_text().splitlines()[-8:], sep="\n")
            return


def pack(folder: Path, tar: Path) -> None:
    with tarfile.open(tar, "w") as archive:
        for name in KEPT:
            if (folder / name).exists():
                archive.add(folder / name, f"{folder.name}/{name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--english", type=Path, required=True, help="prose: .txt, .xz, or .npy made by corpus.py")
    parser.add_argument("--out", type=Path, required=True, help="folder of what is kept")
    parser.add_argument("--work", type=Path, help="folder of checkpoints; default: OUT/work")
    parser.add_argument("--qwen", type=float, default=285, help="seconds of tiny-qwen; 0 leaves it and tiny-dream out")
    parser.add_argument("--dream", type=float, default=190, help="seconds of tiny-dream")
    parser.add_argument("--llada", type=float, default=500, help="seconds of tiny-llada")
    parser.add_argument("--also", action="append", default=[], help='options of another tiny-llada, like "--seed 1"')
    parser.add_argument("--deadline", type=float, default=555, help="seconds after which what still runs is ended")
    parser.add_argument("--toy", action="store_true", help="a size for a CPU")
    arguments = parser.parse_args()
    if arguments.toy:
        arguments.qwen, arguments.dream, arguments.llada = min(arguments.qwen, 10), 10, 10
    work = arguments.work or arguments.out / "work"
    work.mkdir(parents=True, exist_ok=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    chains = plan(arguments, work)
    threads = [Thread(target=run_chain, args=(c, arguments, work, began + arguments.deadline)) for c in chains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = [run for chain in chains for run in chain]
    finish(runs, work, arguments.out)
    print(f"{time.monotonic() - began:.0f} s")


def finish(runs: list[Run], work: Path, out: Path) -> None:
    """Packs each run that came to its end; prints how each went and the table of exams."""
    logs = [log for run in runs if (log := work / f"{run.name}.log").exists()]
    (out / "log.txt").write_text("\n".join(f"== {log.stem}\n{log.read_text()}" for log in logs))
    results = {}
    for run in runs:
        facts_file = work / run.name / "training.json"
        if not facts_file.exists():
            continue
        facts = json.loads(facts_file.read_text())
        settings = ", ".join(
            f"{name} {facts[name]}" for name in ("objective", "cut", "phases", "rate", "seed", "steps")
        )
        print(f"{run.name}: {settings}, {facts['tokens'] / 1e6:.0f} M tokens in {facts['seconds']:.0f} s")
        log = (work / f"{run.name}.log").read_text().splitlines()
        print(*(line for line in log if "right %" in line), sep="\n")
        if facts["final"]:
            results[run.name] = facts["final"]["exams"]
            pack(work / run.name, out / f"{run.name}.tar")
    replace_file(out / "exams.json", [json.dumps(results, indent=1)])
    print(table(results), flush=True)


if __name__ == "__main__":
    main()
