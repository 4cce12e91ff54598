"""What gives back the accuracy that masks cost a planted model (a phantom, by plant_distraction.py), and its price.

1. Every run is `maskwise tune --preset quick` on a phantom with one thing changed: the adapted layers, the share of
   anchored pairs, the loss (CE + TV as in the paper) or the `--pairs` file; several tuning seeds each.
2. The rule of choice is fixed beforehand: among settings that lose less than 1 point with 2 masks (tasks, recall) and
   less than .05 nats on prose, the one that removes most of the loss at 200 masks (tasks, and questions with one
   example among 15, together).
3. Evaluation uses questions that neither planting nor pairs contain: the 16 tasks with 10 relevant examples among 40
   distractors (2 to 200 masks; 400 with 25 distractors), one example among 15 and among 40, recall of 30 pairs, and the
   next word of prose.
4. OUT has the results of every run and a table; conclusions are about the planted fault only.

Hardware: one H200. `--toy` is two steps of two pairs.

    python recipes/zoo/cure_phantom.py PHANTOM... --out OUT [--only SETTING] [--seeds 0 1 2] [--processes 8] [--toy]
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from exams import FREE, Sizes, recall_questions
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model
from maskwise.probes.text import load_text
from maskwise.scoring import estimates
from maskwise.support.files import replace_file
from maskwise.tasks.episodes import draw, mixed
from maskwise.tasks.prompts import Prompt, encode_question, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words
from maskwise.training.checked_settings import settings_from
from maskwise.training.data.pairs import read_pairs, tokenize_pairs
from maskwise.training.training_settings import PRESET_PAIRS, TuneSettings
from maskwise.training.tune import make_trainer
from maskwise.training.weights import make_trainable, save_trained_weights, trained_weights
from plant_distraction import BASE, questions
from task_accuracy import answers

SETTINGS: dict[str, dict[str, Any]] = {
    "attention, held .3": {},  # the preset
    "all maps, held .3": {"targets": None, "steps": 650},
    "all maps, held .5": {"targets": None, "held": 0.5},
    "all maps, none held": {"targets": None, "held": 0.0, "steps": 600},
    "CE + TV": {"anchored": False, "held": 0.0, "alpha": 0.1, "mask_low": 0.2, "mask_high": 0.8},  # the paper's loss
}
TUNING_SEEDS = (10, 11)
MASKS = (2, 20, 60, 200)
ONE_AMONG = (15, 40)
PROSE = 200  # tokens of context before each of the examined words


@dataclass(frozen=True)
class Job:
    phantom: Path
    variant: str
    out: Path
    seed: int
    toy: bool
    questions: int = 25  # a task; the other exams have as many times more
    pairs: Path = PRESET_PAIRS["quick"]

    @property
    def name(self) -> str:
        return f"{self.phantom.name}:{self.variant}, {self.pairs.stem}, seed {self.seed}"


# One run


def settings_of(job: Job) -> TuneSettings:
    preset = settings_from("quick", {})
    changes = dict(SETTINGS[job.variant])
    if job.toy:
        changes |= {"steps": 2, "batch": 2, "warmup": 0, "context": 700}
    return replace(preset, **changes, seed=job.seed, save_every=10**6, eval_every=0, held_out=0)


def run(job: Job) -> dict[str, dict[str, list[float]]]:
    """Tunes as `maskwise tune` does, and examines; {exam: {"right": [n], "nats": [n]}}."""
    torch.set_num_threads(2)
    settings = settings_of(job)
    model = open_model(BASE, "float32", adapter=job.phantom)
    pairs = list(tokenize_pairs(read_pairs(job.pairs), model, settings.context).kept)
    make_trainable(model, settings)
    folder = job.out / re.sub("[^a-z0-9]+", "-", job.name.lower()).strip("-")
    make_trainer(model, pairs, settings, folder, [], None).train()
    save_trained_weights(model, folder, trained_weights(model), None)
    return examine(model.eval(), job.toy, job.questions)


def examine(model: Model, toy: bool = False, questions: int = 25) -> dict[str, dict[str, list[float]]]:
    found = {}
    for name, prompts in exams(model, toy, questions).items():
        right, nats = answers(model.core, prompts, model.shift, model.causal)
        found[name] = {"right": right.tolist(), "nats": [round(value, 4) for value in nats.tolist()]}
    return found


def exams(model: Model, toy: bool, asked: int) -> dict[str, list[Prompt]]:
    sizes = Sizes(2, 3, questions=1) if toy else Sizes(questions=asked)
    few = Sizes(2, 2, questions=1) if toy else Sizes(distractors=25, questions=asked)
    found = {f"tasks, {k} masks": questions(model, sizes, 5, sizes.relevant + sizes.distractors, k) for k in MASKS}
    for distractors in ONE_AMONG:
        one = replace(sizes, relevant=1, distractors=3 if toy else distractors)
        for k in (2, 200):
            found[f"one among {distractors}, {k} masks"] = one_example(model, one, k)
    for k in (2, 400):
        found[f"tasks among 25, {k} masks"] = questions(model, few, 5, few.relevant + few.distractors, k)
    recalled = [
        one
        for place in ("near", "middle")
        for one in recall_questions(model.tokenizer, 30, place, 2 if toy else 16 * asked, 5)
    ]
    text = model.tokenizer(load_text())["input_ids"]
    starts = np.linspace(0, len(text) - PROSE - 1, 3 if toy else 12 * asked).astype(int).tolist()
    for k in (2, 200):
        found[f"recall, {k} masks"] = [opened(one, model.mask_id, k) for one in recalled]
        found[f"prose, {k} masks"] = [
            Prompt((*text[at : at + PROSE], *[model.mask_id or 0] * k), PROSE, text[at + PROSE], k) for at in starts
        ]
    return found


def one_example(model: Model, sizes: Sizes, masks: int) -> list[Prompt]:
    """One relevant example at a random place, as `maskwise compare` asks, in the tasks that need context."""
    words, asked = load_words(), [task for task in TASKS if task.word.name not in FREE]
    episodes = [
        draw(task, words, 1, sizes.distractors, 1, 50_000 + number)
        for task in asked
        for number in range(sizes.questions)
    ]
    return [
        opened(encode_question(model.tokenizer, mixed(episode), episode.tests[0]), model.mask_id, masks)
        for episode in episodes
    ]


def run_quietly(job: Job) -> dict[str, dict[str, list[float]]]:
    """Without its progress bar: several would overwrite each other."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        return run(job)


# All runs


def accuracy(found: dict[str, Any], exam: str) -> float:
    return 100 * float(np.mean(found[exam]["right"]))


def cut(before: dict[str, Any], after: dict[str, Any], exam: str) -> float:
    """The share of the phantom's loss at 200 masks that is recovered there, in %: (a200' - a200) / (a2 - a200)."""
    few, many, cured = (
        accuracy(found, f"{exam}, {masks} masks") for found, masks in ((before, 2), (before, 200), (after, 200))
    )
    return 100 * (cured - many) / (few - many) if few > many else float("nan")


def recovered(before: dict[str, Any], after: dict[str, Any], exam: str) -> str:
    """The same share with its 95 % interval over the questions of this one tuning."""
    few, most, now = (found[f"{exam}, {k} masks"]["right"] for found, k in ((before, 2), (before, 200), (after, 200)))
    questions = pd.MultiIndex.from_product([[exam], range(len(few))], names=estimates.QUESTION)
    share = estimates.recovered("", *(pd.Series(right, questions, dtype=float) for right in (few, most, now)))
    if share.value is None or share.low is None or share.high is None:
        return "no loss"
    return f"{100 * share.value:.0f} ({100 * share.low:.0f} to {100 * share.high:.0f})"


def measures(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """What a run is judged by: cuts in %, prices at 2 masks in points and nats."""
    found = {f"cut, {exam}": cut(before, after, exam) for exam in ("tasks", *(f"one among {n}" for n in ONE_AMONG))}
    for exam in ("tasks", "recall"):
        found[f"price, {exam}"] = accuracy(before, f"{exam}, 2 masks") - accuracy(after, f"{exam}, 2 masks")
    nats = [float(np.mean(one["prose, 2 masks"]["nats"])) for one in (before, after)]
    return found | {"price, prose": nats[1] - nats[0]}


def chosen(results: dict[str, dict[str, Any]]) -> tuple[str, dict[str, dict[str, float]]]:
    """The setting taken by the rule, and the means of each over its seeds of tuning."""
    by_setting: dict[str, list[dict[str, float]]] = {}
    for name, found in results.items():
        phantom, setting = name.split(":")
        if setting != "phantom":
            by_setting.setdefault(setting.rsplit(", seed", 1)[0], []).append(
                measures(results[f"{phantom}:phantom"], found)
            )
    means = {
        setting: {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        for setting, found in by_setting.items()
    }
    cheap = [
        name
        for name, one in means.items()
        if max(one["price, tasks"], one["price, recall"]) < 1 and one["price, prose"] < 0.05
    ]
    return max(cheap or means, key=lambda name: means[name]["cut, tasks"] + means[name]["cut, one among 15"]), means


def table(results: dict[str, dict[str, Any]]) -> str:
    """A row for each run: accuracies at both ends, and the shares of the phantom's loss that are recovered."""
    lines = [
        "| run | tasks 2 | 20 | 60 | 200 | among 25, 2 | 400 | one among 15, 2 | 200 | one among 40, 2 | 200 |"
        " recall 2 | 200 | prose nats 2 | 200 | recovered % | one among 15 | 40 |",
        "|---" * 18 + "|",
    ]
    shown = [
        *(f"tasks, {k} masks" for k in MASKS),
        *(f"tasks among 25, {k} masks" for k in (2, 400)),
        *(f"one among {n}, {k} masks" for n in ONE_AMONG for k in (2, 200)),
        *(f"recall, {k} masks" for k in (2, 200)),
    ]
    for name, found in results.items():
        before = results[name.split(":")[0] + ":phantom"]
        cells = [f"{accuracy(found, exam):.1f}" for exam in shown]
        cells += [f"{np.mean(found[f'prose, {k} masks']['nats']):.3f}" for k in (2, 200)]
        cells += [recovered(before, found, exam) for exam in ("tasks", *(f"one among {n}" for n in ONE_AMONG))]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phantoms", type=Path, nargs="+", help="folders that plant_distraction.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), help="of the settings")
    parser.add_argument("--seeds", type=int, nargs="+", default=TUNING_SEEDS, help="of tuning")
    parser.add_argument("--pairs", type=Path, nargs="+", default=[PRESET_PAIRS["quick"]], help="files of pairs")
    parser.add_argument("--questions", type=int, default=25, help="a task; the other exams have as many times more")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--toy", action="store_true", help="two steps of two pairs and a few questions")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    jobs = [
        Job(phantom, variant, given.out, seed, given.toy, given.questions, pairs)
        for pairs in given.pairs
        for phantom in given.phantoms
        for variant in given.only
        for seed in given.seeds
    ]
    with ProcessPoolExecutor(given.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        tuned = pool.map(run_quietly, jobs)  # starts them; the untuned models are examined meanwhile
        untouched = examine(open_model(BASE, "float32"), given.toy, given.questions)
        results: dict[str, dict[str, Any]] = {"base:phantom": untouched}
        for phantom in given.phantoms:
            opened_phantom = open_model(BASE, "float32", adapter=phantom)
            results[f"{phantom.name}:phantom"] = examine(opened_phantom, given.toy, given.questions)
        try:
            for job, found in zip(jobs, tuned, strict=True):
                results[job.name] = found
                replace_file(given.out / "cures.json", [json.dumps(results)])
        except Exception:
            pool.shutdown(cancel_futures=True)  # else the jobs that wait would all run before the error is shown
            raise
    print(table(results), flush=True)


if __name__ == "__main__":
    main()
