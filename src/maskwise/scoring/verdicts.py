"""One rule for every verdict of page, terminal, JSON and card.

LOSS or GAIN      the 95 % interval of a change is without 0
none detected     it contains 0 and excludes a loss of more than 10 points
cannot tell       else, or where the model guesses at the baseline: it has nothing to lose

The lead is fixed before the run (masks; of a model without masks distance) and tested alone at 5 %. Of the other
probes the first estimate that makes a claim is certain by Holm's procedure over all of them. Full stops in the place of
masks are a control: they never lead, are in neither test, and say whether a loss to masks is one to masks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from maskwise.scoring.estimates import LEVEL, Estimate
from maskwise.scoring.intervals import p_by_guessing
from maskwise.scoring.scores import LEAST_SKILL
from maskwise.tasks.episodes import CHANCE

LOSS, GAIN, NONE, CANNOT_TELL = "LOSS", "GAIN", "none detected", "cannot tell"
GUESSING, TOO_FEW, NOT_CERTAIN = "guessing", "too few questions", "not certain after {} comparisons"
MOSTLY, PARTLY = "mostly the masks", "partly the masks"
ANY_TEXT, UNCLEAR = "any text costs as much", "masks or any text: cannot tell"
ONLY_TEXT = "text after the answer costs, masks do not"
ONE_AT_A_TIME, TOGETHER = "one at a time", "may be filled together"
LARGE = 0.1  # a loss that must be excluded before none is said to be detected
FEWEST = 10  # questions for a verdict
COUPLED = 0.05  # nats; by Pinsker two masks as far apart as 16 % in total variation


@dataclass(frozen=True)
class Verdict:
    """`LOSS, mostly the masks`; without a word below ten questions."""

    word: str
    why: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.word, self.why)))


@dataclass(frozen=True)
class Change:
    """A change of accuracy and the accuracy that it is from."""

    change: Estimate
    baseline: Estimate

    @property
    def skill(self) -> str:
        """Of the baseline: guessing, too few questions to tell, or empty where it is above guessing."""
        n, value = self.baseline.n, self.baseline.value or 0.0
        if p_by_guessing(round(value * n), n, CHANCE) < LEVEL:
            return ""
        return GUESSING if value < CHANCE + LEAST_SKILL else TOO_FEW

    @property
    def side(self) -> int:
        return self.change.side if self.change.n >= FEWEST else 0


def verdict(one: Change, comparisons: int = 0) -> Verdict:
    """comparisons: how many there were if Holm's procedure does not call this one certain, else 0."""
    found = one.change
    if found.value is None or found.n < FEWEST:
        return Verdict("", TOO_FEW)
    if one.side:
        word = LOSS if one.side < 0 else GAIN
        return Verdict(CANNOT_TELL, NOT_CERTAIN.format(comparisons)) if comparisons else Verdict(word)
    if one.skill:
        return Verdict(CANNOT_TELL, one.skill)
    excluded = found.low is not None and found.low >= -LARGE
    return Verdict(NONE) if excluded else Verdict(CANNOT_TELL, TOO_FEW)


def verdicts(
    masks: Change | None,
    stops: Change | None = None,
    distance: Change | None = None,
    beyond_stops: Estimate | None = None,
    together: Estimate | None = None,
    claims: Mapping[str, Estimate] | None = None,
) -> dict[str, Verdict]:
    """The verdicts of one model's first screen, by row: masks, stops, distance, together.

    beyond_stops: the change by masks less the change by full stops, question by question. together: what neighbouring
    tokens share, in nats. claims: the first estimate of each other probe that makes one, by probe.
    """
    found: dict[str, Verdict] = {}
    if masks is not None:
        lead = verdict(masks)
        found["masks"] = Verdict(lead.word, lead.why or qualified(lead, masks, stops, beyond_stops))
    if stops is not None:
        found["stops"] = verdict(stops)
    if distance is not None:
        others = {**(claims or {}), "distance": distance.change} if masks is not None else {}
        certain = holm(others)
        found["distance"] = verdict(distance, 0 if certain.get("distance", True) else len(certain))
    if together is not None and together.value is not None:
        found["together"] = side_by_side(together)
    return found


def qualified(lead: Verdict, masks: Change, stops: Change | None, beyond_stops: Estimate | None) -> str:
    """What the control says of the masks' verdict; nothing where it was not asked."""
    if stops is None:
        return ""
    if lead.word in (NONE, GAIN):
        return ONLY_TEXT if stops.side < 0 else ""
    if lead.word != LOSS or beyond_stops is None:
        return ""
    if beyond_stops.side < 0:
        assert masks.change.value is not None
        return MOSTLY if (stops.change.value or 0.0) > masks.change.value / 2 else PARTLY
    return ANY_TEXT if stops.side < 0 else UNCLEAR


def side_by_side(nats: Estimate) -> Verdict:
    """Whether neighbouring masks can be filled in one step."""
    if nats.low is None or nats.high is None:
        return Verdict(CANNOT_TELL, TOO_FEW)
    if nats.low > COUPLED:
        return Verdict(ONE_AT_A_TIME)
    return Verdict(TOGETHER) if nats.high < COUPLED else Verdict(CANNOT_TELL, TOO_FEW)


def holm(claims: Mapping[str, Estimate]) -> dict[str, bool]:
    """Which estimates differ from what they are compared with, at 5 % over all; those without p are left out."""
    ordered = sorted(((one.p, name) for name, one in claims.items() if one.p is not None))
    certain, still = {}, True
    for place, (p, name) in enumerate(ordered):
        still = still and p * (len(ordered) - place) <= LEVEL
        certain[name] = still
    return certain
