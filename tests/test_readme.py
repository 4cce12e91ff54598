"""The Python in README.md and docs/architecture.md runs as written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_examples_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_every_command_of_the_readme_exists():
    from maskwise.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    named = set(re.findall(r"^    maskwise (\w+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert named and named <= known
