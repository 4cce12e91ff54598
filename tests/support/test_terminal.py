"""What strangers wrote reaches the terminal as text, never as a command to it."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from helpers.checkpoints import byte_tokenizer, save
from helpers.report_runs import DIFFUSION, mask_probes, write_run
from helpers.tiny import tiny_llada
from maskwise.cli import app
from maskwise.decoding.live_canvas import LiveCanvas
from maskwise.support.files import to_json
from maskwise.support.terminal import SafeConsole, one_line, safe_json, safe_text

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt\x7f\nmaskwise: all is well\r"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def command(*given):
    return CliRunner().invoke(app, [str(part) for part in given], prog_name="maskwise")


@given(st.text(st.characters(codec=None)))
def test_any_text_is_printable_and_any_name_is_one_line(text):
    assert not OBEYED.search(safe_text(text)) and safe_text(safe_text(text)) == safe_text(text)
    assert len(one_line(text).splitlines()) <= 1
    one_line(text).encode()  # no half of a surrogate pair is left
    assert one_line("plain ünïcödé 北京 😀") == "plain ünïcödé 北京 😀"


@given(st.dictionaries(st.text(), st.text()))
def test_json_keeps_its_value(value):
    written = safe_json(to_json(value))
    assert json.loads(written) == value and not OBEYED.search(written)


def test_a_console_escapes_what_is_in_a_table_and_still_draws():
    screen = io.StringIO()
    console = SafeConsole(file=screen, force_terminal=True, width=200)
    table = Table("name")
    table.add_row(Text(EVIL, style="bold"))
    console.print(table)
    without_styles = re.sub("\x1b\\[[0-9;]*m", "", screen.getvalue())
    assert not OBEYED.search(without_styles) and "owned" in without_styles and "\x1b[1m" in screen.getvalue()


@pytest.mark.slow
def test_names_of_a_run_are_escaped_on_the_terminal_and_in_json(tmp_path):
    asked = [
        *mask_probes([8, 9, 7, 8], [5, 6, 4, 5])[:2],
        (f"probe{EVIL}", {f"key{EVIL}": f"value{EVIL}"}, 1, [1, 1, 1, 1]),
    ]
    folder = write_run(tmp_path / "run", asked, model=DIFFUSION | {"name": f"model{EVIL}"}, task=f"task{EVIL}")
    for flags in ([], ["--json"]):
        done = command("report", folder, *flags)
        assert done.exit_code == 0, done.output
        assert not OBEYED.search(done.output)
        assert "\nmaskwise: all is well" not in done.output
    assert json.loads(done.stdout)["model"]["name"] == f"model{EVIL}"


def test_messages_stay_on_one_line(tmp_path):
    done = command("models", f"no{EVIL}such")
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1 and not OBEYED.search(done.stderr)
    data = tmp_path / "pairs.jsonl"
    data.write_text(json.dumps({f"key{EVIL}": "x"}) + "\n")
    done = command("tune", "tiny-llada", "--data", data, "--out", tmp_path / "out")
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1 and not OBEYED.search(done.stderr)


def test_a_folders_name_is_escaped_in_the_list_of_models(tmp_path):
    folder = save(tmp_path / "a\x1b[2J\nb [red]c")
    done = command("models", folder)
    assert done.exit_code == 0 and not OBEYED.search(done.stdout)
    shown = "".join(line[:40] for line in done.stdout.splitlines()).replace(" ", "")  # a line may end at the space
    assert "\\x1b[2J\\nb[red]c" in shown


@pytest.mark.parametrize("flags", [["--plain"], ["--json"], []])
def test_generated_control_characters_are_escaped(tmp_path, flags):
    folder = save(tmp_path / "model", init_std=3.0)
    # A prompt with a mask inside is printed with what was filled in: its own escapes are printed with it.
    done = command("generate", folder, "ab\x1b[2Jcd<|mask|>", "--no-chat", "-n", 8, *flags)
    assert done.exit_code == 0 and not OBEYED.search(done.stdout) and "1b[2Jcd" in done.stdout


def test_the_live_canvas_escapes_tokens():
    tokenizer = byte_tokenizer()
    model = tiny_llada(tokenizer=tokenizer, vocab=259, mask_token_id=258)
    canvas = tokenizer("\x1b[2J\x07 text")["input_ids"]
    console = SafeConsole(file=io.StringIO(), force_terminal=True, width=60)
    painted = LiveCanvas(model, "", console).paint(canvas)
    assert painted.plain == "\\x1b[2J\\x07 text"
