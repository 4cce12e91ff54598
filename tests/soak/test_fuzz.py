"""Every reader of a stranger's files ends in a result or in one line."""

import pytest
from soak.__main__ import run
from soak.fuzz import fuzz
from soak.records import cut_everywhere


@pytest.mark.slow
def test_ten_thousand_damaged_files_give_no_traceback_and_no_hang():
    found = fuzz(range(10_000), silent=True)
    assert found.cases == 10_000 and found.failures == {}
    assert found.results > 1000 and found.refusals > 1000 and found.memory < 2.0


def test_a_case_can_be_run_again():
    first, again = (fuzz(range(40), only="pairs", silent=True) for _ in range(2))
    assert (first.results, first.refusals) == (again.results, again.refusals)
    assert first.results and first.refusals and not first.failures


@pytest.mark.slow
def test_a_run_folder_cut_at_any_byte_is_read_up_to_its_last_whole_line():
    assert cut_everywhere()["cuts"] > 2000


def test_a_campaign_goes_on_where_it_stopped(tmp_path):
    done = []
    parts = {"first": lambda: done.append(1) or {"n": 1}, "second": lambda: done.append(2) or {"n": 2}}
    assert run({"first": parts["first"]}, tmp_path / "soak.json") == 0
    assert run(parts, tmp_path / "soak.json") == 0 and done == [1, 2]

    def fails():
        raise AssertionError("another result")

    assert run(parts | {"third": fails}, tmp_path / "soak.json") == 1
    assert run(parts | {"third": lambda: {"n": 3}}, tmp_path / "soak.json") == 0 and done == [1, 2]
