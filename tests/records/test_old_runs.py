"""Run folders of version 0.2: what they hold of removed probes is skipped, and what cannot be read is refused.

data/run_of_0.2 was written by commit cc8a75cd: `maskwise diagnose tiny-llada --quick --questions 1`, seven probes, one
task; of unfamiliar and numerics only the first lines are kept.
"""

import json
from pathlib import Path
from shutil import copytree

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.page_reader import read
from maskwise.cli import app
from maskwise.probes import PROBES
from maskwise.records.folder import read_manifest, read_run, start_run
from maskwise.support.errors import UserError
from maskwise.support.removed import REMOVED

OLD = Path(__file__).parent.parent / "data" / "run_of_0.2"
STAY, GONE = {"location", "mask-count", "filler"}, {"calibration", "room", "unfamiliar", "numerics"}


@pytest.fixture
def old(tmp_path):
    return Path(copytree(OLD, tmp_path / "old"))


def changed(folder, **parts):
    """The folder with other entries in parts of its manifest."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    for part, entries in parts.items():
        manifest[part] = manifest[part] | entries if isinstance(entries, dict) else entries
    file.write_text(json.dumps(manifest))
    return folder


def test_answers_of_removed_probes_are_skipped_and_named_in_one_note(old):
    lines = [json.loads(line) for line in (old / "records.jsonl").read_text().splitlines()]
    assert {line["probe"] for line in lines} == STAY | GONE and REMOVED["probe"].keys() >= GONE
    run = mw.read_run(old)
    assert {record.probe for record in run.records} == STAY == STAY & {probe.name for probe in PROBES}
    assert len(run.records) == sum(line["probe"] in STAY for line in lines)
    (note,) = run.manifest.notes
    assert all(name in note for name in GONE) and "cc8a75cd" in note
    assert set(run.manifest.settings.probes) == STAY | GONE  # its list as it was
    assert all("relevant" in record.condition for record in run.records)
    assert "Options:" in run.prompt(run.table("mask-count").iloc[0])


def test_it_is_drawn_and_compared(old, tmp_path):
    done = CliRunner().invoke(app, ["report", str(old), "--out", str(tmp_path / "page")])
    assert done.exit_code == 0, done.output
    assert read(tmp_path / "page" / "report.html").words.count("cc8a75cd") == 1
    other = copytree(OLD, tmp_path / "other")
    assert len(mw.compare(str(old), str(other)).runs) == 2


@pytest.mark.parametrize(
    "parts",
    [
        {"settings": {"precision": 2.0}},
        {"settings": {"preset": "default"}},
        {"complete": False},
        {"versions": {"maskwise": "0.2.0"}},
    ],
)
def test_fields_of_removed_options_are_read(old, parts):
    assert len(mw.read_run(changed(old, **parts)).records) == 10


def test_evidence_of_the_removed_vote_is_read(old):
    changed(old, settings={"probes": ["trajectory"], "parameters": {}})
    line = json.loads((old / "records.jsonl").read_text().splitlines()[0]) | {
        "probe": "trajectory", "condition": {"rule": "random", "tokens_per_step": 1},
        "evidence": {"answers": [0, 0], "right": 0, "voted": 1, "changed": 0},
    }  # fmt: skip
    (old / "records.jsonl").write_text(json.dumps(line) + "\n")
    assert mw.read_run(old).records[0].evidence["answers"] == [0, 0]


@pytest.mark.parametrize(
    "parts",
    [
        {"settings": {"probes": ["room", "numerics"]}},
        {"model": {"kind": "served", "served": {"stated_by": {}}}},
    ],
)
def test_a_folder_without_anything_that_is_read_names_the_commit_that_reads_it(old, parts):
    with pytest.raises(UserError, match="cc8a75cd") as refused:
        read_run(changed(old, **parts))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("file", ["cures.json", "cures.partial.jsonl"])
def test_a_folder_of_cures_names_the_commit_that_reads_it(tmp_path, file):
    (tmp_path / file).write_text("{}\n")
    with pytest.raises(UserError, match="cc8a75cd"):
        mw.read_run(tmp_path)
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 2 and "cc8a75cd" in done.stderr


def test_an_unfinished_run_is_not_resumed(old):
    manifest = read_manifest(old)
    with pytest.raises(UserError, match=r"0\.2\.0\.dev0"):
        start_run(changed(old, complete=False), manifest)


def test_lines_of_removed_probes_are_refused_where_the_run_did_not_ask_them(old):
    with pytest.raises(UserError, match="line 7"):
        read_run(changed(old, settings={"probes": sorted(STAY)}))
