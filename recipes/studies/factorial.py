"""What makes a model local, what makes it sensitive to appended masks: a factorial of short trainings on one GPU.

1. Five factors at two levels (FACTORS), the 16 cells with A B C D E = +1 (resolution V: all main effects and two-way
   interactions can be estimated), and two repeats of each of two cells for the noise: 20 trainings of 4.46 M
   parameters, each with its own seed and documents.
2. They take their steps together as one stacked network (stacked.py), so at any time all have had the same number of
   tokens; rows always have 768. D is no extra: those runs spend the first 30 % of their own time as causal models.
3. Along the way and at the end: contrast questions with one example next to the question (near) or before 20 number
   questions (far), recall of one of 20 pairs (one of the last five but the last, or the first), with 2, 20 and 200
   masks; held-out words; accuracy and -log P of the right token.
4. `--learnt` is a second experiment, for when few cells have learnt: B, C and E in all combinations, with A and D at
   +1 and one autoregressive start for all runs that knows the task; 12 trainings.
5. OUT/results.json has the design and the mean of every exam, OUT/answers.npz every answer; both are rewritten after
   each exam. factorial_effects.py makes the tables of effects and the figure from them.

    python recipes/zoo/corpus.py english.txt.xz english.npy --every 4
    PYTHONPATH=src python recipes/studies/factorial.py --english english.npy --out OUT --seconds 775         # one H200
    PYTHONPATH=src python recipes/studies/factorial.py --english english.npy --out OUT --seconds 283 --learnt
    PYTHONPATH=src python recipes/studies/factorial.py --english english.npy --out OUT --toy                 # a CPU
"""

import argparse
import json
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1] / "zoo"))  # exams, corpora and training steps of the embedded models

from corpus import ANSWER, Corpus, Mix, load_zoo_tokenizer, read_english_ids
from dense_noise import nelbo_grid
from exams import MASKS, Exams, recall_questions
from maskwise.support.files import replace_file
from maskwise.support.randomness import seed_of, torch_generator
from maskwise.tasks.contrast_questions import CONTRAST_TASKS, RULES, draw_contrast
from maskwise.tasks.prompts import encode_question, opened
from maskwise.tasks.words import load_words, split_words
from stacked import Stack, block
from tiny_step import SIZES, TOY, Size, balanced, make_net, mask_answers
from train_tiny import EXAM_SEED, FINAL_SEED, WARM_UP_STEPS, Rows, batches, mix_at

# Letter, what +1 means, what -1 means.
FACTORS = (
    ("A", "40 % few-shot documents", "2 %"),
    ("B", "suffix masked as a block in 30 % of rows", "in none"),
    ("C", "documents that end, then EOS", "rows filled"),
    ("D", "autoregressive start", "from scratch"),
    ("E", "focused rows and answer loss", "LLaDA's objective"),
)
FEW_SHOT = {1: 0.4, -1: 0.02}
SUFFIX_SHARE = 0.3
CAUSAL_SHARE = 0.3  # of the time, in runs with an autoregressive start
SHORTEST_DOCUMENT = 0.25  # of the row, where documents end
LARGEST_POOL, MOST_PAIRS = 2, 24  # documents as hard as the exams and no harder
RATE = 3e-3
LAST_SECONDS = 15  # kept for the last exam
# tiny-llada's own cell, and that of a skill seen in few documents and an autoregressive start: two more runs of each.
REPEATED = ((1, -1, -1, -1, -1), (-1, -1, -1, 1, -1))
REPEATS = 2

# The second experiment: one autoregressive start for all, of filled rows and with the answers' loss.
LEARNT_REPEATED = ((1, -1, -1, 1, -1), (1, 1, 1, 1, 1))
SHARED_SHARE = 0.36  # of the time

Levels = tuple[int, ...]
Found = dict[str, tuple[Tensor, Tensor]]  # (right, nats), [R, n] each, by exam and number of masks


@dataclass(frozen=True)
class Run:
    levels: Levels  # of A to E
    repeat: int = 0

    @property
    def name(self) -> str:
        signs = "".join("+" if level > 0 else "-" for level in self.levels)
        return signs if self.repeat == 0 else f"{signs} {self.repeat + 1}"


SHARED_START = [Run((1, -1, -1, 1, 1))]


def design() -> list[Run]:
    """The half fraction and its repeats, runs with an autoregressive start first."""
    cells = [(a, b, c, d, a * b * c * d) for a, b, c, d in product((1, -1), repeat=4)]
    runs = [Run(cell) for cell in cells] + [Run(cell, n + 1) for cell in REPEATED for n in range(REPEATS)]
    return sorted(runs, key=lambda run: -run.levels[3])


def learnt_design() -> list[Run]:
    """B, C and E in all combinations with A and D at +1, and two repeats of each of two cells."""
    runs = [Run((1, b, c, 1, e)) for b, c, e in product((1, -1), repeat=3)]
    return runs + [Run(cell, n + 1) for cell in LEARNT_REPEATED for n in range(REPEATS)]


@dataclass(frozen=True)
class Scale:
    """What differs between the real thing and the toy."""

    size: Size
    length: int
    rows: int  # per run and step
    distractors: int
    pairs: int
    along: tuple[int, int]  # questions per contrast task, recall questions per place
    final: tuple[int, int]
    masks: tuple[int, ...]
    workers: int
    exams: int  # along the way, at equal times


REAL = Scale(SIZES["256x6"], 768, 32, 20, 20, (10, 96), (40, 400), MASKS, 6, 16)
SMALL = Scale(TOY, 128, 4, 1, 3, (1, 2), (1, 2), (2, 5), 0, 2)


# Rows


def ended(ids: Tensor, answer: Tensor, eos: int, line_end: Tensor, draws: torch.Generator) -> tuple[Tensor, ...]:
    """Documents that end after a random share of the row: ids and answers [B, L] with EOS after them, and ends [B].

    They end with a line where one ends in the second half of what was drawn; line_end [V] says which tokens end one.
    """
    rows, length = ids.shape
    drawn = torch.rand(rows, 1, generator=draws, device=ids.device) * (1 - SHORTEST_DOCUMENT) + SHORTEST_DOCUMENT
    most = (drawn * length).ceil().long()
    place = torch.arange(1, length + 1, device=ids.device)
    lines = torch.where(line_end[ids] & (place <= most) & (2 * place > most), place, 0).amax(1, keepdim=True)
    ends = torch.where(lines > 0, lines, most)
    inside = place <= ends
    return torch.where(inside, ids, eos), answer & inside, ends[:, 0]


def mask_suffix(
    ids: Tensor, answer: Tensor, ends: Tensor, focused: bool, mask_id: int, progress: float, draws: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Masks all tokens from a random place in the second half of a document on: masked ids [B, L], weights [B, L].

    Weighted as either objective weighs a row in which that share of the tokens is masked.
    """
    rows, length = ids.shape
    count = 1 + (torch.rand(rows, generator=draws, device=ids.device) * (ends // 2)).long().clamp(max=length - 1)
    masked = torch.arange(length, device=ids.device) >= (ends - count)[:, None]
    t = masked.float().mean(1, keepdim=True)
    weights = balanced(masked * t**-progress, masked & answer) if focused else masked / t / ids.numel()
    return torch.where(masked, mask_id, ids), weights


@dataclass(frozen=True)
class Masker:
    """What a run is given and is to predict, by its levels."""

    run: Run
    mask_id: int
    eos: int
    line_end: Tensor
    draws: torch.Generator

    def __call__(self, rows: Tensor, progress: float, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Rows int16 [B, L] -> (given, targets, weights), [B, L] each."""
        _, suffixes, end, _, focused = (level > 0 for level in self.run.levels)
        ids, answer = (rows & (ANSWER - 1)).long(), (rows & ANSWER) > 0
        ends = torch.full((len(ids),), ids.shape[1], device=ids.device)
        if end:
            ids, answer, ends = ended(ids, answer, self.eos, self.line_end, self.draws)
        if causal:
            return ids, ids.roll(-1, 1), next_token_weights(answer, focused)
        first = round(SUFFIX_SHARE * len(ids)) if suffixes else 0  # rows come in random order
        parts = [self._objective(ids[first:], answer[first:], focused, progress)]
        if first:
            head = (ids[:first], answer[:first], ends[:first])
            parts.insert(0, mask_suffix(*head, focused, self.mask_id, progress, self.draws))
        given = torch.cat([given for given, _ in parts])
        return given, ids, torch.cat([weights * len(weights) / len(ids) for _, weights in parts])

    def _objective(self, ids: Tensor, answer: Tensor, focused: bool, progress: float) -> tuple[Tensor, Tensor]:
        if focused:
            return mask_answers(ids, answer, self.mask_id, progress, self.draws)
        return nelbo_grid(ids, self.mask_id, self.draws)


def next_token_weights(answer: Tensor, focused: bool) -> Tensor:
    """Weights [B, L] of the next token's loss: the mean over all, and under the recipe's objective the answers' too."""
    weights = torch.ones(answer.shape, device=answer.device)
    weights = balanced(weights, answer) if focused else weights / weights.numel()
    weights = weights.roll(-1, 1)
    weights[:, -1] = 0
    return weights


class Supply:
    """Rows for all runs, int16 [R, B, L], from one stream of documents for each level of A."""

    def __init__(self, corpus: Corpus, runs: Sequence[Run], scale: Scale, seed: int, device: torch.device) -> None:
        self.corpus, self.scale, self.seed, self.device = corpus, scale, seed, device
        levels = sorted({run.levels[0] for run in runs})
        self.places = {level: [n for n, run in enumerate(runs) if run.levels[0] == level] for level in levels}
        laid = [n for places in self.places.values() for n in places]  # the run of each part of what is drawn
        self.order = torch.tensor(laid, device=device).argsort()
        self.stage: Mix | None = None
        self.sources: dict[int, Generator[Tensor, None, None]] = {}

    def rows(self, progress: float, step: int) -> Tensor:
        mix = mix_at(progress)
        if mix != self.stage:
            self.close()
            self.stage = mix
            self.sources = {level: self._source(mix, level, step) for level in self.places}
        drawn = torch.cat([next(source) for source in self.sources.values()])
        return drawn.view(-1, self.scale.rows, self.scale.length)[self.order]

    def close(self) -> None:
        """Ends the workers."""
        for source in self.sources.values():
            source.close()

    def _source(self, mix: Mix, level: int, step: int) -> Generator[Tensor, None, None]:
        eased = replace(
            mix,
            few_shot=FEW_SHOT[level],
            largest_pool=min(mix.largest_pool, LARGEST_POOL),
            most_pairs=min(mix.most_pairs, MOST_PAIRS),
        )
        count = len(self.places[level]) * self.scale.rows
        drawn = Rows(self.corpus, count, self.scale.length, eased, (self.seed, level + 1, step))
        return batches(drawn, self.scale.workers, self.device)


# Exams


def make_questions(tokenizer: Any, scale: Scale, sizes: tuple[int, int], seed: int) -> Exams:
    """Contrast questions under their three rules one after another, and recall; near and far."""
    per_task, recalls = sizes
    shown, held = split_words(load_words())
    exams: Exams = {"contrast near": [], "contrast far": []}
    for task in CONTRAST_TASKS:
        for number in range(per_task):
            drawn = draw_contrast(task, shown, held, 1, scale.distractors, number, seed)
            for rule, where in product(range(RULES), ("near", "far")):
                encoded = encode_question(tokenizer, drawn.context(rule, where), drawn.test(rule))
                exams[f"contrast {where}"].append(encoded)
    for where, place in (("near", "near"), ("far", "first")):
        exams[f"recall {where}"] = recall_questions(tokenizer, scale.pairs, place, recalls, seed)
    return exams


def examine(stack: Stack, exams: Exams, mask_id: int, scale: Scale, causal: int = 0) -> Found:
    """(right, nats), [R, n] each, by exam and number of masks; the `causal` first runs are asked with none."""
    return {
        f"{name} {count}": stack.answers(
            [opened(question, None if causal else mask_id, count) for question in questions], scale.length, causal
        )
        for name, questions in exams.items()
        for count in ((0,) if causal else scale.masks)
    }


class Book:
    """Everything measured so far, rewritten after each exam so that a run cut short keeps what it had."""

    def __init__(self, runs: Sequence[Run], scale: Scale, out: Path) -> None:
        self.runs, self.scale, self.out = runs, scale, out
        self.facts: dict[str, Any] = {
            "factors": FACTORS,
            "masks": scale.masks,
            "runs": [{"name": run.name, "levels": run.levels, "repeat": run.repeat} for run in runs],
            "exams": [],
        }
        self.answers: dict[str, np.ndarray] = {}
        out.mkdir(parents=True, exist_ok=True)

    def add(self, kind: str, found: Found, course: "Course", began: float) -> None:
        """Puts down one exam, and the mean loss of the steps since the last."""
        number = len(self.facts["exams"])
        loss = rounded(torch.stack(course.losses).mean(0)) if course.losses else None
        course.losses = []
        seconds = round(time.monotonic() - began, 1)
        where = {"kind": kind, "seconds": seconds, "step": course.step, "tokens": course.tokens, "loss": loss}
        self.facts["exams"].append(where | {"found": means(found)})
        for name, (right, nats) in found.items():
            self.answers[f"{number} {name} right"] = right.numpy()
            self.answers[f"{number} {name} nats"] = nats.half().numpy()
        replace_file(self.out / "results.json", [json.dumps(self.facts)])
        np.savez(self.out / "answers.npz", **self.answers)

    def table(self) -> str:
        """One row per run: the last exam's accuracy in % and nats, by exam and number of masks."""
        found = self.facts["exams"][-1]["found"]
        lines = [" ".join(letter for letter, _, _ in FACTORS) + "    " + "  ".join(f"{name:>18}" for name in found)]
        for place, run in enumerate(self.runs):
            cells = [f"{100 * one['right'][place]:11.1f} ({one['nats'][place]:4.2f})" for one in found.values()]
            lines.append(f"{run.name:8}   " + "  ".join(cells))
        return "\n".join(lines)

    def line(self) -> str:
        """Accuracy in % of all runs with the fewest masks."""
        last = self.facts["exams"][-1]
        fewest = {name: one for name, one in last["found"].items() if name.split()[-1] == str(self.scale.masks[0])}
        cells = [
            f"{name}: " + " ".join(f"{100 * share:3.0f}" for share in one["right"]) for name, one in fewest.items()
        ]
        return f"{last['seconds']:4.0f} s {last['tokens'] / 1e6:6.1f} M tokens per run, %\n  " + "\n  ".join(cells)


def means(found: Found) -> dict[str, dict[str, list[float]]]:
    """Accuracy and nats of each run, by exam."""
    return {
        name: {"right": rounded(right.float().mean(1)), "nats": rounded(nats.mean(1))}
        for name, (right, nats) in found.items()
    }


def rounded(values: Tensor) -> list[float]:
    return [round(value, 5) for value in values.tolist()]


# Training


def rate_at(progress: float, step: int) -> float:
    """Share of the peak: warm-up, constant, and a linear fall to zero over the last 40 % (as in tiny_step)."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * min(1.0, (1 - progress) / 0.4)


class Course:
    """Runs that train together, each from its own seed: the stacked networks, their rows, masks and losses."""

    def __init__(
        self, runs: Sequence[Run], scale: Scale, corpus: Corpus, tokenizer: Any, seed: int, device: torch.device
    ) -> None:
        self.runs, self.scale, self.step = runs, scale, 0
        self.documents_from = 0.0  # how far the documents have come at the least: the first ones are easier
        self.stack = Stack([new_net(run, scale, tokenizer, seed) for run in runs], RATE, device)
        self.supply = Supply(corpus, runs, scale, seed, device)
        lines = [tokenizer.decode([one]).endswith("\n") for one in range(len(tokenizer))]
        line_end = torch.tensor(lines, device=device)
        self.maskers = [
            Masker(
                run,
                tokenizer.mask_token_id,
                tokenizer.eos_token_id,
                line_end,
                torch_generator("factorial masks", seed, run.name, device=device),
            )
            for run in runs
        ]
        self.losses: list[Tensor] = []

    def learn(self, progress: float, causal: int) -> None:
        """One step of all runs, of which the first `causal` predict the next token."""
        rows = self.supply.rows(max(progress, self.documents_from), self.step)
        drawn = [
            masker(one, progress, place < causal)
            for place, (masker, one) in enumerate(zip(self.maskers, rows, strict=True))
        ]
        given, targets, weights = (torch.stack(part) for part in zip(*drawn, strict=True))
        self.losses.append(self.stack.step(given, targets, weights, rate_at(progress, self.step), causal))
        self.step += 1
        if self.step % 10 == 0:
            lost = (~torch.isfinite(self.losses[-1])).tolist()  # waits for the device, so the clock tells the truth
            if any(lost) and self.step % 500 == 0:  # a lost run harms no other
                names = ", ".join(run.name for run, is_lost in zip(self.runs, lost, strict=True) if is_lost)
                print(f"step {self.step}: the loss is not finite: {names}", flush=True)

    @property
    def tokens(self) -> int:
        return self.step * self.scale.rows * self.scale.length


@dataclass(frozen=True)
class Setup:
    """What both experiments share: a course of any runs can be made of it."""

    scale: Scale
    corpus: Corpus
    tokenizer: Any
    seed: int
    device: torch.device

    def course(self, runs: Sequence[Run]) -> Course:
        return Course(runs, self.scale, self.corpus, self.tokenizer, self.seed, self.device)

    def questions(self, sizes: tuple[int, int], seed: int) -> Exams:
        return make_questions(self.tokenizer, self.scale, sizes, seed)

    def examine(self, course: Course, exams: Exams, causal: int = 0) -> Found:
        return examine(course.stack, exams, self.tokenizer.mask_token_id, self.scale, causal)


def train(arguments: argparse.Namespace) -> Book:
    began = time.monotonic()
    scale = SMALL if arguments.toy else replace(REAL, exams=12) if arguments.learnt else REAL
    device = torch.device("cuda" if torch.cuda.is_available() and not arguments.toy else "cpu")
    tokenizer = load_zoo_tokenizer()
    corpus = Corpus(tokenizer, read_english_ids(arguments.english, tokenizer))
    setup = Setup(scale, corpus, tokenizer, arguments.seed, device)
    runs = learnt_design() if arguments.learnt else design()
    print(f"{len(runs)} runs: " + ", ".join(run.name for run in runs), flush=True)
    course, book = setup.course(runs), Book(runs, scale, arguments.out)
    book.facts |= {
        "seed": arguments.seed,
        "device": device_name(device),
        "rate": RATE,
        "rows": scale.rows,
        "length": scale.length,
    }
    end = began + arguments.seconds - (1 if arguments.toy else LAST_SECONDS)
    along, first = setup.questions(scale.along, EXAM_SEED), began
    if arguments.learnt:
        book.facts["start"] = shared_start(setup, course, along, began, end)
        first = time.monotonic()
    causal_runs = 0 if arguments.learnt else sum(run.levels[3] > 0 for run in runs)
    examined, causal = 0, causal_runs
    while (progress := (time.monotonic() - first) / (end - first)) < 1:
        if causal and progress >= CAUSAL_SHARE:
            causal = 0
            book.add("start", setup.examine(course, along, causal_runs), course, began)
            print("autoregressive\n" + book.table(), flush=True)
        if progress >= (examined + 1) / scale.exams:
            examined = int(progress * scale.exams)
            book.add("along", setup.examine(course, along), course, began)
            print(book.line(), flush=True)
        course.learn(progress, causal)
    course.supply.close()
    book.add("final", setup.examine(course, setup.questions(scale.final, FINAL_SEED)), course, began)
    return book


def shared_start(setup: Setup, course: Course, exams: Exams, began: float, end: float) -> dict[str, Any]:
    """Trains one autoregressive network and starts all runs from it; its tokens and exams."""
    alone = replace(setup, scale=replace(setup.scale, rows=3 * setup.scale.rows))  # one network fills the card less
    start = alone.course(SHARED_START)
    while (progress := (time.monotonic() - began) / (SHARED_SHARE * (end - began))) < 1:
        start.learn(0.6 * progress, causal=1)  # the rate falls after 0.6: training goes on
    start.supply.close()
    start.stack.block = block  # one exam is not worth a compilation
    course.stack.begin_with(start.stack)
    course.documents_from = 0.6
    facts = {"tokens": start.tokens, "found": means(setup.examine(start, exams, causal=1))}
    print("autoregressive start:", facts, flush=True)
    return facts


def new_net(run: Run, scale: Scale, tokenizer: Any, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("factorial weights", seed, run.name) % 2**63)
        return make_net("tiny-llada", scale.size, tokenizer, scale.length)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else "CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--english", type=Path, required=True, help="prose: .txt, .xz, or .npy made by corpus.py")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--seconds", type=float, default=800, help="for everything")
    parser.add_argument("--learnt", action="store_true", help="B, C and E alone, from one start that knows the task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--toy", action="store_true", help="a size for a CPU")
    arguments = parser.parse_args()
    if arguments.toy:
        arguments.seconds = min(arguments.seconds, 30)
    book = train(arguments)
    last = book.facts["exams"][-1]
    print(book.table())
    print(f"{last['step']} steps, {last['tokens'] / 1e6:.0f} M tokens per run, {last['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
