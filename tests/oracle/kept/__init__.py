"""Where the stored numbers of a probe of the new kind are now: a file for each, whose `rows` computes them anew.

A row is [quantity, condition, value, low, high, n] in the stored names; `...` stands for what a decision changed, such
as the interval of a claim. Every stored row of the probe must be computed, or be one of GONE or of the file's own GONE.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from helpers import same
from oracle import stored
from oracle.rows import new_probe

# What is no longer said of any probe: masks and skill of each condition, thresholds and verdicts of claims, and points
# of figures, which repeat numbers that are compared here by their own names.
GONE = (
    r"masks|skill .*|answers that changed|detectable change.*|figure .*",
    r"claim [\w-]+, (nothing|asked|verdict|alone|p)",
)
UNIT = {"correct": "accuracy", "nll": "nll", "nll_allowed": "nll allowed", "nll_choice": "nll choice"}
MEANS = ("confidence", "entropy")


def ported() -> list[str]:
    return [name for name, probes in sources().items() if all(probe.measured is not None for probe in probes)]


def sources() -> dict[str, list[Any]]:
    """The probes whose tables give the rows of each name; several where they are to become one probe of that name."""
    from maskwise.probes import PROBES

    names, found = {probe.name for probe in PROBES}, defaultdict(list)
    for probe in PROBES:
        into = new_probe(probe.name)
        found[probe.name if into in names else into].append(probe)
    return dict(found)


def differences(run: Any, rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """What differs between the stored rows of ported probes and what is computed from the run now."""
    found = []
    for probe in ported():
        wanted = {identity(one[1], one[2]): one for one in rows.values() if one[0] == probe}
        if wanted:
            found += [f"{probe}: {line}" for line in differences_of(probe, run.tables, wanted)]
    return found


def of_others(rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The rows of probes that are not ported yet, but for verdicts and p-values that depend on how many claims are
    judged at once."""
    judged, names = re.compile(r"claim [\w-]+, (verdict|p)"), ported()
    return {path: row for path, row in rows.items() if row[0] not in names and not judged.fullmatch(row[1])}


def differences_of(probe: str, tables: Mapping[str, Any], wanted: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    module = import_module(f"oracle.kept.{probe.replace('-', '_')}")
    asked = all(one.name in tables for one in sources()[probe])
    gone = re.compile("|".join((*GONE, *getattr(module, "GONE", ()))))
    computed = {identity(one[0], one[1]): one for one in module.rows(tables)} if asked else {}
    for key, row in wanted.items():
        if key not in computed:
            if row[4] is not None and not gone.fullmatch(row[1]):
                yield f"not computed: {row}"
            continue
        before, now = row[4:8], computed[key][2:6]
        for name, old, new in zip(("value", "low", "high", "n"), before, now, strict=True):
            if new is not ... and not alike(new, old):
                yield f"{name} of {row[1]} {row[2]}: {new}, not {old}"


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


def of_estimate(
    quantity: str, condition: Mapping[str, Any], one: Any, sign: int = 1, interval: bool = True
) -> list[Any]:
    """The row of an estimate; sign -1: it was before minus after. interval: False where a decision changed it."""
    if one.value is None:
        return [quantity, condition, None, None, None, ...]
    ends = (one.low, one.high) if sign > 0 or one.low is None else (-one.high, -one.low)
    return [quantity, condition, sign * one.value, *(ends if interval else (..., ...)), one.n]
