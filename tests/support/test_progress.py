"""The one progress bar: where it is drawn and where not."""

import io
import sys

import pytest

from maskwise.support.progress import progress_bar


@pytest.mark.parametrize(
    ("terminal", "options", "drawn"),
    [
        (True, {}, True),
        (False, {}, True),
        (True, {"silent": True}, False),
        (True, {"terminal_only": True}, True),
        (False, {"terminal_only": True}, False),
    ],
)
def test_the_bar_is_drawn_on_standard_error_where_it_is_wanted(monkeypatch, capsys, terminal, options, drawn):
    error = io.StringIO()
    error.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(**options) as bar:
        task = bar.add_task("Asking", total=4)
        bar.advance(task, 3)
    assert ("Asking" in error.getvalue()) == drawn
    if drawn:
        assert "3/4" in error.getvalue() and "left" in error.getvalue()
    assert capsys.readouterr().out == ""
