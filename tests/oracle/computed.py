"""The numbers that are computed from stored answers, without a model.

`computed/folders/...` are what commit cc8a75cd wrote (folders.py). All other entries are computed from them: of runs by
`rows_of_run` (rows.py), and what `compare`, `cures`, `advise` and `run.prompt` say of them.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from oracle import folders, stored
from oracle.rows import MERGED as MERGED_NAMES
from oracle.rows import REMOVED, Row, new_probe, rows_in, rows_of_run, short

Rows = dict[str, Row]  # by old path
FOLDERS = "computed/folders"
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


def compared() -> Rows:
    """From tiny-llada+distracted to tiny-llada: what `compare` finds, the recovered share with all four ends."""
    import maskwise as mw

    with tempfile.TemporaryDirectory() as home:
        found = mw.compare(*(unpack(name, Path(home)) for name in ("tiny-llada+distracted", "tiny-llada")))
        content = json_of({"models": found.models, "changes": found.changes, "recovered": found.recovered})
    for one in content["models"].values():
        del one["out"]
    return by_path(rows_in(content, "compare", "compare", {}))


def published() -> Rows:
    """The paper's values and those measured, as if its models had given the answers of tiny-llada+distracted."""
    import maskwise as mw

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
            for one in mw.read_run(folder).summary["published"]:
                probe, measure, unit = (one[key] for key in ("probe", "measure", "unit"))
                low, high = (None, None) if probe == "steps" else (one["low"], one["high"])  # 0.2 gave it no interval
                ends = map(short, (one["published"], one["value"], low, high))
                rows[f"published/{name}/{new_probe(probe)}/{measure}"] = [new_probe(probe), measure, unit, *ends]
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
    """A stored search: the advice on file, and the same rounds and intervals from its records."""
    import numpy as np

    from maskwise.advice.search_space import SearchSpace, settings_in
    from maskwise.advice.selection import Plan, confirm, finalists, halve
    from maskwise.report.pages.advice import read_search
    from maskwise.support.randomness import numpy_generator
    from maskwise.tasks.episodes import CHANCE

    with tempfile.TemporaryDirectory() as home:
        folder = unpack("advise", Path(home))
        on_file = json_of(read_search(folder).found)
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        answers = [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    known = {
        (one["setting"], one["question"]): (one["quality"], one["passes"] + 1e-6 * one["seconds"]) for one in answers
    }
    given = {name: manifest["identity"]["space"][name] for name in SearchSpace.__dataclass_fields__}
    space = SearchSpace(**{name: tuple(v) if isinstance(v, list) else v for name, v in given.items()})
    first = settings_in(space)
    cached = {number: space.cached_variants(one) for number, one in enumerate(first)}
    settings = [*first, *(one for listed in cached.values() for one in listed)]
    numbers = {one.name: number for number, one in enumerate(settings)}
    plan = Plan(tuple(manifest["plan"]["rounds"]), manifest["plan"]["held"])
    seed, count = manifest["identity"]["seed"], manifest["identity"]["questions"]["count"]
    order = numpy_generator("advise", seed, "order").permutation(count).tolist()

    def ask(asked: Sequence[int], questions: range) -> tuple[Any, Any]:
        found = [[known[settings[one].name, order[place]] for place in questions] for one in asked]
        return tuple(np.array(found).transpose(2, 0, 1))

    rounds = halve(ask, range(len(first)), plan, lambda kept: [numbers[v.name] for one in kept for v in cached[one]])
    last = finalists(rounds)
    quality, cost = ask(last, plan.held_back)
    found = confirm(quality, cost.mean(1))
    names = [settings[one].name for one in last]
    pairs = [["/".join(names[one] for one in pair), *map(short, (gap.mean, gap.low, gap.high))]
             for pair, gap in found.differences.items()]  # fmt: skip
    pick = {"best": found.best, "winner": found.winner, "highest": found.highest,
            "within 1 point": found.fastest_within(0.01), "within 3 points": found.fastest_within(0.03)}  # fmt: skip
    return {
        "on file": by_path(rows_in(on_file, "advice.json", "advise", {})),
        "rounds": [[one.questions, [settings[number].name for number in one.kept]] for one in rounds],
        "quality": [[name, *map(short, (one.mean, one.low, one.high)), short(cost)]
                    for name, one, cost in zip(names, found.quality, found.cost, strict=True)],
        "differences": pairs,
        "picked": {goal: None if place is None else names[place] for goal, place in pick.items()},
        "frontier": [names[place] for place in found.frontier],
        "questions to decide": [found.questions_to_decide(0.03), found.questions_to_decide(0.01)],
        "skill": by_path(rows_in(json_of(found.skill(CHANCE)), "skill", "advise", {})),
    }  # fmt: skip


def json_of(content: Any) -> Any:
    """Typed values of the package as plain JSON."""
    from maskwise.support.typed import json_object

    return json_object(content)


# Questions


def prompts() -> dict[str, str]:
    """The text that was asked for four records of each probe, and for two questions of GSM8K."""
    from maskwise.runs.run import Sources

    data = dict(folders.read_datasets())
    gsm8k = {"gsm8k": data.pop("gsm8k")}
    texts = {}
    for name in ("tiny-llada", "tiny-dream", "tiny-qwen"):
        run = replace(run_of(name), sources=Sources(data=data))
        known = {name_of(name, record): record for record in run.records}
        for stored_name in (one for one in stored.read("computed/prompts") if one.startswith(f"{name}/")):
            if (of_today := today(stored_name)) in known:
                texts[stored_name] = run.prompt(known[of_today])
    run = replace(run_of("tiny-llada"), sources=Sources(data=gsm8k))
    for record in (record for record in run.records if record.probe == "likelihood-masks" and record.point < 2):
        asked = record.changed(task="gsm8k")
        texts[name_of("tiny-llada", asked)] = run.prompt(asked)
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

    if name == "computed/published":
        return {"/".join(MERGED_NAMES.get(part, part) for part in path.split("/")): row for path, row in value.items()}
    if isinstance(value, dict) and "records" in value:
        counts: dict[str, int] = {}
        for probe, count in value["records"].items():
            counts[MERGED.get(probe, probe)] = counts.get(MERGED.get(probe, probe), 0) + count
        return value | {"records": counts}
    return value


def datasets() -> dict[str, Any]:
    """What is read of ten invented lines in the published form of each data set."""
    return {name: asdict(found) for name, found in folders.read_datasets()}
