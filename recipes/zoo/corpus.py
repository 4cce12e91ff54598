"""The documents the embedded models learn from, assembled in token ids.

A document is a list of pieces ("Options: (A)", " otter", ", (B)", ...), each tokenised once; the tokenizer cuts text
where the pieces meet, so laying their ids end to end gives the ids of the whole text (tested). Everything is drawn with
numpy, many documents at a time: millions of tokens a second on one core.

Documents:
- few-shot: questions as in the tasks (`maskwise.tasks`), one word rule and one number rule in a random proportion,
  shuffled, in blocks or in one short run, so that the rule must be found from the examples;
- words and their kinds: options to choose from when the kind is named; words labelled with the kind's name or with
  letters drawn for the document; lists of one kind;
- recall: pairs of words used once, some keys asked again (corpus_recall.py);
- other in-context documents: copying, coupled pairs, lookup and sorting;
- crops of ordinary English from a file.
Some rows end in a run of full stops or end tokens, if possible right behind an answer: else text after the answer's
place would be something that training never showed.

Held out, so that the 16 tasks stay unseen:
- no few-shot document has the target and pool of one of the 8 word rules (the exact pair of sets; for capitalised words
  the set of categories; see corpus_rules.py);
- no word that `maskwise.tasks` keeps for test questions (`split_words`, half of every list) stands in any few-shot
  document, in any case, nor as a key or value in recall, coupled pairs or lookup. Such words are met in the other
  documents alone, which is where a model learns their kind.

A row is int16 with the token id in the low bits and ANSWER set on the answers of few-shot questions, on the labels of
words and on the values of keys asked again: training may weigh or mask those more often.

    python recipes/zoo/corpus.py english.txt.xz english.npy     # tokenise prose once; train_tiny.py takes either file
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerFast

import maskwise
from corpus_recall import FORM_PIECES, FORMS, MOST_PAIRS, WORDS_A_CALL, RecallWords, common_words, recall_lines
from corpus_rules import LARGEST, NUMBER_RULES, POOL_SIZES, number_options, rule_odds, training_rules
from maskwise.tasks.words import Words, load_words, split_words
from train_tokenizer import read_english

Array = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.int16]
Draws = np.random.Generator

ANSWER = 1 << 14
LETTERS = "ABC"
LABELS = "DEFGHIJKLMNOPQRSTUVWXYZ"
PROSE_READ = 1_500_000  # tokens of prose whose words are used in recall
FOLLOWED = 0.06  # share of the rows that end in a run of full stops or end tokens
SHORTEST_RUN, LONGEST_RUN = 3, 240
FEWEST_TOKENS = 20  # of one few-shot example: enough examples are drawn for a document to fill its row
FRAMES = [
    "Options: (A)", ", (B)", ", (C)", "\nAnswer:[", "].\n\n",
    "Find", ": (A)", "\nFound:[", "Word:", "\nKind:[", "\nLabel:[", "List of", ":", ",", "\n", "\n\n",
    "Copy:", "\nCopied:", "Pair:", " and", "Key:", "\nValue:[", "Sort:", "\nSorted:", *FORM_PIECES,
]  # fmt: skip


@dataclass(frozen=True)
class Mix:
    """How the rows of a batch are divided; what is left is English."""

    few_shot: float = 0.4
    kinds: float = 0.15
    recall: float = 0.15
    other: float = 0.1
    # Of the few-shot rows, those that are one document each; the others hold several, cut where they fall.
    whole: float = 0.6
    # Categories in the pool of a word rule, at most: 1 makes few and easy rules.
    largest_pool: int = 3
    # Pairs of a recall document, at most.
    most_pairs: int = MOST_PAIRS


@dataclass(frozen=True)
class Pieces:
    """Tokenised pieces laid end to end, found by text; `flagged` gives the id of a piece's copy with ANSWER set."""

    tokens: Tokens
    starts: Array
    lengths: Array
    number: dict[str, int]

    def __getitem__(self, text: str) -> int:
        return self.number[text]

    def of(self, texts: list[str]) -> Array:
        return np.array([self.number[text] for text in texts])

    def flagged(self, pieces: Array | int) -> Array:
        return np.asarray(pieces) + len(self.number)

    def lay(self, sequence: Array) -> Tokens:
        """Piece numbers [n] -> the tokens of all of them, end to end."""
        lengths = self.lengths[sequence]
        ends = np.cumsum(lengths)
        shift = self.starts[sequence] - (ends - lengths)
        return self.tokens[np.arange(ends[-1] if len(ends) else 0) + np.repeat(shift, lengths)]

    def text(self, sequence: Array) -> str:
        texts = list(self.number)
        return "".join(texts[piece % len(texts)] for piece in sequence)


def make_pieces(tokenizer: PreTrainedTokenizerFast, words: Words, prose_words: list[str]) -> Pieces:
    listed = sorted({form for listed in words.values() for word in listed for form in forms(word)} | {*prose_words})
    texts = [*FRAMES, *LETTERS, *LABELS, *(f" {category}" for category in words), *words, tokenizer.eos_token]
    texts += [f" {word}" for word in listed] + [f" {number}" for number in range(LARGEST + 1)]
    texts = list(dict.fromkeys(texts))
    ids = tokenizer(texts)["input_ids"]
    lengths = np.array([len(piece) for piece in ids])
    tokens = np.concatenate([np.array(piece, dtype=np.int16) for piece in ids])
    starts = np.cumsum(lengths) - lengths
    return Pieces(
        tokens=np.concatenate([tokens, tokens | ANSWER]),
        starts=np.concatenate([starts, starts + len(tokens)]),
        lengths=np.concatenate([lengths, lengths]),
        number={text: place for place, text in enumerate(texts)},
    )


def forms(word: str) -> tuple[str, str, str]:
    """As listed, in lower case and capitalised: the rule about capitals uses the last two."""
    return word, word.lower(), word[0].upper() + word[1:].lower()


@dataclass(frozen=True)
class Choices:
    """Ragged lists of pieces: list i is pieces[starts[i] : starts[i] + sizes[i]]."""

    pieces: Array
    starts: Array
    sizes: Array

    @staticmethod
    def of(lists: list[Array]) -> "Choices":
        sizes = np.array([len(listed) for listed in lists])
        return Choices(np.concatenate(lists), np.cumsum(sizes) - sizes, sizes)

    def one(self, lists: Array, draws: Draws) -> Array:
        """A random piece of each named list. [n] -> [n]."""
        return self.pieces[self.starts[lists] + draws.integers(0, self.sizes[lists])]

    def two(self, lists: Array, draws: Draws) -> tuple[Array, Array]:
        """Two different pieces of each named list."""
        first = draws.integers(0, self.sizes[lists])
        second = draws.integers(0, self.sizes[lists] - 1)
        second += second >= first
        return self.pieces[self.starts[lists] + first], self.pieces[self.starts[lists] + second]


class Corpus:
    """Draws rows of documents. `english` is a flat array of token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, english: Tokens):
        words = load_words()
        shown, held = split_words(words)
        kept = {word.casefold() for listed in held.values() for word in listed}
        prose_words = common_words(tokenizer.decode(english[:PROSE_READ]), kept)
        self.pieces = make_pieces(tokenizer, words, prose_words)
        self.end = self.pieces[tokenizer.eos_token]
        self.stop_id, self.closed_id, self.end_id = tokenizer.convert_tokens_to_ids([".", "].", tokenizer.eos_token])
        self.english = english
        rules = training_rules(words)
        lists = [rule.lists(shown) for rule in rules]
        self.targets = Choices.of([self._words(targets) for targets, _ in lists])
        self.pools = Choices.of([self._words(pool) for _, pool in lists])
        self.rule_odds = {largest: rule_odds(rules, largest) for largest in POOL_SIZES}
        self.kinds = Choices.of([self._words(words[category]) for category in words])
        self.kind_names = self.pieces.of(list(words))
        self.kind_names_spaced = self.pieces.of([f" {category}" for category in words])
        self.all_words = np.unique(self.kinds.pieces)
        self.shown_words = np.unique(np.concatenate([self._words(listed) for listed in shown.values()]))
        self.recall_words = self._by_first_token(self.shown_words)
        of_prose = self._by_first_token(np.unique(self._words(prose_words)))
        # A file of a few hundred different words, as in tests, has not enough.
        self.recall_prose = of_prose if len(of_prose.words) >= WORDS_A_CALL else self.recall_words
        self.numbers = self.pieces.of([f" {number}" for number in range(LARGEST + 1)])

    def _words(self, listed: list[str]) -> Array:
        return np.array([self.pieces[f" {word}"] for word in listed], dtype=np.int64)

    def _by_first_token(self, words: Array) -> RecallWords:
        return RecallWords.of(words, self.pieces.tokens[self.pieces.starts[words]])

    def rows(self, count: int, length: int, mix: Mix, draws: Draws) -> Tokens:
        """[count, length] rows in random order."""
        shares = (mix.few_shot, mix.kinds, mix.recall, mix.other)
        few, kinds, recall, other = (round(count * share) for share in shares)
        whole = round(few * mix.whole)
        parts = [
            self._whole_documents(whole, length, mix.largest_pool, draws),
            self._stream(lambda tokens: self._short_documents(tokens, mix.largest_pool, draws), few - whole, length),
            self._stream(lambda tokens: self._kind_documents(tokens, draws), kinds, length),
            self._stream(lambda tokens: self._recall_documents(tokens, mix.most_pairs, draws), recall, length),
            self._stream(lambda tokens: self._other_documents(tokens, draws), other, length),
            self._prose(count - few - kinds - recall - other, length, draws),
        ]
        rows = np.concatenate(parts)
        return self._followed(rows[draws.permutation(len(rows))], draws)

    # Few-shot documents

    def few_shot(self, sizes: Array, largest_pool: int, draws: Draws) -> Array:
        """Documents of sizes[i] questions each -> pieces [sum of sizes, 9], nine a question."""
        documents = len(sizes)
        odds = self.rule_odds[largest_pool]
        rule = draws.choice(len(odds), documents, p=odds)
        number_rule = draws.integers(0, len(NUMBER_RULES), documents)
        owner = np.repeat(np.arange(documents), sizes)
        about_words = self._about_words(sizes, owner, draws)
        options = np.where(
            about_words[:, None],
            self._word_options(rule[owner], draws),
            self.numbers[number_options(number_rule[owner], draws)],
        )  # the right one first
        example = np.empty((len(owner), 9), dtype=np.int64)
        example[:, [0, 2, 4, 6, 8]] = self.pieces.of(FRAMES[:5])
        example[:, 1:7:2], example[:, 7] = self._placed(options, draws)
        return example

    def _about_words(self, sizes: Array, owner: Array, draws: Draws) -> npt.NDArray[np.bool_]:
        """Which questions follow the word rule: any in 60 % of documents, a block with strays, or a run of 2 to 6."""
        kind = draws.random(len(sizes))
        run = kind > 0.75
        share = draws.uniform(0.15, 1.0, len(sizes))
        share[run] = np.minimum(1, draws.integers(2, 7, run.sum()) / sizes[run])
        start = np.floor(draws.random(len(sizes)) * (sizes * (1 - share) + 1))
        place = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
        end = np.round(start + np.maximum(1, sizes * share))
        block = (place >= start[owner]) & (place < end[owner])
        strays = (draws.random(len(owner)) < 0.08) & ~run[owner]
        return np.where((kind < 0.6)[owner], draws.random(len(owner)) < share[owner], block ^ strays)

    def _word_options(self, rule: Array, draws: Draws) -> Array:
        wrong, other = self.pools.two(rule, draws)
        return np.stack([self.targets.one(rule, draws), wrong, other], axis=1)

    def _whole_documents(self, count: int, length: int, largest_pool: int, draws: Draws) -> Tokens:
        """[count, length]: one few-shot document a row, cut at the row's end."""
        size = -(-length // FEWEST_TOKENS)
        pieces = self.few_shot(np.full(count, size), largest_pool, draws).reshape(count, 9 * size)
        lengths = self.pieces.lengths[pieces].sum(1)
        tokens = self.pieces.lay(pieces.ravel())
        starts = np.cumsum(lengths) - lengths
        return tokens[starts[:, None] + np.arange(length)]

    def _short_documents(self, tokens: int, largest_pool: int, draws: Draws) -> Array:
        """Pieces of few-shot documents of 3 to 50 questions, about so many tokens in all."""
        sizes = draws.integers(3, 51, max(1, tokens // 600 + 1))
        return self._ended(self.few_shot(sizes, largest_pool, draws), sizes)

    # Other in-context documents

    def _kind_documents(self, tokens: int, draws: Draws) -> Array:
        """Words and their kinds: named, labelled with the document's own letters, or listed together."""
        count = tokens // 1000 + 1
        parts = [self._found(2 * count, draws), self._labelled(count, True, draws)]
        parts += [self._labelled(2 * count, False, draws), self._listed(count, draws)]
        return self._shuffled(parts, draws)

    def _found(self, documents: int, draws: Draws) -> Array:
        """`Find animal: (A) brave, (B) otter, (C) below\\nFound:[B].\\n\\n`: options, but the rule is stated."""
        sizes = draws.integers(2, 24, documents)
        count, kinds = int(sizes.sum()), len(self.kind_names)
        kind = draws.integers(0, kinds, count)
        wrong = (kind[:, None] + draws.integers(1, kinds, (count, 2))) % kinds
        options = np.stack([self.kinds.one(one, draws) for one in (kind, wrong[:, 0], wrong[:, 1])], axis=1)
        placed, letter = self._placed(options, draws)
        line = np.empty((count, 11), dtype=np.int64)
        line[:, [0, 2, 4, 6, 8, 10]] = self.pieces.of(["Find", ": (A)", ", (B)", ", (C)", "\nFound:[", "].\n\n"])
        line[:, 1], line[:, 3:8:2], line[:, 9] = self.kind_names_spaced[kind], placed, letter
        return self._ended(line, sizes)

    def _placed(self, options: Array, draws: Draws) -> tuple[Array, Array]:
        """Options [n, 3], the right one first -> the same in random places, and the flagged letter of the right one."""
        answer = draws.integers(0, 3, len(options))
        placed = np.take_along_axis(options, (np.arange(3) - answer[:, None]) % 3, axis=1)
        return placed, self.pieces.flagged(self.pieces.of(list(LETTERS)))[answer]

    def _labelled(self, documents: int, named: bool, draws: Draws) -> Array:
        """`Word: otter\\nKind:[animal].\\n\\n`, or `Label:[K]` with a letter for each of a document's 2 to 4 kinds."""
        sizes = draws.integers(6, 30, documents)
        owner = np.repeat(np.arange(documents), sizes)
        kinds = draws.random((documents, len(self.kind_names))).argsort(1)
        used = draws.integers(2, 5, documents)[owner]
        pick = draws.integers(0, used)
        kind = kinds[owner, pick]
        letters = self.pieces.of(list(LABELS))[draws.random((documents, len(LABELS))).argsort(1)]
        label = self.kind_names[kind] if named else letters[owner, pick]
        line = np.stack(
            [
                np.full(len(owner), self.pieces["Word:"]),
                self.kinds.one(kind, draws),
                np.full(len(owner), self.pieces["\nKind:[" if named else "\nLabel:["]),
                self.pieces.flagged(label),
                np.full(len(owner), self.pieces["].\n\n"]),
            ],
            axis=1,
        )
        return self._ended(line, sizes)

    def _listed(self, documents: int, draws: Draws) -> Array:
        """`List of animal: otter, heron, cat\\n`"""
        sizes = draws.integers(3, 20, documents)
        count = int(sizes.sum())
        kind = draws.integers(0, len(self.kind_names), count)
        words = [self.kinds.one(kind, draws) for _ in range(4)]
        comma = np.full(count, self.pieces[","])
        columns = [
            np.full(count, self.pieces["List of"]),
            self.kind_names_spaced[kind],
            np.full(count, self.pieces[":"]),
        ]
        columns += [words[0], comma, words[1], comma, words[2], comma, words[3], np.full(count, self.pieces["\n"])]
        return self._ended(np.stack(columns, axis=1), sizes)

    def _recall_documents(self, tokens: int, most_pairs: int, draws: Draws) -> Array:
        """`Key: otter\\nValue:[ copper].\\n\\n` and other forms: pairs used once, some of their keys asked again."""
        both = (self.recall_words, self.recall_prose.some(WORDS_A_CALL, draws))
        return self._shuffled([self._recall_of(words, tokens // 600 + 1, most_pairs, draws) for words in both], draws)

    def _recall_of(self, words: RecallWords, documents: int, most_pairs: int, draws: Draws) -> Array:
        lines = recall_lines(words, documents, most_pairs, draws)
        before, between, after = self.pieces.of(FORM_PIECES).reshape(len(FORMS), 3)[lines.form].T
        value = np.where(lines.again, self.pieces.flagged(lines.value), lines.value)
        return self._ended(np.stack([before, lines.key, between, value, after], axis=1), lines.sizes)

    def _other_documents(self, tokens: int, draws: Draws) -> Array:
        count = max(1, tokens // 600 + 1)
        return self._shuffled(
            [make(count, draws) for make in (self._copied, self._coupled, self._looked_up, self._sorted)], draws
        )

    def _copied(self, documents: int, draws: Draws) -> Array:
        """`Copy: a b c d\\nCopied: a b c d\\n\\n`"""
        sizes = draws.integers(1, 16, documents)
        words = draws.choice(self.all_words, (int(sizes.sum()), 5))
        return self._ended(self._rewritten("Copy:", words, "\nCopied:", words), sizes)

    def _sorted(self, documents: int, draws: Draws) -> Array:
        """`Sort: 30 4 200\\nSorted: 4 30 200\\n\\n`"""
        sizes = draws.integers(1, 16, documents)
        numbers = draws.integers(0, LARGEST + 1, (int(sizes.sum()), 4))
        ordered = self.numbers[np.sort(numbers, axis=1)]
        return self._ended(self._rewritten("Sort:", self.numbers[numbers], "\nSorted:", ordered), sizes)

    def _rewritten(self, before: str, given: Array, after: str, result: Array) -> Array:
        column = np.ones((len(given), 1), dtype=np.int64)
        parts = [self.pieces[before] * column, given, self.pieces[after] * column, result]
        return np.concatenate([*parts, self.pieces["\n\n"] * column], axis=1)

    def _coupled(self, documents: int, draws: Draws) -> Array:
        """`Pair: otter and brave\\n`, a few pairs of the document's own coming back again and again."""
        return self._recalled(documents, draws.choice(self.shown_words, (documents, 8)), ("Pair:", " and", "\n"), draws)

    def _looked_up(self, documents: int, draws: Draws) -> Array:
        """`Key: otter\\nValue:[ 345].\\n\\n`"""
        values = self.numbers[draws.integers(0, LARGEST + 1, (documents, 8))]
        return self._recalled(documents, values, ("Key:", "\nValue:[", "].\n\n"), draws)

    def _recalled(self, documents: int, values: Array, frame: tuple[str, str, str], draws: Draws) -> Array:
        keys = draws.choice(self.shown_words, values.shape)
        sizes = draws.integers(6, 40, documents)
        owner = np.repeat(np.arange(documents), sizes)
        pick = draws.integers(0, draws.integers(2, values.shape[1] + 1, documents)[owner])
        before, between, after = (np.full(len(owner), self.pieces[text]) for text in frame)
        value = values[owner, pick]
        return self._ended(np.stack([before, keys[owner, pick], between, value, after], axis=1), sizes)

    # Rows

    def _ended(self, lines: Array, sizes: Array) -> Array:
        """Lines [n, k] of documents of sizes[i] lines each -> one flat list, an end token after each document."""
        ends = np.cumsum(sizes) * lines.shape[1]
        return np.insert(lines.ravel(), ends, self.end)

    def _stream(self, pieces: Callable[[int], Array], count: int, length: int) -> Tokens:
        """[count, length]: documents end to end, cut where rows end; a part of such a document is one too."""
        tokens = np.empty(0, dtype=np.int16)
        while len(tokens) < count * length:
            tokens = np.concatenate([tokens, self.pieces.lay(pieces(count * length))])
        return tokens[: count * length].reshape(count, length)

    def _shuffled(self, parts: list[Array], draws: Draws) -> Array:
        """The documents of all parts in one random order."""
        pieces = np.concatenate(parts)
        ends = np.flatnonzero(pieces == self.end) + 1
        lengths = np.diff(ends, prepend=0)
        order = draws.permutation(len(ends))
        shift = (ends - lengths)[order] - (np.cumsum(lengths[order]) - lengths[order])
        return pieces[np.arange(len(pieces)) + np.repeat(shift, lengths[order])]

    def _prose(self, count: int, length: int, draws: Draws) -> Tokens:
        starts = draws.integers(0, len(self.english) - length, count)
        return self.english[starts[:, None] + np.arange(length)]

    def _followed(self, rows: Tokens, draws: Draws) -> Tokens:
        """Some rows end in a run of one token: behind the answer nearest to a drawn place, else from that place on."""
        length = rows.shape[1]
        longest = min(LONGEST_RUN, length // 2)
        for number in np.flatnonzero(draws.random(len(rows)) < FOLLOWED):
            row = rows[number]
            cut = length - int(np.exp(draws.uniform(np.log(SHORTEST_RUN), np.log(longest))))
            answers = np.flatnonzero(row[:-2] & ANSWER)
            answers = answers[answers > length // 3]
            if len(answers):
                cut = int(answers[np.abs(answers + 2 - cut).argmin()]) + 1
                brackets = np.flatnonzero((row[cut : cut + 5] & (ANSWER - 1)) == self.closed_id)
                cut += int(brackets[0]) + 1 if len(brackets) else 0
            row[cut:] = self.stop_id if draws.random() < 0.6 else self.end_id
        return rows


def read_english_ids(path: Path, tokenizer: PreTrainedTokenizerFast, every: int = 1) -> Tokens:
    """The token ids of a text file's documents, end tokens between them; a .npy file holds them already."""
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r")
    documents = read_english(path)[::every]
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    end = np.array([tokenizer.eos_token_id], dtype=np.int16)
    return np.concatenate([part for one in encoded for part in (np.array(one.ids, dtype=np.int16), end)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("english", type=Path, help="text file (.txt or .xz), form feeds between documents")
    parser.add_argument("out", type=Path, help=".npy file to write")
    parser.add_argument("--every", type=int, default=1, help="take every n-th document")
    arguments = parser.parse_args()
    ids = read_english_ids(arguments.english, load_zoo_tokenizer(), arguments.every)
    np.save(arguments.out, ids)
    print(f"{len(ids)} tokens")


def load_zoo_tokenizer() -> PreTrainedTokenizerFast:
    folder = Path(maskwise.__file__).parent / "models" / "zoo" / "tokenizer"
    return PreTrainedTokenizerFast.from_pretrained(folder)


if __name__ == "__main__":
    main()
