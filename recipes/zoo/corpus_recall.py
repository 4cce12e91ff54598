"""Recall documents: pairs of words used once, then some of the keys asked again.

    Key: otter\\nValue:[ copper].\\n\\n        and four other surface forms (FORMS)

A document has 2 to 64 pairs (log-uniform; fewer early in training) of one form. Keys and values are all different
words, and no two values of a document begin with the same token, so that the first token tells the value. One key (a
quarter of the documents) or up to all of them are asked again, each once, after the pairs or, in a quarter of the
documents, before them. Which keys are asked does not depend on where they stand. Half of the documents are made of the
tasks' words, half of words of the prose, both without the words kept for test questions: with the tasks' words alone
(553 of them) a model learns to recall those, and others half as well.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Draws = np.random.Generator

MOST_PAIRS = 64
FEWEST_PAIRS = 2
PROSE_WORDS = 5000
WORDS_A_CALL = 700  # of the prose: enough for all documents drawn at once
# What stands before the key, between key and value, and after the value. The first is the recall probe's.
FORMS = (
    ("Key:", "\nValue:[", "].\n\n"),
    ("Name:", "\nCode:[", "].\n\n"),
    ("Pair:", " and", "\n"),
    ("Entry:", " =", ";\n"),
    ("The", " has the", ".\n"),
)
FORM_ODDS = (0.4, 0.15, 0.15, 0.15, 0.15)
FORM_PIECES = [text for form in FORMS for text in form]
ASKED_FIRST = 0.25
ASKED_ONCE = 0.25


@dataclass(frozen=True)
class RecallWords:
    """Pieces of words in groups of one first token each: group i is words[starts[i] : starts[i] + sizes[i]]."""

    words: Array
    starts: Array
    sizes: Array

    @staticmethod
    def of(words: Array, first_tokens: Array) -> "RecallWords":
        order = np.argsort(first_tokens, kind="stable")
        _, starts, sizes = np.unique(first_tokens[order], return_index=True, return_counts=True)
        return RecallWords(words[order], starts, sizes)

    def some(self, count: int, draws: Draws) -> "RecallWords":
        """So many of the words, or all where there are fewer."""
        if len(self.words) <= count:
            return self
        group = np.repeat(np.arange(len(self.sizes)), self.sizes)
        picked = draws.choice(len(self.words), count, replace=False)
        return RecallWords.of(self.words[picked], group[picked])

    def draw(self, documents: int, pairs: int, draws: Draws) -> tuple[Array, Array]:
        """(keys, values), each [documents, pairs]: all words of a row differ, its values from the first token on."""
        group = draws.random((documents, len(self.starts))).argsort(1)[:, :pairs]
        value = self.starts[group] + draws.integers(0, self.sizes[group])
        priority = draws.random((documents, len(self.words)))
        np.put_along_axis(priority, value, np.inf, axis=1)
        key = priority.argsort(1)[:, :pairs]
        return self.words[key], self.words[value]


@dataclass(frozen=True)
class RecallLines:
    """Lines of documents end to end: form, key and value of each, [n], whether it asks again, and lines a document."""

    form: Array
    key: Array
    value: Array
    again: npt.NDArray[np.bool_]
    sizes: Array


def common_words(text: str, besides: Collection[str]) -> list[str]:
    """The most frequent lower-case words of three letters or more, without those of `besides` (in lower case)."""
    counts = Counter(re.findall(r"(?<= )[a-z]{3,}(?![\w'’-])", text))
    return [word for word, _ in counts.most_common() if word not in besides][:PROSE_WORDS]


def recall_lines(words: RecallWords, documents: int, most_pairs: int, draws: Draws) -> RecallLines:
    most_pairs = min(most_pairs, len(words.sizes))  # as many first tokens are needed
    keys, values = words.draw(documents, most_pairs, draws)
    low, high = np.log(FEWEST_PAIRS), np.log(most_pairs + 1)
    pairs = np.exp(draws.uniform(low, high, documents)).astype(np.int64).clip(max=most_pairs)
    asked = 1 + draws.integers(0, pairs)
    asked[draws.random(documents) < ASKED_ONCE] = 1
    form = draws.choice(len(FORMS), documents, p=FORM_ODDS)
    first = draws.random(documents) < ASKED_FIRST
    parts = []
    for document in range(documents):
        listed = np.arange(pairs[document])
        again = draws.permutation(listed)[: asked[document]]
        parts.append(np.concatenate([again, listed] if first[document] else [listed, again]))
    sizes = pairs + asked
    owner = np.repeat(np.arange(documents), sizes)
    line, place = np.concatenate(parts), np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
    repeats = np.where(first[owner], place < asked[owner], place >= pairs[owner])
    return RecallLines(form[owner], keys[owner, line], values[owner, line], repeats, sizes)
