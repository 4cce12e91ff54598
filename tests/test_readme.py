"""Every code block of README and docs: Python runs as written, commands run, and what is marked is parsed.

A block after `<!-- parsed only: REASON -->` needs a hub, a GPU, a file of the reader's or minutes. It is not run, but
its commands, options, targets, scripts and syntax are checked.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from maskwise.cli import app

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(<!-- parsed only: [^\n]+ -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# They diagnose, train, decode and export.
SLOW = {"docs/tutorial.md", "docs/concepts/toy.md", "docs/how-to/generate.md", "docs/how-to/my-model.md"}
SHELL_WORDS = {"cd", "git", "pip", "make", "python", "lm_eval", "torchrun", "accelerate", "maskwise", "echo"}


class Block(NamedTuple):
    parsed_only: bool
    language: str
    text: str

    def commands(self) -> list[str]:
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def blocks(page: str) -> list[Block]:
    return [Block(bool(mark), language, text) for mark, language, text in FENCE.findall((ROOT / page).read_text())]


BLOCKS = {page: blocks(page) for page in PAGES}
RUN = [
    page for page, found in BLOCKS.items() if any(b.language in ("python", "bash") and not b.parsed_only for b in found)
]


def run_command(command: str) -> None:
    """`maskwise ...` or `echo "..." | maskwise ...`, in this process."""
    given, _, rest = command.rpartition(" | ")
    words = shlex.split(rest, comments=True)
    assert words[0] == "maskwise", f"{command}: mark its block as parsed only"
    done = CliRunner().invoke(app, words[1:], input=given.removeprefix("echo ").strip('"') or None)
    assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in RUN])
def test_the_blocks_run_in_their_order(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS[page]:
        if block.parsed_only:
            continue
        if block.language == "python":
            exec(compile(block.text, page, "exec"), {})
            assert capsys.readouterr().out.strip()
        elif block.language == "bash":
            for command in block.commands():
                run_command(command)


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_that_are_not_run_are_python_and_commands(page):
    for block in BLOCKS[page]:
        assert block.language in ("python", "bash", "text", "diff"), block.text
        if block.language == "python":
            compile(block.text, page, "exec")
        elif block.language == "bash":
            for command in block.commands():
                check_command(command.rpartition(" | ")[2])


def check_command(command: str) -> None:
    words = shlex.split(command, comments=True)
    assert words[0] in SHELL_WORDS, command
    if "maskwise.cli" in words:  # torchrun, accelerate
        words = ["maskwise", *words[words.index("maskwise.cli") + 1 :]]
    if words[0] == "maskwise":
        name, *rest = words[1:]
        found = typer.main.get_command(app).commands[name]
        found.make_parser(typer.Context(found)).parse_args(rest)  # raises for an unknown option or a missing value
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    elif words[0] == "python" and words[1] != "-m":
        assert (ROOT / words[1]).exists(), command


def options() -> dict[str, set[str]]:
    """The options of each command."""
    commands = typer.main.get_command(app).commands
    return {name: {o for p in c.params for o in (*p.opts, *p.secondary_opts)} for name, c in commands.items()}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_that_is_named_exists(page):
    text = (ROOT / page).read_text()
    known = options()
    commands = re.findall(r"^    maskwise (\w+)([^#\n]*)", text, flags=re.MULTILINE)
    assert page == "README.md" or not commands, "a command is in a fence, so that it is checked"
    for name, rest in commands:
        assert set(re.findall(r"--[a-z][\w-]*", rest)) <= known[name], f"maskwise {name}{rest}"
    inline = set(re.findall(r"`(--[a-z][\w-]*)", text))
    assert inline <= set.union(*known.values()) | {"--help", "--json"}
