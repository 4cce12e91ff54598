"""Run folders: what is refused, and what survives."""

import copy
import json
import re
import resource
from dataclasses import replace

import pytest

from helpers.asked_alone import small_model
from helpers.known import SMALL
from helpers.tiny import tiny_llada
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.probes import PROBES
from maskwise.probes.probe import Asker, Setup
from maskwise.records.conditions import CONDITIONS, EVIDENCE
from maskwise.records.folder import append, gather, read_run, start_run, write_manifest
from maskwise.records.record import condition_order
from maskwise.runs.diagnose import diagnose, folder_name, new_manifest
from maskwise.support.errors import UserError
from maskwise.tasks.words import load_words

MANIFEST = {
    "model": {
        "name": "m",
        "kind": "llada",
        "parameters": 1,
        "window": 9,
        "mask_id": 3,
        "shift": False,
        "causal": False,
        "dtype": "float32",
    },
    "settings": {
        "preset": "quick",
        "probes": ["mask-count", "location"],
        "tasks": ["t"],
        "points": 3,
        "seed": 0,
        "chat": False,
    },
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"correct": 7}, "correct is 7, not true or false"),
        ({"correct": "yes"}, "correct is 'yes'"),
        ({"point": True}, "point is True, not a whole number"),
        ({"point": -1}, "point is -1"),
        ({"point": 2**70}, "point is 1180591620717411303424"),
        ({"masks": 2.5}, "masks is 2.5"),
        ({"confidence": 1.2}, "confidence is 1.2, not a number from 0 to 1"),
        ({"nll": None}, "nll is None"),
        ({"nll_choice": "x"}, "nll_choice is 'x'"),
        ({"condition": {"masks": [2]}}, "condition is"),
        ({"condition": "masks"}, "condition is 'masks'"),
        ({"evidence": {"tau": {}}}, "evidence is"),
        ({"evidence": [1]}, "evidence is"),
        ({"task": 3}, "task is 3, not a text"),
        ({"model": "n"}, "a record of another model, 'n'"),
        ({"probe": "nelbo"}, "did not ask the probe 'nelbo'"),
    ],
)
def test_a_line_that_is_no_record_of_the_run_is_named_by_its_number(tmp_path, change, said):
    start_run(tmp_path, MANIFEST)
    append(tmp_path, 0, [record(0), record(1) | change])
    with pytest.raises(UserError, match=r"records.jsonl line 2 is not a record of this run: .*remove the line") as told:
        read_run(tmp_path)
    assert said in str(told.value) and "\n" not in str(told.value)


def test_numbers_that_json_cannot_hold_are_refused_with_their_line(tmp_path):
    start_run(tmp_path, MANIFEST)
    for number in ("NaN", "-Infinity", "1e999", "9" * 5000):
        line = json.dumps(record(0)).replace('"nll": 0.0', f'"nll": {number}')
        (tmp_path / "records.jsonl").write_text(json.dumps(record(1)) + "\n" + line + "\n")
        with pytest.raises(UserError, match="line 2"):
            read_run(tmp_path)


def test_a_record_counts_once_and_two_answers_to_one_question_are_refused(tmp_path):
    start_run(tmp_path, MANIFEST)
    append(tmp_path, 0, [record(0), record(1)])
    append(tmp_path, 1, [record(1), record(0), record(2)])
    assert sorted(read_run(tmp_path).records, key=lambda r: r["point"]) == [record(0), record(1), record(2)]
    append(tmp_path, 1, [record(1, correct=False)])
    with pytest.raises(UserError, match=r"records.1.jsonl line 4 .* answered before, in another way"):
        read_run(tmp_path)


def test_conditions_that_python_holds_equal_are_kept_apart(tmp_path):
    start_run(tmp_path, MANIFEST | {"settings": MANIFEST["settings"] | {"probes": ["mine"]}})
    found = [record(0, probe="mine", condition={"masks": value}) for value in (1, 1.0, "1")]
    append(tmp_path, 0, found)
    assert [str(r["condition"]["masks"]) for r in read_run(tmp_path).records] == ["1", "1.0", "1"]


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        (None, {"complete": 1}, "complete is 1, not true or false"),
        (None, {"notes": "x"}, "notes is 'x'"),
        (None, {"model": []}, r"model is \[\], not an object"),
        ("model", {"name": 3}, "model.name is 3"),
        ("model", {"mask_id": "x"}, "model.mask_id is 'x'"),
        ("settings", {"probes": "all"}, "settings.probes is 'all'"),
        ("settings", {"tasks": None}, "settings.tasks is None"),
        (None, {"command": 7}, "command is 7, not a text, or null"),
        ("model", {"planted": []}, r"model.planted is \[\]"),
        ("settings", {"relevant": "x"}, "settings.relevant is 'x', not a list of whole numbers"),
        ("settings", {"distractors": "x"}, "settings.distractors is 'x'"),
        ("settings", {"filler": 1.5}, "settings.filler is 1.5"),
        ("settings", {"precision": {}}, r"settings.precision is \{\}"),
        ("settings", {"parameters": {"order": None}}, "settings.parameters is"),
    ],
)
def test_a_manifest_of_other_types_is_refused(tmp_path, part, change, said):
    start_run(tmp_path, MANIFEST)
    spoiled = MANIFEST | (change if part is None else {part: MANIFEST[part] | change})
    (tmp_path / "manifest.json").write_text(json.dumps(spoiled))
    with pytest.raises(UserError, match=said):
        read_run(tmp_path)


def test_records_without_a_manifest_are_not_overwritten(tmp_path):
    (tmp_path / "records.jsonl").write_text("precious\n")
    with pytest.raises(UserError, match="without a manifest"):
        start_run(tmp_path, MANIFEST)
    assert (tmp_path / "records.jsonl").read_text() == "precious\n"


def test_no_space_left_is_one_line(tmp_path):
    start_run(tmp_path, MANIFEST)
    before = (tmp_path / "manifest.json").read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(UserError, match="File too large; the records so far are kept"):
            append(tmp_path, 0, [record(0)])
        with pytest.raises(UserError, match="File too large"):
            write_manifest(tmp_path, MANIFEST)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (tmp_path / "manifest.json").read_bytes() == before and read_run(tmp_path).records == []


def test_links_in_a_run_folder_are_not_followed(tmp_path):
    start_run(tmp_path / "run", MANIFEST)
    (tmp_path / "precious").write_text("kept")
    for name in ("records.jsonl", "manifest.json.partial"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=r"records.jsonl is a link, which is not followed"):
        append(tmp_path / "run", 0, [record(0)])
    with pytest.raises(UserError, match=r"manifest.json.partial is a link, which is not followed"):
        write_manifest(tmp_path / "run", MANIFEST)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the run folder"):
        start_run(tmp_path / "file" / "run", MANIFEST)


RECALLED = {"question": "right", "distance": "near", "masks": 2, "fillers": 0}


@pytest.mark.parametrize(
    "probe, changes, said",
    [
        ("location", {"condition": {}}, "condition.location is missing"),
        ("location", {"condition": {"location": "x"}}, "condition.location is 'x', not a whole number"),
        ("location", {"condition": {"location": 1, "y": 2}}, "condition has a field 'y'"),
        ("recall", {"condition": RECALLED}, "evidence.pairs is missing"),
        ("recall", {"condition": RECALLED, "evidence": {"pairs": 0}}, "evidence.pairs is 0, not a whole number, 1"),
        ("order", {"condition": {"rule": "x"}, "evidence": {"tau": "y"}}, "evidence.tau is 'y', not a number"),
    ],
)
def test_a_record_has_what_its_probe_counts_on(tmp_path, probe, changes, said):
    """Also where another probe, here a user's own, has records of the same condition."""
    record = {"model": "m", "task": "t", "point": 0, "masks": 2, "predicted": "A", "answer": "A", "correct": True,
              "confidence": 0.5, "entropy": 0.5, "nll": 0.5} | changes  # fmt: skip
    start_run(tmp_path, MANIFEST | {"settings": MANIFEST["settings"] | {"probes": ["mine", probe]}})
    append(tmp_path, 0, [record | {"probe": "mine"}, record | {"probe": probe}])
    with pytest.raises(UserError, match=re.escape(f"line 2 is not a record of this run: {said}")):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "probe, changes",
    [
        ("points", {"condition": {"order": "nearest last"}}),
        ("marginals", {"condition": {"suffix": "none", "distance": 1}, "evidence": {"tv_unigram": 0.5, "common": 0.1}}),
    ],
)
def test_records_of_earlier_versions_are_read(tmp_path, probe, changes):
    record = {"model": "m", "probe": probe, "task": "t", "point": 0, "masks": 2, "predicted": "A", "answer": "A",
              "correct": True, "confidence": 0.5, "entropy": 0.5, "nll": 0.5} | changes  # fmt: skip
    start_run(tmp_path, MANIFEST | {"settings": MANIFEST["settings"] | {"probes": [probe]}})
    append(tmp_path, 0, [record])
    assert len(read_run(tmp_path).records) == 1


def test_every_probe_says_what_its_records_hold():
    assert set(CONDITIONS) == {probe.name for probe in PROBES} and set(EVIDENCE) < set(CONDITIONS)
