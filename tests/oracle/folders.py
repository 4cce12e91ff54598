"""How the stored folders were made by commit cc8a75cd: run folders, answers of `cures`, a search of `advise`.

Later versions write other lines. So these folders are not made again: they prove that old folders open.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from oracle import stored
from oracle.rows import REMOVED

GONE_OF_02 = ("calibration", "room", "unfamiliar", "numerics")
SIX = ("location", "recall", "mask-count", "contrast", "attribution", "coherence")
MORE = ("few-steps", "nelbo", "filler", "mask-attribution", "shots-masks")  # for `compare` and the published values
TASKS = ("animal-smallest", "verb-largest", "emotion-smallest")
# Quick asks some probes so little that not each of their numbers has a value, and others for minutes.
CHANGED: Mapping[str, Mapping[str, Any]] = {
    "mask-count": {"mask_counts": (2, 20, 200)},
    "filler": {"filler_counts": (0, 200)},
    "recall": {"mask_counts": (2, 20), "filler_counts": (18,)},
    "contrast": {"tasks": 2, "mask_counts": (2, 200)},
    "mechanism": {"points": 2},
    "unmasking": {"masks": (2, 20), "points": 2},
    "few-steps": {"masks": (2, 100), "steps": (2, 4, 6), "points": 2},
    "shots-masks": {"shots": (2, 10), "masks": (1, 200)},
    "points": {"clouds": 1, "points": 2},
    "generation-length": {"canvases": (16, 64)},
    "templates": {"tasks": 2},
}
DIGITS = 5  # of floats in stored lines
DATASETS = stored.DATA / "datasets"
DATASET_NAMES = ("hotpotqa", "ag-news", "sst2", "rotten-tomatoes", "mrpc", "rte", "qnli", "gsm8k")


def made() -> dict[str, Callable[[], dict[str, str]]]:
    """Each folder by name: the function that makes it and gives its files."""
    return {
        "tiny-llada": partial(asked, "tiny-llada", (), questions=3, relevant=(1, 10), puzzles=3),
        "tiny-llada-more": partial(asked, "tiny-llada", ("confidence",), points=8),
        "tiny-llada+distracted": partial(asked, "tiny-llada+distracted", (*SIX, *MORE), questions=3, relevant=(1, 10)),
        "tiny-dream": partial(asked, "tiny-dream", SIX),
        "tiny-qwen": partial(asked, "tiny-qwen", SIX),
        "random-llada2": partial(asked, "random LLaDA2", (*SIX, "block-offset")),
        "removed-probes": partial(asked, "tiny-llada", ("mask-count", *GONE_OF_02), questions=2, relevant=(1,)),
        "cures": answers_of_mitigations,
        "advise": searched,
    }


def asked(
    model: str, probes: Sequence[str], points: int = 2, relevant: Sequence[int] = (10,), puzzles: int = 1
) -> dict[str, str]:
    """A run at the sizes of `quick`; no probes: all that stay."""
    import maskwise as mw
    from helpers.known import shipped_tokenizer
    from helpers.tiny import tiny_llada2
    from maskwise.probes import PROBES
    from maskwise.runs.diagnose import diagnose
    from maskwise.runs.settings import chosen_settings, with_tasks

    staying = [probe.name for probe in PROBES if not probe.only_blocks and probe.name not in REMOVED]
    settings = chosen_settings("quick", list(probes) or staying, questions=points, relevant=tuple(relevant))
    settings, _ = with_tasks(settings, TASKS)
    for probe, parameters in {**CHANGED, "coherence": {"puzzles": puzzles}}.items():
        settings = settings.changed(probe, **parameters)
    taken = {"hotpotqa": "datasets", "gsm8k": ""}  # the others are taken by shots-masks
    data = {name: own for name, own in read_datasets() if taken.get(name, "shots-masks") in settings.probes}
    random = model == "random LLaDA2"
    opened = tiny_llada2(tokenizer=shipped_tokenizer(), vocab=2056, window=2048) if random else mw.open(model)
    with tempfile.TemporaryDirectory() as home:
        return packed(diagnose(opened, settings, Path(home) / "run", data=data))


def answers_of_mitigations() -> dict[str, str]:
    """Every way but voting, on tiny-llada+distracted and with its adapter: each answer as the comparison keeps it."""
    from maskwise.experiments.kept_answers import FILE, KeptAnswers
    from maskwise.experiments.mitigations import Exam, compare_mitigations
    from maskwise.experiments.tuned_adapters import with_method

    import maskwise as mw
    from maskwise.models.checkpoints.locations import locate_checkpoint
    from maskwise.tasks import rules

    tuned, exam = "tiny-llada+distracted+ma", Exam(questions=3, relevant=1, distractors=7, tasks=rules.TASKS[:4])
    adapter = with_method(mw.open(tuned), locate_checkpoint(tuned)[1][-1])
    with tempfile.TemporaryDirectory() as home:
        compare_mitigations(mw.open("tiny-llada+distracted"), [adapter], exam, kept=KeptAnswers(Path(home), {}))
        lines = (Path(home) / FILE).read_text(encoding="utf-8").splitlines(keepends=True)[1:]
    return {"answers.jsonl": "".join(with_short_floats(line) for line in lines if "temporal voting" not in line)}


def searched() -> dict[str, str]:
    """A search of `advise` over embedded questions, without voting."""
    from maskwise.advice.search_request import prepare
    from maskwise.advice.searching import search_settings

    import maskwise as mw

    request = prepare(blocks=(8, 32), steps=(12,), max_new_tokens=96, caches="none,dual")
    request = replace(request, questions=request.questions[::4], budget=None, space=replace(request.space, vote=None))
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "search"
        search_settings(request, mw.open("tiny-llada+distracted"), None, "tiny-llada+distracted", None, folder)
        return packed(folder)


def packed(folder: Path) -> dict[str, str]:
    """The files that make a run or a search, and the advice of a search."""
    kept = [folder / name for name in ("manifest.json", "records.jsonl", "advice.json")]
    found = {one.name: one.read_text(encoding="utf-8").replace(f"{folder.parent}/", "") for one in kept if one.exists()}
    return found | {"records.jsonl": "".join(map(with_short_floats, found["records.jsonl"].splitlines(keepends=True)))}


def with_short_floats(line: str) -> str:
    """The same line of JSON with floats in DIGITS decimals."""
    assert json.dumps(json.loads(line), ensure_ascii=False) + "\n" == line
    content = json.loads(line, parse_float=lambda text: round(float(text), DIGITS))
    return json.dumps(content, ensure_ascii=False) + "\n"


def read_datasets() -> Iterator[tuple[str, Any]]:
    """Ten invented lines in the published form of each data set, as the package reads them."""
    from maskwise.tasks.datasets import read_dataset

    for name in DATASET_NAMES:
        yield name, read_dataset(name, DATASETS / ("hotpotqa.json" if name == "hotpotqa" else name))
