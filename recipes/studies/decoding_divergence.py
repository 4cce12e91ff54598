"""How far cached and windowed decoding differs from exact decoding, on few-shot prompts.

1. Prompts are few-shot documents of the tasks; the model continues them.
2. The reference is greedy decoding by low confidence, one token per step, in blocks, without a cache and with every
   mask visible.
3. Each cache and each window decodes the same prompts with the same settings.
4. A table compares them with the reference: tokens that agree (95 % interval: Student's t over prompts), the
   first difference, answers that are right (the first new token, which is the letter that the tasks ask for), and
   `computed`, the tokens that went through the model: the work that a cache or a window saves. It includes the full
   pass at the start of each block.

Hardware: a CPU, two minutes for tiny-llada.

    python recipes/studies/decoding_divergence.py
    python recipes/studies/decoding_divergence.py MODEL --prompts 32 --new 128 --block 32
"""

import argparse

import numpy as np

import maskwise
from maskwise.decoding.divergence import Divergence
from maskwise.scoring.intervals import stratified_mean
from maskwise.tasks.episodes import draw, mixed, render
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words


def few_shot_prompts(count: int, relevant: int, distractors: int) -> list[tuple[str, str]]:
    """(prompt, right letter): tasks in turn, examples in mixed order, then a question that ends in `Answer:[`."""
    prompts = []
    for number in range(count):
        episode = draw(TASKS[number % len(TASKS)], load_words(), relevant, distractors, points=count)
        examples = "".join(render(question) for question in mixed(episode))
        prompts.append((f"{examples}{episode.tests[number].asked}\nAnswer:[", episode.tests[number].letter))
    return prompts


def computed(lengths: list[int], new: int, block: int, options: dict, first_row: int) -> int:
    """Tokens that go through the model, counted from the definitions of the window and the caches."""
    total = 0
    for prompt in lengths:
        for start in range(0, new, block):
            seen = prompt + min(start + block + options.get("window", new), new)
            step = {"none": seen, "prefix": seen - (prompt + start + first_row), "dual": block - first_row}
            refresh = options.get("refresh") or block
            full = -(-block // refresh)
            total += full * seen + (block - full) * step[options.get("cache", "none")]
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="tiny-llada")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--relevant", type=int, default=6)
    parser.add_argument("--distractors", type=int, default=2)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--block", type=int, default=8)
    asked = parser.parse_args()
    model = maskwise.open(asked.model)
    prompts, letters = zip(*few_shot_prompts(asked.prompts, asked.relevant, asked.distractors), strict=True)
    lengths = [len(model.tokenizer(prompt)["input_ids"]) for prompt in prompts]
    before = model.first_row(1) - 1  # -1 where a block's first row is read from the one before it
    ways = [
        {},
        {"cache": "prefix"},
        {"cache": "dual"},
        {"cache": "dual", "refresh": 4},
        {"canvas": "window", "window": 8},
        {"canvas": "window", "window": 0},
        {"canvas": "window", "window": 8, "cache": "dual"},
    ]
    exact, whole = None, computed(lengths, asked.new, asked.block, {}, before)
    print(
        f"{asked.model}: {len(prompts)} prompts of {min(lengths)} to {max(lengths)} tokens, {asked.new} new ones, "
        f"blocks of {asked.block}\n"
    )
    print("| | the same tokens | first difference | answers right | computed |\n|---|---|---|---|---|")
    for options in ways:
        found = maskwise.generate(model, prompts, asked.new, block=asked.block, chat=False, **options)
        exact = exact or found
        far = Divergence.between(exact, found)
        each = [Divergence.between([a], [b]).agreement for a, b in zip(exact, found, strict=True)]
        _, low, high = stratified_mean({"prompts": np.array(each)})
        agree = f"{far.agreement:.1%}" + ("" if low is None else f" ({low:.1%} to {min(high or 1, 1):.1%})")
        right = sum(one.text.startswith(letter) for one, letter in zip(found, letters, strict=True))
        name = ", ".join(f"{key} {value}" for key, value in options.items()) or "exact (blocks)"
        work = computed(lengths, asked.new, asked.block, options, before) / whole
        place = "none" if far.first is None else f"token {far.first + 1}"
        print(f"| {name} | {agree} | {place} | {right} of {len(prompts)} | {work:.0%} |", flush=True)


if __name__ == "__main__":
    main()
