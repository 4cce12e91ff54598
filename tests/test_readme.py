"""The Python in the documents runs as written, and the commands and options they name exist."""

import re
from pathlib import Path

import pytest
import typer

from maskwise.cli import app

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/guide.md", "docs/architecture.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
    assert capsys.readouterr().out.strip()


def options() -> dict[str, set[str]]:
    """The options of each command."""
    commands = typer.main.get_command(app).commands
    return {name: {o for p in c.params for o in (*p.opts, *p.secondary_opts)} for name, c in commands.items()}


@pytest.mark.parametrize("page", PAGES[:2])
def test_every_command_and_option_that_is_named_exists(page):
    text = (ROOT / page).read_text().replace("\\\n", " ")  # lines that go on
    known = options()
    commands = re.findall(r"^    maskwise (\w+)([^#\n]*)", text, flags=re.MULTILINE)
    assert commands
    for name, rest in commands:
        assert name in known
        assert set(re.findall(r"--[a-z][\w-]*", rest)) <= known[name] | {"--help"}, f"maskwise {name}{rest}"
    inline = {option for option in re.findall(r"`(--[a-z][\w-]*)", text)}
    assert inline <= set.union(*known.values()) | {"--help"}
