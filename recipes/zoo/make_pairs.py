"""Prompt and answer pairs for `maskwise tune`, from documents that are not the evaluated tasks.

1. Half are few-shot documents of the training corpus (corpus.py: the evaluated rules and the words of test questions
   are held out), cut before the last answer.
2. A quarter are documents about words and their kinds, cut in the same way.
3. A quarter are passages of prose, with the dozen words that follow as the answer.
4. The kinds take turns in the file, which has one JSON object per line.

Hardware: a CPU.

    python recipes/zoo/make_pairs.py english.txt.xz pairs.jsonl --count 4000
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from corpus import Corpus, load_zoo_tokenizer
from train_tokenizer import read_english

PROMPT_WORDS = (60, 300)
ANSWER_WORDS = 12


def pairs(corpus: Corpus, prose: list[str], count: int, seed: int) -> Iterator[dict[str, str]]:
    """`count` pairs, the kinds in turn."""
    draws, chance = np.random.default_rng(seed), random.Random(seed)
    for number in range(count):
        if number % 4 in (0, 1):
            size = np.array([chance.randint(5, 40)])
            yield cut_before_last_answer(corpus.pieces.text(corpus.few_shot(size, 3, draws).ravel()))
        elif number % 4 == 2:
            text = corpus.pieces.text(corpus.kind_document(draws))
            yield cut_before_last_answer(text)
        else:
            yield passage(prose, chance)


def cut_before_last_answer(text: str) -> dict[str, str]:
    """`...Answer:[` and `B].`"""
    at = text.rindex(":[") + 2
    return {"prompt": text[:at], "answer": text[at:].rstrip("\n")}


def passage(prose: list[str], chance: random.Random) -> dict[str, str]:
    length = chance.randint(*PROMPT_WORDS)
    words = chance.choice(prose).split(" ")
    start = chance.randrange(len(words) - length - ANSWER_WORDS)
    answer = words[start + length : start + length + ANSWER_WORDS]
    return {"prompt": " ".join(words[start : start + length]), "answer": " " + " ".join(answer)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("english", type=Path, help="text file (.txt or .xz), form feeds between documents")
    parser.add_argument("out", type=Path, help=".jsonl file to write")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    longest = PROMPT_WORDS[1] + ANSWER_WORDS
    prose = [document for document in read_english(arguments.english) if document.count(" ") > longest]
    corpus = Corpus(load_zoo_tokenizer(), np.zeros(0, dtype=np.int16))
    with arguments.out.open("w", encoding="utf-8") as file:
        for pair in pairs(corpus, prose, arguments.count, arguments.seed):
            file.write(json.dumps(pair, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
