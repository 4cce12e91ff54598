"""The pairs that come with the package, for `maskwise tune NAME --preset quick`: src/maskwise/training/quick.jsonl.

Half are documents of labelled words, `Word: otter\\nLabel:[K].`: 2 to 5 kinds of words and a letter drawn for
each, cut before the last label. In half of them each kind stands in a block of its own, so that the label
may have to be found far away. A quarter are shelves and what is on them, `Shelf otter holds copper.`, one asked again.
A quarter are passages of this project's documents and the words that follow.

Nothing of it is in the exams or in the planting of the phantom (plant_distraction.py): not the form, not the rule (a
letter stands for a kind, where the tasks' letters stand for places), not a word that test questions use, no options,
no books.

The file that ships was drawn from the documents as they stood in November 2026; drawn anew, its passages differ.

    python recipes/quick_pairs.py docs/guide.md docs/architecture.md docs/footguns.md docs/results.md \\
        --out src/maskwise/training/quick.jsonl
"""

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from maskwise.tasks.words import Words, load_words, split_words

LETTERS = "DEFGHIJKLMNOPQRSTUVWXYZ"
LINES = (8, 40)
KINDS = (2, 5)
PROMPT_WORDS = (40, 160)
ANSWER_WORDS = 12
COUNT = 1200


def labelled(words: Words, draws: random.Random) -> dict[str, str]:
    """Words and the letters of their kinds, the last one asked."""
    kinds = draws.sample(sorted(words), draws.randint(*KINDS))
    letters = dict(zip(kinds, draws.sample(LETTERS, len(kinds)), strict=True))
    lines = [(kind, draws.choice(words[kind])) for kind in draws.choices(kinds, k=draws.randint(*LINES))]
    if draws.random() < 0.5:
        lines.sort(key=lambda line: kinds.index(line[0]))
    asked = draws.choice(sorted({kind for kind, _ in lines}))
    told = {word for _, word in lines}
    word = draws.choice([word for word in words[asked] if word not in told])
    text = "".join(f"Word: {word}\nLabel:[{letters[kind]}].\n\n" for kind, word in lines)
    return {"prompt": f"{text}Word: {word}\nLabel:[", "answer": f"{letters[asked]}]."}


def shelves(words: Words, draws: random.Random) -> dict[str, str]:
    """Pairs of words used once, one of them asked again."""
    drawn = draws.sample(sorted({word for listed in words.values() for word in listed}), 2 * draws.randint(*LINES))
    held = list(zip(drawn[::2], drawn[1::2], strict=True))
    shelf, thing = draws.choice(held)
    text = "".join(f"Shelf {one} holds {other}.\n" for one, other in held)
    return {"prompt": f"{text}Shelf {shelf} holds", "answer": f" {thing}."}


def passage(text: list[str], draws: random.Random) -> dict[str, str]:
    length = draws.randint(*PROMPT_WORDS)
    start = draws.randrange(len(text) - length - ANSWER_WORDS)
    stop = start + length
    return {"prompt": " ".join(text[start:stop]), "answer": " " + " ".join(text[stop : stop + ANSWER_WORDS])}


def sentences(markdown: str) -> list[str]:
    """The words of a document's paragraphs, without code, tables, headings and lists."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL))
    kept = [one for one in paragraphs if one[:1].isalpha() and "|" not in one and "](" not in one]
    return re.sub("[`*]", "", " ".join(kept)).split()


def pairs(words: Words, text: list[str], count: int, seed: int) -> Iterator[dict[str, str]]:
    draws = random.Random(seed)
    for number in range(count):
        kind = number % 4
        yield passage(text, draws) if kind == 3 else shelves(words, draws) if kind == 1 else labelled(words, draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="+", help="texts in Markdown")
    parser.add_argument("--out", type=Path, required=True, help=".jsonl file to write")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    text = [word for file in given.texts for word in sentences(file.read_text(encoding="utf-8"))]
    made = pairs(split_words(load_words())[0], text, given.count, given.seed)
    given.out.write_text("".join(json.dumps(pair) + "\n" for pair in made), encoding="utf-8")


if __name__ == "__main__":
    main()
