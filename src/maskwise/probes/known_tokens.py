"""Sequences whose right tokens are known, for confidence, the probe that looks at single tokens.

    copy       the line of words that a few-shot puzzle asks to copy
    recall     the value of one pair of a list
    embedded   few-shot questions of the 16 tasks (tasks/checkable.py)
    markov     words of a Markov source (tasks/markov_source.py): WORDS_SEEN of them, then the words that are asked

A user's questions (--data) take the place of all of them. An answer's canvas has as many masks as the
right answer has tokens, so that every position has one right token.

A source that the model cannot do says nothing about its decoding. So the model is also asked for the first token of as
many other sequences of each source, in one pass (`check_sequences`): these decide which sources are pooled, and nothing
else is measured on them. A user's questions are always pooled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from maskwise.probes.checked import asked_sets
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Answerer, Setup
from maskwise.records.record import Condition, FieldTypes, ProbeFields, struct_of
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
SKILL = "skill"  # in a condition: other sequences, which decide whether the source is pooled


@dataclass(frozen=True)
class KnownSequence:
    """A sequence with the right tokens in place; `asked` are the positions that a probe may mask."""

    ids: tuple[int, ...]
    asked: tuple[int, ...]

    @property
    def right(self) -> tuple[int, ...]:
        """The right tokens of the asked positions."""
        return tuple(self.ids[place] for place in self.asked)

    def masked(self, mask_id: int) -> tuple[int, ...]:
        hidden = set(self.asked)
        return tuple(mask_id if place in hidden else token for place, token in enumerate(self.ids))


@dataclass(frozen=True)
class KnownPrompt(Prompt):
    """A prompt of a known sequence."""

    known: KnownSequence | None = None


def known_prompt(known: KnownSequence, mask_id: int) -> KnownPrompt:
    return KnownPrompt(known.masked(mask_id), known.asked[0], known.right[0], len(known.asked), known=known)


def known_questions(
    setup: Setup,
    source: str,
    listed: Sequence[KnownSequence],
    condition: Condition,
    answering: Answerer | None = None,
    cost: int = 1,
) -> Questions:
    """The sequences of a source under one condition, with all their asked places masked."""

    def prompt(point: int, _: Mapping[str, Any]) -> Prompt:
        return known_prompt(listed[point], setup.asker.mask)

    def answer(point: int) -> str:
        text: str = setup.asker.tokenizer.decode(listed[point].right)
        return text

    return Questions(Points(source, range(len(listed))), [condition], prompt, answer, answering, cost)


def known_sequences(setup: Setup, probe: str, questions: int) -> dict[str, list[KnownSequence]]:
    """The sequences of each source, at most `questions` of each; a source that the model cannot be asked is noted."""
    count = min(setup.settings.questions, questions)
    found = dict(_of_questions(setup, questions))
    if any(map(is_checkable, setup.data.values())):
        return found
    for name, draw in ((COPY, _copies), (RECALL, _recalls), (MARKOV, _markov_lines)):
        try:
            found[name] = list(map(draw(setup), range(count)))
        except UserError as problem:
            setup.note(f"{probe}: not asked on {name}: {problem}")
    return {name: _fitting(setup, probe, name, listed) for name, listed in found.items()}


def _fitting(setup: Setup, probe: str, name: str, listed: list[KnownSequence]) -> list[KnownSequence]:
    kept = [one for one in listed if len(one.ids) <= setup.model.window]
    if len(kept) < len(listed):
        setup.note(f"{probe}: {len(listed) - len(kept)} sequences of {name} exceed the context length")
    return kept


def _of_questions(setup: Setup, questions: int) -> Iterator[tuple[str, list[KnownSequence]]]:
    for asked in asked_sets(setup, min(setup.settings.questions, questions)):
        ids = [((*one.ids, *one.answer_ids), len(one.ids)) for one in asked.questions]
        yield asked.name, [KnownSequence(listed, tuple(range(start, len(listed)))) for listed, start in ids]


# Which sources are pooled


def check_sequences(setup: Setup, probe: str, questions: int) -> dict[str, list[KnownSequence]]:
    """Other sequences of each source; none of a user's questions."""
    if any(map(is_checkable, setup.data.values())):
        return {}
    other = replace(setup, settings=replace(setup.settings, seed=seed_of(SKILL, setup.settings.seed)))
    return known_sequences(other, probe, questions)


def source_checks(table: Table) -> Table:
    """Of each source how many answers of the check are right, how likely by guessing, and whether the model is able to
    do better; empty in runs without the check."""
    right = table[table.rule == SKILL].groupby("task", observed=True).correct
    found = right.agg(["sum", "size"]).set_axis(["right in check", "checked"], axis=1).astype(int)
    p = [p_by_guessing(own, n, GUESSING.get(str(source), 0.0)) for source, own, n in found.itertuples()]
    level = LEVEL / max(1, len(found))  # Bonferroni: a guesser passes in any source in 5 % of the runs
    return found.assign(p=p, able=[one < level for one in p])


def of_able_sources(table: Table) -> Table:
    """The answers of the sources that the model can do, or of all where it can do none."""
    asked = table[table.rule != SKILL]
    checks = source_checks(table)
    kept = asked[~asked.task.isin(checks.index[~checks.able.astype(bool)])]
    return asked if kept.empty else kept


class _AllOrNone(ProbeFields, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        unset = [getattr(self, name) is UNSET for name in self.__struct_fields__]
        if any(unset) and not all(unset):
            raise ValueError("some of its evidence is missing")


def known_evidence(types: FieldTypes) -> type[ProbeFields]:
    """None of these fields in a record of the check, all of them in any other."""
    return struct_of({name: kind | UnsetType for name, kind in types.items()}, _AllOrNone)


# The sources


def _short_words(setup: Setup) -> list[str]:
    words = sorted({word for listed in setup.words.values() for word in listed})
    return one_token_words(setup.asker.tokenizer, words)


def _copies(setup: Setup) -> Callable[[int], KnownSequence]:
    put = partial(ask, setup.asker.tokenizer, setup.asker.mask, "copy", WORDS_COPIED, _short_words(setup))

    def draw(number: int) -> KnownSequence:
        puzzle = put(seed_of(COPY, setup.settings.seed, number))
        (right,) = puzzle.puzzle.answers
        ids = (*puzzle.ids[: -len(right)], *right)
        return KnownSequence(ids, tuple(range(len(ids) - len(right), len(ids))))

    return draw


def _recalls(setup: Setup) -> Callable[[int], KnownSequence]:
    words = recall_words(setup.asker.tokenizer, setup.words, setup.settings.held_out, PAIRS)

    def draw(number: int) -> KnownSequence:
        pairs = list_of_point(words, PAIRS, setup.settings.seed, number)
        asked = pairs[python_random("known recall", setup.settings.seed, number).randrange(PAIRS)]
        ids, rows = encode_answers(setup.asker.tokenizer, pairs, asked, "right", setup.asker.chat)
        return KnownSequence(ids[: rows[-1].stop], tuple(rows[-1]))

    return draw


def _markov_lines(setup: Setup) -> Callable[[int], KnownSequence]:
    """Each sequence has a vocabulary of its own: which word is which state is drawn for it."""
    from maskwise.tasks.markov_source import small_chain

    chain, words, tokenizer = small_chain(), _short_words(setup), setup.asker.tokenizer
    if len(words) < chain.states:
        raise UserError(f"{len(words)} words are one token in this tokenizer, {chain.states} are needed")

    def draw(number: int) -> KnownSequence:
        named = python_random("markov words", setup.settings.seed, number).sample(words, chain.states)
        generator = torch_generator("markov", setup.settings.seed, number)
        line = chain.sample(1, WORDS_SEEN + WORDS_ASKED, generator)[0].tolist()
        states = tuple(tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in named)
        ids = tuple(tokenizer("Words: " + " ".join(named[state] for state in line))["input_ids"])
        if ids[-len(line) :] != tuple(states[state] for state in line):
            raise UserError("this tokenizer joins the words of a line")
        return KnownSequence(ids, tuple(range(len(ids) - WORDS_ASKED, len(ids))))

    return draw
