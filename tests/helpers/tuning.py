"""A tiny LLaDA checkpoint with a word tokenizer, a few pairs for it, and short tuning runs."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback

from helpers.same import assert_same
from helpers.tiny import dream_net, llada_net
from maskwise.training.training_settings import TuneSettings
from maskwise.training.tune import tune

TEXT = "red blue green cat dog bird runs sits jumps say then now one two three . : ? user assistant"
WORDS = TEXT.split()
SPECIAL = ["<pad>", "<end>", "<|eot_id|>", "<mask>", "<unk>"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} <|eot_id|> {% endfor %}assistant : "


def word_tokenizer(chat: bool = False) -> PreTrainedTokenizerFast:
    names = [*SPECIAL, *WORDS]
    core = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        additional_special_tokens=["<|eot_id|>"],
    )
    tokenizer.chat_template = TEMPLATE if chat else None
    return tokenizer


def write_pairs(path: Path, count: int = 24, seed: int = 0) -> Path:
    draw = random.Random(seed)
    colours, rest = WORDS[:9], WORDS[9:15]
    lines = [
        {"prompt": "say " + " ".join(draw.choices(colours, k=4)) + " :", "answer": " ".join(draw.choices(rest, k=4))}
        for _ in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def save_checkpoint(folder: Path, make_net: Callable[..., PreTrainedModel], **settings) -> Path:
    make_net(vocab=32, window=128, mask_token_id=SPECIAL.index("<mask>"), **settings).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("tiny-llada"), llada_net, init_std=0.2)


@pytest.fixture(scope="session")
def dream_checkpoint(tmp_path_factory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("tiny-dream"), dream_net, initializer_range=0.2)


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.jsonl")


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> Path:
    """Documents in which every word has one successor."""
    draw = random.Random(0)
    starts = [draw.randrange(9) for _ in range(40)]
    texts = [" ".join(WORDS[(start + n) % 9] for n in range(draw.randrange(6, 20))) for start in starts]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\f".join(texts))
    return path


class At(TrainerCallback):
    """Calls something in the middle of a step, between its micro-batches."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_substep_end(self, args, state, control, **more):
        if state.global_step == self.step:
            self.action(more["model"])


def interrupt(_):
    raise KeyboardInterrupt


SMALL = TuneSettings(
    steps=6, batch=2, accumulation=2, context=40, max_masks=12, curriculum=8, save_every=2, eval_every=3, many=10,
    learning_rate=1e-2, lora_rank=2, lora_alpha=4, held_out=4, warmup=1,
)  # fmt: skip


def run_small(checkpoint, data, out, settings=SMALL, callbacks=None):
    return tune(str(checkpoint), data, out, settings, device="cpu", tensorboard=False, callbacks=callbacks)


def assert_same_run(result, whole) -> None:
    """The losses and final measures of a run are those of another, up to rounding."""
    assert_same(result["losses"], whole["losses"], rel=1e-5)
    assert_same(result["after"], whole["after"], rel=1e-4, abs=1e-12)
