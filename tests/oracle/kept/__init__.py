"""Where the stored numbers of each probe are now: a file for each, whose `rows` computes them anew from a run's tables.

A row is [quantity, condition, value, low, high, n] in the stored names; `...` stands for what a decision changed, such
as the interval of a claim. Every stored row must be computed, or match a pattern of GONE here or in the file, which say
why. The points of figures are looked for in the tables of today's figures.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from helpers import same
from oracle import stored

GONE = {
    r"skill .*": "skill is judged where a verdict needs it: tests/scoring/test_skill.py",
    r"answers that changed|.*, differed": "estimates do not count the answers that changed",
    r"detectable change.*": "of the number of questions alone: tests/scoring/test_power.py",
    r"claim [\w-]+, (verdict|p)": "Holm's procedure runs over one estimate a probe: tests/scoring/test_verdicts.py",
    r"claim [\w-]+, nothing": "a claim has one threshold",
}
PROBES_GONE = {"own-task": "own-task asks otherwise than generation-length and likelihood-masks did"}
NO_VALUE, CHANGED = "it had no value", "it is not what it was, on purpose"
OTHER_FIGURES = {
    r"figure (mask-weight|mask-places)/change": "the interval of a change is that of `paired`",
    r"figure labelled-text/.*": "each data set is drawn by itself",
}
# {stored: today}; there is no "in direction" today.
VERDICTS = {"in direction": ..., "inconclusive": "undecided", "rejected": "does not hold"}
UNIT = {"correct": "accuracy", "nll": "nll", "nll_allowed": "nll allowed", "nll_choice": "nll choice"}
MEANS = ("confidence", "entropy")


def differences(run: Any, rows: Mapping[str, Sequence[Any]]) -> tuple[list[str], Counter[str]]:
    """What differs between the stored rows and what is computed from the run now; how many rows were compared, and how
    many were left out for each reason."""
    counts: Counter[str] = Counter()
    found = list(
        differences_of_figures(
            run, [one for one in rows.values() if is_figure(one) and one[0] not in PROBES_GONE], counts
        )
    )
    by_probe: dict[str, dict[str, Any]] = defaultdict(dict)
    for one in rows.values():
        if one[0] in PROBES_GONE:
            counts[PROBES_GONE[one[0]]] += 1
        elif not is_figure(one):
            by_probe[one[0]][identity(one[1], one[2])] = one
    for probe, wanted in by_probe.items():
        found += [f"{probe}: {line}" for line in differences_of(probe, run.tables, wanted, counts)]
    return found, counts


def differences_of(
    probe: str, tables: Mapping[str, Any], wanted: Mapping[str, Sequence[Any]], counts: Counter[str]
) -> Iterator[str]:
    file = kept_file(probe)
    gone = {**GONE, **getattr(file, "GONE", {})}
    computed = {identity(one[0], one[1]): one for one in file.rows(tables)} if probe in tables else {}
    for key, row in wanted.items():
        if key not in computed:
            why = reason_in(gone, *row[1:3]) or (NO_VALUE if row[4] is None else None)
            counts[why or "missing"] += 1
            if why is None:
                yield f"not computed: {row}"
            continue
        numbers = computed[key][2:6]
        counts[CHANGED if numbers == [...] * 4 else "compared"] += 1
        for name, old, new in zip(("value", "low", "high", "n"), row[4:8], numbers, strict=True):
            old = VERDICTS.get(old, old) if name == "value" else old
            if ... not in (new, old) and not alike(new, old):
                yield f"{name} of {row[1]} {row[2]}: {new}, not {old}"


def kept_file(probe: str) -> Any:
    return import_module(f"oracle.kept.{probe.replace('-', '_')}")


def reason_in(gone: Mapping[str, str], quantity: str, condition: Mapping[str, Any]) -> str | None:
    """By the quantity alone, or by both as JSON."""
    texts = quantity, identity(quantity, condition)
    return next((why for pattern, why in gone.items() if any(re.fullmatch(pattern, one) for one in texts)), None)


def is_figure(row: Sequence[Any]) -> bool:
    return str(row[1]).startswith("figure ")


def differences_of_figures(run: Any, wanted: Sequence[Sequence[Any]], counts: Counter[str]) -> Iterator[str]:
    """Each stored point is one of today's, in the unit or in percent."""
    from maskwise.report.page import sections_of

    drawn: dict[str, list[Any]] = defaultdict(list)
    for section in sections_of([run]):
        for _, _, table in section.figures:
            for row in table.to_dict("records"):
                for start, value in (("", "value"), ("change_", "change")):
                    ends = [row.get(name) for name in (value, f"{start}low", f"{start}high")]
                    drawn[section.probe.name] += [ends, [None if end is None else 100 * end for end in ends]]
    for probe, figure, place, _, *point, _ in wanted:
        why = reason_in({**OTHER_FIGURES, **getattr(kept_file(probe), "GONE", {})}, figure, place)
        counts[why or "compared"] += 1
        ends = [at for at, end in enumerate(point) if end is not None]
        if why is None and not any(all(alike(one[at], point[at]) for at in ends) for one in drawn[probe]):
            yield f"not drawn: {figure} {place}: {point}"


def identity(quantity: str, condition: Mapping[str, Any]) -> str:
    return json.dumps([quantity, plain(condition)], sort_keys=True)


def plain(value: Any) -> Any:
    return stored.as_json(dict(value))


def alike(new: Any, old: Any) -> bool:
    new = stored.as_json(new)
    if isinstance(new, float) and new != new:
        new = None
    try:
        same.assert_same(new, old, rel=stored.TOLERANCE, abs=stored.TOLERANCE)
    except AssertionError:
        return False
    return True


# For the files of single probes


def curve_rows(
    table: Any, by: Sequence[str], baseline: Any = None, times: int = 1, likelihoods: bool = True, **more: Any
) -> Iterator[list[Any]]:
    """The rows of a plain few-shot probe: accuracy, likelihoods, means, and the changes from a baseline."""
    from maskwise.scoring.estimates import NATS, SHARE, curve

    measures = {"correct": SHARE} | ({name: NATS for name in list(UNIT)[1:]} if likelihoods else {})
    held = {name: unit for name, unit in measures.items() if table[name].notna().any()}
    listed = curve(table, by, held, baseline, times)
    counts = {tuple(map(str, key)): own for key, own in table.groupby(list(by), observed=True)}
    yield from ([*row[:1], row[1] | more, *row[2:]] for row in masks_of(table, by))
    for row in listed.to_dict("records"):
        condition = {name: row[name] for name in by} | more
        own = counts[tuple(str(row[name]) for name in by)]
        name = UNIT[row["measure"]]
        yield [name, condition, row["value"], row["low"], row["high"], len(own)]
        if row.get("change") is not None and row["change"] == row["change"]:
            yield [f"change of {name}", condition, row["change"], row["change_low"], row["change_high"], ...]
            if name == "accuracy":
                yield ["p of change", condition, row["p"], None, None, ...]
        if name == "accuracy":
            if own.masks_visible.notna().all():
                yield ["visible", condition, round(own.masks_visible.mean()), None, None, len(own)]
            for mean in MEANS:
                if own[mean].notna().all():
                    yield [mean, condition, own[mean].mean(), None, None, len(own)]


def masks_of(table: Any, by: Sequence[str]) -> Iterator[list[Any]]:
    for key, own in table.groupby(list(by), observed=True, dropna=False):
        condition = dict(zip(by, key, strict=True))
        yield ["masks", condition, round(own.masks_seen.mean()), None, None, len(own)]


def of_estimate(
    quantity: str, condition: Mapping[str, Any], one: Any, sign: int = 1, interval: bool = True
) -> list[Any]:
    """The row of an estimate; sign -1: it was before minus after. interval: False where a decision changed it."""
    if one.value is None:
        return [quantity, condition, None, None, None, ...]
    ends = (one.low, one.high) if sign > 0 or one.low is None else (-one.high, -one.low)
    return [quantity, condition, sign * one.value, *(ends if interval else (..., ...)), one.n]


def of_claim(
    claim: str, condition: Mapping[str, Any], one: Any, sign: int = 1, interval: bool = True
) -> Iterator[list[Any]]:
    """The rows of an estimate that is a claim: its number, what is asked of it, and its verdict by its own interval."""
    yield of_estimate(f"claim {claim}", condition, one, sign, interval)
    asked = sign * (one.against or 0.0)
    yield [f"claim {claim}, asked", condition, asked, None, None, ...]
    alone = [one.verdict, None, None, ...] if interval and one.claim else [...] * 4
    yield [f"claim {claim}, alone", condition, *alone]
