"""Run folders: what is refused, and what survives."""

import json
import os
import re
import resource
from dataclasses import replace

import pytest
from msgspec import to_builtins
from msgspec.structs import replace as replace_fields

from helpers.asked_alone import small_model
from helpers.checkpoints import byte_tokenizer
from helpers.known import SMALL
from helpers.report_runs import write_run
from helpers.tiny import tiny_llada
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.probes import PROBES, record_fields
from maskwise.probes.setup import Asker, Setup
from maskwise.records.folder import append, gather, read_run, start_run, write_manifest
from maskwise.records.manifest import Manifest
from maskwise.records.record import Record, condition_order
from maskwise.runs.diagnose import diagnose, folder_name, new_manifest
from maskwise.support.errors import UserError
from maskwise.support.typed import convert
from maskwise.tasks.words import load_words

FIELDS = {
    "format": 2,
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
        "questions": 3,
        "seed": 0,
        "chat": False,
    },
    "versions": {},
    "complete": False,
    "notes": [],
}
MANIFEST = convert(FIELDS, Manifest)


def asking(*probes):
    return convert(FIELDS | {"settings": FIELDS["settings"] | {"probes": list(probes)}}, Manifest)


AT_2 = {"masks": 2, "relevant": 10}


def record(point, **more):
    plain = {"probe": "mask-count", "task": "t", "point": point, "condition": AT_2, "masks": 2}
    answer = {"predicted": "A", "answer": "A", "correct": True, "confidence": 1.0, "entropy": 0.0, "nll": 0.0}
    return {"model": "m"} | plain | answer | more


def test_records_of_several_processes_become_one_file_in_one_order(tmp_path):
    start_run(tmp_path, MANIFEST)
    far, near = ({"question": "right", "location": place, "masks": 0, "relevant": 10} for place in (2, 10))
    append(tmp_path, 1, [record(1), record(0, probe="location", condition=near)])
    append(tmp_path, 0, [record(0, condition={"masks": 10, "relevant": 10}), record(0)])
    append(tmp_path, 1, [record(0), record(0, probe="location", condition=far)])
    gather(tmp_path, MANIFEST)
    order = [(r["probe"], r["point"], *r["condition"].values()) for r in read_run(tmp_path).records]
    masks = [("mask-count", 0, 2, 10), ("mask-count", 0, 10, 10), ("mask-count", 1, 2, 10)]
    assert order == [*masks, ("location", 0, "right", 2, 0, 10), ("location", 0, "right", 10, 0, 10)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["manifest.json", "records.jsonl"]


def test_any_text_survives(tmp_path):
    start_run(tmp_path, MANIFEST)
    odd = [record(0, predicted="\u2028\n\x00\ud800"[:3]), record(1, predicted="答え")]
    append(tmp_path, 0, odd)
    assert to_builtins(list(read_run(tmp_path).records)) == odd


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
    other = replace_fields(MANIFEST, settings=replace_fields(MANIFEST.settings, questions=4))
    with pytest.raises(UserError, match="other settings: questions was 3 and is 4 now"):
        start_run(tmp_path, other)
    other = replace_fields(MANIFEST, model=replace_fields(MANIFEST.model, name="n"))
    with pytest.raises(UserError, match='another model: name was "m"'):
        start_run(tmp_path, other)
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    start_run(tmp_path, replace_fields(MANIFEST, versions={"torch": "newer"}))


def test_a_diagnosis_with_other_settings_or_weights_is_refused(tmp_path):
    few = replace(SMALL, probes=("mask-count",), questions=1)
    diagnose(small_model(), few, tmp_path)
    with pytest.raises(UserError, match="questions"):
        diagnose(small_model(), replace(few, questions=2), tmp_path)
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


@pytest.mark.parametrize(("template", "date"), [("{{ strftime_now('%d') }}", "2026-01-01"), ("{{ 1 }}", None)])
def test_the_date_that_a_template_is_shown_is_in_the_manifest(template, date):
    model = tiny_llada(tokenizer=byte_tokenizer(template))
    for chat, stated in ((True, date), (False, None)):
        setup = Setup(model, Asker(None, model.mask_id, 0), replace(SMALL, chat=chat), {}, "", {}, [])
        assert new_manifest(setup, command=None).settings.date == stated


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
        ({"correct": 7}, "correct: expected bool, got int"),
        ({"correct": "yes"}, "correct: expected bool, got str"),
        ({"point": True}, "point: expected int, got bool"),
        ({"point": -1}, "point: expected int >= 0"),
        ({"point": 2**70}, "point: expected int <= 9223372036854775807"),
        ({"masks": 2.5}, "masks: expected int, got float"),
        ({"confidence": 1.2}, "confidence: expected float <= 1.0"),
        ({"nll_choice": "x"}, "nll_choice: expected float | null, got str"),
        ({"condition": {"masks": [2]}}, "condition[...]: expected bool | int | float | str, got array"),
        ({"condition": "masks"}, "condition: expected object, got str"),
        ({"evidence": {"tau": {}}}, "evidence[...]: expected bool | int | float | str | array | null, got object"),
        ({"evidence": [1]}, "evidence: expected object, got array"),
        ({"task": 3}, "task: expected str, got int"),
        ({"model": "n"}, "a record of another model, 'n'"),
        ({"probe": "nelbo"}, "did not ask the probe 'nelbo'"),
    ],
)
def test_a_line_that_is_no_record_of_the_run_is_named_by_its_number(tmp_path, change, said):
    start_run(tmp_path, MANIFEST)
    append(tmp_path, 0, [record(0), record(1) | change])
    with pytest.raises(UserError, match=r"records.jsonl line 2 is not a record of this run: .*remove the line") as text:
        read_run(tmp_path)
    assert said in str(text.value) and "\n" not in str(text.value)


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
    found = sorted(read_run(tmp_path).records, key=lambda r: r.point)
    assert to_builtins(found) == [record(0), record(1), record(2)]
    append(tmp_path, 1, [record(1, correct=False)])
    with pytest.raises(UserError, match=r"records.1.jsonl line 4 .* answered before, in another way"):
        read_run(tmp_path)


def test_conditions_that_python_holds_equal_are_kept_apart(tmp_path):
    start_run(tmp_path, asking("mine"))
    found = [record(0, probe="mine", condition={"masks": value}) for value in (1, 1.0, "1")]
    append(tmp_path, 0, found)
    assert [str(r["condition"]["masks"]) for r in read_run(tmp_path).records] == ["1", "1.0", "1"]


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        (None, {"complete": 1}, "complete: expected bool, got int"),
        (None, {"notes": "x"}, "notes: expected array, got str"),
        (None, {"model": []}, "model: expected object, got array"),
        ("model", {"name": 3}, "model.name: expected str, got int"),
        ("model", {"mask_id": "x"}, r"model.mask_id: expected int \| null, got str"),
        ("settings", {"probes": "all"}, "settings.probes: expected array, got str"),
        ("settings", {"tasks": None}, "settings.tasks: expected array, got null"),
        (None, {"command": 7}, r"command: expected str \| null, got int"),
        ("model", {"planted": []}, r"model.planted: expected str \| null, got array"),
        ("settings", {"relevant": "x"}, r"settings.relevant: expected int \| array \| null, got str"),
        ("settings", {"distractors": "x"}, r"settings.distractors: expected int \| null, got str"),
        ("settings", {"filler": 1.5}, r"settings.filler: expected str \| null, got float"),
        ("settings", {"parameters": {"order": None}}, r"settings.parameters\[...\]: expected object, got null"),
    ],
)
def test_a_manifest_of_other_types_is_refused(tmp_path, part, change, said):
    start_run(tmp_path, MANIFEST)
    spoiled = FIELDS | (change if part is None else {part: FIELDS[part] | change})
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
    assert (tmp_path / "manifest.json").read_bytes() == before and list(read_run(tmp_path).records) == []


def test_links_in_a_run_folder_are_not_followed(tmp_path):
    (tmp_path / "run").mkdir()
    start_run(tmp_path / "run", MANIFEST)
    (tmp_path / "precious").write_text("kept")
    for name in ("records.jsonl", "manifest.json.partial"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=r"records.jsonl is a link, which is not followed"):
        append(tmp_path / "run", 0, [record(0)])
    with pytest.raises(UserError, match=r"manifest.json.partial is a link, which is not followed"):
        write_manifest(tmp_path / "run", MANIFEST)
    assert (tmp_path / "precious").read_text() == "kept"


RECALLED = {"question": "right", "distance": "near", "masks": 2, "fillers": 0}


@pytest.mark.parametrize(
    "probe, changes, said",
    [
        ("location", {"condition": {}}, "condition.location is missing"),
        ("location", {"condition": {"location": "x"}}, "condition.location: expected int, got str"),
        ("location", {"condition": {"location": 1, "y": 2}}, "condition has an unknown field 'y'"),
        ("recall", {"condition": RECALLED}, "evidence.pairs is missing"),
        ("recall", {"condition": RECALLED, "evidence": {"pairs": 0}}, "evidence.pairs: expected int >= 1"),
        ("order", {"condition": {"rule": "x"}, "evidence": {"tau": "y"}}, "evidence.tau: expected float, got str"),
    ],
)
def test_a_record_has_what_its_probe_counts_on(tmp_path, probe, changes, said):
    """Also where another probe, here a user's own, has records of the same condition."""
    record = {"model": "m", "task": "t", "point": 0, "masks": 2, "predicted": "A", "answer": "A", "correct": True,
              "confidence": 0.5, "entropy": 0.5, "nll": 0.5} | changes  # fmt: skip
    start_run(tmp_path, asking("mine", probe))
    append(tmp_path, 0, [record | {"probe": "mine"}, record | {"probe": probe}])
    with pytest.raises(UserError, match=re.escape(f"line 2 is not a record of this run: {said}")):
        read_run(tmp_path, record_fields())


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
    start_run(tmp_path, asking(probe))
    append(tmp_path, 0, [record])
    assert len(read_run(tmp_path, record_fields()).records) == 1


def test_numbers_in_lists_of_evidence_keep_their_type(tmp_path):
    start_run(tmp_path, asking("mine"))
    held = {"whole": [1, 0], "shares": [1.0, 0.5], "count": 2}
    append(tmp_path, 0, [record(0, probe="mine", evidence=held)])
    (back,) = read_run(tmp_path, record_fields()).records
    assert json.dumps(back.evidence) == json.dumps(held)  # 1 == 1.0 in Python


def test_every_probe_says_what_its_records_hold():
    assert all(probe.condition is not None for probe in PROBES)


def test_answers_without_probabilities_are_records_too(tmp_path):
    start_run(tmp_path, MANIFEST)
    bare = {name: value for name, value in record(0).items() if name not in ("confidence", "entropy", "nll")}
    append(tmp_path, 0, [bare, bare | {"point": 1}])
    run = read_run(tmp_path, record_fields())
    assert to_builtins(run.records) == [bare, bare | {"point": 1}]
    table = run.tables["mask-count"]
    assert table.correct.tolist() == [1, 1] and table[["confidence", "entropy", "nll"]].isna().all(axis=None)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_hold_are_not_written(tmp_path, number):
    """msgspec's own encoder would write null."""
    start_run(tmp_path, MANIFEST)
    with pytest.raises(ValueError, match="JSON compliant"):
        append(tmp_path, 0, [convert(record(0), Record) | {"nll": number}])
    assert list(read_run(tmp_path).records) == []


@pytest.mark.parametrize("name", ["records.jsonl", "manifest.json"])
def test_a_device_or_a_fifo_in_a_run_folder_is_one_line(tmp_path, name):
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match=f"{name} is not a regular file"):
        read_run(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(UserError, match=f"{name} is not a regular file"):
        read_run(folder)
