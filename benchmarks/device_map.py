"""Answers and times of a model whose layers lie on several devices, against the same model whole.

    python -m benchmarks.device_map               # on a CPU: embedded models, half of their layers on disk
    python -m benchmarks.device_map --card 10GiB  # on CUDA: half of the layers computed on the CPU, then an 8B shape

With --card a LLaDA of 8B with random bf16 weights is saved (16 GiB), then opened whole, with the card limited to so
much and the rest in main memory, and with the rest on disk.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import dispatch_model
from torch import Tensor

import maskwise as mw
from benchmarks.measure import Bench
from benchmarks.shapes import make_model
from maskwise.models.model import Model

TEXT = "Once upon a time there was a little dog who liked to run in the park. "
PAIRS = [{"prompt": "Once upon a", "answer": " time there was"}]
HEADINGS = ("model", "layers", "largest difference", "tokens that differ", "nats that differ", "pass, s", "16 steps, s")


def answers(model: Model, prompts: int, repeats: int) -> tuple[list[Tensor], list[int], float, list[float]]:
    """Logits, generated tokens, log-likelihood, and the seconds of a forward pass and a generation."""
    ids = (model.tokenizer(TEXT)["input_ids"] * repeats)[: model.window - 64]
    sequences = [[*ids[number:], model.mask_id, model.mask_id] for number in range(prompts)]
    rows = [[len(one) - 2, len(one) - 1] for one in sequences]
    logits = model.predict(sequences, rows)
    seconds = [_seconds(lambda: model.predict(sequences, rows))]
    generate: Callable[[], Any] = lambda: model.generate([TEXT] * 2, max_new_tokens=16, seed=0, chat=False)  # noqa: E731
    tokens = [token for one in generate() for token in one.ids]
    seconds.append(_seconds(generate))
    return logits, tokens, mw.score(model, PAIRS, method="exact")[0].log_likelihood, seconds


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def compare(name: str, models: dict[str, Callable[[], Model]], prompts: int, repeats: int) -> None:
    """Prints a row for each way of opening the model, compared with the first."""
    first: Any = None
    for layers, opened in models.items():
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        model = opened()
        found = answers(model, prompts, repeats)
        first = first or found
        pairs = zip(first[0], found[0], strict=True)
        furthest = max(float((ours - whole).nan_to_num(0.0, 0.0, 0.0).abs().max()) for whole, ours in pairs)
        other = sum(a != b for a, b in zip(first[1], found[1], strict=True))
        memory = f", peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if torch.cuda.is_available() else ""
        counted = f"{other} of {len(first[1])}"
        times = [f"{value:.3f}" for value in found[3]]
        nats = f"{abs(found[2] - first[2]):.2g}"
        print(name, layers + memory, f"{furthest:.2g}", counted, nats, *times, sep=" | ", flush=True)
        del model
        gc.collect()  # accelerate's hooks refer to their layers: without it the next peak has this model's weights


def half_on_cuda(name: str) -> Model:
    """An embedded model of which the first half of the layers is computed on the CPU, the second on CUDA."""
    model = mw.open(name, device="cpu")
    kinds = model.core._no_split_modules or ()
    layers = [key for key, module in model.core.named_modules() if type(module).__name__ in kinds]
    inside = tuple(f"{key}." for key in layers)
    others = [
        key.rpartition(".")[0]
        for key, _ in model.core.named_parameters(remove_duplicate=False)
        if not key.startswith(inside)
    ]
    places: dict[str, Any] = dict.fromkeys([*others, *layers], "cpu") | dict.fromkeys(layers[len(layers) // 2 :], 0)
    dispatch_model(model.core, places, main_device="cpu")
    return model.eval()


def saved_8b(folder: Path) -> Path:
    """A LLaDA of 8B with random bf16 weights; a toy without CUDA."""
    cuda = torch.cuda.is_available()
    model = make_model(Bench(torch.device("cuda" if cuda else "cpu"), full=cuda, ceiling=1.0), "llada")
    model.core.config.mask_token_id = model.tokenizer.mask_token_id
    model.save_pretrained(folder)
    return folder


def embedded(name: str) -> dict[str, Callable[[], Model]]:
    whole = {"whole, CPU": partial(mw.open, name, device="cpu")}
    if torch.cuda.is_available():
        return whole | {"half on CPU, half on CUDA": partial(half_on_cuda, name)}
    return whole | {"half on disk": partial(mw.open, name, device_map="auto", max_memory={"cpu": "14MiB"})}


def limited(folder: Path, card: str) -> dict[str, Callable[[], Model]]:
    opened = partial(mw.open, folder, check_weights=False)
    if not torch.cuda.is_available():
        return {"whole": opened, "on disk": partial(opened, device_map="auto", max_memory={"cpu": card})}
    return {
        "whole": opened,
        f"{card} on the card, rest in main memory": partial(opened, device_map="auto", max_memory={0: card}),
        f"{card} on the card, rest on disk": partial(opened, device_map="auto", max_memory={0: card, "cpu": "100MiB"}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--card", help="memory for weights on the card, such as 10GiB: an 8B shape too")
    card = parser.parse_args().card
    print(*HEADINGS, sep=" | ")
    for name in ("tiny-llada", "tiny-dream"):
        compare(name, embedded(name), 4, 8)
    if card is not None:
        with tempfile.TemporaryDirectory() as folder:
            compare("LLaDA 8B, random", limited(saved_8b(Path(folder) / "8b"), card), 4, 32)


if __name__ == "__main__":
    main()
