"""Merged probes in folders of earlier versions: lines, manifest and sample are read under today's names."""

import json

import pytest
from msgspec import to_builtins

from helpers.records import manifest, record
from maskwise.probes import PROBES, record_fields
from maskwise.records.folder import append, read_manifest, read_run, write_manifest
from maskwise.records.record import key_of, make_key
from maskwise.records.upgrade import EARLIER, MERGED, upgrade
from maskwise.runs.settings import chosen_settings
from maskwise.support.errors import UserError

NORMS = {"masks": 0.2, "near": 0.1, "all": 0.05}
SHARES = {"masks": [0.2], "near": [0.5], "far": [0.2], "answer": [0.1]}
EXAMPLES = {"examples": [0.1, 0.3], "question": 0.5}


@pytest.fixture
def old(tmp_path):
    """A run of attribution and its two parts that were probes."""
    probes = ["attribution", "mask-attribution", "attention", "mask-count"]
    own = {"orderings": 5, "questions": 4, "near": 50}
    parameters = {"attribution": own | {"places": ["right", "left"]}, "mask-attribution": own | {"masks": 50}}
    parameters |= {"attention": own | {"masks": 50}, "mask-count": {}}
    found = to_builtins(manifest(probes=probes, parameters=parameters))
    not_visible = {"mask-attribution": [50], "attention": [50, 20]}
    write_manifest(tmp_path, {**found, "not_visible": not_visible})
    lines = [
        record(probe="attribution", condition={"question": "left"}, evidence=EXAMPLES),
        record(probe="mask-attribution", condition={"extra masks": 50}, evidence=NORMS),
        record(probe="attention", condition={"extra masks": 50}, evidence=SHARES),
    ]
    append(tmp_path, 0, lines)
    return tmp_path


def test_lines_and_manifest_are_read_under_todays_names(old):
    run = read_run(old, record_fields())
    assert {record.probe for record in run.records} == {"attribution"}
    assert [record.condition for record in run.records] == [
        {"of": "examples", "question": "left"},
        {"of": "masks", "extra masks": 50},
        {"of": "attention", "extra masks": 50},
    ]
    settings = run.manifest.settings
    assert settings.probes == ["attribution", "mask-count"]
    assert settings.parameters["attribution"] == {
        **{"orderings": 5, "questions": 4, "near": 50, "places": ["right", "left"], "masks": 50},
        "of": ["examples", "masks", "attention"],
    }
    assert run.manifest.not_visible == {"attribution": [50, 20]}


def test_what_is_todays_stays_as_it_is(old):
    found = read_manifest(old)
    write_manifest(old, found)
    assert read_manifest(old) == found
    for probe, (name, added, _) in EARLIER.items():
        known = {"a": 1, "relevant": 3}
        known |= {"question-position": {"question": "left"}, "location-masks": {"masks": 2}}.get(probe, {})
        today = upgrade(probe, known)
        assert today == (name, {**added, **known}) and upgrade(*today) == today


@pytest.mark.parametrize(
    ("probe", "condition", "of_settings", "named"),
    [
        ("mask-count", {"masks": 2}, [1, 10], 10),  # lines of 0.2 left the paper's number out
        ("mask-count", {"masks": 2, "relevant": 1}, [1, 10], 1),
        ("few-steps", {"steps": 2, "masks": 2}, None, 10),
        ("mask-count", {"masks": 2}, 3, 3),  # the one number of a run of 0.1
        ("shots-masks", {"shots": 5, "extra masks": 1}, [10], None),
        ("recall", {"masks": 2}, [10], None),
    ],
)
def test_conditions_name_the_number_of_relevant_examples(probe, condition, of_settings, named):
    name, found = upgrade(probe, condition, of_settings)
    assert found.get("relevant") == named
    assert upgrade(name, found, of_settings) == (name, found)
    assert "relevant" in condition or condition.get("relevant") is None  # what was given stays as it was


def test_the_keys_of_an_old_run_are_those_of_today(tmp_path):
    lines = [
        record(probe="mask-count", point=1, condition={"masks": 2}),
        record(probe="mask-count", point=1, condition={"masks": 2, "relevant": 1}),
        record(probe="location-masks", condition={"location": 0, "masks": 2}),
    ]
    write_manifest(tmp_path, to_builtins(manifest(probes=["mask-count", "location-masks"])))
    append(tmp_path, 0, lines)
    run = read_run(tmp_path, record_fields())
    at = {"question": "right", "location": 0, "masks": 2, "relevant": 10}
    assert run.answers.keys() == {
        make_key("mask-count", "t", 1, {"masks": 2, "relevant": 10}),
        make_key("mask-count", "t", 1, {"masks": 2, "relevant": 1}),
        make_key("location", "t", 0, at),
    } == set(map(key_of, run.records))  # fmt: skip
    assert run.tables["mask-count"].relevant.tolist() == [10, 1]


def test_probes_of_places_and_of_steps_keep_all_their_records(tmp_path):
    """What two of them asked is one record, also where the two were answered in different batches."""
    lines = [
        record(probe="location", condition={"location": 10}, nll=0.5),
        record(probe="question-position", condition={"question": "right", "location": 10}, nll=0.5000001),
        record(probe="question-position", condition={"question": "left", "location": 10}),
        record(probe="location-masks", condition={"location": 10, "masks": 2}),
        record(probe="unmasking", condition={"order": "random", "masks": 2, "relevant": 1}),
        record(probe="few-steps", condition={"steps": 2, "masks": 2, "relevant": 1}),
    ]
    places = {"locations": [0, 10], "places": ["right", "left"]}
    parameters = {
        "location": {"locations": [0, 10]},
        "question-position": places,
        "location-masks": {"locations": [0, 20], "mask_counts": [2]},
        "unmasking": {"masks": [2, 20], "points": 5, "steps": 40},
        "few-steps": {"masks": [2, 100], "points": 5, "steps": [2, 4]},
    }
    write_manifest(tmp_path, to_builtins(manifest(probes=[*parameters], parameters=parameters)))
    append(tmp_path, 0, lines)
    run = read_run(tmp_path, record_fields())
    at = {"question": "right", "location": 10, "masks": 0, "relevant": 10}
    assert [(one.probe, one.condition) for one in run.records] == [
        ("location", at),
        ("location", at | {"question": "left"}),
        ("location", at | {"masks": 2}),
        ("steps", {"order": "random", "steps": 40, "masks": 2, "relevant": 1}),
        ("steps", {"order": "random", "steps": 2, "masks": 2, "relevant": 1}),
    ]
    assert run.records[0].nll == 0.5
    assert run.manifest.settings.parameters == {
        "location": {"locations": [0, 10, 20], "places": ["right", "left"], "mask_counts": [2]},
        "steps": {"masks": [2, 20, 100], "points": 5, "random": [40, 2, 4], "confident": [40]},
    }
    again = {name: own for name, own in parameters.items() if name == "location"}
    write_manifest(tmp_path, to_builtins(manifest(probes=[*again], parameters=again)))
    (tmp_path / "records.jsonl").write_text("")
    append(tmp_path, 0, [lines[0], lines[0] | {"nll": 0.7}])
    with pytest.raises(UserError, match="answered before, in another way"):
        len(read_run(tmp_path, record_fields()).records)


def test_a_line_that_mixes_the_parts_is_refused(old):
    with (old / "records.jsonl").open() as file:
        lines = [json.loads(line) for line in file]
    lines[2]["evidence"] = SHARES | {"masks": 0.2}
    (old / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match="line 3 is not a record of this run: evidence"):
        read_run(old, record_fields())


def test_merged_probes_are_gone_and_their_names_say_where_to():
    names = {probe.name for probe in PROBES}
    assert not MERGED.keys() & names and set(MERGED.values()) <= names
    for old, new in MERGED.items():
        with pytest.raises(UserError, match=f"the probe {old} was removed in 0.3: .*{new}"):
            chosen_settings(probes=old)
