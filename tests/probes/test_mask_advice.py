"""The last sentence of a diagnosis: only what its own answers support."""

import pytest

from helpers.records import record
from maskwise.probes.library.mask_count import advice


def answers(probe: str, condition: dict, right: int, relevant: int | None = None) -> list[dict]:
    """Of 4 tasks with 25 points each, the first so many are answered right."""
    condition = condition if relevant is None else condition | {"relevant": relevant}
    return [
        record(probe=probe, task=f"task-{task}", point=point, condition=condition, correct=point < right)
        for task in range(4)
        for point in range(25)
    ]


def masks(two: int, twenty: int, most: int) -> list[dict]:
    counts = {2: two, 20: twenty, 200: most}
    return [record for k, right in counts.items() for record in answers("mask-count", {"masks": k}, right)]


def test_masks_that_change_nothing_are_evidence_for_nothing():
    said = advice(masks(20, 20, 20))
    assert said.startswith("No loss of accuracy to masks was detected, so this run gives no reason to tune the model")
    assert "is 0.0 points, 95 % interval −" in said
    assert advice(masks(15, 20, 20)).startswith("No loss of accuracy to masks")  # masks that help


@pytest.mark.parametrize(
    ("twenty", "many_steps", "named"),
    [
        (
            24,
            None,
            ["--canvas growing (20 masks minus 200: +36.0 points", "maskwise tune): accuracy with 2 masks minus"],
        ),
        (15, None, ["maskwise tune): accuracy with 2 masks minus accuracy with 200 is +36.0 points"]),
        (15, 22, ["small blocks (many steps minus one: +28.0 points", "maskwise tune): accuracy"]),
    ],
)
def test_what_the_answers_support_is_named_with_its_numbers_and_nothing_else(twenty, many_steps, named):
    records = masks(24, twenty, 15)
    if many_steps is not None:
        records += answers("steps", {"order": "confidence", "steps": 40, "masks": 200}, many_steps)
        records += answers("steps", {"order": "random", "steps": 40, "masks": 200}, 5)
    said = advice(records)
    assert all(one in said for one in named)
    for one in ("--canvas growing", "small blocks"):
        assert (one in said) == any(one in part for part in named)


def test_the_main_number_of_examples_counts_and_without_the_probe_nothing_is_said():
    with_one = [record | {"condition": record["condition"] | {"relevant": 1}} for record in masks(24, 24, 10)]
    assert advice(masks(20, 20, 20) + with_one).startswith("No loss of accuracy to masks")
    assert advice(with_one).startswith("This run supports decoding with --canvas growing")
    assert advice(answers("location", {"location": 0}, 20)) is None
    assert advice(answers("mask-count", {"masks": 2}, 20)) is None
