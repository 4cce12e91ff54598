"""Records of two runs held against each other: batch shapes may change the last digits of a float."""

import pytest

from maskwise.records.folder import read_run
from maskwise.records.sample import read_sample


def assert_same_records(found: list[dict], expected: list[dict]) -> None:
    assert [_apart(record)[0] for record in found] == [_apart(record)[0] for record in expected]
    for mine, wanted in zip(found, expected, strict=True):
        assert _apart(mine)[1] == pytest.approx(_apart(wanted)[1], rel=1e-4, abs=1e-5)


def _apart(record: dict) -> tuple[dict, dict[str, float]]:
    """(what must be equal, the fractions that were measured)"""
    flat = {**record, **{("evidence", name): value for name, value in record.get("evidence", {}).items()}}
    flat.pop("evidence", None)
    measured = {name: value for name, value in flat.items() if isinstance(value, float)}
    return {name: None if name in measured else value for name, value in flat.items()}, measured


def sampled_again(folder):
    """How many prompts were asked again for the sample of a run: those of it that differ."""
    return len({(tuple(one["tokens"]), one["row"]) for one in read_sample(folder, read_run(folder).manifest)})
