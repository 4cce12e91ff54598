"""The comparison of mitigations as a person sees it: a table, a figure, and what it shows.

They are sorted by their speed, the fastest first, and by their accuracy. On the frontier is one that no other beats:
none is at least as fast and more accurate, nor faster and at least as accurate.
"""

from collections.abc import Sequence

from msgspec import UNSET

from maskwise.report.figures.bars import Bar, Chart
from maskwise.report.pages.results import Result
from maskwise.report.words.task_skill import ASK_MORE, conclusion, limit
from maskwise.scoring.experiment_results import MitigationResult, Mitigations
from maskwise.scoring.numbers import NBSP, between, percent, points

NEEDS_ADAPTER, FIXED_ATTENTION = "needs --adapter", "the model's attention cannot be changed"
BASELINE, NOT_RUN = "baseline", "not run"
OTHER_QUESTIONS = (
    "No mitigation can be judged by these questions: maskwise diagnose with --chat or --words says whether others suit "
    "the model."
)
HEAD = (
    "mitigation",
    "accuracy,\n2 masks",
    "accuracy,\nall masks",
    "difference\nfrom baseline",
    "loss\nrecovered",
    "tokens\nper pass",
)


def cures_result(found: Mitigations) -> Result:
    seen = f", of which a token sees those in its block of {found.block}" if found.block is not UNSET else ""
    return Result(
        name="cures",
        title=f"What mitigates the sensitivity of {found.model} to appended masks",
        facts=f"{found.masks} masks{seen} · {found.n} questions · greedy decoding, the answer is the first token",
        sentences=what_it_shows(found),
        chart=_chart(found),
        head=HEAD,
        rows=_rows(found),
        notes=(
            f"All masks: {found.masks}. In brackets: 95 % intervals for these tasks with questions drawn afresh; "
            "differences are paired, in points. Loss recovered: (a' - a) / (a2 - a), with a and a' the accuracies with "
            "all masks before and after and a2 that with 2 masks before; cures.json has its interval. Only tuning can "
            "change the accuracy with 2 masks. Tokens per (forward) pass: of the whole decoding, more is faster. "
            "*: on the frontier, no other is at least as fast and more accurate, nor faster and as accurate.",
        ),
    )


def in_order(cures: Sequence[MitigationResult]) -> list[MitigationResult]:
    """The fastest first, of equally fast ones the most accurate; last those that were not run, in their own order."""
    return sorted(cures, key=lambda e: (True,) if e.accuracy is None else (False, -e.tokens_per_pass, -e.accuracy))


def _marked(found: Mitigations) -> set[str]:
    """The mitigations on the frontier; none if the questions cannot show a loss and no mitigation is better."""
    helped = any((entry.difference_low or 0) > 0 for entry in found.cures)
    return set() if limit(found.skill or None) is not None and not helped else frontier(found.cures)


def frontier(cures: Sequence[MitigationResult]) -> set[str]:
    """The names of the mitigations that no other beats in speed and accuracy."""
    measured = [(e.tokens_per_pass, e.accuracy, e.cure) for e in cures if e.accuracy is not None]
    return {
        name
        for speed, right, name in measured
        if not any(s >= speed and r >= right and (s, r) != (speed, right) for s, r, _ in measured)
    }


def _rows(found: Mitigations) -> list[tuple[str, ...]]:
    two, best = found.two_masks, _marked(found)
    rows: list[tuple[str, ...]] = [("two masks only", percent(two.accuracy, 1), "", "", "", "")]
    for entry in in_order(found.cures):
        measured = entry.measured
        if measured is None:
            rows.append((entry.cure, NOT_RUN, "", "", "", ""))
        else:
            speed = f"{_speed(entry)}{' *' if entry.cure in best else ''}"
            few = "" if entry.two_masks is None else percent(entry.two_masks.accuracy, 1)
            many = f"{percent(measured.accuracy, 1)} ({100 * measured.low:.0f} to {100 * measured.high:.0f})"
            recovered = "" if entry.recovered is UNSET else percent(entry.recovered.value)
            rows.append((entry.cure, few, many, _against(entry), recovered, speed))
    return rows


def _speed(entry: MitigationResult) -> str:
    return f"{entry.tokens_per_pass:.3g}"


def _against(entry: MitigationResult) -> str:
    """In points, with whole ends to save width; tenths where an end would round to 0, so that its side shows."""
    low, high = entry.difference_low, entry.difference_high
    if entry.cure == BASELINE or entry.difference is None or low is None or high is None:
        return ""
    ends = between(low, high, digits=int(min(abs(low), abs(high)) < 0.005))
    return f"{points(entry.difference)} ({ends})".replace(f"{NBSP}points", "").replace(f"{NBSP}%", "")


def _chart(found: Mitigations) -> Chart:
    two = found.two_masks
    best = _marked(found)
    bars = [Bar("two masks only", (two.accuracy,), (two.low, two.high), "for comparison")]
    for entry in in_order(found.cures):
        measured = entry.measured
        if measured is not None:
            note = f"{_speed(entry)} tokens per pass"
            marked = entry.cure in best
            bars.append(Bar(entry.cure, (measured.accuracy,), (measured.low, measured.high), note, marked))
    title = f"{found.model}: accuracy with {found.masks} masks under each mitigation"
    caption = (
        f"{title}, the fastest first (tokens per forward pass). Line: 95 % interval. Filled: on the frontier of speed "
        "and accuracy."
    )
    return Chart(tuple(bars), ("accuracy",), title, "Accuracy (line: 95 % interval)", dots=True, caption=caption)


def what_it_shows(found: Mitigations) -> list[str]:
    """Sentences: the cost of the masks, the mitigations that recover it, their training, and what was not run."""
    measured = [(entry, accuracy.accuracy) for entry in found.cures if (accuracy := entry.measured)]
    (_, baseline), two = measured[0], found.two_masks
    lost = two.accuracy - baseline
    helped = [entry for entry, _ in measured[1:] if (entry.difference_low or 0) > 0]
    limited = limit(found.skill or None)
    if limited is not None and not helped:
        more = ASK_MORE if limited.skill == "undecided" else OTHER_QUESTIONS
        return [conclusion(limited, found.model), more, *_trained(found), *_not_run(found)]
    best, highest = max(measured, key=lambda one: one[1])
    most = found.masks if found.block is UNSET else found.block
    visible = f", of which at most {most} are visible," if most < found.masks else ""
    sentences = [
        conclusion(limited, found.model)
        if limited is not None
        else f"With {found.masks} masks{visible} instead of two, accuracy is {percent(baseline)} instead "
        f"of {percent(two.accuracy)} ({points(-lost)})."
    ]
    if helped:
        names = ", ".join(entry.cure for entry in helped)
        sentences.append(
            f"Significantly above the baseline (95 % interval above zero): {names}; the highest accuracy is that of "
            f"{best.cure} ({percent(highest)}, {_speed(best)} tokens per forward pass)."
        )
    else:
        sentences.append(
            f"No mitigation is significantly above the baseline (95 % interval above zero) on these {found.n} "
            "questions."
        )
    return [*sentences, *_trained(found), *_not_run(found)]


def _trained(found: Mitigations) -> list[str]:
    return [_of_tuning(entry, found) for entry in found.cures if entry.measured and entry.training != "none"]


def _of_tuning(entry: MitigationResult, found: Mitigations) -> str:
    """Both ends before and after, the share recovered with its interval, and the training it took."""
    score = entry.recovered
    if score is UNSET or score.ends is UNSET:
        return f"{entry.cure} took {entry.training}."
    (few, many), (few_after, many_after) = score.ends["before"], score.ends["after"]
    if score.value is None:
        share = "too little was lost to state a share recovered"
    else:
        interval = "" if score.low is None or score.high is None else f" ({between(score.low, score.high)})"
        share = f"{percent(score.value)} of the loss is recovered{interval}"
    return (
        f"{entry.cure} ({entry.training}): accuracy with 2 masks {percent(few, 1)} before and {percent(few_after, 1)} "
        f"after, with {found.masks} masks {percent(many, 1)} and {percent(many_after, 1)}; {share}."
    )


def _not_run(found: Mitigations) -> list[str]:
    """Which mitigations were not run and why, said here because a reason would take the table's width."""
    reasons: dict[str, list[str]] = {}
    for entry in found.cures:
        if entry.accuracy is None:
            without = FIXED_ATTENTION if entry.training == "none" else NEEDS_ADAPTER
            reasons.setdefault(entry.why or without, []).append(entry.cure)
    listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return [f"Not run: {listed}."] if listed else []
