"""The numbers that are computed from stored answers, without a model.

`computed/folders/...` are what commit cc8a75cd wrote: run folders, answers of `cures`, a search of `advise`; they prove
that old folders open, and are not made again (how: tests/oracle/folders.py of commit 4d3f0acd). All other entries are
computed from them. Most values are rows [probe, quantity, condition, unit, value, low, high, n] by their path in the
JSON of 0.2; kept/ says where each number is today.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from oracle import kept, stored
from oracle.asked import left_out

Rows = dict[str, list[Any]]  # by old path
FOLDERS = "computed/folders"
RUNS = ("tiny-llada", "tiny-llada-more", "tiny-llada+distracted", "tiny-dream", "tiny-qwen", "random-llada2",
        "removed-probes")  # fmt: skip


def entries() -> dict[str, Callable[[], Any]]:
    return {f"computed/{name}": partial(numbers_of_run, name) for name in RUNS} | {
        "computed/compare": compared,
        "computed/published": published,
        "computed/cures": mitigated,
        "computed/advise": advised,
        "computed/prompts": prompts,
        "computed/datasets": datasets,
    }


# Stored folders


def unpack(name: str, home: Path) -> Path:
    """The stored folder of this name, as files under `home`."""
    folder = home / name
    folder.mkdir(parents=True)
    for file, text in stored.read(f"{FOLDERS}/{name}").items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder


@cache
def run_of(name: str) -> Any:
    """The stored run of this name, opened."""
    import maskwise as mw

    with tempfile.TemporaryDirectory() as home:
        run = mw.read_run(unpack(name, Path(home)))
        len(run.records)
        return run


# Numbers of a run


def numbers_of_run(name: str) -> dict[str, Any]:
    """How much a stored run holds, and the stored rows where all of them are computed today, else what differs."""
    run, rows = run_of(name), stored.read(f"computed/{name}")["rows"]
    found, counts = kept.differences(run, rows)
    say(name, counts)
    asked = {probe: len(table) for probe, table in run.tables.items()}
    of_model = {"model": run.manifest.model.name, "not visible": run.manifest.not_visible or {}}
    return of_model | {"records": asked, "rows": found or rows}


def short(value: Any) -> Any:
    """Four decimals, or five digits: ten times what the comparison tells apart."""
    if not isinstance(value, float):
        return value
    return round(value, 4) if abs(value) < 1 else float(f"{value:.5g}")


def say(name: str, counts: Counter[str]) -> None:
    """How many stored numbers were compared (pytest -s), and how many were not and why."""
    print(
        f"{name}: {counts.pop('compared')} numbers compared",
        *(f"{n} not: {why}" for why, n in counts.items()),
        sep="\n  ",
    )


OWN_TASK = ("generation-length", "likelihood-masks")  # own-task asks otherwise; their answers are not read

# Two runs, published values, mitigations, a search of decoding settings


COMPARED = {  # of a comparison: what 0.2 called a measure of a model or its change, and its row and sign today
    "accuracy_k2": ("accuracy with 2 masks", 1),
    "accuracy_most_masks": ("accuracy with 200 masks", 1),
    "nll_k2": ("negative log-likelihood with 2 masks", 1),
    "nll_most_masks": ("negative log-likelihood with 200 masks", 1),
    "mask_loss": ("200 masks instead of 2; share recovered", -1),  # of a model; its change is a share
    "degradation": ("degradation over 2, 20, 200 masks; reduction", 1),
    "reduction": ("degradation over 2, 20, 200 masks; reduction", 1),
    "few_steps/2": ("degradation in 2 steps; reduction", 1),
    "few_steps/4": ("degradation in 4 steps; reduction", 1),
    "few_steps/6": ("degradation in 6 steps; reduction", 1),
    "multi_step_accuracy": ("accuracy in 2, 4, 6 steps", 1),
    "nelbo": ("NELBO per token of prose", 1),
}
NO_MORE = ("skill", "mask_tax", "locality", "recall", "confidence", "entropy", "most_masks", "mask_counts", "differed",
           "intervals", "ends", "few_steps_degradation", "few_steps_reduction")  # fmt: skip


def compared() -> Rows:
    """From tiny-llada+distracted to tiny-llada: the stored rows, with what `compare` finds today in those that stay.

    Where no answer changed, the mean over steps has the exact bound of a question now, not of one of its answers."""
    import maskwise as mw

    with tempfile.TemporaryDirectory() as home:
        found = mw.compare(*(unpack(name, Path(home)) for name in ("tiny-llada+distracted", "tiny-llada")))
    labels = ["tiny-llada+distracted (planted)", "tiny-llada"]
    now, rows = {row.name: row for row in found.rows}, stored.read("computed/compare")
    counts = Counter[str]()
    for path, row in rows.items():
        part, *places = path.split("/")[1:]
        if any(place in NO_MORE for place in places) or part == "recovered":
            counts["0.2 said it twice, or compare does not ask it any more"] += 1
            continue
        counts["compared"] += 1
        name, sign = COMPARED["/".join(places[1:]).removesuffix("/value")]
        one = now[name].own[labels.index(places[0])] if part == "models" else now[name].changes[0]
        row[4] = one.value if one.value is None or part == "changes" else short(sign * one.value)
        if None not in row[5:7] and name != "accuracy in 2, 4, 6 steps":
            row[5:8] = [short(one.low), short(one.high), one.n]
    say("compare", counts)
    return rows


MEASURES = {  # of published values: what 0.2 called them, and its units
    "change of accuracy with 200 masks instead of 2": ("200 masks against 2", "points"),
    "change of accuracy with 20 masks instead of 2": ("20 masks against 2", "points"),
    "change of accuracy with 200 full stops after the closed answer": ("200 full stops against none", "points"),
    "gradient norm of masks": ("gradient norm of 50 masks", "norm"),
    "gradient norm of the nearest other tokens": ("gradient norm of the nearest 50 other tokens", "norm"),
    "gradient norm of all other tokens": ("gradient norm of all other tokens", "norm"),
}


def published() -> Rows:
    """The paper's values and those measured, as if its models had given the answers of tiny-llada+distracted."""
    import maskwise as mw
    from maskwise.probes.published import published as published_values

    rows: Rows = {}
    with tempfile.TemporaryDirectory() as home:
        folder = unpack("tiny-llada+distracted", Path(home))
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        records = (folder / "records.jsonl").read_text(encoding="utf-8")
        for name in ("GSAI-ML/LLaDA-8B-Base", "Dream-org/Dream-v0-Base-7B"):
            manifest["model"]["name"], manifest["settings"]["preset"] = name, "paper"
            (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
            renamed = records.replace('{"model": "tiny-llada+distracted",', f'{{"model": "{name}",')
            (folder / "records.jsonl").write_text(renamed, encoding="utf-8")
            run = mw.read_run(folder)
            for probe, one, stated, _ in published_values(run.manifest, run.measured):
                if one.value is None:
                    continue
                measure, unit = MEASURES.get(one.name, (one.name, "share"))
                low, high = (None, None) if probe == "steps" else (one.low, one.high)  # 0.2 gave it no interval
                ends = map(short, (stated, one.value, low, high))
                rows[f"published/{name}/{probe}/{measure}"] = [probe, measure, unit, *ends]
    return rows


def mitigated() -> Rows:
    """What each way to decode gives back, from stored answers: the stored rows, where they are computed today."""
    from oracle.kept import mitigations

    rows: Rows = stored.read("computed/cures")
    wanted = {kept.identity(row[1], row[2]): row for row in rows.values()}
    tables, counts = {"mitigations": None, **mitigations.tables()}, Counter[str]()
    found = list(kept.differences_of("mitigations", tables, wanted, counts))
    say("cures", counts)
    return rows if not found else {"differences": found}


def advised() -> dict[str, Any]:
    """A stored search: quality and differences of the settings that were confirmed, from its records."""
    import pandas as pd

    from maskwise.advise import SECONDS, confirm, questions_to_decide
    from maskwise.scoring.estimates import LEVEL, wide
    from maskwise.support.randomness import numpy_generator

    found = stored.read(f"{FOLDERS}/advise")
    manifest, wanted = json.loads(found["manifest.json"]), stored.read("computed/advise")
    answers = pd.DataFrame([json.loads(line) for line in found["records.jsonl"].splitlines()])
    order = numpy_generator("advise", 0, "order").permutation(manifest["identity"]["questions"]["count"])
    held = order[manifest["plan"]["rounds"][-1] :]
    names = [row[0] for row in wanted["quality"]]  # rounds chose them, which are gone
    own = answers[answers.question.isin(held) & answers.setting.isin(names)].assign(task="")
    quality = wide(own.rename(columns={"question": "point"}), "setting", "quality")[names]
    cost = (own.passes + SECONDS * own.seconds).groupby(own.setting).mean()
    means, changes, best, _ = confirm(quality, cost)
    pairs = [row[0].split("/") for row in wanted["differences"]]
    compared = [["/".join((one, other)), changes[one, other]] for one, other in pairs]
    return {
        "quality": [[name, *ends_of(means[name]), short(cost[name])] for name in names],
        "differences": [[name, *ends_of(one)] for name, one in compared],
        "picked": {"highest": best},
        "questions to decide": [questions_to_decide(quality, best, True, LEVEL / len(pairs))],
    }


def ends_of(one: Any) -> list[Any]:
    return [short(end) for end in (one.value, one.low, one.high)]


# Questions


def prompts() -> dict[str, str]:
    """The text that was asked for four answers of each probe."""
    from maskwise.runs.run import Sources

    sources = Sources(data={name: found for name, found in read_datasets() if name != "gsm8k"})
    texts = {}
    for name in of_today("computed/prompts", stored.read("computed/prompts")):
        model, row = row_of(name)
        texts[name] = replace(run_of(model), sources=sources).prompt(row)
    return texts


def row_of(name: str) -> tuple[str, dict[str, Any]]:
    """(model, row of a table) of a stored name: model/probe/task/point/condition."""
    from maskwise.records.upgrade import upgrade

    model, probe, place = name.split("/", 2)
    place, _, condition = place.partition("/{")
    task, point = place.rsplit("/", 1)
    probe, upgraded = upgrade(probe, json.loads("{" + condition))
    return model, {"probe": probe, "task": task, "point": int(point), **upgraded}


def of_today(name: str, value: Any) -> Any:
    """A stored value with today's probes, where its keys name them."""
    from maskwise.records.upgrade import MERGED

    if name == "computed/published":
        return {"/".join(MERGED.get(part, part) for part in path.split("/")): row for path, row in value.items()}
    if name == "computed/prompts":
        probes = {one: one.split("/")[1] for one in value}
        kept = [one for one, probe in probes.items() if probe not in OWN_TASK and not left_out(probe, one)]
        return {one: value[one] for one in kept}
    if isinstance(value, dict) and "records" in value:
        counts: dict[str, int] = {}
        for probe, count in value["records"].items():
            twice = count // 2 if probe == "question-position" else 0  # half of it was asked by location too
            if probe not in OWN_TASK:
                counts[MERGED.get(probe, probe)] = counts.get(MERGED.get(probe, probe), 0) + count - twice
        return value | {"records": counts}
    return value


def datasets() -> dict[str, Any]:
    """What is read of ten invented lines in the published form of each data set."""
    return {name: asdict(found) for name, found in read_datasets()}


def read_datasets() -> Iterator[tuple[str, Any]]:
    from maskwise.tasks.datasets import read_dataset

    for name in ("hotpotqa", "ag-news", "sst2", "rotten-tomatoes", "mrpc", "rte", "qnli", "gsm8k"):
        file = "hotpotqa.json" if name == "hotpotqa" else name
        yield name, read_dataset(name, stored.DATA / "datasets" / file)
