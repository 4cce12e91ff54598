"""CE alone, CE + TV and TV alone at equal learning rates: what does each term of the mask-agnostic loss do?

1. The pairs are split once, by line: the same held-out pairs for every run. Each loss is tuned by `maskwise.training`
   from every seed (adapter, order, noise) at every rate; nothing else differs. CE alone is alpha .1, beta 0; CE + TV
   alpha .1, beta 1; TV alone alpha 0, beta 1.
2. Held-out pairs, one fixed noise each, 2 against 200 appended masks, in float32: TV (sum of |p - p'|, between 0 and
   2), cross-entropy, masked tokens that are right, confidence (probability of the likeliest token) and entropy.
3. Few-shot tasks: the mask-count probe of `maskwise diagnose` at its default settings, and its held-out NELBO.
4. Means over seeds, their range, and the change from the untuned model: the same pairs, questions and passages,
   averaged over seeds; Student's 95 % interval over pairs, tasks or passages. It does not speak of other seeds: the
   range does.

`--distracted` tunes the small model of tune_cpu.py instead, which masks do distract; it has only its own task, so step
3 is left out. Finished runs are kept in --out and not made again. losses.md and losses.json are written there.

Hardware: one GPU, all runs at once; `--distracted` 2 CPU cores, some minutes; `--toy` proves in a minute that it runs.

    python recipes/studies/losses.py pairs.jsonl              # of recipes/zoo/make_pairs.py
    python recipes/studies/losses.py --distracted --out runs/distracted
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import tune_cpu
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model
from maskwise.probes.probe import Settings as ProbeSettings
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, QUICK
from maskwise.scoring.intervals import mean_over_tasks
from maskwise.support.files import replace_file
from maskwise.support.progress import progress_bar
from maskwise.training.data.held_out import held_out_views
from maskwise.training.data.pairs import read_pairs, tokenize_pairs
from maskwise.training.settings import TuneSettings
from maskwise.training.tune import tune

LOSSES = {"CE alone": (0.1, 0.0), "CE + TV": (0.1, 1.0), "TV alone": (0.0, 1.0)}  # alpha, beta
UNTUNED = "untuned"
TUNING = TuneSettings(
    steps=200, batch=16, accumulation=1, warmup=10, decay="linear", context=1200, max_masks=200, curriculum=50,
    lora_rank=8, lora_alpha=16, bf16=False, save_every=200, eval_every=0, held_out=0,
)  # fmt: skip
TOY_TUNING = replace(TUNING, steps=2, batch=2, warmup=0, context=200, max_masks=20, curriculum=0, many=40)
TASKS = replace(DEFAULT, probes=("mask-count", "nelbo"), relevant=(10,))
TOY_TASKS = replace(
    QUICK, probes=TASKS.probes, tasks=QUICK.tasks[:2], points=2, passages=2, relevant=(2,), distractors=2
).changed("mask-count", mask_counts=(2, 40))

Value = tuple[str, float]  # a task (or "pairs", "text") and what was measured at one of its points
Measures = dict[str, list[Value]]  # every run lists the same points in the same order


@dataclass(frozen=True)
class Plan:
    """What all runs share."""

    model: str
    out: Path
    tuning: TuneSettings
    tasks: ProbeSettings | None
    losses: dict[str, tuple[float, float]]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """One tuned model, or the untuned one (loss None)."""

    loss: str | None = None
    rate: float = 0.0
    seed: int = 0

    @property
    def folder(self) -> str:
        if self.loss is None:
            return UNTUNED
        return f"{self.loss.lower().replace(' + ', '-').replace(' ', '-')}-rate{self.rate:g}-seed{self.seed}"


# One run


def run(plan: Plan, job: Job) -> Measures:
    """Tunes, then measures; what a folder already holds is not done again."""
    folder = plan.out / job.folder
    adapter = None
    if job.loss is not None:
        adapter = folder / "tuned"
        alpha, beta = plan.losses[job.loss]
        settings = replace(plan.tuning, alpha=alpha, beta=beta, learning_rate=job.rate, seed=job.seed)
        tune(plan.model, plan.out / "training.jsonl", adapter, settings, dtype="float32", tensorboard=False)
    measures = on_pairs(open_model(plan.model, "float32", adapter=adapter), plan)
    if plan.tasks is not None:
        measures |= on_tasks(open_model(plan.model, adapter=adapter), plan.tasks, folder / "diagnosis")
    return measures


def run_quietly(plan: Plan, job: Job) -> Measures:
    """In a process of its own, its progress in a file: nine bars would overwrite each other."""
    folder = plan.out / job.folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "progress.txt").open("w") as file:
        sys.stderr = file
        try:
            return run(plan, job)
        finally:
            sys.stderr = sys.__stderr__


def on_pairs(model: Model, plan: Plan) -> Measures:
    """Means over the masked answer tokens of each held-out pair."""
    assert model.mask_id is not None
    pairs = tokenize_pairs(read_pairs(plan.out / "held-out.jsonl"), model, plan.tuning.context).kept
    views = held_out_views(pairs, plan.tuning, model.mask_id)
    rows = [view.rows.tolist() for view in views]
    few, many = (
        model.predict([side.tolist() for side in sides], rows)
        for sides in zip(*((view.first, view.second) for view in views), strict=True)
    )
    output = [of_pair(a.double(), b.double(), view.targets) for a, b, view in zip(few, many, views, strict=True)]
    return {name: [("pairs", entry[name]) for entry in output] for name in output[0]}


def of_pair(few: Tensor, many: Tensor, targets: Tensor) -> dict[str, float]:
    """Logits [m, V] of the same masked tokens with few and with many masks appended, and the true tokens [m]."""
    p = torch.stack([few, many]).softmax(-1)  # [2, m, V]
    confidence, token = p.max(-1)
    right = (token == targets).double().mean(1)
    surprise = -p.gather(2, targets.expand(2, -1)[..., None]).log()
    return {
        "tv": float((p[0] - p[1]).abs().sum(-1).mean()),
        "ce": float(surprise.mean()),
        "right, few masks": float(right[0]),
        "right, many masks": float(right[1]),
        "lost": float(right[0] - right[1]),
        "confidence": float(confidence.mean()),
        "entropy": float(torch.special.entr(p).sum(-1).mean()),
    }


def on_tasks(model: Model, settings: ProbeSettings, folder: Path) -> Measures:
    """The mask-count probe by question, and the NELBO by passage."""
    records = read_run(diagnose(model, settings, folder)).records
    counts = sorted(settings.mask_counts)
    few, many = 2, counts[-1]
    asked = {(r["task"], r["point"], r["masks"]): r for r in records if r["probe"] == "mask-count"}
    questions = sorted({(task, point) for task, point, _ in asked})
    measures: Measures = {}
    for task, point in questions:
        at = {k: asked[task, point, k] for k in counts}
        for name, value in {
            "tasks: right, few masks": at[few]["correct"],
            "tasks: right, many masks": at[many]["correct"],
            "tasks: lost": at[few]["correct"] - at[many]["correct"],
            "tasks: surprise, many masks": at[many]["nll"],
            "tasks: surprise added": at[many]["nll"] - at[few]["nll"],
            "tasks: confidence": np.mean([r["confidence"] for r in at.values()]),
            "tasks: entropy": np.mean([r["entropy"] for r in at.values()]),
        }.items():
            measures.setdefault(name, []).append((task, float(value)))
    measures["nelbo"] = [("text", record["nll"]) for record in records if record["probe"] == "nelbo"]
    return measures


# All runs


def run_all(plan: Plan, processes: int) -> dict[Job, Measures]:
    jobs = [Job(), *(Job(*one) for one in product(plan.losses, plan.rates, plan.seeds))]
    if processes == 1:
        return {job: run(plan, job) for job in jobs}
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
    found: dict[Job, Measures] = {}
    with (
        progress_bar(silent=False) as bar,
        ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        task = bar.add_task("Runs", total=len(jobs))
        waiting = {job: pool.submit(run_quietly, plan, job) for job in jobs}
        for job, result in waiting.items():
            found[job] = result.result()
            bar.advance(task)
    return found


def summary(plan: Plan, found: dict[Job, Measures], rate: float) -> dict[str, dict[str, dict[str, float | None]]]:
    """{measure: {loss: {"value", "least", "most", "change", "low", "high"}}}, of one rate."""
    before = found[Job()]
    table: dict[str, dict[str, dict[str, float | None]]] = {}
    for name, untuned in before.items():
        table[name] = {UNTUNED: {"value": mean_over_tasks(untuned)[0]}}
        for loss in plan.losses:
            runs = [found[Job(loss, rate, seed)][name] for seed in plan.seeds]
            means = [mean_over_tasks(one)[0] for one in runs]
            change, low, high = mean_over_tasks(differences(untuned, runs))
            table[name][loss] = {
                "value": float(np.mean(means)),
                "least": min(means),
                "most": max(means),
                "change": change,
                "low": low,
                "high": high,
            }
    return table


def differences(untuned: Sequence[Value], runs: Sequence[Sequence[Value]]) -> list[Value]:
    """At each point: the mean over the runs less the untuned model's."""
    assert all([group for group, _ in one] == [group for group, _ in untuned] for one in runs)
    after = np.mean([[value for _, value in one] for one in runs], axis=0)
    return [(group, now - then) for (group, then), now in zip(untuned, after, strict=True)]


# The table


def title(name: str, plan: Plan) -> tuple[str, float]:
    """What a measure is called, and the factor that turns it into percent."""
    few, many = plan.tuning.few, plan.tuning.many
    most = max(plan.tasks.mask_counts) if plan.tasks else many
    return {
        "tv": (f"pairs: TV between {few} and {many} masks", 1),
        "ce": ("pairs: cross-entropy, nats", 1),
        "right, few masks": (f"pairs: right with {few} masks, %", 100),
        "right, many masks": (f"pairs: right with {many} masks, %", 100),
        "lost": ("pairs: lost to masks, points", 100),
        "confidence": ("pairs: confidence", 1),
        "entropy": ("pairs: entropy, nats", 1),
        "tasks: right, few masks": ("tasks: right with 2 masks, %", 100),
        "tasks: right, many masks": (f"tasks: right with {most} masks, %", 100),
        "tasks: lost": ("tasks: lost to masks, points", 100),
        "tasks: surprise, many masks": (f"tasks: surprise of the right letter with {most} masks, nats", 1),
        "tasks: surprise added": (f"tasks: of that, added from 2 to {most} masks", 1),
        "tasks: confidence": ("tasks: confidence, mean over masks", 1),
        "tasks: entropy": ("tasks: entropy, nats, mean over masks", 1),
        "nelbo": ("prose: NELBO, nats a token", 1),
    }[name]


def markdown(plan: Plan, table: dict[str, dict[str, dict[str, float | None]]], rate: float) -> str:
    lines = [
        f"{plan.model}, rate {rate:g}, {plan.tuning.steps} steps of {plan.tuning.batch} pairs, seeds "
        f"{', '.join(map(str, plan.seeds))}. Each cell: mean over seeds [least, most]; change from the untuned model "
        "(95 % interval, paired).",
        "",
        f"| | {UNTUNED} | {' | '.join(plan.losses)} |",
        "|---" * (2 + len(plan.losses)) + "|",
    ]
    for name, row in table.items():
        label, scale = title(name, plan)
        digits = 1 if scale == 100 else 4
        cells = [cell(row[loss], scale, digits) for loss in plan.losses]
        lines.append(f"| {label} | {number(row[UNTUNED]['value'], scale, digits)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(entry: dict[str, float | None], scale: float, digits: int) -> str:
    def show(key: str, sign: str = "") -> str:
        return number(entry[key], scale, digits, sign)

    text = f"{show('value')} [{show('least')}, {show('most')}]; {show('change', '+')}"
    if entry["low"] == entry["high"] == 0:
        return f"{text} everywhere"  # no point changed, of which a spread of differences says nothing
    return text if entry["low"] is None else f"{text} ({show('low', '+')} to {show('high', '+')})"


def number(value: float | None, scale: float, digits: int, sign: str = "") -> str:
    assert value is not None
    rounded = round(value * scale, digits) + 0.0  # no minus before a zero
    return f"{rounded:{sign if rounded else ''}.{digits}f}".replace("-", "−")


# What is run


def split_lines(pairs: Path, out: Path, held_out: int) -> None:
    """The same lines are held out from all runs."""
    lines = [line for line in pairs.read_text(encoding="utf-8").splitlines() if line.strip()]
    random.Random(0).shuffle(lines)
    count = min(held_out, len(lines) // 5)
    for name, some in (("held-out.jsonl", lines[:count]), ("training.jsonl", lines[count:])):
        (out / name).write_text("\n".join(some) + "\n", encoding="utf-8")


def toy_pairs(file: Path) -> None:
    """Short few-shot documents, so that a CPU can do them."""
    draw = random.Random(0)
    question = "Options: (A) {}, (B) {}, (C) {}\nAnswer:["
    texts = [question.format(*draw.sample(tune_cpu.FILLERS, 3)) for _ in range(30)]
    file.write_text("".join(json.dumps({"prompt": text, "answer": "B]."}) + "\n" for text in texts), encoding="utf-8")


def make_plan(arguments: argparse.Namespace) -> Plan:
    out, toy = arguments.out, arguments.toy
    out.mkdir(parents=True, exist_ok=True)
    seeds, losses = tuple(range(arguments.seeds)), LOSSES
    if arguments.distracted:
        model = str(out / "model")
        tuning = replace(tune_cpu.TUNING, held_out=0, save_every=tune_cpu.TUNING.steps)
        tuning = replace(tuning, steps=2, save_every=2) if toy else tuning
        if not (out / "model" / "model.safetensors").exists():
            tune_cpu.train_small_model(out / "model", 2 if toy else 95, arguments.model_seed)
        tune_cpu.write_pairs(out / "pairs.jsonl", 40 if toy else 1200, arguments.model_seed + 1)
        split_lines(out / "pairs.jsonl", out, 200)
        return Plan(model, out, tuning, None, losses, tuple(arguments.rates or [tuning.learning_rate]), seeds)
    if toy:
        toy_pairs(out / "pairs.jsonl")
    elif arguments.pairs is None:
        sys.exit("give the pairs that recipes/zoo/make_pairs.py wrote, or --toy, or --distracted")
    split_lines(out / "pairs.jsonl" if toy else arguments.pairs, out, 200)
    tuning, tasks = (TOY_TUNING, TOY_TASKS) if toy else (TUNING, TASKS)
    return Plan(arguments.model, out, tuning, tasks, losses, tuple(arguments.rates or [5e-4]), seeds)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path, nargs="?", help=".jsonl file of prompts and answers")
    parser.add_argument("--model", default="tiny-llada")
    parser.add_argument("--distracted", action="store_true", help="tune the small model of tune_cpu.py")
    parser.add_argument("--model-seed", type=int, default=1, help="of the small model")
    parser.add_argument("--rates", type=float, nargs="+", help="learning rates, each for all losses")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--out", type=Path, default=Path("runs/losses"))
    parser.add_argument("--processes", type=int, help="runs at a time; all on a GPU, one on a CPU")
    parser.add_argument("--toy", action="store_true", help="one tiny run of each loss")
    arguments = parser.parse_args(given)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if arguments.toy:
        arguments.seeds = min(arguments.seeds, 1)
    plan = make_plan(arguments)
    runs = 1 + len(plan.losses) * len(plan.rates) * len(plan.seeds)
    found = run_all(plan, arguments.processes or (min(runs, 12) if torch.cuda.is_available() else 1))
    tables = {f"{rate:g}": summary(plan, found, rate) for rate in plan.rates}
    text = "\n\n".join(markdown(plan, tables[f"{rate:g}"], rate) for rate in plan.rates)
    about = {
        "model": plan.model,
        "tuning": asdict(plan.tuning),
        "losses": plan.losses,
        "seeds": plan.seeds,
        "points": {name: len(values) for name, values in found[Job()].items()},
    }
    replace_file(plan.out / "losses.json", [json.dumps(about | {"rates": tables}, indent=1) + "\n"])
    replace_file(plan.out / "losses.md", [text + "\n"])
    print(text)


if __name__ == "__main__":
    main()
