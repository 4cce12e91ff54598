"""What the embedded models answer, write and score, in short: a restructuring must not change it.

`python tests/helpers/results.py` writes tests/data/results.json anew: only after a change that is meant to change
results, with the reason in the changelog under "Changed".
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import maskwise as mw
from maskwise.decoding.likelihood import log_likelihoods
from maskwise.decoding.strategies import STRATEGIES
from maskwise.models.model import Model
from maskwise.probes.summary import summarise
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import QUICK
from maskwise.support.typed import json_object

FILE = Path(__file__).parent.parent / "data" / "results.json"
PROBES = ("location", "mask-count", "filler", "natural-text", "attribution", "attention", "nelbo", "order")
PROMPTS = ["Once upon a time", "The king said that"]
TOKENS = 8


def results() -> dict[str, Any]:
    model = mw.open("tiny-llada", device="cpu")
    return {
        "diagnose": diagnosed(model),
        "generate": {strategy.name: written(model, strategy.name) for strategy in STRATEGIES},
        "likelihood": [round(one.log_likelihood, 4) for one in log_likelihoods(model, [("It was", " a dark night.")])],
    }


def diagnosed(model: Model) -> dict[str, Any]:
    """Of each probe every answer, and the sums of what was measured."""
    settings = replace(QUICK, probes=PROBES, tasks=QUICK.tasks[2:], points=1, passages=2).changed(
        "mask-count", mask_counts=(2, 20, 200), among=None
    )  # as on file: quick asks two counts among fewer distractors
    with tempfile.TemporaryDirectory() as folder:
        run = read_run(diagnose(model, settings, Path(folder) / "run"))
    found: dict[str, Any] = {"scores": json_object(summarise(run).scores)}
    for probe in PROBES:
        records = [record for record in run.records if record["probe"] == probe]
        sums = {name: sum(record[name] for record in records) for name in ("masks", "confidence", "entropy", "nll")}
        found[probe] = {"answers": "|".join(record["predicted"] for record in records), **sums}
    return found


def written(model: Model, rule: str) -> list[list[int]]:
    return [one.ids for one in mw.generate(model, PROMPTS, TOKENS, rule=rule, temperature=1.0)]


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(results(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
