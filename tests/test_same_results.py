"""The embedded tiny-llada answers, writes and scores what it did when tests/data/results.json was written."""

import json

import pytest

from helpers.results import FILE, results
from helpers.same import assert_same


@pytest.mark.slow
def test_results_are_those_of_before():
    assert_same(results(), json.loads(FILE.read_text(encoding="utf-8")), rel=1e-3, abs=1e-3)
