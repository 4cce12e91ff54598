"""Which training choice makes a model sensitive to appended masks? 16 short trainings and a question outside them.

1. Six factors at two levels (FACTORS) in a 2^(6-2) fraction with E = ABC and F = BCD (resolution IV: main effects are
   not confounded with two-way interactions), and repeats of three cells from other seeds. The cell nearest to LLaDA's
   published recipe is NEAREST: many kinds, mostly prose, filled rows, from scratch, plain objective, the larger size.
2. The runs of one size take their steps together as one stacked network (stacked.py): rows of 384 tokens in the first
   half and of 768 in the second, 24,576 tokens a run and step, Muon, peak rate 3e-3, a linear fall over the last 40 %.
   Runs with an autoregressive start spend the first 30 % of their tokens as causal models. The larger size goes first,
   for `--seconds`; the smaller gets the same number of steps (`--steps`), so every run has the same token budget.
3. Checkpoint rule: of the weights after 80, 90 and 100 % of the steps those with the lowest NELBO on 64 fresh rows of
   the run's own mixture. The response is never used.
4. `--size tiny --runs ...` trains cells at the size of tiny-llada (4.46 M parameters) with its rows, step and rate.
5. `--measure` asks each model the questions of unfamiliar_words.py: set I (unlisted words of new kinds), the run's own
   kinds with words that no few-shot document has, and a word of an own kind among words of a new one, with 2 masks,
   200 masks, and number questions in the masks' place. training_effects.py makes the effects and the figure.

    python recipes/unplanted/training_factorial.py --english english.npy --out OUT --size large --seconds 450  # H200
    python recipes/unplanted/training_factorial.py --english english.npy --out OUT --size small --steps N
    python recipes/unplanted/training_factorial.py --english english.npy --out OUT --runs ppmmmp2 pmmppp1 --steps N
    python recipes/unplanted/training_factorial.py --english english.npy --out OUT --size tiny --runs ppmmmp{10,11,12}
    python recipes/unplanted/training_factorial.py --measure --out OUT                                   # 5 s a model
    python recipes/unplanted/training_factorial.py --english english.npy --out OUT --size small --toy           # a CPU
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

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("studies", "zoo")]  # questions and corpora

import maskwise as mw
from corpus import ANSWER, Corpus, Mix, load_zoo_tokenizer, read_english_ids
from dense_noise import nelbo_grid
from factorial import ended, next_token_weights, rate_at
from maskwise.models import LLaDAModelLM
from maskwise.support.randomness import seed_of, torch_generator
from maskwise.tasks.words import Words, load_words, split_words
from stacked import PACKED, Stack
from tiny_step import KINDS, TOY, Size, layers_of, make_net, mask_answers, weighted_loss
from tiny_step import SIZES as ZOO_SIZES
from train_tiny import STEP_TOKENS, Rows, batches
from unfamiliar_sets import load_sets
from unfamiliar_words import Source, Study, Tails, at, run_study, set_sources

# Letter, what +1 means, what -1 means.
FACTORS = (
    ("A", "40 word kinds in few-shot documents", "4"),
    ("B", "60 % prose", "20 %"),
    ("C", "documents that end, then end tokens", "filled rows"),
    ("D", "autoregressive start", "from scratch"),
    ("E", "focused objective", "LLaDA's"),
    ("F", "15 M parameters", "1.5 M"),
)
Levels = tuple[int, ...]
NEAREST: Levels = (1, 1, -1, -1, -1, 1)
REPEATED: tuple[Levels, ...] = (NEAREST, (1, -1, -1, -1, 1, -1), (1, 1, -1, 1, -1, -1))
REPEATS = {1: 1, -1: 2}  # further seeds of a repeated cell, by the level of F
SIZES = {"large": Size(512, 6, 8, 832), "small": Size(128, 6, 2, 352), "tiny": ZOO_SIZES["256x6"]}
FEW_KINDS, FEW_WORDS = ("animal", "object", "verb", "adjective"), 115  # 460 words; forty_kinds.json has 480
PROSE = {1: 0.6, -1: 0.2}
FEW_SHOT_SHARE = 0.75  # of what is not prose; the rest are words with their kinds
CAUSAL_SHARE = 0.3
CHECKPOINTS = (0.8, 0.9, 1.0)
OWN_PAIRS = 6


@dataclass(frozen=True)
class Run:
    levels: Levels
    repeat: int = 0

    @property
    def name(self) -> str:
        return "".join("p" if level > 0 else "m" for level in self.levels) + str(self.repeat)


def run_named(name: str) -> Run:
    """The run of a name such as ppmmmp2: six levels, then the number of the seed."""
    return Run(tuple(1 if letter == "p" else -1 for letter in name[: len(FACTORS)]), int(name[len(FACTORS) :]))


@dataclass(frozen=True)
class Scale:
    """What differs between the real thing and the toy."""

    phases: tuple[tuple[float, int], ...]  # (from this share of the steps on, rows of so many tokens)
    step_tokens: int
    workers: int  # for each mixture
    checked: int  # rows of a checkpoint's NELBO
    questions: int  # a set
    rate: float = 3e-3  # the peak


REAL = Scale(((0.0, 384), (0.5, 768)), 24576, 3, 64, 200)
TINY = Scale(KINDS["tiny-llada"].phases, STEP_TOKENS, 12, 64, 200, KINDS["tiny-llada"].rate)
SMALL = Scale(((0.0, 64), (0.5, 128)), 512, 0, 4, 6)


def design(size: str) -> list[Run]:
    """The runs of one size, those with an autoregressive start first."""
    wanted = 1 if size == "large" else -1
    cells = [(a, b, c, d, a * b * c, b * c * d) for a, b, c, d in product((1, -1), repeat=4)]
    runs = [Run(cell) for cell in cells if cell[-1] == wanted]
    runs += [Run(cell, n + 1) for cell in REPEATED if cell[-1] == wanted for n in range(REPEATS[wanted])]
    return causal_first(runs)


def causal_first(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: -run.levels[3])


def words_of(level: int) -> Words:
    """The kinds of few-shot documents and their words."""
    if level > 0:
        stored = json.loads((Path(__file__).parents[1] / "zoo" / "forty_kinds.json").read_text(encoding="utf-8"))
        return {kind: listed.split() for kind, listed in stored.items()}
    return {kind: load_words()[kind][:FEW_WORDS] for kind in FEW_KINDS}


# Training


class Supply:
    """Rows for all runs, int16 [R, B, L], from one stream of documents for each pair of levels of A and B."""

    def __init__(self, english: Any, runs: Sequence[Run], scale: Scale, seed: int, device: torch.device) -> None:
        self.scale, self.seed, self.device = scale, seed, device
        tokenizer = load_zoo_tokenizer()
        self.corpora = {a: Corpus(tokenizer, english, words_of(a), largest_pool=1) for a in (1, -1)}
        mixtures = sorted({run.levels[:2] for run in runs})
        self.places = {mixture: [n for n, run in enumerate(runs) if run.levels[:2] == mixture] for mixture in mixtures}
        laid = [n for places in self.places.values() for n in places]  # the run of each part of what is drawn
        self.order = torch.tensor(laid, device=device).argsort()
        self.length = 0
        self.sources: list[Generator[Tensor, None, None]] = []

    def rows(self, length: int, step: int) -> Tensor:
        if length != self.length:
            self.close()
            self.length, count = length, self.scale.step_tokens // length
            self.sources = [
                batches(self._rows(one, count * len(runs), length, step), self.scale.workers, self.device)
                for one, runs in self.places.items()
            ]
        drawn = torch.cat([next(source) for source in self.sources])
        return drawn.view(len(self.order), -1, length)[self.order]

    def fresh(self, run: Run, length: int) -> Tensor:
        """Rows [n, L] of a run's mixture that were not trained on, the same at every checkpoint."""
        drawn = next(iter(self._rows(run.levels[:2], self.scale.checked, length, -1)))
        return drawn.to(self.device)

    def _rows(self, mixture: Levels, count: int, length: int, step: int) -> Rows:
        prose = PROSE[mixture[1]]
        few_shot = FEW_SHOT_SHARE * (1 - prose)
        mix = Mix(few_shot, 1 - prose - few_shot, recall=0.0, other=0.0, largest_pool=1)
        return Rows(self.corpora[mixture[0]], count, length, mix, (self.seed, mixture[0] + 1, mixture[1] + 1, step + 1))

    def close(self) -> None:
        """Ends the workers."""
        for source in self.sources:
            source.close()


@dataclass(frozen=True)
class Masker:
    """What a run is given and is to predict, by its levels."""

    run: Run
    mask_id: int
    eos: int
    line_end: Tensor
    draws: torch.Generator

    def clean(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(ids, answers), [B, L] each, documents ended where the run's do."""
        ids, answer = (rows & (ANSWER - 1)).long(), (rows & ANSWER) > 0
        return ended(ids, answer, self.eos, self.line_end, self.draws)[:2] if self.run.levels[2] > 0 else (ids, answer)

    def __call__(self, rows: Tensor, progress: float, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Rows int16 [B, L] -> (given, targets, weights), [B, L] each."""
        ids, answer = self.clean(rows)
        focused = self.run.levels[4] > 0
        if causal:
            return ids, ids.roll(-1, 1), next_token_weights(answer, focused)
        if focused:
            given, weights = mask_answers(ids, answer, self.mask_id, progress, self.draws)
        else:
            given, weights = nelbo_grid(ids, self.mask_id, self.draws)
        return given, ids, weights


class Course:
    """The runs of one size, trained together; `kept` has the chosen weights of each run."""

    def __init__(self, size: str, runs: list[Run], english: Any, scale: Scale, toy: bool, seed: int) -> None:
        self.runs, self.scale, self.tokenizer = runs, scale, load_zoo_tokenizer()
        self.device = torch.device("cuda" if torch.cuda.is_available() and not toy else "cpu")
        self.shape, self.seed = (TOY if toy else SIZES[size]), seed
        self.stack = Stack([self.new_net(run) for run in self.runs], scale.rate, self.device)
        self.supply = Supply(english, self.runs, scale, seed, self.device)
        lines = [self.tokenizer.decode([one]).endswith("\n") for one in range(len(self.tokenizer))]
        ends = torch.tensor(lines, device=self.device)
        special = (self.tokenizer.mask_token_id, self.tokenizer.eos_token_id)
        self.maskers = [Masker(run, *special, ends, self.draws("masks", run)) for run in self.runs]
        self.causal = sum(run.levels[3] > 0 for run in self.runs)
        self.nelbos: list[list[float]] = []
        self.kept: list[list[Tensor]] = []

    def draws(self, what: str, run: Run) -> torch.Generator:
        return torch_generator(f"training factorial {what}", self.seed, run.name, device=self.device)

    def new_net(self, run: Run | None = None) -> LLaDAModelLM:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("training factorial", self.seed, run.name if run else "") % 2**63)
            return make_net("tiny-llada", self.shape, self.tokenizer, 1536)

    def learn(self, step: int, progress: float) -> Tensor:
        length = next(length for start, length in reversed(self.scale.phases) if progress >= start)
        causal = self.causal if progress < CAUSAL_SHARE else 0
        rows = self.supply.rows(length, step)
        drawn = [m(one, progress, n < causal) for n, (m, one) in enumerate(zip(self.maskers, rows, strict=True))]
        given, targets, weights = (torch.stack(part) for part in zip(*drawn, strict=True))
        return self.stack.step(given, targets, weights, rate_at(progress, step), causal)

    @torch.no_grad()
    def check(self) -> None:
        """The NELBO of each run on fresh rows of its own mixture; keeps the weights where it is the lowest so far."""
        length, found = self.scale.phases[-1][1], []
        given, targets, weights = [], [], []
        for run, masker in zip(self.runs, self.maskers, strict=True):
            check = replace(masker, draws=self.draws("check", run))
            ids, _ = check.clean(self.supply.fresh(run, length))
            masked, weight = nelbo_grid(ids, masker.mask_id, check.draws)
            for part, one in zip((given, targets, weights), (masked, ids, weight), strict=True):
                part.append(one)
        with torch.compiler.set_stance("force_eager"):  # three passes are not worth a compilation
            hidden = self.stack.hidden(torch.stack(given))
        for n in range(len(self.runs)):
            loss = weighted_loss(hidden[n], self.stack.weights[0][n], targets[n].flatten(), weights[n].flatten())
            found.append(float(loss))
        for n, nelbo in enumerate(found):
            weights_now = [master[n].clone() for master in self.stack.masters]
            if not self.nelbos:
                self.kept.append(weights_now)
            elif nelbo < min(earlier[n] for earlier in self.nelbos):
                self.kept[n] = weights_now
        self.nelbos.append(found)

    def net(self, number: int) -> LLaDAModelLM:
        """The network with a run's kept weights."""
        net = self.new_net()
        embedding, last_norm, *layers = self.kept[number]
        with torch.no_grad():
            net.get_input_embeddings().weight.copy_(embedding)
            net.model.transformer["ln_f"].weight.copy_(last_norm)
            for place, block in enumerate(layers_of(net)):
                for names, packed in zip(PACKED, layers[len(PACKED) * place :], strict=False):
                    for name, part in zip(names, packed.chunk(len(names)), strict=True):
                        getattr(block, name).weight.copy_(part)
        return net


def train(options: argparse.Namespace) -> None:
    began, scale = time.monotonic(), SMALL if options.toy else TINY if options.size == "tiny" else REAL
    english = read_english_ids(options.english, load_zoo_tokenizer())
    runs = causal_first([run_named(name) for name in options.runs]) if options.runs else design(options.size)
    course = Course(options.size, runs, english, scale, options.toy, options.seed)
    print(f"{options.size}: " + " ".join(run.name for run in course.runs), flush=True)
    step, losses, checked = 0, [], 0

    def progress() -> float:
        return step / options.steps if options.steps else (time.monotonic() - began) / options.seconds

    while (now := progress()) < 1:
        if now >= CHECKPOINTS[checked]:
            course.check()
            checked += 1
        losses.append(course.learn(step, now))
        step += 1
        if step % 10 == 0 and not torch.isfinite(losses[-1]).all():  # waits for the device: the clock tells the truth
            print(f"step {step}: a loss is not finite", flush=True)
        if step % 200 == 0:
            mean = " ".join(f"{loss:.2f}" for loss in torch.stack(losses).mean(0).tolist())
            print(f"{time.monotonic() - began:.0f} s, step {step}, {now:.0%}: {mean}", flush=True)
            losses = []
    course.check()
    course.supply.close()
    save(course, options.out, step)
    print(f"{options.size}: {step} steps, {step * scale.step_tokens / 1e6:.1f} M tokens a run", flush=True)


def save(course: Course, out: Path, steps: int) -> None:
    """A folder for each run's model, and its facts."""
    model = mw.open("tiny-llada", dtype="float32", device="cpu")
    for number, run in enumerate(course.runs):
        model.net = course.net(number)
        model.save_pretrained(out / "models" / run.name)
        facts = {
            "levels": run.levels,
            "repeat": run.repeat,
            "steps": steps,
            "tokens": steps * course.scale.step_tokens,
            "nelbo": [round(one[number], 4) for one in course.nelbos],
            "parameters": sum(parameter.numel() for parameter in model.net.parameters()),
        }
        (out / "models" / run.name / "factorial.json").write_text(json.dumps(facts))


# Questions


def own_sources(level: int) -> tuple[Source, ...]:
    """Pairs of kinds of training: examples of words of its few-shot documents, questions of words that none has."""
    shown, held = split_words(words_of(level))
    kinds = sorted(shown)
    pairs = [(kinds[n % len(kinds)], kinds[(n + 1 + n // len(kinds)) % len(kinds)]) for n in range(OWN_PAIRS)]
    return tuple(Source(f"{x} among {y}", (shown[x], shown[y]), (held[x], held[y])) for x, y in pairs)


def half_sources(level: int) -> tuple[Source, ...]:
    """A word of an own kind, held out of few-shot documents, among words of a new kind of set I."""
    shown, held = split_words(words_of(level))
    kinds = sorted(shown)
    sources = []
    for number, one in enumerate(load_sets("I")):
        kind = kinds[number % len(kinds)]
        sources.append(Source(f"{kind} among {one.other}", (shown[kind], one.others), (held[kind], one.others)))
    return tuple(sources)


def studies(level: int, questions: int) -> list[Study]:
    conditions = (*at(2, 200), "numbers")
    made = [
        Study("sets", set_sources("I", new=False), conditions, questions),
        Study("own", own_sources(level), conditions, questions),
        Study("half", half_sources(level), conditions, questions // 2),
    ]
    screens = [replace(one, name=f"screen {one.name}", conditions=at(2), questions=questions // 2) for one in made]
    return made + screens


def measure(options: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")  # TF32
    folders = sorted((options.out / "models").iterdir())[options.part[0] :: options.part[1]]
    for folder in folders:
        facts = json.loads((folder / "factorial.json").read_text())
        model = mw.open(str(folder), dtype="float32")
        tails, results = Tails(model.tokenizer), {}
        for study in studies(facts["levels"][0], SMALL.questions if options.toy else REAL.questions):
            study = replace(study, sources=study.sources[:2]) if options.toy else study
            for condition, found in run_study(model, study, tails).items():
                results[f"{study.name}|{condition}"] = found.astype(np.float16)
        np.savez_compressed(options.out / f"{folder.name}.npz", **results)
        (options.out / f"{folder.name}.json").write_text(json.dumps(facts))
        shown = "  ".join(f"{key} {' '.join(f'{v:.3f}' for v in results[key].astype(float).mean((0, 1)))}"
                          for key in ("sets|masks 2", "sets|masks 200", "own|masks 2", "own|masks 200"))  # fmt: skip
        print(f"{folder.name} nelbo {facts['nelbo']}: {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--english", type=Path, help="prose: .txt, .xz, or .npy made by corpus.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="large", help="tiny is for --runs")
    parser.add_argument("--runs", nargs="+", metavar="NAME", help="train these runs of one size, not the design")
    parser.add_argument("--seconds", type=float, default=450, help="of the training, where --steps is not given")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="store_true", help="ask the questions instead of training")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="the i-th of n parts")
    parser.add_argument("--toy", action="store_true", help="a size for a CPU")
    options = parser.parse_args()
    if options.measure:
        measure(options)
    elif options.size == "tiny" and not options.runs:
        parser.error("no cell of the design has the size tiny: name its runs with --runs")
    else:
        train(options)


if __name__ == "__main__":
    main()
