"""What 0.3 removed is refused in one line that says so, wherever it can be named."""

import pytest
from typer.testing import CliRunner

import maskwise as mw
from maskwise.cli import app
from maskwise.support.removed import REMOVED, removed


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, words, prog_name="maskwise")
    assert done.exit_code == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("name", REMOVED["command"])
def test_a_removed_command(name):
    assert str(removed("command", name)) in refused(name, "tiny-llada")


@pytest.mark.parametrize("name", REMOVED["option"])
def test_a_removed_option(name):
    command = {"--vote": "generate", "--teacher": "train", "--widen": "train", "--widen-share": "train"}
    assert str(removed("option", name)) in refused(command.get(name, "diagnose"), "tiny-llada", name, "1")


@pytest.mark.parametrize("command", ["diagnose", "advise", "report"])
def test_an_option_that_only_one_command_lost(command):
    for name in REMOVED[f"option of {command}"]:
        assert str(removed(f"option of {command}", name)) in refused(command, "tiny-llada", name, "1")


@pytest.mark.parametrize("name", REMOVED["probe"])
def test_a_removed_probe(name):
    assert str(removed("probe", name)) in refused("diagnose", "tiny-llada", "--probes", name)


def test_a_removed_model():
    (name,) = REMOVED["model"]
    assert str(removed("model", name)) in refused("diagnose", name)


@pytest.mark.parametrize("name", REMOVED["name"])
def test_a_removed_name(name):
    with pytest.raises(AttributeError, match=r"was removed in 0\.3"):
        getattr(mw, name)


def test_a_name_that_stays_is_none_of_them():
    assert removed("command", "diagnose") is None
