"""Make a small model that masks distract, tune it with the mask-agnostic loss, show what changed. Needs no files.

1. Documents: 6 to 20 words with one colour and one animal among them, a colon, and the answer "COLOUR ANIMAL".
2. A LLaDA of 2 layers learns them from scratch for 95 steps, with 0 to 2 masks after the answer. It is stopped while
   the skill is still emerging, which is when appended masks can hurt. How much depends on the seed: of 0, 1 and 2 the
   default is the one that is clearly distracted (docs/studies/tuning-losses.md has all three).
3. `maskwise tune` puts an adapter on it: alpha 0.1, beta 1 (--beta 0 is CE alone), up to 200 masks, 80 steps of 8.
4. 200 held-out pairs are measured before and after: cross-entropy, TV between 2 and 200 masks, accuracy with each.

Hardware: 2 CPU cores, under 1 minute. Run:  python recipes/studies/tune_cpu.py [--out FOLDER] [--seed 1] [--beta 1]
"""

import argparse
import json
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from maskwise.diffusion import Noised, nelbo_call
from maskwise.models import LLaDAConfig, LLaDAModelLM
from maskwise.models.checkpoints.opening import as_model
from maskwise.training.training_settings import TuneSettings
from maskwise.training.tune import summary_lines, tune

COLOUR_NAMES = "red blue green yellow purple orange black white brown pink grey violet scarlet amber teal ivory"
ANIMAL_NAMES = "cat dog horse sheep goat lion tiger bear wolf fox rabbit mouse eagle owl crow frog"
OTHER_NAMES = (
    "house river stone table window garden market bridge letter engine bottle candle carpet basket hammer ladder "
    "mirror needle orchard pepper quarry ribbon saddle temple umbrella valley wagon anchor barrel cabin desert echo "
    "forest glacier harbour island jacket kettle lantern meadow notebook ocean palace quilt rocket shelter tunnel "
    "uniform village whistle yard zipper airport balcony castle drawer fountain gallery hallway kitchen library museum "
    "office pillow"
)
COLOURS, ANIMALS, FILLERS = COLOUR_NAMES.split(), ANIMAL_NAMES.split(), OTHER_NAMES.split()
SPECIAL = ["<end>", "<mask>", "<unk>", ":"]
END, MASK = 0, 1

TUNING = TuneSettings(
    steps=80, batch=8, accumulation=1, learning_rate=3e-3, warmup=5, decay="linear", context=240, max_masks=200,
    curriculum=40, lora_rank=8, lora_alpha=16, held_out=200, few=2, many=200, save_every=40, eval_every=40,
)  # fmt: skip


def document(draw: random.Random) -> tuple[str, str]:
    """(prompt, answer)"""
    words = draw.choices(FILLERS, k=draw.randint(6, 20))
    colour, animal = draw.choice(COLOURS), draw.choice(ANIMALS)
    for place, word in zip(draw.sample(range(len(words)), 2), (colour, animal), strict=True):
        words[place] = word
    return " ".join([*words, ":"]), f"{colour} {animal}"


def word_tokenizer() -> PreTrainedTokenizerFast:
    names = [*SPECIAL, *COLOURS, *ANIMALS, *FILLERS]
    core = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<end>", pad_token="<end>", unk_token="<unk>", mask_token="<mask>"
    )


def noised(prompt: list[int], answer: list[int], draw: random.Random) -> Noised:
    """A random share of the answer masked, 0 to 2 masks after it; the mean cross-entropy of the masked tokens."""
    share = draw.random()
    masked = [place for place in range(len(answer)) if draw.random() < share] or [draw.randrange(len(answer))]
    shown = [MASK if place in masked else token for place, token in enumerate(answer)]
    ids = torch.tensor(prompt + shown + [MASK] * draw.randint(0, 2))
    targets = torch.tensor([answer[place] for place in masked])
    return Noised(ids, len(prompt) + torch.tensor(masked), targets, torch.full((len(masked),), 1 / len(masked)))


def train_small_model(folder: Path, steps: int, seed: int) -> None:
    """Trains from scratch and writes an ordinary checkpoint folder."""
    tokenizer, draw = word_tokenizer(), random.Random(seed)
    torch.manual_seed(seed)
    config = LLaDAConfig(
        d_model=64,
        n_layers=2,
        n_heads=4,
        mlp_hidden_size=128,
        vocab_size=len(tokenizer),
        max_sequence_length=256,
        mask_token_id=MASK,
        eos_token_id=END,
        rope_theta=10000.0,
        init_std=0.05,
    )
    model = as_model(LLaDAModelLM(config), tokenizer, "small")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=max(steps, 500), pct_start=0.1)
    for _ in range(steps):
        examples = []
        for prompt, answer in (document(draw) for _ in range(32)):
            examples.append(noised(tokenizer(prompt)["input_ids"], [*tokenizer(answer)["input_ids"], END], draw))
        call = nelbo_call(model, examples)
        optimizer.zero_grad()
        model(call.batch, call.index, call.loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
    model.core.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_pairs(file: Path, count: int, seed: int) -> None:
    draw = random.Random(seed)
    lines = [dict(zip(("prompt", "answer"), document(draw), strict=True)) for _ in range(count)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/tune_cpu"), help="a folder that is made anew")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beta", type=float, default=1.0, help="weight of TV in the tuning")
    arguments = parser.parse_args()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    started = time.time()
    train_small_model(arguments.out / "model", 95, arguments.seed)
    trained = time.time()
    write_pairs(arguments.out / "pairs.jsonl", 1000, arguments.seed + 1)
    settings = replace(TUNING, beta=arguments.beta)
    result = tune(str(arguments.out / "model"), arguments.out / "pairs.jsonl", arguments.out / "adapter", settings)
    print(f"trained in {trained - started:.0f} s, tuned and measured in {time.time() - trained:.0f} s")
    print("\n".join(summary_lines(result)))


if __name__ == "__main__":
    main()
