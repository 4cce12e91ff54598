"""What the package computes from a run, as a flat list of rows.

A row is [old path, probe, quantity, condition, unit, value, low, high, n]: where the number stands in the JSON of 0.2
and what it is called in 0.3. Intervals over word rules are left out, and so is what is said in words.

`rows_of_run` and `rows_of_figures` alone ask the package: to ask another version change them, not the stored rows.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = list[Any]


def rows_of_run(run: Any) -> Iterator[Row]:
    """The walk over what the package computes from a run: the one function that knows its JSON and its figures."""
    summary = run.summary
    main = main_number(summary["settings"]["relevant"])
    for name, score in summary["scores"].items():
        plain, number = number_in(name, SCORES, main)
        probe, quantity = SCORES.get(plain, ("unfamiliar", plain))
        unit = "nats" if plain.endswith("nats") else "share"
        yield from rows_in(score, f"scores/{name}", probe, {"relevant": number}, unit, quantity)
    for probe, entries_of_probe in summary["probes"].items():
        seen = set()
        for entry in entries_of_probe:
            condition = entry["condition"]
            path = f"probes/{probe}/{json.dumps(condition)}"
            for row in rows_in({k: v for k, v in entry.items() if k != "condition"}, path, probe, condition):
                row[3] = without_target(row[3]) if row[2] not in OF_TARGET else row[3]
                if (key := json.dumps(row[2:4])) not in seen:
                    seen.add(key)
                    yield row
    for claim in summary.get("claims", []):
        probe = CLAIMS[claim["finding"]]
        condition = {"relevant": 10 if claim["relevant"] is None else claim["relevant"]}
        quantity = f"claim {claim['finding']}"
        content = {k: v for k, v in claim.items() if k != "relevant"}
        yield from rows_in(content, f"claims/{claim['name']}", probe, condition, claim["unit"], quantity)
    for name, (probe, unit) in EXTRAS.items():
        if name in summary:
            yield from rows_in(summary[name], name, probe, {}, unit, name.replace("_", " "))
    for power in summary.get("power", []):
        of_probe = {"asked": power["probe"]}
        yield from rows_in(power, f"power/{power['probe']}", power["probe"], of_probe, "share", "detectable change")
    yield from rows_of_figures(run)


def rows_of_figures(run: Any) -> Iterator[Row]:
    """Each point of each figure: x, and the value with its interval."""
    from maskwise.report.figures.panels import measures_of, panels
    from maskwise.report.sections import sections_for

    for probe, section in sections_for([run.reading]):
        drawn = zip(measures_of(section, [run.reading]), panels(section, [run.reading]), strict=True)
        points = (
            (measure.key, number, point, x, estimate)
            for measure, panel in drawn
            for number, curve in enumerate(panel.curves)
            for point, (x, *estimate) in enumerate(zip(curve.x, curve.y, curve.low, curve.high, strict=True))
        )
        for measure, number, point, x, estimate in points:
            figure = f"{section.name or probe}/{measure}"
            condition = {"curve": number, "point": point, "x": short(x)}
            named = [f"figures/{figure}/{number}/{point}", new_probe(probe), f"figure {figure}", condition, ""]
            yield [*named, *map(short, estimate), None]


# In which probe of 0.2 a score, a claim or a further part of the summary is measured; a score with its name in 0.3.
SCORES = {
    "locality": ("location", "locality"),
    "distance_nats": ("location", "nats lost to distance"),
    "recall_locality": ("recall", "locality"),
    "recall_nats": ("recall", "nats lost to distance"),
    "mask_tax": ("mask-count", "mask tax"),
    "degradation": ("mask-count", "degradation"),
    "mask_nats": ("mask-count", "nats lost to masks"),
    "contrast_locality": ("contrast", "locality"),
    "contrast_mask_tax": ("contrast", "mask tax"),
}
CLAIMS = {
    "distance-costs": "location",
    "near-best-left": "question-position",
    "near-best-right": "question-position",
    "masks-cost": "mask-count",
    "fillers-cost-less": "filler",
    "gap-grows": "context-length",
    "masks-lower-all": "location-masks",
    "masks-lower-near": "location-masks",
    "masks-move-more": "mask-attribution",
    "steps-recover": "unmasking",
    "surest-first-best": "unmasking",
    "nearest-last-random": "points",
    "nearest-last-first": "points",
    "far-unsure": "marginals",
    "far-doubtful": "marginals",
    "grow-alike": "marginals",
    "far-identical": "marginals",
    "far-frequent": "marginals",
    "middle-unsure": "marginals",
    "coupled": "total-correlation",
    "reading-order": "order",
    "leftmost-first": "order",
    "speed-copy": "coherence",
    "speed-replace": "coherence",
    "speed-shuffle": "coherence",
}
EXTRAS = {
    "mechanism": ("mechanism", "points"),
    "shots_against_masks": ("shots-masks", "r"),
    "end_flood": ("generation-length", "tokens"),
    "score_movement": ("likelihood-masks", "nats"),
    "confidence_by_source": ("confidence", ""),
    "aup": ("coherence", ""),
    "templates": ("templates", ""),
}
MERGED = {
    "question-position": "location",
    "location-masks": "location",
    "unmasking": "steps",
    "few-steps": "steps",
    "mask-attribution": "attribution",
    "attention": "attribution",
    "shots-masks": "mask-count",
    "generation-length": "own-task",
    "likelihood-masks": "own-task",
    "hotpotqa": "datasets",
    "labelled-text": "datasets",
}
REMOVED = ("calibration", "room", "self-correction", "unfamiliar", "numerics")
# Probes whose conditions name the number of relevant examples, but for the paper's 10.
FEW_SHOT = ("location", "question-position", "mask-count", "filler", "context-length", "location-masks", "unmasking",
            "few-steps", "block-offset")  # fmt: skip
# Entries for each thing that an answer is attributed to repeat what was measured of the answer itself.
TARGETS, OF_TARGET = ("example", "tokens", "layer"), ("evidence", "gradient input")


def new_probe(probe: str) -> str:
    return MERGED.get(probe, probe)


def new_condition(probe: str, condition: Mapping[str, Any]) -> dict[str, Any]:
    """The condition with the number of relevant examples; of a merged probe with what told it from the others."""
    named = {"data": probe} if new_probe(probe) == "datasets" else {}
    numbered = {"relevant": condition.get("relevant", 10)} if probe in FEW_SHOT else {}
    kept = {name: value for name, value in condition.items() if name != "relevant"}
    return named | kept | numbered


def without_target(condition: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in condition.items() if name not in TARGETS}


def main_number(asked: Sequence[int]) -> int:
    return 10 if 10 in asked else max(asked)


def number_in(name: str, known: Mapping[str, Any], main: int) -> tuple[str, int]:
    """`mask_tax_1` -> (mask_tax, 1); a plain name is of the main number of relevant examples."""
    plain, _, number = name.rpartition("_")
    return (plain, int(number)) if name not in known and number.isdecimal() else (name, main)


# Any JSON as rows


MEANS = ("accuracy", "value", "difference", "mean", "right")  # whose ends may be called low and high
VERDICTS = ("verdict", "alone", "skill")
LABELS = ("cure", "setting", "goal", "effect", "template", "tokens", "masks", "place", "share")  # of items of a list
LEFT_OUT = ("n", "why", "condition", "baseline")
CALLED = {
    "paired difference": "change of accuracy",
    "paired differed": "answers that changed",
    "paired p": "p of change",
    "difference": "change of accuracy",
    "nll difference difference": "change of nll",
}
# Units by the last word of an old path, or by any word of it; all other numbers are shares.
NATS = ("nats", "nats_content", "content", "allowed", "choice", "entropy", "nelbo", "tc", "forth", "back")
OF_ALL = (*MEANS, "nothing", "asked", "largest", "answer", "others", "interaction", "total")
COUNTS = ("differed", "predictions", "questions", "templates", "sequences", "short", "long", "chosen_on", "verified_on")
OTHERS = {
    **dict.fromkeys(("masks", "length", "most_masks", "end_step", "chance_end"), "tokens"),
    **dict.fromkeys(("tokens_per_pass", "ideal_speed"), "tokens per pass"),
    **dict.fromkeys(("evidence", "gradient_input", "tau", "temperature", "between"), ""),
    **dict.fromkeys(("passes", "seconds", "cost"), "passes or seconds"),
    "difference": "points",
    "p": "p",
}


def rows_in(
    content: Any, path: str, probe: str, condition: Mapping[str, Any], unit: str = "", quantity: str = ""
) -> Iterator[Row]:
    """The numbers of nested JSON, each with its interval where there is one. unit: of the whole."""
    for inner, labels, value, low, high, n in numbers_in(content):
        said = " ".join(part for part in inner if not part.startswith("{")).replace("_", " ")
        said = CALLED.get(said, re.sub(r"^paired (\w.*) difference$", r"change of \1", said))
        if quantity:
            said = quantity if said in MEANS else f"{quantity}, {said}"
        named = new_condition(probe, condition) | labels
        of_all = unit_of(inner, value, unit)
        yield ["/".join((path, *inner)), new_probe(probe), said, named, of_all, *map(short, (value, low, high)), n]


def numbers_in(content: Any, path: tuple[str, ...] = (), n: int | None = None) -> Iterator[tuple[Any, ...]]:
    """(path, labels of the list's items on it, value, low, high, n) of each number and verdict; n is that of the
    nearest object that has one."""
    if isinstance(content, list):
        for place, item in enumerate(content):
            labels = labels_of(item) or {"number": place}
            without = {k: v for k, v in item.items() if k not in labels} if isinstance(item, Mapping) else item
            for inner, further, *estimate in numbers_in(without, (*path, json.dumps(labels)), n):
                yield inner, labels | further, *estimate
    elif isinstance(content, Mapping):
        n = next((content[key] for key in ("n", "questions") if isinstance(content.get(key), int)), n)
        ends = {name: ends_of(name, content) for name in content}
        known = {end for pair in ends.values() for end in pair}
        for name, value in content.items():
            if name in known or name in LEFT_OUT or name.startswith(("rules_", "vote")):
                continue
            if isinstance(value, Mapping | list):
                yield from numbers_in(value, (*path, name), n)
            elif is_result(name, value) and (value is not None or ends[name]):
                low, high = [content[end] for end in ends[name]] or (None, None)
                yield (*path, name), {}, value, low, high, n
    else:
        yield path, {}, content, None, None, n


def ends_of(name: str, content: Mapping[str, Any]) -> tuple[str, ...]:
    """What the ends of the interval of this number are called, where it has one."""
    own = (f"{name}_low", f"{name}_high")
    if own[0] in content:
        return own
    return ("low", "high") if name in MEANS and "low" in content else ()


def is_result(name: str, value: Any) -> bool:
    return name in VERDICTS if isinstance(value, str) else not isinstance(value, bool)


def labels_of(item: Any) -> dict[str, Any]:
    """What tells an item of a list from the others: its condition, or those of LABELS that it has."""
    if not isinstance(item, Mapping):
        return {}
    return item["condition"] if "condition" in item else {name: item[name] for name in LABELS if name in item}


def unit_of(path: Sequence[str], value: Any, of_all: str) -> str:
    """Of a number by its old path; of_all: of the means in an object, where they are no nats."""
    *before, last = path or ("",)
    if isinstance(value, str):
        return "verdict"
    if "nll" in "_".join(path).split("_") or {last, *(before[-1:] if last in MEANS else ())} & set(NATS):
        return "nats"
    if of_all and last in OF_ALL:
        return of_all
    count = last in COUNTS or (last == "right" and isinstance(value, int))
    return OTHERS.get("p" if last.endswith("_p") else last, "count" if count else "share")


def short(value: Any) -> Any:
    """Four decimals, or five digits: ten times what the comparison tells apart."""
    if not isinstance(value, float):
        return value
    return round(value, 4) if abs(value) < 1 else float(f"{value:.5g}")
