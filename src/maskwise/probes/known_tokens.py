"""Sequences whose right tokens are known, for confidence, the probe that looks at single tokens.

    copy       the line of words that a few-shot puzzle asks to copy
    recall     the value of one pair of a list
    embedded   few-shot questions of the 16 tasks (tasks/checkable.py)
    markov     words of a Markov source (tasks/markov_source.py): WORDS_SEEN of them, then the words that are asked

A user's questions (--data prompts=, gsm8k=) take the place of all of them. An answer's canvas has as many masks as the
right answer has tokens, so that every position has one right token.

A source that the model cannot do says nothing about its decoding. So the model is also asked for the first token of as
many other sequences of each source, in one pass (`skill_units`): these decide which sources are pooled, and nothing
else is measured on them. A user's questions are always pooled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from maskwise.probes.checked import asked_sets
from maskwise.probes.probe import Answerer, Setup, Unit, units_for
from maskwise.records.record import Condition, Evidence, FieldTypes, ProbeFields, Record, struct_of
from maskwise.scoring.claims import LEVEL
from maskwise.scoring.intervals import by_task
from maskwise.scoring.numbers import percent
from maskwise.scoring.skill import Skill, task_skill
from maskwise.support.errors import UserError
from maskwise.support.grouping import grouped
from maskwise.support.randomness import python_random, seed_of, torch_generator
from maskwise.tasks.checkable import CHECKED, EMBEDDED
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
    """A prompt of a known sequence; `number` tells sequences of equal tokens apart."""

    known: KnownSequence | None = None
    number: int = 0


def known_prompt(known: KnownSequence, mask_id: int, number: int) -> KnownPrompt:
    ids = known.masked(mask_id)
    return KnownPrompt(ids, known.asked[0], known.right[0], len(known.asked), known=known, number=number)


def known_units(
    setup: Setup,
    probe: str,
    source: str,
    listed: Sequence[KnownSequence],
    condition: Condition,
    answer: Answerer | None = None,
    cost: int = 1,
) -> list[Unit]:
    """The sequences of a source under one condition, with all their asked places masked."""
    asker = setup.asker

    def made(point: int, _: Condition) -> tuple[Prompt, str]:
        known = listed[point]
        return known_prompt(known, asker.mask, point), asker.tokenizer.decode(known.right)

    return units_for(probe, source, len(listed), [condition], made, answer, cost)


def known_sequences(setup: Setup, probe: str) -> dict[str, list[KnownSequence]]:
    """The sequences of each source, at most `questions` of each; a source that the model cannot be asked is noted."""
    count = min(setup.settings.points, setup.own["questions"])
    if any(name in CHECKED for name in setup.data):
        return {name: listed[:count] for name, listed in _of_questions(setup)}
    found = dict(_of_questions(setup))
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


def _of_questions(setup: Setup) -> Iterator[tuple[str, list[KnownSequence]]]:
    for asked in asked_sets(setup):
        ids = [((*one.ids, *one.answer_ids), len(one.ids)) for one in asked.questions]
        yield asked.name, [KnownSequence(listed, tuple(range(start, len(listed)))) for listed, start in ids]


# Which sources are pooled


def skill_units(setup: Setup, probe: str, condition: Condition) -> Iterator[Unit]:
    """The first token of other sequences of each source, predicted in one pass with the whole answer masked."""
    if any(name in CHECKED for name in setup.data):
        return
    other = replace(setup, settings=replace(setup.settings, seed=seed_of(SKILL, setup.settings.seed)))
    for source, listed in known_sequences(other, probe).items():
        yield from known_units(setup, probe, source, listed, condition)


def source_skills(records: Sequence[Record]) -> dict[str, Skill]:
    """Of each source, whether the model is shown to do better than guessing; empty in runs without the check."""
    right = by_task((record.task, record.correct) for record in records if _is_check(record))
    level = LEVEL / max(1, len(right))  # Bonferroni: a guesser passes in any source in 5 % of the runs
    return {
        source: task_skill(int(found.sum()), len(found), GUESSING.get(source, 0.0), level=level)
        for source, found in right.items()
    }


def pooled(records: Sequence[Record]) -> list[Record]:
    """The records that are scored: of the sources that the model can do, or of all where it can do none."""
    kept = [record for record in records if record.evidence and not _is_check(record)]
    unable = {source for source, skill in source_skills(records).items() if not skill.shown}
    return [record for record in kept if record.task not in unable] or kept


class _AllOrNone(ProbeFields, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        unset = [getattr(self, name) is UNSET for name in self.__struct_fields__]
        if any(unset) and not all(unset):
            raise ValueError("some of its evidence is missing")


def known_evidence(types: FieldTypes) -> type[ProbeFields]:
    """The evidence of confidence: none of these fields in a record of the check, all of them in any other."""
    return struct_of({name: kind | UnsetType for name, kind in types.items()}, _AllOrNone)


def _is_check(record: Record) -> bool:
    return SKILL in record.condition.values()


def by_source(
    records: Sequence[Record], condition: Condition, measured: Callable[[Sequence[Record]], Evidence]
) -> dict[str, Evidence]:
    """What is measured of each source under one condition, and whether the model can do the source."""
    skills = source_skills(records)
    groups = grouped((one.task, one) for one in records if one.evidence and one.condition == condition)
    return {source: measured(group) | {SKILL: skills.get(source)} for source, group in groups.items()}


def able_sources(found: Mapping[str, Evidence]) -> list[str]:
    return [source for source, one in found.items() if one[SKILL] is None or one[SKILL].shown]


def scored_in_words(found: Mapping[str, Evidence]) -> str:
    """`scored: embedded, recall; ` where a source (`by_source`) is left out."""
    able = able_sources(found)
    return f"scored: {', '.join(able)}; " if 0 < len(able) < len(found) else ""


def sources_in_words(
    found: Mapping[str, Evidence], what: str, measured: Callable[[Mapping[str, Any]], str]
) -> list[str]:
    """Which of several sources are pooled, which are left out and why, and what was measured of each."""
    if len(found) < 2:
        return []
    able, each = able_sources(found), "; ".join(f"{source} {measured(one)}" for source, one in found.items())
    out = ", ".join(
        f"{source} ({one[SKILL].right} of {one[SKILL].n} right; guessing {percent(one[SKILL].guessing)})"
        for source, one in found.items()
        if source not in able
    )
    lines = [f"{what}, source by source: {each}"]
    if able:
        why = "left out, because the model is not shown to do better than guessing on other sequences of that source"
        return [f"figures are over {', '.join(able)}; {why}: {out}", *lines] if out else lines
    warning = (
        f"the model is not shown to do better than guessing on any source, {out}; the figures are over all of them "
        "and say little about its decoding: ask your own questions (--data prompts=FILE)"
    )
    return [warning, *lines]


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
