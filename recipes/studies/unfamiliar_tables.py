"""Tables and results.json of unfamiliar_words.py's arrays: means over sets, paired differences, intervals.

1. A measure of a condition is the mean over sets of the mean over a set's questions.
2. A difference is paired by question. Interval over sets, the unit: Student's t of the sets' mean differences.
3. Second, over questions of these same sets: normal, stratified by set.
4. Several seeds: per set the mean over seeds, t over sets; and the seeds' means, t over seeds.

    python recipes/studies/unfamiliar_tables.py RESULTS_FOLDER --out results.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

SEEDS = ("seed0", "seed1", "seed2", "seed3")
MEASURES = ("accuracy", "format", "choice")
ROOM = (0.45, 0.90)
Arrays = dict[str, np.ndarray]


def load(folder: Path) -> dict[str, Arrays]:
    """{model: {"study|condition": [sets, questions, 3]}}"""
    return {
        path.stem: {key: value.astype(np.float64) for key, value in np.load(path).items()}
        for path in sorted(folder.glob("*.npz"))
    }


def t_interval(values: np.ndarray) -> list[float]:
    """[mean, low, high] of Student's t, 95 %."""
    mean, size = values.mean(), len(values)
    half = stats.t.ppf(0.975, size - 1) * values.std(ddof=1) / size**0.5 if size > 1 else float("nan")
    return [float(mean), float(mean - half), float(mean + half)]


def question_half(paired: np.ndarray) -> float:
    """Half-width over questions of the mean over sets; paired [sets, questions]."""
    return float(1.96 * (paired.var(1, ddof=1) / paired.shape[1]).sum() ** 0.5 / len(paired))


def with_room(arrays: Arrays, study: str) -> np.ndarray | None:
    """Which sets of a study have 45 to 90 % at 2 masks on the separate questions; [sets] bool, None without them."""
    screen = "screen" if study in ("sets", "sets new") else f"screen {study}"
    if f"{screen}|masks 2" not in arrays:
        return None
    accuracy = arrays[f"{screen}|masks 2"][..., 0].mean(1)
    return (accuracy >= ROOM[0]) & (accuracy <= ROOM[1])


def difference(arrays: Arrays, study: str, after: str, before: str, keep: np.ndarray | None = None) -> dict[str, Any]:
    """Each measure before and after, and the paired difference with both intervals, over the sets of `keep`."""
    first, second = arrays[f"{study}|{before}"], arrays[f"{study}|{after}"]
    if keep is not None:
        first, second = first[keep], second[keep]
    made: dict[str, Any] = {"sets": len(first), "questions": first.shape[1]}
    for number, measure in enumerate(MEASURES):
        if not len(first):
            continue
        paired = second[..., number] - first[..., number]
        made[measure] = {
            "before": float(first[..., number].mean()),
            "after": float(second[..., number].mean()),
            "difference": t_interval(paired.mean(1)),
            "questions_half": question_half(paired),
        }
    return made


def over_seeds(
    models: dict[str, Arrays],
    study: str,
    after: str,
    before: str,
    measure: str = "choice",
    names: tuple[str, ...] = SEEDS,
) -> dict[str, Any]:
    """The mean difference over seeds: intervals over sets and over seeds, and each seed's own mean."""
    number = MEASURES.index(measure)
    by_set = np.array(
        [(models[name][f"{study}|{after}"] - models[name][f"{study}|{before}"])[..., number].mean(1) for name in names]
    )
    return {
        "over_sets": t_interval(by_set.mean(0)),
        "over_seeds": t_interval(by_set.mean(1)),
        "seeds": [round(float(value), 4) for value in by_set.mean(1)],
    }


def skill_and_preference(models: dict[str, Arrays], names: tuple[str, ...], after: str) -> dict[str, Any]:
    """Change of accuracy (points) from 2 masks as two parts: what rises or falls whether the new words are the target
    or the others (skill), and what moves answers towards new words (preference). Over pairs, and over models."""
    changes = {
        study: np.array(
            [
                100 * (models[name][f"mixed {study}|{after}"] - models[name][f"mixed {study}|masks 2"])[..., 0].mean(1)
                for name in names
            ]
        )
        for study in ("target", "both others")
    }
    skill = (changes["target"] + changes["both others"]) / 2
    preference = (changes["target"] - changes["both others"]) / 2
    made = {
        name: {"skill": t_interval(skill[n]), "preference": t_interval(preference[n])} for n, name in enumerate(names)
    }
    if len(names) > 1:
        made["all"] = {
            f"{part} over {unit}": t_interval(values.mean(axis))
            for part, values in (("skill", skill), ("preference", preference))
            for unit, axis in (("seeds", 1), ("pairs", 0))
        }
    return made


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def all_differences(models: dict[str, Arrays]) -> dict[str, Any]:
    """{model: {study: {condition: difference from 2 masks}}}, and the sets with room."""
    found: dict[str, Any] = {}
    for name, arrays in models.items():
        found[name] = {}
        for key in arrays:
            study, condition = key.split("|")
            before = {"alone 200": "alone 2"}.get(condition, "masks 2")
            if condition in ("masks 2", "alone 2") or f"{study}|{before}" not in arrays:
                continue
            made = difference(arrays, study, condition, before)
            keep = with_room(arrays, study)
            if keep is not None:
                room = difference(arrays, study, condition, before, keep)
                made["with_room"] = {"sets": room["sets"], "accuracy": room.get("accuracy")}
            found[name].setdefault(study, {})[condition] = made
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    models = load(options.folder)
    results = all_differences(models)
    keys = {key for name in SEEDS for key in models[name]}
    results["recipe"] = {
        key: {measure: over_seeds(models, study, condition, "masks 2", measure) for measure in MEASURES}
        for key in sorted(keys)
        for study, condition in [key.split("|")]
        if condition != "masks 2" and f"{study}|masks 2" in keys
    }
    if "mixed target|masks 2" in keys:
        others = tuple(name for name in models if name not in SEEDS)
        results["skill and preference"] = {
            after: skill_and_preference(models, SEEDS, after)
            | {o: skill_and_preference(models, (o,), after)[o] for o in others}
            for after in sorted({key.split("|")[1] for key in keys if key.startswith("mixed target|")} - {"masks 2"})
        }
    options.out.write_text(json.dumps(rounded(results), separators=(",", ":")))
    for key, value in results["recipe"].items():
        low_high = " ".join(f"{number:+.3f}" for number in value["choice"]["over_sets"] + value["choice"]["over_seeds"])
        print(f"{key:34s} choice, over sets and over seeds: {low_high}  by seed {value['choice']['seeds']}")


if __name__ == "__main__":
    main()
