"""The one progress bar: where it is drawn and where not."""

import io
import sys

import pytest

from maskwise.support.progress import Forecast, progress_bar


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


def test_long_work_states_its_size_once_at_the_speed_of_the_second_batch() -> None:
    """The first ten answers took 50 seconds (compilation), the next ten 5, so the other 980 take 490."""
    times, said = iter([50.0, 55.0]), []
    forecast = Forecast(
        1000, "1,000 answers, about 0.4 million tokens", lambda line, _: said.append(line), clock=lambda: next(times)
    )
    for count in (0, 1, 1):  # lines after each batch
        forecast.advance(10)
        assert len(said) == count
    assert said == ["1,000 answers, about 0.4 million tokens: about 8 minutes at the speed of the second batch"]


def test_short_work_says_nothing() -> None:
    times, said = iter([0.0, 0.5]), []
    forecast = Forecast(100, "100 answers", lambda line, _: said.append(line), clock=lambda: next(times))
    forecast.advance(10)
    forecast.advance(10)
    assert said == []
