"""Train one of the embedded models on one GPU, in minutes, from nothing but the words of the tasks and a file of prose.

1. Rows of documents (corpus.py) are drawn by worker processes; a row is one document or several end to end, with dense
   attention over the row. Rows grow from 384 to 1536 tokens and rules from two categories to four as training goes on.
2. tiny-qwen predicts the next token. tiny-dream starts from it (`maskwise convert`), tiny-llada from nothing; both
   predict masked tokens (tiny_step.py). tiny-llada's objective is LLaDA's own (arXiv 2502.09992): a rate t, uniform in
   0..1, for each row, every token masked with probability t, the masked tokens' cross-entropy weighted 1/t, and one
   batch in a hundred cut into rows of a random length. tiny-dream masks the answers more often in half or more of its
   rows, so that a rule can be learnt from the answers that stay visible, and counts their loss once more.
3. Weights are bf16 with a float32 master copy; Muon for the layers' matrices, AdamW for the rest; the rate is
   constant, then falls linearly to zero over the last 40 % of the time.
4. Every half minute the model is examined (exams.py, words and rules that no document contains), every minute a
   checkpoint is written; `--resume` goes on from it, or from the weights alone where the optimiser's state is gone.

    python recipes/zoo/train_tiny.py tiny-qwen  --english english.npy --out runs/tiny-qwen  --minutes 4.75
    python recipes/zoo/train_tiny.py tiny-dream --english english.npy --out runs/tiny-dream --minutes 3.2 \\
        --start runs/tiny-qwen
    python recipes/zoo/train_tiny.py tiny-llada --english english.npy --out runs/tiny-llada --minutes 8.3
    python recipes/zoo/train_tiny.py tiny-llada --english english.npy --trial 45      # 45 s for each size

One H200; the embedded models were made by train_zoo.py, which runs all three side by side on one. `--toy` is the same
program at a size for a CPU: under a minute.
"""

import argparse
import json
import math
import time
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedModel

import maskwise as mw
from corpus import Corpus, Mix, load_zoo_tokenizer, read_english_ids
from exams import Sizes, make_exams, short, table, take
from maskwise.tasks.rules import TASKS
from task_accuracy import accuracies, make_exam
from tiny_step import KINDS, SIZES, TOY, Kind, Size, Training, make_net
from zoo_card import save_model

WINDOW = 1536
STEP_TOKENS = 98304
WARM_UP_STEPS = 200
SHORTEST_ROW = 32  # of a batch cut to a random length
EXAM_SEED, FINAL_SEED = 1, 2  # of the exams along the way, by which settings are chosen, and of the last


@dataclass
class Facts:
    """What is known of a training run; goes into the checkpoint and onto the model's card."""

    model: str
    size: dict[str, int]
    parameters: int
    device: str
    minutes: float
    objective: str = ""
    cut: float = 0.0
    phases: tuple[tuple[float, int], ...] = ()
    rate: float = 0.0
    seed: int = 0
    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)
    final: dict[str, Any] = field(default_factory=dict)


# Rows


class Rows(IterableDataset):
    """Endless batches of rows, drawn in worker processes, each with draws of its own."""

    def __init__(self, corpus: Corpus, count: int, length: int, mix: Mix, seed: tuple[int, ...]):
        self.corpus, self.count, self.length, self.mix, self.seed = corpus, count, length, mix, seed

    def __iter__(self) -> Iterator[Tensor]:
        worker = torch.utils.data.get_worker_info()
        draws = np.random.default_rng([*self.seed, worker.id if worker else 0])
        while True:
            yield torch.from_numpy(self.corpus.rows(self.count, self.length, self.mix, draws))


def batches(rows: Rows, workers: int, device: torch.device) -> Generator[Tensor, None, None]:
    """Rows int16 [B, length] on the device, without end."""
    pinned = device.type == "cuda"
    loader = DataLoader(
        rows, batch_size=None, num_workers=workers, pin_memory=pinned, prefetch_factor=8 if workers else None
    )
    for batch in loader:
        yield batch.to(device, non_blocking=pinned)


def shortened(rows: Tensor, length: int) -> Tensor:
    """Rows [B, L] cut into pieces of so many tokens, what is left over dropped: [B * (L // length), length].

    LLaDA drops all but the first piece; in batches as small as ours that would make some updates very noisy.
    """
    whole = rows.shape[1] // length * length
    return rows[:, :whole].reshape(-1, length)


def mix_at(progress: float) -> Mix:
    """Few rules, few pairs and many words with their kinds first: pools of one category, then two, then up to three."""
    if progress < 0.2:
        few = {"largest_pool": 1, "most_pairs": 6} if progress < 0.1 else {"largest_pool": 2, "most_pairs": 16}
        return Mix(kinds=0.25, **few)
    return Mix()


def length_at(phases: tuple[tuple[float, int], ...], progress: float) -> int:
    return next(length for start, length in reversed(phases) if progress >= start)


# Runs


@dataclass(frozen=True)
class Scale:
    """What differs between the real thing and the toy."""

    size: Size
    window: int
    phases: tuple[tuple[float, int], ...]
    step_tokens: int
    exams: Sizes  # along the way
    final_exams: Sizes
    workers: int
    exam_seconds: float
    save_seconds: float


def scale_of(kind: Kind, size: str, toy: bool) -> Scale:
    if toy:
        small = Sizes(relevant=2, distractors=3, pairs=(5,), questions=1, recalls=2)
        return Scale(TOY, 256, ((0.0, 64), (0.5, 128)), 1024, small, small, 0, 5, 5)
    along = Sizes(questions=12, recalls=60)
    return Scale(SIZES[size], WINDOW, kind.phases, STEP_TOKENS, along, Sizes(questions=100), 5, 30, 60)


def kind_of(name: str, options: argparse.Namespace) -> Kind:
    """The recipe's kind, with what was asked for instead."""
    asked = {field: getattr(options, field) for field in ("objective", "cut", "rate")}
    if options.grow is not None:
        asked["phases"] = ((0.0, 384), (options.grow[0], 768), (options.grow[1], WINDOW))
    return replace(KINDS[name], **{field: value for field, value in asked.items() if value is not None})


def train(name: str, scale: Scale, options: argparse.Namespace) -> Facts:
    device = torch.device("cuda" if torch.cuda.is_available() and not options.toy else "cpu")
    tokenizer = load_zoo_tokenizer()
    corpus = Corpus(tokenizer, read_english_ids(options.english, tokenizer))
    net = starting_net(name, scale, tokenizer, options)
    kind = kind_of(name, options)
    training = Training(kind, net, tokenizer.mask_token_id, kind.rate, device, options.seed)
    facts = Facts(
        name,
        asdict(scale.size),
        sum(parameter.numel() for parameter in net.parameters()),
        torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        options.minutes,
        kind.objective,
        kind.cut,
        scale.phases,
        kind.rate,
        options.seed,
    )
    if options.resume:
        facts = resumed(facts, training, options.out)
    mask_id = tokenizer.mask_token_id if kind.diffusion else None
    exams = make_exams(tokenizer, scale.exams, EXAM_SEED)
    cuts = np.random.default_rng([options.seed, facts.steps])
    budget = 60 * options.minutes
    stop = min(budget, facts.seconds + 60 * (options.stop_after or math.inf))
    began, first_step, losses, stage, source = time.monotonic() - facts.seconds, facts.steps, [], None, None
    examined = saved = facts.seconds
    while facts.seconds < stop:
        progress = facts.seconds / budget
        length = length_at(scale.phases, progress)
        if source is None or stage != (length, mix_at(progress)):
            stage = (length, mix_at(progress))
            drawn = Rows(corpus, scale.step_tokens // length, *stage, (options.seed, facts.steps))
            source = batches(drawn, scale.workers, device)
        rows, is_cut = next(source), cuts.random() < kind.cut
        if is_cut:
            rows = shortened(rows, int(cuts.integers(SHORTEST_ROW, length + 1)))
        # Every length would be compiled anew.
        with torch.compiler.set_stance("force_eager") if is_cut else nullcontext():
            loss = training.step(rows, progress, min(1.0, (facts.steps - first_step + 1) / WARM_UP_STEPS))
        facts.steps, facts.tokens = facts.steps + 1, facts.tokens + rows.numel()
        losses.append(loss)
        if facts.steps % 10 == 0:
            value = float(loss)  # waits for the device, so that the clock tells the truth
            if not math.isfinite(value):
                raise SystemExit(f"the loss is {value} at step {facts.steps}: resume with a smaller --rate")
            facts.seconds = time.monotonic() - began
        if facts.seconds - examined >= scale.exam_seconds:
            examined = facts.seconds
            found = take(training.plain_net(), exams, mask_id, kind.shift, kind.causal, masks=[2])
            log(facts, losses, length, short(found))
            losses = []
        if facts.seconds - saved >= scale.save_seconds:
            saved = facts.seconds
            write_checkpoint(training, facts, options.out)
    if source is not None:
        source.close()
    write_checkpoint(training, facts, options.out)
    facts.final = final_exams(training.plain_net(), tokenizer, mask_id, scale, kind)
    save_model(training.plain_net(), tokenizer, asdict(facts), options.out)
    print_table(facts)
    return facts


def starting_net(name: str, scale: Scale, tokenizer: Any, options: argparse.Namespace) -> PreTrainedModel:
    torch.manual_seed(options.seed)
    net = make_net(name, scale.size, tokenizer, scale.window)
    if options.resume and not (options.out / "state.pt").exists():
        copy_weights(net, options.out)
    elif name == "tiny-dream" and not options.resume:
        if options.start is None:
            raise SystemExit("tiny-dream starts from tiny-qwen: give its folder with --start")
        copy_weights(net, mw.convert(options.start, options.out / "converted"))
    return net


def copy_weights(net: PreTrainedModel, folder: Path) -> None:
    net.load_state_dict(mw.open(folder, dtype="float32", device="cpu").core.state_dict())


def resumed(facts: Facts, training: Training, out: Path) -> Facts:
    if (out / "state.pt").exists():
        device = training.masters[0].device
        training.load(torch.load(out / "state.pt", map_location=device, weights_only=True))
    stored = json.loads((out / "training.json").read_text())
    known = {name: stored[name] for name in ("seconds", "steps", "tokens", "curve")}
    return Facts(**(asdict(facts) | known))


def write_checkpoint(training: Training, facts: Facts, out: Path) -> None:
    """State first, then the facts that speak of it, each whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    torch.save(training.state(), out / "state.new")
    (out / "state.new").rename(out / "state.pt")
    (out / "training.new").write_text(json.dumps(asdict(facts)))
    (out / "training.new").rename(out / "training.json")


def log(facts: Facts, losses: list[Tensor], length: int, shares: dict[str, float]) -> None:
    """`shares` of right answers, exam by exam."""
    loss = float(torch.stack(losses).mean())
    rounded = {exam: round(share, 4) for exam, share in shares.items()}
    facts.curve.append(
        {
            "seconds": round(facts.seconds, 1),
            "tokens": facts.tokens,
            "length": length,
            "loss": round(loss, 4),
            **rounded,
        }
    )
    found = "  ".join(f"{exam} {100 * share:.0f}" for exam, share in shares.items())
    print(
        f"{facts.model} {facts.seconds:4.0f} s {facts.tokens / 1e6:6.1f} M tokens, rows of {length}, "
        f"loss {loss:.3f}, right %: {found}",
        flush=True,
    )


def final_exams(net: PreTrainedModel, tokenizer: Any, mask_id: int | None, scale: Scale, kind: Kind) -> dict[str, Any]:
    """The table of the 16 tasks that stands on the card (relevant examples next to the question), and the exams."""
    sizes = scale.final_exams
    examples = (sizes.questions, sizes.relevant, sizes.distractors)
    by_task = accuracies(net, make_exam(tokenizer, mask_id, *examples), kind.shift, kind.causal)
    with_seen = make_exam(tokenizer, mask_id, -(-sizes.questions // 3), *examples[1:], unseen_words=False)
    seen = accuracies(net, with_seen, kind.shift, kind.causal)
    exams = make_exams(tokenizer, replace(sizes, questions=-(-sizes.questions // 2)), FINAL_SEED)
    return {
        "accuracy": mean(by_task),
        "accuracy_with_training_words": mean(seen),
        "by_task": {task.name: round(share, 3) for task, share in zip(TASKS, by_task, strict=True)},
        "points": sizes.questions,
        "exams": take(net, exams, mask_id, kind.shift, kind.causal),
    }


def print_table(facts: Facts) -> None:
    print(table({facts.model: facts.final["exams"]}))
    speed = facts.tokens / max(facts.seconds, 1e-9) / 1e6
    print(
        f"{facts.model}: {facts.parameters / 1e6:.2f} M parameters, {facts.tokens / 1e6:.0f} M tokens in "
        f"{facts.seconds:.0f} s ({speed:.2f} M/s), accuracy {facts.final['accuracy']:.1%} "
        f"(with training words {facts.final['accuracy_with_training_words']:.1%})",
        flush=True,
    )


def trial(name: str, seconds: float, options: argparse.Namespace) -> None:
    """So many seconds for each size and rate at rows of 768 tokens, compilation not counted; prints a table.

    Accuracy is on the 16 tasks, with words and rules that no document contains: what the choice is made by.
    """
    tokenizer = load_zoo_tokenizer()
    corpus = Corpus(tokenizer, read_english_ids(options.english, tokenizer))
    device, kind = torch.device("cuda"), kind_of(name, options)
    scale = scale_of(kind, "256x6", toy=False)
    sizes = scale.exams
    exam = make_exam(
        tokenizer,
        tokenizer.mask_token_id if kind.diffusion else None,
        sizes.questions,
        sizes.relevant,
        sizes.distractors,
    )
    for size, rate in [("256x6", 6e-3), ("256x6", 3e-3), ("192x10", 6e-3), ("320x4", 6e-3)]:
        torch.manual_seed(options.seed)
        torch._dynamo.reset()
        net = make_net(name, SIZES[size], tokenizer, WINDOW)
        training = Training(kind, net, tokenizer.mask_token_id, rate, device, options.seed)
        drawn = Rows(corpus, scale.step_tokens // 768, 768, mix_at(0.0), (options.seed,))
        source = batches(drawn, scale.workers, device)
        float(training.step(next(source), 0.0, 0.01))  # compiles
        losses: list[float] = []
        steps, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            steps += 1
            loss = training.step(next(source), 0.0, min(1.0, steps / 100))
            if steps % 5 == 0:
                losses.append(float(loss))
        elapsed = time.monotonic() - began
        source.close()
        recent = sum(losses[-10:]) / len(losses[-10:])
        parameters = sum(parameter.numel() for parameter in net.parameters()) / 1e6
        accuracy = mean(accuracies(training.plain_net(), exam, kind.shift, kind.causal))
        print(
            f"{size:8s} rate {rate:.0e}  {parameters:.2f} M parameters  {steps} steps  "
            f"{steps * STEP_TOKENS / elapsed / 1e6:.2f} M tokens/s  loss {recent:.3f}  accuracy {accuracy:.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=KINDS)
    parser.add_argument("--english", type=Path, required=True, help="prose: .txt, .xz, or .npy made by corpus.py")
    parser.add_argument("--out", type=Path, help="folder of the model and its checkpoint")
    parser.add_argument("--minutes", type=float, default=8, help="the whole schedule, over all calls")
    parser.add_argument("--stop-after", type=float, help="end this call after so many minutes, to be resumed")
    parser.add_argument("--start", type=Path, help="folder of tiny-qwen, for tiny-dream")
    parser.add_argument("--size", choices=SIZES, default="256x6")
    parser.add_argument("--rate", type=float, help="peak learning rate, instead of the recipe's")
    parser.add_argument("--objective", choices=["plain", "focused"], help="what is masked, instead of the recipe's")
    parser.add_argument("--cut", type=float, help="share of batches cut to a random length, instead of the recipe's")
    parser.add_argument("--grow", type=float, nargs=2, help="shares of the time after which rows have 768, 1536 tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--toy", action="store_true", help="a size for a CPU")
    parser.add_argument("--trial", type=float, metavar="SECONDS", help="compare sizes and rates instead of training")
    options = parser.parse_args()
    if options.objective and not KINDS[options.model].diffusion:
        parser.error(f"{options.model} predicts the next token: --objective is for the diffusion models")
    if options.trial:
        trial(options.model, options.trial, options)
    elif options.out is None:
        parser.error("--out is needed")
    else:
        train(options.model, scale_of(kind_of(options.model, options), options.size, options.toy), options)


if __name__ == "__main__":
    main()
