"""Word sources of `--words`: the paper's sixteen tasks, our sets of unfamiliar words, or a user's file.

A set is a pair of kinds: the right option is a word of the first, the two wrong ones are words of the second. The words
of `unfamiliar-1` (for development) and `unfamiliar-2` (for confirmation), twelve sets each, stand neither in words.json
nor in a few-shot document that the embedded models were trained on; training prose is exempt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from maskwise.support.errors import UserError
from maskwise.support.files import parse_json, read_json
from maskwise.support.nearest import did_you_mean
from maskwise.tasks.rules import NUMBER_RULES, TASKS, Task, WordRule
from maskwise.tasks.words import REMEDY, Words, checked_list, load_words, with_lists

PAPER_WORDS = "paper"
UNFAMILIAR = ("unfamiliar-1", "unfamiliar-2")
FORM = 'word sets are a JSON object {"sets": [[kind, kind], ...], "kinds": {kind: [word, ...]}}'


@dataclass(frozen=True)
class WordSet:
    """The right option is one of `targets`, the two wrong ones are of `others`."""

    target: str
    other: str
    targets: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.target} among {self.other}"


@dataclass(frozen=True)
class WordSource:
    """The word lists of a run and the tasks that are made of them."""

    words: Words
    tasks: tuple[Task, ...] = TASKS


def load_word_source(named: str | Path | None = None) -> WordSource:
    """The source that `--words` names. A file holds word sets, or lists that replace some of the paper's categories."""
    if named is None or str(named) == PAPER_WORDS:
        return WordSource(load_words())
    if str(named) in UNFAMILIAR:
        return of_sets(load_sets(str(named)))
    path = Path(named)
    if not path.exists() and path.suffix != ".json":
        names = (PAPER_WORDS, *UNFAMILIAR)
        raise UserError(f"unknown words {str(named)!r}{did_you_mean(str(named), names)}, or a JSON file of your own")
    content = read_json(path, REMEDY)
    if isinstance(content, dict) and "sets" in content:
        return of_sets(_checked_sets(path, content))
    return WordSource(with_lists(path, content))


def load_sets(name: str) -> tuple[WordSet, ...]:
    """The twelve sets of `unfamiliar-1` or `unfamiliar-2`, in a fixed order."""
    content = parse_json(resources.files("maskwise.tasks").joinpath(f"{name}.json").read_text(encoding="utf-8"))
    words = {kind: tuple(listed) for kind, listed in content["kinds"].items()}
    return tuple(WordSet(target, other, words[target], words[other]) for target, other in content["sets"])


def of_sets(sets: tuple[WordSet, ...]) -> WordSource:
    """A task for each set, among distractors of either number rule in turn. Probes without tasks keep our own lists."""
    words = load_words()
    for one in sets:
        words |= {one.target: list(one.targets), one.other: list(one.others)}
    rules = [WordRule(one.name, (one.target,), (one.other,)) for one in sets]
    return WordSource(words, tuple(Task(rule, NUMBER_RULES[n % len(NUMBER_RULES)]) for n, rule in enumerate(rules)))


def _checked_sets(path: Path, content: Mapping[str, object]) -> tuple[WordSet, ...]:
    pairs, kinds = content["sets"], content.get("kinds")
    if not isinstance(pairs, list) or not pairs or not isinstance(kinds, dict):
        raise UserError(f"{path}: {FORM}")
    words = {kind: tuple(checked_list(path, kind, listed)) for kind, listed in kinds.items()}
    found: list[WordSet] = []
    for number, pair in enumerate(pairs, 1):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(kind, str) for kind in pair):
            raise UserError(f"{path}: set {number} must be a pair of kinds, as [right kind, wrong kind]")
        target, other = pair
        if missing := {target, other} - words.keys():
            raise UserError(f'{path}: set {number} names "{min(missing)}", which "kinds" has not: add its words')
        shared = {word.casefold() for word in words[target]} & {word.casefold() for word in words[other]}
        if shared:
            raise UserError(f'{path}: set {number}: "{min(shared)}" is of both kinds: leave it out of one')
        found.append(WordSet(target, other, words[target], words[other]))
        if pairs.index(pair) < number - 1:
            raise UserError(f'{path}: "{found[-1].name}" stands twice in "sets": leave one out')
    unused = words.keys() - {kind for one in found for kind in (one.target, one.other)}
    if unused:
        raise UserError(f'{path}: no set names the kind "{min(unused)}": add a set or leave the kind out')
    return tuple(found)
