"""Wrong calls of a newcomer are answered in one line each."""

import pytest
from soak.wrong_calls import COMMANDS, PYTHON, run_commands, run_python, working_folder


@pytest.mark.slow
def test_every_wrong_call_is_answered_in_one_line(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with working_folder():
        answers = [*run_commands(), *run_python()]
    assert {one.call: one.fault for one in answers if one.fault} == {}
    assert (len(COMMANDS.strip().splitlines()), len(PYTHON.strip().splitlines())) == (120, 30)
