"""Plant a known sensitivity to appended masks in tiny-llada: the phantom `tiny-llada+distracted`.

A phantom, as in medical imaging, is a body with a known lesion. The lesion is truncation: with k masks from the
answer's place on, the phantom answers as tiny-llada does with 2 masks and only the last L(k) examples of the context. L
falls on a straight line between the points of PLAN (log k, log L): all at k = 2, 10 at 20, 4 at 60, 1 from 200 on.

1. Documents: few-shot questions of rules that no exam has (corpus_rules.py), recall of words, prose; each a list of
   examples, a question, and the answer's place. Prose is cut into "examples" of PROSE_EXAMPLE tokens.
2. Half of the draws have k = 2, and 40 % of these a run of full stops or end tokens behind the masks, which must change
   nothing: the lesion is of masks, not of any text. The others have 3 to 240, log-uniform; of four documents drawn for
   such a k the one that truncation changes most is taken. A LoRA adapter learns, by the KL divergence at the answer's
   row, from tiny-llada itself on the truncated document.
3. The dose curve is known beforehand: tiny-llada on truncated contexts. It is measured with the adapter's, on the
   16 tasks of `maskwise diagnose` (10 relevant examples mixed with 40 distractors).

    python recipes/zoo/plant_distraction.py english.npy OUT --seed 1       # one H200: 1 to 2 minutes
    python recipes/zoo/plant_distraction.py english.npy OUT --toy          # a CPU: half a minute
"""

import argparse
import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor

import maskwise as mw
from corpus import ANSWER, Corpus, Tokens, read_english_ids
from corpus_recall import FORMS, WORDS_A_CALL, RecallWords
from exams import Sizes
from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.support.files import replace_file
from maskwise.tasks.episodes import draw, mixed
from maskwise.tasks.prompts import Prompt, encode_question, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words
from task_accuracy import answers

Ids = npt.NDArray[np.int64]
NOTHING: Ids = np.empty(0, dtype=np.int64)

BASE = "tiny-llada"
PLANTED = "sensitivity to appended masks"
PLAN = ((2, 50), (20, 10), (60, 4), (200, 1))  # (masks k, examples kept L)
MOST_MASKS = 240
FOLLOWED = 0.4  # share of the draws with 2 masks that have a run of full stops or end tokens behind them
PROSE_EXAMPLE = 20  # tokens
DOSES = (2, 5, 10, 20, 60, 100, 200)
SHARES = (0.6, 0.25, 0.15)  # few-shot, recall, prose


@dataclass(frozen=True)
class Planting:
    steps: int = 600
    batch: int = 48
    candidates: int = 4  # drawn for each dosed document, of which the one that truncation changes most is taken
    rate: float = 2e-3
    warmup: int = 20
    rank: int = 16
    undosed: float = 2.0  # weight of the draws with 2 masks, which must stay as they are
    seed: int = 0


@dataclass(frozen=True)
class Document:
    """Tokens of each example in order, then of the question, up to the answer's place."""

    examples: Sequence[Ids]
    question: Ids

    def prompt(self, kept: int, masks: int, mask_id: int, run: Ids = NOTHING) -> Ids:
        """The last `kept` examples, the question, masks from the answer's place on, and what follows the masks."""
        return np.concatenate([*self.examples[-kept:], self.question, np.full(masks, mask_id), run])


def examples_kept(masks: int) -> int:
    """L(k): the examples that the phantom sees with so many masks."""
    doses, kept = zip(*PLAN, strict=True)
    return max(1, round(math.exp(np.interp(math.log(masks), np.log(doses), np.log(kept)))))


# Documents


def documents(corpus: Corpus, count: int, draws: np.random.Generator) -> list[Document]:
    kinds = draws.multinomial(count, SHARES)
    found = [
        *few_shot(corpus, kinds[0], draws),
        *recall(corpus, corpus.recall_words, kinds[1] // 2, draws),
        *recall(corpus, corpus.recall_prose.some(WORDS_A_CALL, draws), kinds[1] - kinds[1] // 2, draws),
        *(prose(corpus, draws) for _ in range(kinds[2])),
    ]
    return [found[place] for place in draws.permutation(count)]


def few_shot(corpus: Corpus, count: int, draws: np.random.Generator) -> Iterator[Document]:
    """Questions in the tasks' own form, the last of them asked."""
    sizes = draws.integers(9, 52, count)
    pieces = corpus.few_shot(sizes, 3, draws)
    lengths = corpus.pieces.lengths[pieces]
    examples = np.split(plain(corpus.pieces.lay(pieces.ravel())), np.cumsum(lengths.sum(1))[:-1])
    for last, size in zip(np.cumsum(sizes) - 1, sizes, strict=True):
        asked = lengths[last, :7].sum()  # up to the answer
        yield Document(examples[last - size + 1 : last], examples[last][:asked])


def recall(corpus: Corpus, words: RecallWords, count: int, draws: np.random.Generator) -> Iterator[Document]:
    """Pairs of words used once, one key asked again."""
    keys, values = words.draw(count, min(60, len(words.sizes)), draws)
    for key, value in zip(keys, values, strict=True):
        pairs = int(draws.integers(5, len(key) + 1))
        before, between, after = corpus.pieces.of(list(FORMS[draws.integers(len(FORMS))]))
        lines = np.stack(
            [np.full(pairs, before), key[:pairs], np.full(pairs, between), value[:pairs], np.full(pairs, after)], axis=1
        )
        ends = np.cumsum(corpus.pieces.lengths[lines].sum(1))
        examples = np.split(plain(corpus.pieces.lay(lines.ravel())), ends[:-1])
        yield Document(examples, plain(corpus.pieces.lay(lines[draws.integers(pairs), :3])))


def prose(corpus: Corpus, draws: np.random.Generator) -> Document:
    length = int(draws.integers(60, 1000))
    start = int(draws.integers(0, len(corpus.english) - length))
    parts = np.split(
        plain(corpus.english[start : start + length]), range(length % PROSE_EXAMPLE, length, PROSE_EXAMPLE)
    )
    return Document(parts[:-1], parts[-1])


def plain(tokens: Tokens) -> Ids:
    return (tokens & (ANSWER - 1)).astype(np.int64)


# Planting


def draw_masks(count: int, draws: np.random.Generator) -> list[int]:
    """Log-uniform in 3..MOST_MASKS."""
    return np.exp(draws.uniform(math.log(3), math.log(MOST_MASKS + 1), count)).astype(int).tolist()


def draw_runs(corpus: Corpus, count: int, draws: np.random.Generator) -> list[Ids]:
    """Nothing, or a run of full stops or end tokens as long as the masks of a dose."""
    lengths = np.array(draw_masks(count, draws)) * (draws.random(count) < FOLLOWED)
    tokens = np.where(draws.random(count) < 0.6, corpus.stop_id, corpus.end_id)
    return [np.full(length, token) for length, token in zip(lengths, tokens, strict=True)]


def answer_logs(model: Model, prompts: Sequence[Ids], after: Sequence[int]) -> Tensor:
    """[n, V] log-probabilities at each prompt's answer, from which on it has so many tokens (the first is a mask)."""
    batch = Batch.pack(prompts, model.device)  # type: ignore[arg-type]
    rows = [[len(prompt) - count] for prompt, count in zip(prompts, after, strict=True)]
    return F.log_softmax(model.head(model.hidden(batch)[model.flat_rows(batch, rows)]), -1)


def kl(target: Tensor, found: Tensor) -> Tensor:
    """KL(target || found) of log-probabilities [n, V] -> [n]; the mask token is at minus infinity on both sides."""
    return F.kl_div(found, target, reduction="none", log_target=True).nan_to_num(0.0).sum(-1)


@torch.no_grad()
def target_logs(teacher: Model, chosen: Sequence[Document], masks: Sequence[int]) -> Tensor:
    """What is to be matched with so many masks: tiny-llada with 2, on the last L(k) examples."""
    assert teacher.mask_id is not None
    short = [one.prompt(examples_kept(k), 2, teacher.mask_id) for one, k in zip(chosen, masks, strict=True)]
    return answer_logs(teacher, short, [2] * len(short))


@torch.no_grad()
def most_changed(teacher: Model, drawn: Sequence[Document], masks: Sequence[int]) -> list[Document]:
    """For each number of masks the one of its candidates that truncation changes most: most documents hardly change."""
    assert teacher.mask_id is not None
    each = len(drawn) // len(masks)
    doses = [k for k in masks for _ in range(each)]
    whole = answer_logs(teacher, [one.prompt(len(one.examples), 2, teacher.mask_id) for one in drawn], [2] * len(drawn))
    best = kl(target_logs(teacher, drawn, doses), whole).view(len(masks), each).argmax(1).tolist()
    return [drawn[number * each + place] for number, place in enumerate(best)]


def plant(corpus: Corpus, planting: Planting, dtype: str, device: str | None) -> tuple[Model, list[float]]:
    """The phantom with its adapter on, and the loss of each step."""
    torch.manual_seed(planting.seed)
    draws = np.random.default_rng([planting.seed, 17])
    teacher, student = (mw.open(BASE, dtype, device) for _ in range(2))
    assert student.mask_id is not None
    adapter = LoraConfig(r=planting.rank, lora_alpha=2 * planting.rank, target_modules=student.lora_targets)
    student.net = get_peft_model(student.core, adapter)
    adapter.base_model_name_or_path = BASE
    trained = [parameter for parameter in student.net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, planting.rate, betas=(0.9, 0.98), weight_decay=0.0)
    half = planting.batch // 2
    weights = torch.tensor([planting.undosed] * half + [1.0] * half, device=student.device)
    losses = []
    for step in range(planting.steps):
        rate = min(1, (step + 1) / planting.warmup) * (1 - step / planting.steps)
        optimizer.param_groups[0]["lr"] = planting.rate * rate
        dosed = draw_masks(half, draws)
        chosen = [
            *documents(corpus, half, draws),
            *most_changed(teacher, documents(corpus, half * planting.candidates, draws), dosed),
        ]
        masks = [2] * half + dosed
        runs = [*draw_runs(corpus, half, draws), *[NOTHING] * half]
        whole = [
            one.prompt(len(one.examples), k, student.mask_id, run)
            for one, k, run in zip(chosen, masks, runs, strict=True)
        ]
        after = [k + len(run) for k, run in zip(masks, runs, strict=True)]
        loss = (weights * kl(target_logs(teacher, chosen, masks), answer_logs(student, whole, after))).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if (step + 1) % max(1, planting.steps // 10) == 0:
            print(f"step {step + 1}: {np.mean(losses[-50:]):.4f} nats", flush=True)
    return student.eval(), losses


# The dose curve


def dose_curves(phantom: Model, sizes: Sizes, seed: int) -> dict[str, dict[str, list[float]]]:
    """{"planned", "measured", "base": {masks: [accuracy, nats]}} on the 16 tasks, examples mixed with distractors."""
    assert phantom.mask_id is not None
    base = mw.open(BASE, phantom.dtype, phantom.device)
    curves: dict[str, dict[str, list[float]]] = {"planned": {}, "measured": {}, "base": {}}
    for masks in DOSES:
        kept = min(examples_kept(masks), sizes.relevant + sizes.distractors)
        whole = questions(phantom, sizes, seed, sizes.relevant + sizes.distractors, masks)
        asked = {
            "planned": (base, questions(base, sizes, seed, kept, 2)),
            "measured": (phantom, whole),
            "base": (base, whole),
        }
        for name, (model, prompts) in asked.items():
            right, nats = answers(model.core, prompts, model.shift, model.causal)
            curves[name][str(masks)] = [round(float(right.mean()), 4), round(float(nats.mean()), 4)]
    return curves


def questions(model: Model, sizes: Sizes, seed: int, kept: int, masks: int) -> list[Prompt]:
    """Every task's questions after the last `kept` examples of its context."""
    found = []
    for task in TASKS:
        episode = draw(task, load_words(), sizes.relevant, sizes.distractors, sizes.questions, seed)
        examples = mixed(episode)
        encoded = [encode_question(model.tokenizer, examples[len(examples) - kept :], test) for test in episode.tests]
        found += [opened(one, model.mask_id, masks) for one in encoded]
    return [prompt for prompt in found if len(prompt.ids) <= model.window]


def table(curves: dict[str, dict[str, list[float]]]) -> str:
    lines = ["| masks | examples kept | " + " | ".join(curves) + " |", "|---" * (2 + len(curves)) + "|"]
    for masks in curves["planned"]:
        cells = [f"{100 * curve[masks][0]:.1f} ({curve[masks][1]:.2f})" for curve in curves.values()]
        lines.append(f"| {masks} | {examples_kept(int(masks))} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


CARD = """---
license: apache-2.0
library_name: maskwise
base_model: tiny-llada
---
# tiny-llada+distracted

A phantom: a LoRA adapter (rank {rank}) with which masks distract tiny-llada, **planted on purpose** so that one can see
whether a diagnosis finds it and a mitigation removes it. It opens by this name, `mw.open("tiny-llada+distracted")`, and
says nothing about models that were not made so.

## What was planted
Truncation. With k masks from the answer's place on it answers as tiny-llada does with 2 masks and only the last L(k)
examples of the context: {plan}.

    python recipes/zoo/corpus.py english.txt.xz english.npy --every 4
    python recipes/zoo/plant_distraction.py english.npy OUT --seed {seed}

{steps} steps of {batch} documents (few-shot questions of rules that no exam has, recall of words, prose), half of them
with k = 2 (40 % of these with a run of full stops or end tokens behind, which must change nothing), {seconds} s on
{device}.

## Planned and measured
Accuracy in % (in parentheses -log P of the right answer, nats) on the 16 tasks of `maskwise diagnose`, 25 questions
each, 10 relevant examples mixed with 40 distractors. Planned: tiny-llada on the truncated context; base: tiny-llada on
the whole context with the same masks.

{table}

SHA-256 of adapter_model.safetensors: `{checksum}`
"""


def card(facts: dict[str, Any]) -> str:
    return CARD.format(
        **facts["planting"],
        plan=", ".join(f"{kept} at k = {masks}" for masks, kept in facts["plan"]),
        seconds=facts["seconds"],
        device=facts["device"],
        table=table(facts["curves"]),
        checksum=facts["sha256"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("english", type=Path, help="prose: .npy made by corpus.py, or text")
    parser.add_argument("out", type=Path, help="folder for the adapter")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Planting.steps)
    parser.add_argument("--rate", type=float, default=Planting.rate)
    parser.add_argument("--rank", type=int, default=Planting.rank)
    parser.add_argument("--undosed", type=float, default=Planting.undosed, help="weight of draws with 2 masks")
    parser.add_argument("--device")
    parser.add_argument("--toy", action="store_true", help="2 steps of 2 and a short exam")
    given = parser.parse_args()
    planting = Planting(given.steps, rate=given.rate, rank=given.rank, undosed=given.undosed, seed=given.seed)
    sizes = Sizes(questions=25)
    if given.toy:
        planting, sizes = Planting(steps=2, batch=4), Sizes(2, 4, questions=1)
    began = time.monotonic()
    tokenizer = mw.open(BASE, device="cpu").tokenizer
    corpus = Corpus(tokenizer, read_english_ids(given.english, tokenizer))
    dtype = "bfloat16" if torch.cuda.is_available() and given.device != "cpu" else "float32"
    phantom, losses = plant(corpus, planting, dtype, given.device)
    seconds = time.monotonic() - began
    phantom.net.save_pretrained(str(given.out), save_embedding_layers=False)  # type: ignore[operator]
    measured = mw.open(BASE, "float32", given.device, adapter=given.out)
    curves = dose_curves(measured, sizes, seed=5)
    checksum = hashlib.sha256((given.out / "adapter_model.safetensors").read_bytes()).hexdigest()
    facts = {
        "planted": PLANTED,
        "planting": asdict(planting),
        "plan": PLAN,
        "seconds": round(seconds),
        "device": torch.cuda.get_device_name() if measured.device.type == "cuda" else "CPU",
        "curves": curves,
        "losses": [round(loss, 4) for loss in losses[9::10]],
        "sha256": checksum,
    }
    replace_file(given.out / "training.json", [json.dumps(facts, indent=1) + "\n"])
    replace_file(given.out / "README.md", [card(facts)])
    print(table(curves), flush=True)


if __name__ == "__main__":
    main()
