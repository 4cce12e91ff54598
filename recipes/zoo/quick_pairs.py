"""The pairs of `maskwise tune NAME --preset quick`: src/maskwise/training/data/quick.jsonl.

1. Most are documents of labelled words, `Word: otter\\nLabel:[K].`: 2 to 4 kinds of words with a letter drawn for each,
   cut before the last label. Of many candidates those are kept that tiny-llada answers from the whole document
   (probability over .6) and not from its last line (under .3): only they show whether the context is used.
2. With `--gaps` some of them get other lines, of 60 to 300 tokens, between the labelled words and the question; those
   are kept that tiny-llada answers from the whole (over .4) and not from the gap alone (under .15). It answers few of
   them, a third after 100 tokens and one in twelve after 300, and none where the kind in question is far away among
   lines of its own form.
3. The rest are passages of this project's documents and the words that follow.
4. Nothing of it is in the exams or in planting (plant_distraction.py): not the form, not the rule (a letter stands for
   a kind; in the tasks letters stand for places), no word of the test questions, no options, no keys and values, no
   books. What tiny-llada can do is narrow: of a dozen other forms that were tried (other names for keys and values,
   other options, passages and lists given twice) it answers at most one question in ten.

Hardware: a CPU, half an hour. The file that ships was drawn on an H200 from the documents as they were in November
2026; drawn again, its passages differ.

    python recipes/zoo/quick_pairs.py docs/how-to/*.md docs/concepts/*.md docs/*.md \\
        --out src/maskwise/training/data/quick.jsonl
"""

import argparse
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import maskwise as mw
from maskwise.models.batch import Batch
from maskwise.tasks.words import Words, load_words, split_words

MODEL = "tiny-llada"
LETTERS = "DEFGHIJKLMNOPQRSTUVWXYZ"
LINES = (8, 40)
KINDS = (2, 2, 3, 4)
LINE_END = "].\n\n"
IN_BLOCKS = 0.3  # share of the documents in which each kind stands in a block of its own
LEAST, MOST = 0.6, 0.3  # probability of the answer given the whole document, and given its last line
CANDIDATES = 12_000
LABELLED, PASSAGES = 900, 300
WITH_GAPS = (500, 350, 250)  # labelled, across gaps, passages
BRIDGED, LEAPT = 0.4, 0.15  # probability of the answer given all of a gapped document, and given the gap alone
GAP_TOKENS = (60, 300)
PROMPT_WORDS = (40, 160)
ANSWER_WORDS = 12

Pair = dict[str, str]


def labelled(words: Words, draws: random.Random) -> Pair:
    """Words and the letters of their kinds, the last one asked."""
    kinds = draws.sample(sorted(words), draws.choice(KINDS))
    letters = dict(zip(kinds, draws.sample(LETTERS, len(kinds)), strict=True))
    lines = [(kind, draws.choice(words[kind])) for kind in draws.choices(kinds, k=draws.randint(*LINES))]
    if draws.random() < IN_BLOCKS:
        lines.sort(key=lambda line: kinds.index(line[0]))
    asked = draws.choice(sorted({kind for kind, _ in lines}))
    shown = {word for _, word in lines}
    word = draws.choice([word for word in words[asked] if word not in shown] or words[asked])
    text = "".join(f"Word: {word}\nLabel:[{letters[kind]}{LINE_END}" for kind, word in lines)
    return {"prompt": f"{text}Word: {word}\nLabel:[", "answer": f"{letters[asked]}]."}


def gap_line(kind: int, words: Words, draws: random.Random) -> str:
    """A line in which nothing is labelled."""
    one, other = (draws.choice(words[draws.choice(sorted(words))]) for _ in range(2))
    return (
        f"Note: {one} and {other}.\n\n",
        "Note: nothing.\n\n",
        f"Line {draws.randrange(100)}.\n\n",
        "...\n\n",
        f"Number: {draws.randrange(1000)}\nDigits:[{draws.randrange(100)}].\n\n",
    )[kind]


def gap(words: Words, draws: random.Random, count: Callable[[str], int]) -> str:
    """Lines of one kind, of GAP_TOKENS tokens together, all lengths alike; `count` gives a text's."""
    wanted, kind, text = draws.randint(*GAP_TOKENS), draws.randrange(5), ""
    while wanted > 0:
        line = gap_line(kind, words, draws)
        text, wanted = text + line, wanted - count(line)
    return text


def with_gap(pair: Pair, text: str) -> Pair:
    """A labelled document with other lines before its question."""
    context, asked = pair["prompt"].rsplit(LINE_END, 1)
    return {**pair, "prompt": context + LINE_END + text + asked}


def only_gap(pair: Pair, text: str) -> Pair:
    return {**pair, "prompt": text + pair["prompt"].rsplit(LINE_END, 1)[1]}


def last_line(pair: Pair) -> Pair:
    return {**pair, "prompt": LINE_END.join(pair["prompt"].split(LINE_END)[-2:])}


@torch.no_grad()
def answered(model: mw.Model, pairs: Sequence[Pair], size: int = 64) -> list[float]:
    """The probability of each answer's first token, with two masks."""
    assert model.mask_id is not None

    def tokens(text: str) -> list[int]:
        return list(model.tokenizer(text, add_special_tokens=False)["input_ids"])

    found = []
    for start in range(0, len(pairs), size):
        some = pairs[start : start + size]
        prompts = [model.tokenizer(pair["prompt"], add_special_tokens=False)["input_ids"] for pair in some]
        whole = [
            model.tokenizer(pair["prompt"] + pair["answer"], add_special_tokens=False)["input_ids"] for pair in some
        ]
        batch = Batch.pack([torch.tensor([*ids, model.mask_id, model.mask_id]) for ids in prompts], model.device)
        rows = model.flat_rows(batch, [[len(ids)] for ids in prompts])
        chances = model.head(model.hidden(batch)[rows]).float().softmax(-1)
        found += [float(row[ids[len(prompt)]]) for row, ids, prompt in zip(chances, whole, prompts, strict=True)]
    return found


def that_need_the_context(model: mw.Model, drawn: Sequence[Pair]) -> list[Pair]:
    whole, last = answered(model, drawn), answered(model, [last_line(pair) for pair in drawn])
    return [
        pair for pair, all_of_it, little in zip(drawn, whole, last, strict=True) if all_of_it > LEAST and little < MOST
    ]


def that_bridge_a_gap(model: mw.Model, drawn: Sequence[Pair], draws: random.Random, wanted: int) -> list[Pair]:
    """Labelled documents with a gap, all lengths of the gap as alike as there are enough of them."""
    words = split_words(load_words())[0]

    def count(text: str) -> int:
        return len(model.tokenizer(text, add_special_tokens=False)["input_ids"])

    gaps = [gap(words, draws, count) for _ in drawn]
    whole = answered(model, [with_gap(*both) for both in zip(drawn, gaps, strict=True)])
    alone = answered(model, [only_gap(*both) for both in zip(drawn, gaps, strict=True)])
    found = [
        (count(text), with_gap(pair, text))
        for pair, text, all_of_it, little in zip(drawn, gaps, whole, alone, strict=True)
        if all_of_it > BRIDGED and little < LEAPT
    ]
    found.sort(key=lambda one: -one[0])  # the longest gaps are rare
    print(f"{len(found)} of {len(drawn)} gaps are bridged, the taken ones of {found[:wanted][-1][0]} tokens and more")
    return [pair for _, pair in found[:wanted]]


def passage(text: list[str], draws: random.Random) -> Pair:
    length = draws.randint(*PROMPT_WORDS)
    start = draws.randrange(len(text) - length - ANSWER_WORDS)
    stop = start + length
    return {"prompt": " ".join(text[start:stop]), "answer": " " + " ".join(text[stop : stop + ANSWER_WORDS])}


def sentences(markdown: str) -> list[str]:
    """The words of a document's paragraphs, without code, tables, headings and lists."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL))
    kept = [one for one in paragraphs if one[:1].isalpha() and "|" not in one and "](" not in one]
    return re.sub("[`*]", "", " ".join(kept)).split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="+", help="texts in Markdown")
    parser.add_argument("--out", type=Path, required=True, help=".jsonl file to write")
    parser.add_argument("--candidates", type=int, default=CANDIDATES)
    parser.add_argument("--gaps", type=int, default=0, help="tried for each labelled document (12)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draws, words = random.Random(given.seed), split_words(load_words())[0]
    text = [word for file in given.texts for word in sentences(file.read_text(encoding="utf-8"))]
    drawn = [labelled(words, draws) for _ in range(given.candidates)]
    model = mw.open(MODEL, "float32")
    needing = that_need_the_context(model, drawn)
    print(f"{len(needing)} of {len(drawn)} documents of labelled words need their context")
    labelled_pairs, gapped, passages = WITH_GAPS if given.gaps else (LABELLED, 0, PASSAGES)
    made = needing[:labelled_pairs]
    if gapped:
        # A document that is answered next to its question may be answered across a gap: each is tried with several.
        made += that_bridge_a_gap(model, needing * given.gaps, draws, gapped)
    made += [passage(text, draws) for _ in range(passages)]
    random.Random(1).shuffle(made)
    given.out.write_text("".join(json.dumps(pair) + "\n" for pair in made), encoding="utf-8")


if __name__ == "__main__":
    main()
