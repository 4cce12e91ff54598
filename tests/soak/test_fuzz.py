"""Every reader of a stranger's files ends in a result or in one line."""

import pytest
from soak.fuzz import fuzz


@pytest.mark.slow
def test_ten_thousand_damaged_files_give_no_traceback_and_no_hang():
    found = fuzz(range(10_000), silent=True)
    assert found.cases == 10_000 and found.failures == {}
    assert found.results > 1000 and found.refusals > 1000 and found.memory < 2.0


def test_a_case_can_be_run_again():
    first, again = (fuzz(range(40), only="pairs", silent=True) for _ in range(2))
    assert (first.results, first.refusals) == (again.results, again.refusals)
    assert first.results and first.refusals and not first.failures
