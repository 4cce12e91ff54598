"""confidence (ours): is 0.9 right nine times out of ten?

Sequences whose right tokens are known (probes/known_tokens.py: copied words, recalled values, few-shot questions, words
of a Markov source; or a user's questions) are decoded greedily, one token per step, under several strategies. After
each step the right token is written in place of a wrong one, so that every prediction sees a right context; a decoder
sees its own errors too. Looked at are the commits, and all masked positions when all, 3/4, 1/2 and 1/4 of the masks are
left: commits are selected by their confidence, so their calibration differs from that of the positions they are chosen
from. On the Markov source a prediction is right if it is the word that was drawn, so exact posteriors are calibrated.

Sources that the model cannot do (`known_tokens.skill_units`) are left out of all figures.

Measures (scoring/reliability.py), each over sequences: the calibration error without its small-sample bias, mean
confidence less share right, AUROC, the temperature that minimises the negative log-likelihood, and the least confidence
at which nine of ten are right, chosen on one half of the sequences and verified on the other.

Condition: {"rule": "low-confidence"}, or "skill" for the check of the sources, which has no evidence. Evidence {"sure",
"right", "share"}: the confidence of each commit, whether it was right and the share still masked, {"nll"}: the sums of
-log p(right token) at TEMPERATURES, and the same of all masked positions under "all_...". In the summary an entry is
{"rule", "of": "commits" or "masked positions"}.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import UNSET

from maskwise.probes import known_tokens
from maskwise.probes.known_tokens import SKILL, known_sequences, known_units, scored_in_words, skill_units
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Probe, Setup, Unit
from maskwise.probes.section import Entry, Point, Section, Shown, as_share, in_unit, mark_place, without_accuracy
from maskwise.records.record import Evidence, Record
from maskwise.scoring import reliability
from maskwise.scoring.intervals import ENDS
from maskwise.scoring.numbers import between, number, percent, points_between, tenths
from maskwise.scoring.reliability import TEMPERATURES, Predictions
from maskwise.tasks.checkable import CHECKED

NAME = "confidence"
STRATEGIES = ("low-confidence", "random", "threshold")
COMMITS, MASKED = "commits", "masked positions"
PREFIX = {COMMITS: "", MASKED: "all_"}  # of the evidence
LOOKED_AT = {"sure": list[float], "right": list[int], "share": list[float], "nll": list[float]}
SHARES = ((0.75, 1.0, "over 3/4"), (0.5, 0.75, "1/2 to 3/4"), (0.25, 0.5, "1/4 to 1/2"), (0.0, 0.25, "up to 1/4"))
FEW_TOKENS = 4  # of an answer: in fewer there are no early and late steps to tell apart
SMALL_GAP = 0.05  # of confidence over accuracy, below which there is nothing to correct
DECODING_COST = 4


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.commits import watch_commits

    for source, listed in known_sequences(setup, NAME).items():
        for rule in setup.own["rules"]:
            answer = partial(watch_commits, rule=rule, seed=setup.settings.seed)
            yield from known_units(setup, NAME, source, listed, {"rule": rule}, answer, DECODING_COST)
    yield from skill_units(setup, NAME, {"rule": SKILL})


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """Commits and all masked positions, an entry each."""
    plain = entry.changed(confidence=UNSET, entropy=UNSET)
    return [plain.changed(condition={**entry.condition, "of": of}, **judged(group, of)) for of in PREFIX]


def judged(group: Sequence[Record], of: str) -> Evidence:
    """Every measure of one kind of predictions; sequences are the records, halves are their even and odd numbers."""
    prefix = PREFIX[of]
    sure, right, share, nll = ([record.evidence[f"{prefix}{name}"] for record in group] for name in LOOKED_AT)
    found = Predictions.of(sure, right)
    masked = np.array([value for listed in share for value in listed])
    chosen = reliability.choose_threshold(found, np.array([record.point % 2 == 0 for record in group]))
    estimates = {
        "error": reliability.calibration_error(found),
        "gap": reliability.overconfidence(found),
        "auroc": reliability.auroc(found),
        "temperature": reliability.best_temperature(np.array(nll, dtype=float)),
        "verified": chosen.verified,
        "right": found.share_right(),
    }
    spread = {name: value for key, one in estimates.items() for name, value in one.named(key).items()}
    return spread | {
        "predictions": len(found.sure),
        "sure": float(found.sure.mean()),
        "threshold": chosen.threshold,
        "above": chosen.above,
        "chosen_on": chosen.chosen_on,
        "verified_on": chosen.verified_on,
        "bins": reliability.reliability(found),
        "by_share": [
            {"share": words, "n": int(here.sum()), **reliability.overconfidence(found.where(here)).named("gap")}
            for low, high, words in SHARES
            for here in [(masked > low) & (masked <= high)]
            if here.sum() >= reliability.FEWEST
        ],
    }


def of_sources(records: Sequence[Record]) -> dict[str, Evidence]:
    """Measures of all masked positions under the first strategy."""
    first = next((record.condition for record in records if record.evidence), {})
    kept = ("predictions", "sure", "right", "error", "error_low", "error_high", "auroc", "temperature")

    def measured(group: Sequence[Record]) -> Evidence:
        return {name: value for name, value in judged(group, MASKED).items() if name in kept}

    return known_tokens.by_source(records, first, measured)


def _entries(shown: Shown, of: str) -> dict[str, Entry]:
    return {str(entry.condition["rule"]): entry for entry in shown.entries(NAME) if entry.condition["of"] == of}


def _drawn(shown: Shown) -> dict[str, Entry]:
    """Curves: the commits of each strategy, and the masked positions of the first."""
    commits, masked = _entries(shown, COMMITS), _entries(shown, MASKED)
    drawn = commits | {f"all {MASKED}": one for one in [*masked.values()][:1]}
    return {name: without_accuracy(entry) for name, entry in drawn.items()}


def _diagram(shown: Shown) -> list[Point]:
    return [
        Point(name, one["sure"], entry.changed(right=one["right"], right_low=one["low"], right_high=one["high"]))
        for name, entry in _drawn(shown).items()
        for one in entry.measures["bins"]
    ]


def _by_share(shown: Shown) -> list[Point]:
    names, drawn = [words for _, _, words in SHARES], _drawn(shown)
    return [
        Point(name, mark_place(names.index(one["share"]), turn, len(drawn)), entry.changed(**_in_points(one)))
        for turn, (name, entry) in enumerate(drawn.items())
        for one in entry.measures["by_share"]
    ]


def early_and_late(shown: Shown) -> list[str]:
    """The first and the last of each curve, the one of the first panel as the heading, and what to do."""
    drawn = _drawn(shown)
    if not drawn:
        return ["not run"]
    lines = []
    for name, entry in drawn.items():
        listed = entry.measures["by_share"]
        ends = " and ".join(
            f"{points_between(one['gap'], one['gap_low'], one['gap_high'])} with {one['share']} masked"
            for one in listed[:1] + listed[1:][-1:]
        )
        cancel = ": the two errors partly cancel in the average" if _opposite(listed) else ""
        lines.append(f"confidence minus share right ({name}) is {ends}{cancel}")
    every = [*drawn.values()][-1]
    return [*lines, _pace_advice(every.measures["by_share"], every.masks)]


def _opposite(listed: Sequence[Mapping[str, Any]]) -> bool:
    """Whether early and late predictions are shown to be off in opposite directions."""
    ends = sorted((one["gap_low"] or 0.0, one["gap_high"] or 0.0) for one in (*listed[:1], *listed[-1:]))
    return bool(ends) and ends[0][1] < 0 < ends[-1][0]


def _pace_advice(listed: Sequence[Mapping[str, Any]], tokens: float) -> str:
    """From all masked positions, which no strategy has selected. tokens: of an answer, mean."""
    if tokens < FEW_TOKENS:
        cannot = f"answers of {tokens:g} tokens cannot show whether to start or end slowly"
        return f"what to do: pass questions with longer answers (--data prompts=FILE); {cannot}"
    if len(listed) < 2 or listed[0]["gap_low"] is None or listed[-1]["gap_low"] is None:
        return "what to do: ask more questions (--points); these are too few to compare early with late steps"
    early, late = listed[0], listed[-1]
    for worse, other, which in ((early, late, "first"), (late, early, "last")):
        if worse["gap_low"] > other["gap_high"]:
            return f"what to do: commit fewer tokens in the {which} steps, where the confidence misleads most"
    return "what to do: keep one pace; the confidence is not shown to mislead more early than late"


def _in_points(one: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: None if one[name] is None else 100 * one[name] for name in ("gap", "gap_low", "gap_high")}


def conclusions(shown: Shown) -> list[str]:
    """How far confidence and accuracy lie apart, what confidence is good for, and which threshold to decode with."""
    commits, masked = ([*_entries(shown, of).values()][:1] for of in (COMMITS, MASKED))
    if not commits or not masked:
        return ["not run"]
    one, every, rule = commits[0].measures, masked[0].measures, commits[0].condition["rule"]
    threshold = _entries(shown, COMMITS).get("threshold")
    return [
        *_nine_of_ten(one, f"commits ({rule})"),
        f"commits ({rule}) {_apart(one)}",
        f"all masked positions {_apart(every)}",
        "calibration error (root mean square distance from the diagonal, of either sign, without its small-sample "
        f"bias): {_error(one)} for commits, {_error(every)} for masked positions",
        f"confidence ranks right above wrong predictions with AUROC {percent(every['auroc'])} "
        f"({between(every['auroc_low'], every['auroc_high'])}): "
        + ("it can choose what to commit" if (every["auroc_low"] or 0.0) > 0.5 else "not shown to beat chance, 50 %"),
        _temperature(every),
        *known_tokens.sources_in_words(_sources(shown), "share right and mean confidence", _right_and_sure),
        threshold_advice(every, *(threshold.measures["by_share"][-1:] if threshold else ())),
    ]


def _nine_of_ten(measured: Mapping[str, Any], what: str) -> list[str]:
    """Of the highest tenth of the confidence scale; nothing where there are too few predictions."""
    listed, off = measured["by_share"], list[str]()
    for one, when in zip((*listed[:1], *listed[1:][-1:]), ("early", "late"), strict=False):
        if one["gap_low"] is not None and (one["gap_low"] > 0 or one["gap_high"] < 0):
            side = f"{'above' if one['gap'] > 0 else 'below'} {'it' if off else 'the share right'}"
            off.append(f"{tenths(100 * abs(one['gap']))} points {side} {when} ({one['share']} masked)")
    apart = f". Over commits of all confidences the mean confidence is {' and '.join(off)}" if off else ""
    top = [one for one in measured["bins"] if one["sure"] >= 0.9]
    said = f"of {what} at a confidence of 0.9 or more are right"
    return [f"{percent(one['right'])} {said} ({between(one['low'], one['high'])}){apart}" for one in top]


def _error(measured: Mapping[str, Any]) -> str:
    value, low, high = (100 * (measured[f"error{end}"] or 0.0) for end in ENDS)
    return f"{tenths(value)} points ({tenths(low)} to {tenths(high)})"


def _sources(shown: Shown) -> Mapping[str, Evidence]:
    return shown.summary.extras.get("confidence_by_source", {})


def _right_and_sure(one: Mapping[str, Any]) -> str:
    return f"{percent(one['right'])} and {percent(one['sure'])}"


def _apart(measured: Mapping[str, Any]) -> str:
    low, high = measured["gap_low"], measured["gap_high"]
    verdict = "not shown to be over- or underconfident on average"
    if _opposite(measured["by_share"]):
        verdict = "off early and late in opposite directions, which partly cancel in this average"
    elif low is not None and low > -SMALL_GAP and high < SMALL_GAP:
        verdict = "calibrated on average to within 5 points"
    elif low is not None and (low > 0 or high < 0):
        verdict = f"{'over' if low > 0 else 'under'}confident on average"
        verdict += "" if low > SMALL_GAP or high < -SMALL_GAP else "; whether by 5 points or more is not shown"
    ends = "" if low is None else f" (confidence minus share right: {points_between(measured['gap'], low, high)})"
    shares = f"{percent(measured['right'])} right at a mean confidence of {percent(measured['sure'])}"
    return f"are {shares}, {verdict}{ends}"


def _estimate(measured: Mapping[str, Any], name: str) -> str:
    value, low, high = (number(measured[name + end]) for end in ENDS)
    return f"{value} ({low} to {high})"


def _temperature(measured: Mapping[str, Any]) -> str:
    value, low, high = (measured[f"temperature{end}"] for end in ENDS)
    says = f"dividing the logits by {_estimate(measured, 'temperature')} minimises the negative log-likelihood"
    if value >= TEMPERATURES[-1] or value <= TEMPERATURES[0]:
        return f"{says}: the end of the range tried, so the confidence carries little information"
    if low is None or low <= 1 <= high:
        return f"{says}: no change is called for"
    return f"{says}: its probabilities are {'too sharp (overconfident)' if value > 1 else 'too flat (underconfident)'}"


def threshold_advice(measured: Mapping[str, Any], late: Mapping[str, Any] | None = None) -> str:
    """From all masked positions, because `threshold` commits every one that is sure enough. late: its last commits."""
    tau, low, high = (measured[name] for name in ("threshold", "verified_low", "verified_high"))
    if tau is None:
        return "what to do: commit one token per step; at no confidence are nine of ten masked positions right"
    if measured["verified"] is None:
        return f"what to do: ask more questions (--points); too few predictions reach tau={tau:g} to check it"
    shown = "shown" if (low or 0.0) >= 0.9 else "not reached" if (high or 0.0) < 0.9 else "not yet shown"
    found = (
        f"{percent(measured['verified'])} of the predictions at or above tau={tau:g} were right ({between(low, high)})"
        f", on {measured['verified_on']} sequences that were not used to choose it: nine of ten is {shown}. "
        f"{percent(measured['above'])} of the masked positions are that confident. Measured in right contexts: after "
        "the model's own errors expect fewer right predictions"
    )
    if measured["verified"] < 0.9:
        return f"what to do: ask more questions (--points) before you use a threshold. {found}"
    compare = f"maskwise advise --rules low-confidence,threshold:tau={tau:g}"
    if late is not None and (late["gap_low"] or 0.0) > 0:
        shown = "not shown for late commits"
        found += (
            f". In the late commits of threshold ({late['share']} masked) the confidence is too high: "
            f"{points_between(late['gap'], late['gap_low'], late['gap_high'])} above the share right"
        )
    if shown != "shown":
        return f"what to do: compare the candidate tau={tau:g} on your questions before you use it ({compare}). {found}"
    do = f"what to do: decode with --rule threshold --parameter tau={tau:g}"
    return f"{do}. {found}. To compare it with others on your questions: {compare}"


of_answers = partial(
    Section, masks=lambda shown: f"{scored_in_words(_sources(shown))}masks: as many as the right answer has tokens"
)

PROBE = Probe(
    name=NAME,
    group="evidence",
    about="whether predictions are right as often as their probability says (--data prompts=, gsm8k=)",
    condition={"rule": str},
    evidence=known_tokens.known_evidence(
        {prefix + name: kind for prefix in PREFIX.values() for name, kind in LOOKED_AT.items()}
    ),
    units=units,
    takes=lambda data_set: data_set in CHECKED,
    parameters={"questions": 32, "rules": STRATEGIES},
    quick={"questions": 12, "rules": ("low-confidence", "random")},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    scored=known_tokens.pooled,
    measures=measures,
    chance=None,
    extras={"confidence_by_source": of_sources},
    columns={
        "error": "calibration error",
        "gap": "overconfidence",
        "auroc": "AUROC",
        "temperature": "best temperature",
        "threshold": "9 of 10 at",
    },
    sections=(
        of_answers(
            name="reliability",
            title="Is 0.9 right nine times out of ten?",
            question="Answers whose every token is known are decoded under several strategies. How often is a "
            "prediction right that the model gives a probability of 90 %? Commits are the predictions that a strategy "
            "chose; all masked positions are those it chose from.",
            paper="Not in the paper. Every prediction is judged in a right context: after an error the right token is "
            "written. A decoder that goes on from its own errors does worse. Adaptive strategies (threshold, factor; "
            "arXiv 2505.22618) commit by confidence, so they are as good as the confidence.",
            how_to_read="On the diagonal a confidence means what it says. Below it the model is overconfident, and a "
            "threshold commits more wrong tokens than it promises. Tenths with fewer than 10 predictions have no "
            "mark, and the line between marks is no measurement. low-confidence commits the most confident token of a "
            "step; threshold every token of 0.9 or more or, if none reaches it, the most confident one. Sources: "
            "embedded are few-shot questions; recall, values from a list; copy, copied words; markov, words drawn "
            "from a Markov chain. scored: the sources that the model can do.",
            x_label="Confidence",
            at="confidence {}",
            points=_diagram,
            measures=(as_share("right", "Right"),),
            caption="Mark: predictions of a tenth of the scale, at their mean; band: 95 % interval over sequences.",
            says=conclusions,
            diagonal=True,
        ),
        of_answers(
            name="confidence-by-share",
            title="Is it overconfident early or late?",
            question="The same predictions, by the share of the answer that was still masked.",
            how_to_read="Above 0 the confidence is higher than the share of right predictions. In answers of 4 tokens "
            "or more, marks that are highest on the left say that parallel decoding should start slowly, on the right "
            "that it should end slowly.",
            x_label="Share of the answer still masked",
            x_names=("> 3/4", "> 1/2", "> 1/4", "≤ 1/4"),  # for a narrow page
            points=_by_share,
            measures=(in_unit("points", "gap", "Confidence minus share right, points"),),
            caption="Mark: mean; whisker: 95 % interval over sequences.",
            says=early_and_late,
        ),
    ),
)
