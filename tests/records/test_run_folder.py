"""Run folders: what is refused, and what survives."""

import copy
import json
from dataclasses import replace

import pytest

from helpers.asked_alone import small_model
from helpers.known import SMALL
from helpers.tiny import tiny_llada
from maskwise.errors import UserError
from maskwise.models.fingerprint import fingerprint
from maskwise.probes.probe import Asker, Setup
from maskwise.records.folder import append, gather, read_run, start_run, write_manifest
from maskwise.records.record import condition_order
from maskwise.runs.diagnose import diagnose, folder_name, new_manifest
from maskwise.tasks.words import load_words

MANIFEST = {
    "model": {"name": "m"},
    "settings": {"probes": ["mask-count", "location"], "tasks": ["t"], "points": 3},
    "versions": {},
    "complete": False,
    "notes": [],
}


def record(point, **more):
    plain = {"probe": "mask-count", "task": "t", "point": point, "condition": {"masks": 2}, "masks": 2}
    answer = {"predicted": "A", "answer": "A", "correct": True, "confidence": 1.0, "entropy": 0.0, "nll": 0.0}
    return {"model": "m"} | plain | answer | more


def test_records_of_several_processes_become_one_file_in_one_order(tmp_path):
    start_run(tmp_path, MANIFEST)
    append(tmp_path, 1, [record(1), record(0, probe="location", condition={"location": 10})])
    append(tmp_path, 0, [record(0, condition={"masks": 10}), record(0)])
    append(tmp_path, 1, [record(0), record(0, probe="location", condition={"location": 2})])
    gather(tmp_path, MANIFEST)
    order = [(r["probe"], r["point"], *r["condition"].values()) for r in read_run(tmp_path).records]
    masks = [("mask-count", 0, 2), ("mask-count", 0, 10), ("mask-count", 1, 2)]
    assert order == [*masks, ("location", 0, 2), ("location", 0, 10)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["manifest.json", "records.jsonl"]


def test_any_text_survives(tmp_path):
    start_run(tmp_path, MANIFEST)
    odd = [record(0, predicted="\u2028\n\x00\ud800"[:3]), record(1, predicted="答え")]
    append(tmp_path, 0, odd)
    assert read_run(tmp_path).records == odd


def test_numbers_are_ordered_as_numbers():
    conditions = [{"masks": 10}, {"masks": 2}, {"masks": "2 masks"}, {"masks": 100}]
    assert sorted(conditions, key=condition_order) == [
        {"masks": 2},
        {"masks": 10},
        {"masks": 100},
        {"masks": "2 masks"},
    ]


def test_a_folder_made_with_other_settings_is_refused_and_untouched(tmp_path):
    start_run(tmp_path, MANIFEST)
    append(tmp_path, 0, [record(0)])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    other = copy.deepcopy(MANIFEST)
    other["settings"]["points"] = 4
    with pytest.raises(UserError, match="other settings: points was 3 and is 4 now"):
        start_run(tmp_path, other)
    other = copy.deepcopy(MANIFEST)
    other["model"]["name"] = "n"
    with pytest.raises(UserError, match='another model: name was "m"'):
        start_run(tmp_path, other)
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    start_run(tmp_path, MANIFEST | {"versions": {"torch": "newer"}})


def test_a_diagnosis_with_other_settings_or_weights_is_refused(tmp_path):
    few = replace(SMALL, probes=("mask-count",), points=1)
    diagnose(small_model(), few, tmp_path)
    with pytest.raises(UserError, match="points"):
        diagnose(small_model(), replace(few, points=2), tmp_path)
    with pytest.raises(UserError, match="words"):
        diagnose(small_model(), few, tmp_path, words=load_words() | {"fruit": ["fig"]})
    retrained = small_model()
    next(retrained.net.parameters()).data += 1
    with pytest.raises(UserError, match="fingerprint"):
        diagnose(retrained, few, tmp_path)


def test_folder_names_differ_with_anything_that_matters():
    def name(model, settings):
        asker = Asker(None, model.mask_id, 0)
        return folder_name(new_manifest(Setup(model, asker, settings, {}, "", {}, []), command=None))

    model = tiny_llada()
    assert name(model, SMALL) == name(tiny_llada(), SMALL) != name(tiny_llada(seed=1), SMALL)
    assert name(model, SMALL) != name(model, replace(SMALL, seed=1))
    assert name(model, SMALL).startswith("tiny-random-LLaDA-quick-")
    assert fingerprint(model) == fingerprint(tiny_llada()) != fingerprint(tiny_llada(seed=1))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "not a run folder"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "not a manifest"),
        (lambda folder: (folder / "records.jsonl").write_text("{}\n"), "line 1"),
        (lambda folder: (folder / "records.jsonl").write_text(json.dumps(record(0)) + "\n[\n"), "line 2"),
    ],
)
def test_a_spoiled_folder_is_named(tmp_path, spoil, said):
    start_run(tmp_path, MANIFEST)
    append(tmp_path, 0, [record(0)])
    spoil(tmp_path)
    with pytest.raises(UserError, match=said):
        read_run(tmp_path)


def test_records_without_a_manifest_are_not_overwritten(tmp_path):
    (tmp_path / "records.jsonl").write_text("precious\n")
    with pytest.raises(UserError, match="without a manifest"):
        start_run(tmp_path, MANIFEST)
    assert (tmp_path / "records.jsonl").read_text() == "precious\n"


def test_no_space_left_is_one_line(tmp_path):
    start_run(tmp_path, MANIFEST)
    (tmp_path / "records.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left on device; the records so far are kept"):
        append(tmp_path, 0, [record(0)])
    (tmp_path / "manifest.json.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left"):
        write_manifest(tmp_path, MANIFEST)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the run folder"):
        start_run(tmp_path / "file" / "run", MANIFEST)
