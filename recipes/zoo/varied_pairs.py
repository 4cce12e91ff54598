"""Pairs that vary, for `maskwise tune`: they give back a planted loss on questions that no pair has.

1. Few-shot documents in the tasks' form, of the words in forty_kinds.json: one of a kind among two of another, half of
   the documents with eight words a kind; 1 to 20 such examples among 0 to 40 questions about numbers, shuffled. None of
   the 480 words is in the sets of `--words unfamiliar-1` and `-2`; 257 are words of the tasks, under other kinds or
   (colours, fruit, sports) the same.
2. Recall: 5 to 40 pairs of a word and a number, one word asked again.

The anchored loss draws the model to its own answer without masks, so `answer` only says where the answer stands.

    python recipes/zoo/varied_pairs.py pairs.jsonl
"""

import argparse
import json
import random
from pathlib import Path

Kinds = dict[str, list[str]]
Pair = dict[str, str]

EXAMPLE_TOKENS, MOST_TOKENS = 19, 880


def load_kinds() -> Kinds:
    listed = json.loads(Path(__file__).with_name("forty_kinds.json").read_text(encoding="utf-8"))
    return {kind: words.split() for kind, words in listed.items()}


def question(draws: random.Random, kinds: tuple[list[str], list[str]] | None) -> tuple[str, str]:
    """One of the first kind among two of the second, or the smallest of three numbers; (text, letter)."""
    if kinds:
        options = [draws.choice(kinds[0]), *draws.sample(kinds[1], 2)]
    else:
        options = [str(number) for number in sorted(draws.sample(range(1, 1000), 3))]
    order = draws.sample(range(3), 3)
    first, second, third = (options[place] for place in order)
    return f"Options: (A) {first}, (B) {second}, (C) {third}\nAnswer:[", "ABC"[order.index(0)]


def few_shot(kinds: Kinds, count: int, draws: random.Random) -> list[Pair]:
    return [few_shot_pair(kinds, draws) for _ in range(count)]


def few_shot_pair(kinds: Kinds, draws: random.Random) -> Pair:
    one, two = draws.sample(sorted(kinds), 2)
    few = draws.random() < 0.5
    chosen = [draws.sample(kinds[kind], min(8, len(kinds[kind]))) if few else kinds[kind] for kind in (one, two)]
    relevant, others = draws.choice([1, 1, 2, 3, 5, 10, 20]), draws.choice([0, 3, 6, 10, 15, 25, 40])
    others = min(others, MOST_TOKENS // EXAMPLE_TOKENS - relevant)
    asked = (chosen[0], chosen[1])
    examples = [question(draws, asked) for _ in range(relevant)] + [question(draws, None) for _ in range(others)]
    draws.shuffle(examples)
    last, letter = question(draws, asked)
    return {"prompt": "".join(f"{text}{right}].\n\n" for text, right in examples) + last, "answer": f"{letter}]."}


def recall(kinds: Kinds, count: int, draws: random.Random) -> list[Pair]:
    words = sorted({word for listed in kinds.values() for word in listed})
    return [recall_pair(words, draws) for _ in range(count)]


def recall_pair(words: list[str], draws: random.Random) -> Pair:
    count = draws.randint(5, 40)
    keys, values = draws.sample(words, count), draws.sample(range(100, 1000), count)
    asked = draws.randrange(count)
    lines = [f"Key: {key}\nValue:[ {value}].\n\n" for key, value in zip(keys, values, strict=True)]
    return {"prompt": "".join(lines) + f"Key: {keys[asked]}\nValue:[", "answer": f" {values[asked]}]."}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help=".jsonl file to write")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kinds, draws = load_kinds(), random.Random(f"varied pairs {given.seed}")
    pairs = few_shot(kinds, 1500, draws) + recall(kinds, 500, draws)
    given.out.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")


if __name__ == "__main__":
    main()
