"""result.json of a run: every estimate with its intervals and what tells runs apart, without a text or a path.

Runs may be compared where their digests of a probe are equal: it was asked the same questions.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskwise.models.checkpoints.cards import public_name
from maskwise.probes import published
from maskwise.records.manifest import Manifest
from maskwise.report.measured import MeasuredRun
from maskwise.report.screen import PROBE_OF, WHAT
from maskwise.support.files import OTHER_FOLDER, replace_file, to_json, writing

RESULT = "result.json"
MODEL = ("kind", "parameters", "window", "block", "causal", "dtype", "weights", "fingerprint")
NO_QUESTIONS = {"preset", "probes", "parameters", "exact"}  # settings that change none


def result_of(run: MeasuredRun) -> dict[str, Any]:
    manifest, screen = run.manifest, run.screen
    listed = [(probe, one) for probe, found in run.measured.items() for one in found]
    named = {(probe, one.name) for probe, one in listed}
    listed += [(PROBE_OF[key], one) for key, one in screen.estimates if (PROBE_OF[key], one.name) not in named]
    known = published.published(manifest, run.measured)
    fixed = {(probe, one.name): {"published": said, "predicted": ends} for probe, one, said, ends in known}
    model = {name: manifest.model[name] for name in MODEL if name in manifest.model}
    counts = {name: table.masks.dropna() for name, table in run.tables.items() if "masks" in table}
    return {
        "format": 1,
        "model": {"name": public_name(manifest.model.name), **model, "planted": bool(manifest.model.planted)},
        "versions": manifest.versions,
        "complete": manifest.complete,
        "digests": digests(manifest),
        "mask_counts": {name: sorted(set(map(str, own)), key=lambda k: (len(k), k)) for name, own in counts.items()},
        "verdicts": {key: {"verdict": one.word, "why": one.why} for key, one in screen.verdicts.items()},
        "estimates": [
            {"probe": probe} | one.row | {"verdict": one.verdict} | fixed.get((probe, one.name), {})
            for probe, one in listed
        ],
    }


def write_result(run: MeasuredRun) -> Path:
    with writing(f"{RESULT} into {run.folder}", OTHER_FOLDER):
        replace_file(run.folder / RESULT, [to_json(result_of(run), indent=2) + "\n"])
    return run.folder / RESULT


def digests(manifest: Manifest) -> dict[str, str]:
    """Of each probe: of every setting that changes its questions."""
    shared = {name: value for name, value in manifest.settings.to_dict().items() if name not in NO_QUESTIONS}
    own = manifest.settings.parameters or {}
    asked = {name: to_json(shared | {"parameters": own.get(name)}) for name in manifest.settings.probes}
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in asked.items()}


def table_of_runs(runs: Mapping[str, MeasuredRun]) -> tuple[list[str], list[list[str]]]:
    """(heads, rows): a row for each run, by its label, and a column for each row of the first screen. Runs that were
    asked other questions do not share a column."""
    asked = {label: digests(run.manifest) for label, run in runs.items()}
    rows = []
    for label, run in runs.items():
        row = {"run": label}
        for key, number in run.screen.numbers.items():
            same = list(dict.fromkeys(own[PROBE_OF[key]] for own in asked.values() if PROBE_OF[key] in own))
            several = f", settings {same.index(asked[label][PROBE_OF[key]]) + 1}" if len(same) > 1 else ""
            row[f"{WHAT[key]}{several}"] = f"{number} {run.screen.verdicts[key]}"
        rows.append(row)
    heads = list(dict.fromkeys(head for row in rows for head in row))
    return heads, [[row.get(head, "") for head in heads] for row in rows]
