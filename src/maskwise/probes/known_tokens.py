"""Sequences whose right tokens are known, for confidence, the probe that looks at single tokens.

    copy       the line of words that a few-shot puzzle asks to copy
    recall     the value of one pair of a list
    embedded   few-shot questions of the 16 tasks (tasks/checkable.py)
    markov     words of a Markov source (tasks/markov_source.py): WORDS_SEEN of them, then the words that are asked

A user's questions (--data) take the place of all of them. The masks are as many as the right answer has tokens, so that
every position has one right token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from maskwise.probes.checked import asked_sets
from maskwise.probes.setup import Setup
from maskwise.records.table import Table
from maskwise.scoring.estimates import LEVEL
from maskwise.scoring.intervals import p_by_guessing
from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random, seed_of, torch_generator
from maskwise.tasks.checkable import EMBEDDED
from maskwise.tasks.datasets import is_checkable
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Prompt, encode_answers
from maskwise.tasks.recall_pairs import list_of_point, recall_words
from maskwise.tasks.word_puzzles import ask, one_token_words

COPY, RECALL, MARKOV = "copy", "recall", "markov"
WORDS_COPIED, PAIRS, WORDS_SEEN, WORDS_ASKED = 4, 12, 64, 8
COMMONEST = 0.2243  # the share of the Markov source's commonest word
GUESSING = {EMBEDDED: CHANCE, COPY: 1 / WORDS_COPIED, RECALL: 1 / PAIRS, MARKOV: COMMONEST}

Known = tuple[Sequence[int], int]  # a sequence with the right tokens in place; how many of them, at its end, are asked


@dataclass(frozen=True)
class KnownPrompt(Prompt):
    """A sequence that ends in masks; `right` are their tokens."""

    right: tuple[int, ...] = ()


def known_prompt(ids: Sequence[int], asked: int, mask_id: int) -> KnownPrompt:
    right, row = tuple(ids[-asked:]), len(ids) - asked
    return KnownPrompt((*ids[:row], *[mask_id] * asked), row, right[0], asked, right=right)


def known_prompts(setup: Setup, probe: str, questions: int) -> dict[str, list[KnownPrompt]]:
    """The sequences of each source, at most `questions` of each; a source that the model cannot be asked is noted."""
    count = min(setup.settings.questions, questions)
    found: dict[str, list[Known]] = {
        asked.name: [((*one.ids, *one.answer_ids), len(one.answer_ids)) for one in asked.questions]
        for asked in asked_sets(setup, count)
    }
    own = () if any(map(is_checkable, setup.data.values())) else SOURCES.items()
    for name, source in own:
        try:
            found[name] = list(map(source(setup), range(count)))
        except UserError as problem:
            setup.note(f"{probe}: not asked on {name}: {problem}")
    return {name: _fitting(setup, probe, name, listed) for name, listed in found.items()}


def _fitting(setup: Setup, probe: str, name: str, listed: list[Known]) -> list[KnownPrompt]:
    kept = [(ids, asked) for ids, asked in listed if len(ids) <= setup.model.window]
    if len(kept) < len(listed):
        setup.note(f"{probe}: {len(listed) - len(kept)} sequences of {name} exceed the context length")
    return [known_prompt(ids, asked, setup.asker.mask) for ids, asked in kept]


def of_able_sources(table: Table) -> Table:
    """The answers of the sources whose first token the model predicts better than by guessing while all are masked, or
    of all where it can do none. Of a user's questions one such token is enough. These answers are scored too, so the
    share right of a source at the border is a little too high."""
    once = table.drop_duplicates(["task", "point"])  # every strategy begins with the same predictions
    right = once.all_right.str[0].astype(int).groupby(once.task, observed=True).agg(["sum", "size"])
    level = LEVEL / max(1, len(right))  # Bonferroni: a guesser passes in any source in 5 % of the runs
    able = [name for name, own, n in right.itertuples() if p_by_guessing(own, n, GUESSING.get(name, 0.0)) < level]
    return table[table.task.isin(able)] if able else table


# The sources


def _short_words(setup: Setup) -> list[str]:
    words = sorted({word for listed in setup.words.values() for word in listed})
    return one_token_words(setup.asker.tokenizer, words)


def _copies(setup: Setup) -> Callable[[int], Known]:
    put = partial(ask, setup.asker.tokenizer, setup.asker.mask, "copy", WORDS_COPIED, _short_words(setup))

    def draw(number: int) -> Known:
        puzzle = put(seed_of(COPY, setup.settings.seed, number))
        (right,) = puzzle.puzzle.answers
        return (*puzzle.ids[: -len(right)], *right), len(right)

    return draw


def _recalls(setup: Setup) -> Callable[[int], Known]:
    words = recall_words(setup.asker.tokenizer, setup.words, setup.settings.held_out, PAIRS)

    def draw(number: int) -> Known:
        pairs = list_of_point(words, PAIRS, setup.settings.seed, number)
        asked = pairs[python_random("known recall", setup.settings.seed, number).randrange(PAIRS)]
        ids, rows = encode_answers(setup.asker.tokenizer, pairs, asked, "right", setup.asker.chat)
        return ids[: rows[-1].stop], len(rows[-1])

    return draw


def _markov_lines(setup: Setup) -> Callable[[int], Known]:
    """Each sequence has a vocabulary of its own: which word is which state is drawn for it."""
    from maskwise.tasks.markov_source import small_chain

    chain, words, tokenizer = small_chain(), _short_words(setup), setup.asker.tokenizer
    if len(words) < chain.states:
        raise UserError(f"{len(words)} words are one token in this tokenizer, {chain.states} are needed")

    def draw(number: int) -> Known:
        named = python_random("markov words", setup.settings.seed, number).sample(words, chain.states)
        generator = torch_generator("markov", setup.settings.seed, number)
        line = chain.sample(1, WORDS_SEEN + WORDS_ASKED, generator)[0].tolist()
        states = tuple(tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in named)
        ids = tuple(tokenizer("Words: " + " ".join(named[state] for state in line))["input_ids"])
        if ids[-len(line) :] != tuple(states[state] for state in line):
            raise UserError("this tokenizer joins the words of a line")
        return ids, WORDS_ASKED

    return draw


SOURCES = {COPY: _copies, RECALL: _recalls, MARKOV: _markov_lines}
