"""The sample file: written whole, checked when it is read, bounded."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.records import manifest
from maskwise.records.sample import MOST_BYTES, MOST_PROMPTS, SampledPrompt, read_sample, write_sample
from maskwise.support.errors import UserError
from maskwise.support.files import to_json
from maskwise.support.typed import convert

MANIFEST = manifest(probes=["mask-count"])
PROMPT: dict[str, Any] = {
    "probe": "mask-count",
    "task": "animal-smallest",
    "point": 0,
    "condition": {"masks": 2, "relevant": 10},
    "answer": "A",
    "correct": True,
    "tokens": ["Answer", ":[", "<mask>", "<mask>"],
    "row": 2,
    "top": [["A", 0.75], ["B", 0.25]],
    "probability": 0.75,
}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    attributed = PROMPT | {"attribution": [0.0, 1.0, 0.0, 0.5]}
    write_sample(tmp_path, [convert(one, SampledPrompt) for one in (PROMPT, attributed)])
    found = json.loads((tmp_path / "sample.json").read_text())
    assert found == [PROMPT, attributed] == json.loads(to_json(read_sample(tmp_path, MANIFEST)))
    assert [file.name for file in tmp_path.iterdir()] == ["sample.json"]  # nothing half written next to it


def test_a_run_without_a_sample_has_none(tmp_path: Path) -> None:
    assert read_sample(tmp_path, MANIFEST) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tokens": "text"}, "tokens: expected array, got str"),
        ({"row": 5}, "row 5 is not one of its 4 tokens"),
        ({"row": -1}, "row: expected int >= 0"),
        ({"top": [["A"]]}, "top[0]: expected array of length 2"),
        ({"top": [["A", 2.0]]}, "top[0][1]: expected float <= 1.0"),
        ({"probe": "location"}, "the run did not ask the probe 'location'"),
        ({"condition": {"masks": [2]}}, "condition[...]: expected int | float | str, got array"),
        ({"attribution": [1.0]}, "attribution is not a number for each token"),
        ({"attribution": [0.0, 7.0, 0.0, 0.0]}, "attribution[1]: expected float <= 1.0"),
        ({"attribution": "red"}, "attribution: expected array | null, got str"),
    ],
)
def test_a_prompt_that_is_none_is_refused_by_its_number(tmp_path: Path, change: dict, problem: str) -> None:
    (tmp_path / "sample.json").write_text(json.dumps([PROMPT, PROMPT | change]))
    with pytest.raises(UserError, match=r"sample\.json is not a sample of this run .prompt 2: .*remove the") as said:
        read_sample(tmp_path, MANIFEST)
    assert problem in str(said.value)


@pytest.mark.parametrize(
    "text", ["{", "{}", "[NaN]", json.dumps([PROMPT] * (MOST_PROMPTS + 1)), " " * MOST_BYTES + "[]"]
)
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "sample.json").write_text(text)
    with pytest.raises(UserError, match=r"sample\.json is not a sample of this run") as said:
        read_sample(tmp_path, MANIFEST)
    assert "\n" not in str(said.value)
