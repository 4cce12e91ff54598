"""`assert_same` tells equal from different, and says where."""

from dataclasses import dataclass

import pytest
import torch

from helpers.same import assert_same


@dataclass(frozen=True)
class Point:
    x: float
    name: str


def test_equal_values_pass_whatever_holds_them():
    assert_same({"a": [1, 2.0, (3,)], "b": None}, {"b": None, "a": (1, 2.0, [3])})
    assert_same([float("nan"), float("inf")], [float("nan"), float("inf")])
    assert_same({"t": torch.tensor([[1.0, 2.0]])}, {"t": [[1.0, 2.0]]})
    assert_same(Point(1.0, "p"), {"x": 1.0, "name": "p"})
    assert_same({"loss": [1.0, 2.0]}, {"loss": [1.0 + 1e-7, 2.0]}, rel=1e-6)
    assert_same(1e-9, 0.0, abs=1e-8)


def test_every_difference_is_named_by_its_path_with_both_values():
    found = {"a": [1, {"b": 2.5}], "c": "x", "extra": 1}
    wanted = {"a": [1, {"b": 2.0}, 3], "c": "y", "gone": [4]}
    with pytest.raises(AssertionError) as problem:
        assert_same(found, wanted, rel=0.1)
    assert str(problem.value).splitlines() == [
        "5 differences:",
        "  value['a']: found 2 items, wanted 3",
        "  value['a'][1]['b']: found 2.5, wanted 2.0",
        "  value['c']: found 'x', wanted 'y'",
        "  value['gone']: missing, wanted [4]",
        "  value['extra']: found 1, not wanted",
    ]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (1.0, 1.0 + 1e-9),
        (True, 1),
        (None, 0),
        (float("nan"), 0.0),
        (float("inf"), 1e308),
        ("1", 1),
        ([1], 1),
        ([], {}),
        ("ab", ["a", "b"]),
        (torch.tensor([1.0, 2.0]), [1.0, 2.5]),
        (10**20 + 1, 10**20),
    ],
)
def test_what_differs_is_not_the_same(found, wanted):
    with pytest.raises(AssertionError, match=r"value.*(found|missing)"):
        assert_same(found, wanted)


def test_a_long_list_of_differences_is_cut():
    with pytest.raises(AssertionError, match=r"200 differences:[\s\S]*\.\.\. and 180 more"):
        assert_same(list(range(200)), list(range(1, 201)))
