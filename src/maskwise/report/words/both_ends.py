"""The conclusion of a comparison: accuracy with 2 and with the most masks, before and after.

A mitigation counts only if accuracy and likelihood with the most masks both rise: a smaller loss may come from a lower
accuracy with 2 masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET, structs

from maskwise.probes.examples import main_records
from maskwise.records.groups import values_of
from maskwise.records.record import Record
from maskwise.report.readings import Reading, differing_settings
from maskwise.report.words.mask_chart import MaskChange, leading
from maskwise.scoring.changes import accuracy_change, loss_recovered, mean_change, of_probe, paired_values
from maskwise.scoring.numbers import NBSP, between, nats_between, percent, points_between, tenths
from maskwise.scoring.scores import Score, direction, mean_score

VERBS = {1: "rises", 0: "does not rise significantly", -1: "falls"}


@dataclass(frozen=True)
class Judgement:
    """Changes with the most masks. `nll`: of the negative log-likelihood of the right answer; no value where there are
    no likelihoods, and then accuracy decides alone."""

    masks: int
    accuracy: Score
    nll: Score
    loses_more: bool = False  # the loss to masks is significantly larger

    @property
    def rises(self) -> bool:
        return direction(self.accuracy) > 0

    @property
    def counts(self) -> bool:
        return self.rises and not self.loses_more and (self.nll.value is None or direction(self.nll) < 0)

    @property
    def reason(self) -> str:
        """What rises and what does not, each with its change and 95 % interval."""
        if self.accuracy.value is None:
            return "accuracy was not compared"
        change = points_between(self.accuracy.value, self.accuracy.low, self.accuracy.high)
        accuracy = f"accuracy {VERBS[direction(self.accuracy)]}, {change}"
        if self.nll.value is None:
            return f"{accuracy}; likelihoods were not measured"
        nats = nats_between(self.nll.value, self.nll.low, self.nll.high)
        unknown = " (no interval)" if self.nll.low is None else ""
        return f"{accuracy}; likelihood {VERBS[-direction(self.nll)]}, negative log-likelihood {nats}{unknown}"

    @property
    def sentence(self) -> str:
        counts = "counts" if self.counts else "does not count"
        more = "; its loss to masks is larger" if self.rises and self.loses_more else ""
        return f"As a mitigation it {counts}: with {self.masks} masks {self.reason}{more}."


def verdict(first: Reading, second: Reading) -> str:
    """Accuracy at both ends in the two models, and whether the second loses less to masks. That is said only if its
    accuracy with the most masks is higher. Empty where the two were not asked the same."""
    apart = difference_of_changes(first, second)
    if apart is None:
        return ""
    judged = replace(judged_at_most_masks(first, second, apart.count), loses_more=apart.detected and apart.points < 0)
    return f"{_losses(first.label, second.label, apart, judged.rises)} {_ends(first, second, apart)} {judged.sentence}"


def judged_at_most_masks(first: Reading, second: Reading, masks: int) -> Judgement:
    before, after = ([r for r in _lead_records(one) if r.condition["masks"] == masks] for one in (first, second))
    return Judgement(masks, accuracy_change(before, after, lambda c: True), mean_change(before, after, "nll"))


def _losses(first: str, second: str, apart: MaskChange, rises: bool) -> str:
    masks = f"when {apart.count} masks follow the question instead of 2"
    if apart.undecided:
        unknown = f"whether {second} loses more or less than {first} {masks}"
        return f"Inconclusive {unknown}: too few questions ({apart.interval}{NBSP}points, paired)."
    if not apart.detected:
        most = f"at most {tenths(apart.at_most)}{NBSP}points"
        return f"No difference was detected between the losses of {second} and {first} {masks} ({most})."
    if apart.points > 0 and not rises:
        return f"Accuracy with {apart.count} masks does not rise significantly from {first} to {second}."
    less = "less" if apart.points > 0 else "more"
    return f"{second} loses {apart.amount} {less} than {first} {masks} ({apart.interval}, paired)."


def _ends(first: Reading, second: Reading, apart: MaskChange) -> str:
    """`Accuracy goes from 80.0 % to 79.0 % with 2 masks and from 50.0 % to 70.0 % with 200 (67 % of the loss ...).`"""
    found = loss_recovered(_lead_records(first), _lead_records(second))
    if found.ends is UNSET:
        return ""
    (few, many), (few_after, many_after) = found.ends["before"], found.ends["after"]
    share = f" ({recovered_in_words(found)})" if found.value is not None else ""
    return (
        f"Accuracy goes from {percent(few, 1)} to {percent(few_after, 1)} with 2 masks and from {percent(many, 1)} to "
        f"{percent(many_after, 1)} with {apart.count}{share}."
    )


def recovered_in_words(share: Score) -> str:
    if share.value is None:
        return "too little was lost to state a share recovered"
    interval = "" if share.low is None or share.high is None else f", {between(share.low, share.high)}"
    return f"{percent(share.value)} of the loss recovered{interval}"


def _lead_records(reading: Reading) -> Sequence[Record]:
    return main_records([record for name in leading(reading)[:1] for record in of_probe(reading.run, name)])


def difference_of_changes(first: Reading, second: Reading) -> MaskChange | None:
    """What the most masks do to the second model less what they do to the first, question by question; None where they
    were not asked the same."""
    if differing_settings([first, second]):
        return None
    sides = []
    for reading in (first, second):
        records = _lead_records(reading)
        counts = values_of(records, "masks")
        if 2 not in counts or counts[-1] == 2:
            return None
        few, many = ([r for r in records if r.condition["masks"] == count] for count in (2, counts[-1]))
        before = {(record.task, record.point): float(record.correct) for record in few}
        changed = [
            structs.replace(r, correct=float(r.correct) - before[r.task, r.point])
            for r in many
            if (r.task, r.point) in before
        ]
        sides.append((counts[-1], changed))
    (most, ours), (same, theirs) = sides
    strata = paired_values(theirs, ours, "correct")
    if most != same or not strata:
        return None
    score = mean_score(strata, bounds=(-2.0, 2.0))
    if score.value is None or score.low is None or score.high is None:
        return None
    return MaskChange(100 * score.value, 100 * score.low, 100 * score.high, most)
