"""The numbers that are computed from stored answers, without a model.

`computed/folders/...` are what commit cc8a75cd wrote (folders.py). All other entries are computed from them: of runs by
`rows_of_run` (rows.py), and what `compare`, `cures`, `advise` and `run.prompt` say of them.
"""

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from oracle import folders, stored
from oracle.rows import MERGED as MERGED_NAMES
from oracle.rows import REMOVED, Row, rows_of_run, short

Rows = dict[str, Row]  # by old path
FOLDERS = "computed/folders"
ASKED_ANEW = ("generation-length", "likelihood-masks")  # own-task asks other questions: their answers are skipped
RUNS = ("tiny-llada", "tiny-llada-more", "tiny-llada+distracted", "tiny-dream", "tiny-qwen", "random-llada2",
        "removed-probes")  # fmt: skip


def entries() -> dict[str, Callable[[], Any]]:
    """Each stored name with the function that gives its value: the folders first, which all others read."""
    return {f"{FOLDERS}/{name}": made for name, made in folders.made().items()} | computed()


def computed() -> dict[str, Callable[[], Any]]:
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
    """How much a stored run holds, every number that is computed from it, and the points of its figures."""
    run = run_of(name)
    asked: dict[str, int] = {}
    for record in run.records:
        asked[record.probe] = asked.get(record.probe, 0) + 1
    of_model = {"model": run.manifest.model.name, "not visible": run.summary.get("not_visible", {})}
    return of_model | {"records": asked, "rows": by_path(rows_of_run(run))}


def by_path(rows: Iterable[Row]) -> Rows:
    """The rows of probes that stay, each name once: of merged probes, two may have measured the same."""
    named: Rows = {}
    for row in rows:
        if row[1] not in REMOVED:
            same = named.setdefault(json.dumps(row[1:4]), row)
            assert same[4:] == row[4:], f"two numbers are called {row[1:4]}: {same} and {row}"
    found = {path: row for path, *row in named.values()}
    assert len(found) == len(named), "two numbers have one path"
    return found


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
    for path, row in rows.items():
        part, *places = path.split("/")[1:]
        if any(place in NO_MORE for place in places) or part == "recovered":  # said twice in 0.2
            continue
        name, sign = COMPARED["/".join(places[1:]).removesuffix("/value")]
        one = now[name].own[labels.index(places[0])] if part == "models" else now[name].changes[0]
        row[4] = one.value if one.value is None or part == "changes" else short(sign * one.value)
        if None not in row[5:7] and name != "accuracy in 2, 4, 6 steps":
            row[5:8] = [short(one.low), short(one.high), one.n]
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
    from oracle import kept
    from oracle.kept import mitigations

    rows: Rows = stored.read("computed/cures")
    wanted = {kept.identity(row[1], row[2]): row for row in rows.values()}
    found = list(kept.differences_of("mitigations", {"mitigations": None, **mitigations.tables()}, wanted))
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


def json_of(content: Any) -> Any:
    """Typed values of the package as plain JSON."""
    from maskwise.support.typed import json_object

    return json_object(content)


# Questions


def prompts() -> dict[str, str]:
    """The text that was asked for four records of each probe."""
    from maskwise.runs.run import Sources

    data = {name: found for name, found in folders.read_datasets() if name != "gsm8k"}
    texts = {}
    for name in ("tiny-llada", "tiny-dream", "tiny-qwen"):
        run = replace(run_of(name), sources=Sources(data=data))
        known = {name_of(name, record): record for record in run.records}
        for stored_name in (one for one in stored.read("computed/prompts") if one.startswith(f"{name}/")):
            if (of_today := today(stored_name)) in known:
                texts[stored_name] = run.prompt(known[of_today])
    return texts


def name_of(model: str, record: Any) -> str:
    condition = json.dumps(record.condition, sort_keys=True)
    return "/".join((model, record.probe, record.task, str(record.point), condition))


def today(name: str) -> str:
    """The `name_of` the record that was stored under this name."""
    from maskwise.records.upgrade import upgrade

    model, probe, place = name.split("/", 2)
    place, _, condition = place.partition("/{")  # of a task and a point
    probe, upgraded = upgrade(probe, json.loads("{" + condition))
    return "/".join((model, probe, place, json.dumps(upgraded, sort_keys=True)))


def of_today(name: str, value: Any) -> Any:
    """A stored value with merged probes under today's names, where its keys name them."""
    from maskwise.records.upgrade import MERGED

    if name == "computed/prompts":
        return {path: text for path, text in value.items() if path.split("/")[1] not in ASKED_ANEW}
    if name == "computed/published":
        return {"/".join(MERGED_NAMES.get(part, part) for part in path.split("/")): row for path, row in value.items()}
    if isinstance(value, dict) and "records" in value:
        counts: dict[str, int] = {}
        for probe, count in value["records"].items():
            if probe in ASKED_ANEW:
                continue
            twice = count // 2 if probe == "question-position" else 0  # half of it was asked by location too
            counts[MERGED.get(probe, probe)] = counts.get(MERGED.get(probe, probe), 0) + count - twice
        return value | {"records": counts}
    return value


def datasets() -> dict[str, Any]:
    """What is read of ten invented lines in the published form of each data set."""
    return {name: asdict(found) for name, found in folders.read_datasets()}
