"""Numbers of relevant examples in few-shot questions: a part of the condition, with results for each number.

The paper's number is 10, and its way is one context per task: every test point sees the same examples. Records of that
number say nothing of it, as they always have. With any other number the examples are drawn afresh for each question,
and the condition ends in "relevant": n. A run may ask several numbers. Baselines, scores and figures never mix them:
formulas, sentences and sections get the records or entries of one number, with the "relevant" entry taken out.

A score's plain name (`locality`) is that of the paper's number where it was asked, else of the largest number asked;
every other number n has the score `locality_n`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType, structs

from maskwise.probes.section import Entry, Shown, Summary
from maskwise.records.groups import GroupedRecords, conditions_of
from maskwise.records.record import Condition, Record, condition_order
from maskwise.support.typed import Count

PAPER_RELEVANT = 10
RELEVANT = "relevant"
FEW_SHOT = {RELEVANT: Count | UnsetType}  # of the conditions of probes asked with several numbers of relevant examples


Conditioned = TypeVar("Conditioned", Record, Entry)
RelevantCount = int | None  # None: the paper's, which conditions do not name
Baseline = Callable[[Condition, Sequence[Condition]], Condition | None]


def labelled(condition: Condition, relevant: int) -> Condition:
    """The condition of a question with so many relevant examples."""
    return condition if relevant == PAPER_RELEVANT else {**condition, RELEVANT: relevant}


def one_context_per_task(relevant: int) -> bool:
    return relevant == PAPER_RELEVANT


def number_of(condition: Mapping[str, Any]) -> RelevantCount:
    return condition.get(RELEVANT)


def unlabelled(condition: Condition) -> Condition:
    return {name: value for name, value in condition.items() if name != RELEVANT}


def in_order(numbers: Iterable[RelevantCount]) -> list[RelevantCount]:
    """Each number once, the main one first: the paper's, then the larger before the smaller."""
    return sorted(set(numbers), key=lambda number: (number is not None, -(number or 0)))


def main_of(relevant: Sequence[int]) -> int:
    """The number of relevant examples for probes that are asked with one number only."""
    return PAPER_RELEVANT if PAPER_RELEVANT in relevant else max(relevant)


def numbers_in(found: Iterable[Conditioned]) -> list[RelevantCount]:
    """The numbers of records or entries, the main one first."""
    asked = conditions_of(found) if isinstance(found, GroupedRecords) else (one.condition for one in found)
    return in_order(map(number_of, asked))


def with_number(found: Sequence[Conditioned], number: RelevantCount) -> Sequence[Conditioned]:
    """The records or entries of one number, their conditions (also that of the baseline) no longer naming it."""
    if isinstance(found, GroupedRecords):
        same = (group for group in found.groups if number_of(group.condition) == number)
        plain = (group if number is None else group.under(unlabelled(group.condition)) for group in same)
        return GroupedRecords(plain)  # type: ignore[return-value]  # of records, as it was given
    return [_unnamed(one) for one in found if number_of(one.condition) == number]


def main_records(records: Sequence[Conditioned]) -> Sequence[Conditioned]:
    """The records or entries of the main number."""
    return with_number(records, numbers_in(records)[0]) if records else []


def with_baselines(conditions: Iterable[Condition], baseline: Baseline) -> list[tuple[Condition, Condition | None]]:
    """Each condition in order, the main number's first, with the one it is compared with, of the same number; None
    where that is none or the condition itself."""
    found: list[tuple[Condition, Condition | None]] = []
    asked = sorted(conditions, key=condition_order)
    for number in in_order(map(number_of, asked)):
        same = [condition for condition in asked if number_of(condition) == number]
        plain = [unlabelled(condition) for condition in same]
        for condition, bare in zip(same, plain, strict=True):
            before = baseline(bare, plain)
            found.append((condition, None if before in (None, bare) else same[plain.index(before)]))
    return found


def _unnamed(one: Conditioned) -> Conditioned:
    if RELEVANT not in one.condition:
        return one
    plain = structs.replace(one, condition=unlabelled(one.condition))
    if isinstance(plain, Entry) and plain.paired is not UNSET:
        paired = structs.replace(plain.paired, baseline=unlabelled(plain.paired.baseline))
        return structs.replace(plain, paired=paired)
    return plain


def in_words(number: RelevantCount) -> str:
    count = PAPER_RELEVANT if number is None else number
    return f"{count} example{'s' if count != 1 else ''}"


def score_name(rule: str, number: RelevantCount, is_main: bool) -> str:
    return rule if is_main else f"{rule}_{PAPER_RELEVANT if number is None else number}"


@dataclass(frozen=True)
class WithNumber:
    """A run as a section sees it (`Shown`), with the entries of one number of relevant examples alone."""

    shown: Shown
    number: RelevantCount

    @property
    def summary(self) -> Summary:
        return self.shown.summary

    @property
    def is_autoregressive(self) -> bool:
        return self.shown.is_autoregressive

    def entries(self, probe: str) -> list[Entry]:
        return list(with_number(self.shown.entries(probe), self.number))
