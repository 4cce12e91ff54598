"""mitigations: the stored answers of the former command `cures`, on a model and with its adapter."""

import json

from maskwise.probes.library.mitigations import ONE_STEP, metrics
from maskwise.probes.probe import FIRST
from maskwise.scoring.estimates import answers, share
from oracle import stored
from oracle.kept import of_estimate

WAYS = {"baseline": ONE_STEP, "40-step unmasking": "40 steps", "soft masking": "soft masks"}  # {stored: today}
TUNED = {"tuning: anchored KL on the attention maps": ONE_STEP, "tuning + growing canvas": "growing canvas"}
TWO = {"two masks, model": None, "two masks, adapter 0": 0}
GONE = {
    r"recovered ends .*": "the ends are the accuracies",
    r".* differed": "estimates do not count the answers that changed",
}


def tables():
    """{"model": table, "tuned": table} of the stored answers."""
    import pandas as pd

    lines = [json.loads(line) for line in stored.read("computed/folders/cures")["answers.jsonl"].splitlines()]
    found = {"model": [], "tuned": []}
    for one in lines:
        way = one.pop("cure")
        tuned = way in TUNED or TWO.get(way) == 0
        named = {"way": ONE_STEP, "masks": 2} if way in TWO else {"way": {**WAYS, **TUNED}.get(way, way), "masks": 200}
        found["tuned" if tuned else "model"].append(one | named | {"correct": float(one["correct"])})
    return {name: pd.DataFrame(rows) for name, rows in found.items()}


def rows(tables):
    first = tables["model"]
    for way in dict.fromkeys(first.way):
        old = {new: old for old, new in WAYS.items()}.get(way, way)
        yield from of_way(old, way, first, {}, ONE_STEP)
    for old, way in TUNED.items():
        yield from of_way(old, way, tables["tuned"], {FIRST: first}, f"{ONE_STEP} of the first model")


def of_way(old, way, table, others, base):
    condition, found = {"way": old}, {one.name: one for one in metrics(table, others)}
    ends = {"two masks ": table[(table.way == ONE_STEP) & (table.masks == 2)]}
    ends[""] = table[(table.way == way) & (table.masks == 200)]
    for name, own in ends.items():
        yield [*of_estimate(f"{name}accuracy", condition, share("", answers(own)))[:5], ...]
        nll = own.groupby("task").nll.mean().mean()
        yield [f"nll {name}".strip(), condition, nll, None, None, ...]
    if (way, others) == (ONE_STEP, {}):  # its difference from itself
        yield from ([quantity, condition, 0.0, ..., ..., ...] for quantity in ("change of accuracy", "change of nll"))
    named = {"accuracy less": "change of accuracy", "nats less": "change of nll"}
    for estimate, quantity in named.items():
        if f"{way}: {estimate} {base}" in found:
            yield [*of_estimate(quantity, condition, found[f"{way}: {estimate} {base}"])[:5], ...]
    if f"{way}: loss won back" in found:
        yield [*of_estimate("recovered value", condition, found[f"{way}: loss won back"])[:5], ...]
