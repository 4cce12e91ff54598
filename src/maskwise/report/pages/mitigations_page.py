"""The comparison of mitigations as a person sees it: a table, a figure, and what it shows.

They are sorted by their speed, the fastest first, and by their accuracy. On the frontier is one that no other beats:
none is at least as fast and more accurate, nor faster and at least as accurate.
"""

from collections.abc import Sequence

from msgspec import UNSET

from maskwise.probes.section import TextTable
from maskwise.report.figures.bars import Bar, Chart
from maskwise.report.pages.results import Result
from maskwise.report.words.both_ends import Judgement, recovered_in_words
from maskwise.report.words.task_skill import ASK_MORE, conclusion, limit
from maskwise.scoring.experiment_results import MitigationResult, Mitigations
from maskwise.scoring.numbers import NBSP, between, nats_between, number, percent, points
from maskwise.scoring.scores import direction, null_score, score
from maskwise.support.grouping import grouped

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
NLL_HEAD = ("mitigation", "NLL,\n2 masks", "NLL,\nall masks", "difference\nfrom baseline", "significantly\nhigher")


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
        second=_likelihoods(found),
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


def _likelihoods(found: Mitigations) -> TextTable | None:
    """None where no mitigation has likelihoods."""
    if all(entry.nll is None for entry in found.cures):
        return None
    rows: list[tuple[str, ...]] = []
    for entry in in_order(found.cures):
        if entry.measured is None:
            continue
        change, judged, against = entry.nll_difference, judgement(entry, found), ("", "")
        higher = [name for name, up in (("accuracy", judged.rises), ("likelihood", direction(judged.nll) < 0)) if up]
        if entry.cure != BASELINE:
            nats = "–" if change is None else nats_between(change.difference, change.low, change.high)
            against = nats.replace(f"{NBSP}nats", ""), ", ".join(higher) or "neither"
        rows.append((entry.cure, number(entry.nll_two_masks), number(entry.nll), *against))
    ends = f"with 2 and with {found.masks} masks"
    return TextTable(f"Negative log-likelihood (NLL) of the right answer {ends}, nats; lower is better", NLL_HEAD, rows)


def judgement(entry: MitigationResult, found: Mitigations) -> Judgement:
    """By the differences from the baseline with all masks."""
    change = entry.nll_difference
    nll = null_score() if change is None else score(change.difference, change.low, change.high)
    return Judgement(found.masks, score(entry.difference, entry.difference_low, entry.difference_high), nll)


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
    two, best = found.two_masks, _marked(found)
    bars = [Bar("two masks only", (two.accuracy,), (two.low, two.high), "for comparison")]
    for entry in in_order(found.cures):
        if one := entry.measured:
            note = f"{_speed(entry)} tokens per pass"
            bars.append(Bar(entry.cure, (one.accuracy,), (one.low, one.high), note, entry.cure in best))
    title = f"{found.model}: accuracy with {found.masks} masks under each mitigation"
    shown = "Line: 95 % interval. Filled: on the frontier of speed and accuracy."
    caption = f"{title}, the fastest first (tokens per forward pass). {shown}"
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
    cost = (
        f"With {found.masks} masks{visible} instead of two, accuracy is {percent(baseline)} instead of "
        f"{percent(two.accuracy)} ({points(-lost)})."
    )
    gain = f"No mitigation is significantly above the baseline (95 % interval above zero) on these {found.n} questions."
    if helped:
        names = ", ".join(entry.cure for entry in helped)
        gain = (
            f"Significantly above the baseline (95 % interval above zero): {names}; the highest accuracy is that of "
            f"{best.cure} ({percent(highest)}, {_speed(best)} tokens per forward pass). {_counted(helped, found)}"
        )
    first = cost if limited is None else conclusion(limited, found.model)
    return [first, gain, *_trained(found), *_not_run(found)]


def _counted(helped: Sequence[MitigationResult], found: Mitigations) -> str:
    """Of those whose accuracy rises: whose likelihood rises too, and whose does not."""

    def sort(judged: Judgement) -> str:
        if judged.nll.value is None:
            return "Likelihoods were not measured of"
        if judged.counts:
            return f"Accuracy and likelihood with {found.masks} masks both rise, so these count as mitigations"
        return "The likelihood does not rise significantly, so these do not count"

    sorts = grouped((sort(judgement(entry, found)), entry.cure) for entry in helped)
    return " ".join(f"{sort}: {', '.join(names)}." for sort, names in sorts.items())


def _trained(found: Mitigations) -> list[str]:
    return [_of_tuning(entry, found) for entry in found.cures if entry.measured and entry.training != "none"]


def _of_tuning(entry: MitigationResult, found: Mitigations) -> str:
    """Both ends before and after, the share recovered with its interval, the training, and whether it counts."""
    share, base = entry.recovered, found.cures[0]
    if share is UNSET or share.ends is UNSET:
        return f"{entry.cure} took {entry.training}."
    (few, many), (few_after, many_after) = share.ends["before"], share.ends["after"]
    nats = ""
    if entry.nll is not None:
        nats = (
            f" Negative log-likelihood of the right answer: with 2 masks {number(base.nll_two_masks)} nats before and "
            f"{number(entry.nll_two_masks)} after, with {found.masks} masks {number(base.nll)} and {number(entry.nll)}."
        )
    return (
        f"{entry.cure} ({entry.training}): accuracy with 2 masks {percent(few, 1)} before and {percent(few_after, 1)} "
        f"after, with {found.masks} masks {percent(many, 1)} and {percent(many_after, 1)}; "
        f"{recovered_in_words(share)}.{nats} {judgement(entry, found).sentence}"
    )


def _not_run(found: Mitigations) -> list[str]:
    """Which mitigations were not run and why, said here because a reason would take the table's width."""
    left_out = [entry for entry in found.cures if entry.accuracy is None]
    without = [FIXED_ATTENTION if entry.training == "none" else NEEDS_ADAPTER for entry in left_out]
    reasons = grouped((entry.why or why, entry.cure) for entry, why in zip(left_out, without, strict=True))
    listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return [f"Not run: {listed}."] if listed else []
