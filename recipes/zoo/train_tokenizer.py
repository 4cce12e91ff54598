"""Train the tokenizer of the embedded models: a byte-level BPE of at most 2048 entries.

1. Text is first cut by one regular expression (PRETOKENS) in which what a few-shot document is made of always falls
   apart the same way: `].` alone, words with the space before them, single digits, single punctuation marks.
   A cut depends only on the characters around it, so a document may be assembled from tokenised pieces.
2. BPE learns its first merges from English prose; the rest shorten the words of the tasks, longest first, so that
   nearly all of them are one or two tokens.
3. Every byte is in the vocabulary, so any text comes back exactly.

    python recipes/zoo/train_tokenizer.py --english english.txt.xz --out src/maskwise/models/zoo/tokenizer

Two CPU cores, under a minute.
"""

import argparse
import json
import lzma
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from maskwise.tasks.words import load_words

SIZE = 2048
# What every few-shot document repeats: seen once a document of prose, so that each stands whole in the vocabulary.
FRAME = ["Options: (A), (B), (C)\nAnswer:[A].\n\n 0 1 2 3 4 5 6 7 8 9"] * 20
END, MASK = "<|endoftext|>", "<|mask|>"
PRETOKENS = "|".join(
    [
        r"\]\.",  # closes an answer: one token, so that two masks stand for `B].`
        r"[,:] \(",  # `: (` and `, (`, as before an option's letter
        r":\[",  # opens an answer
        r"'(?:s|t|d|m|ll|re|ve)(?!\p{L})",
        r" ?[\p{L}\p{M}]+",
        r" ?\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]",
        r"\n\n",
        r"\s",
    ]
)
# Of these, learnt from prose; the others are given to the words of the tasks.
PROSE_SIZE = 800
# What shortening a task word of so many tokens by one is worth: long words come first.
WORTH = {2: 1, 3: 2}
WORTH_BEYOND = 3


def read_english(path: Path) -> list[str]:
    """Documents of a (xz) text file, form feeds between them, with the hard line breaks inside paragraphs undone."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        text = file.read()
    unwrapped = re.sub(r"(?<=\S)\n(?=\S)", " ", text)
    return [document.strip() for document in unwrapped.split("\f") if document.strip()]


def train(english: list[str], words: list[str], size: int = SIZE) -> PreTrainedTokenizerFast:
    """BPE merges learnt from prose, then merges that shorten the words of the tasks, up to `size` entries in all."""
    prose = Tokenizer(models.BPE())
    prose.pre_tokenizer = cutter()
    trainer = trainers.BpeTrainer(
        vocab_size=min(PROSE_SIZE, size),
        special_tokens=[END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    prose.train_from_iterator([*english, *FRAME * len(english)], trainer)
    state = json.loads(prose.to_str())["model"]
    vocabulary, merges = dict(state["vocab"]), [(left, right) for left, right in state["merges"]]
    for left, right in word_merges([prose.encode(" " + word).tokens for word in words], size - len(vocabulary)):
        vocabulary.setdefault(left + right, len(vocabulary))
        merges.append((left, right))
    return as_transformers(Tokenizer(models.BPE(vocab=vocabulary, merges=merges)))


def cutter() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(PRETOKENS), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def word_merges(words: list[list[str]], number: int) -> list[tuple[str, str]]:
    """`number` merges, each the pair whose merging is worth most over all words (each a list of tokens)."""
    words = [list(word) for word in words]
    merges: list[tuple[str, str]] = []
    while len(merges) < number:
        worth: Counter[tuple[str, str]] = Counter()
        for word in words:
            for pair in set(pairwise(word)):
                worth[pair] += WORTH.get(len(word), WORTH_BEYOND)
        if not worth:
            break
        pair = max(sorted(worth), key=worth.__getitem__)
        merges.append(pair)
        words = [merged(word, pair) for word in words]
    return merges


def merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    """The word with every occurrence of the pair joined, from left to right."""
    joined: list[str] = []
    for token in word:
        if joined and (joined[-1], token) == pair:
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def as_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    tokenizer.pre_tokenizer = cutter()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (END, MASK)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        mask_token=MASK,
        clean_up_tokenization_spaces=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--english", type=Path, required=True, help="text file (.txt or .xz), form feeds between documents"
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    words = sorted({word for category in load_words().values() for word in category})
    tokenizer = train(read_english(arguments.english)[::4], words)
    tokenizer.save_pretrained(arguments.out)
    pieces = [len(tokenizer.encode(" " + word)) for word in words]
    print(
        f"{len(tokenizer)} entries; of {len(words)} task words {pieces.count(1)} are one token, {pieces.count(2)} two"
    )


if __name__ == "__main__":
    main()
