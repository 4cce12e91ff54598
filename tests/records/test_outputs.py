"""What commands print with --json, and the files they write, are what the schema says: no field more, none less.

Those of advise, compare, toy and verify are held against it where their tests run them.
"""

import json
import re
from pathlib import Path

import pytest
import typer
from msgspec import UNSET, UnsetType, field
from typer.testing import CliRunner

from helpers.outputs import problem_of_output
from maskwise.cli import app
from maskwise.cli.outputs import FILES, OUTPUTS
from maskwise.support.typed import Typed

PAIRS = "".join(json.dumps({"prompt": f"{n} and {n} is", "answer": f" {n + n}."}) + "\n" for n in range(10))
QUICK = "--quick --questions 1"


def schema_of(start: str):
    (found,) = [schema for name, schema in (OUTPUTS | FILES).items() if name.startswith(start)]
    return found


def check(start: str, command: str) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--json"])
    assert done.exit_code == 0, done.output
    assert problem_of_output(json.loads(done.stdout), schema_of(start)) is None, command


def check_lines(start: str, file: Path) -> None:
    for line in file.read_text().splitlines():
        assert problem_of_output(json.loads(line), schema_of(start)) is None


@pytest.mark.slow
def test_commands_print_what_the_schema_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text(PAIRS)
    check("models", "models")
    check("generate", "generate tiny-llada hi -n 4 --block 2 --cache dual --divergence --out traces.jsonl")
    check("score", "score tiny-llada --data pairs.jsonl --samples 2")
    check("diagnose (one", f"diagnose tiny-llada --probes mask-count {QUICK} --out one")
    check_lines("traces of generate", Path("traces.jsonl"))
    check_lines("records.jsonl", Path("one/records.jsonl"))
    for prompt in json.loads(Path("one/sample.json").read_text()):
        assert problem_of_output(prompt, schema_of("sample.json")) is None
    manifest = json.loads(Path("one/manifest.json").read_text())
    assert problem_of_output(manifest, schema_of("manifest.json of a run"), closed=False) is None


def test_every_command_with_json_has_a_schema():
    commands = typer.main.get_command(app).commands
    printing = {name for name, command in commands.items() if any("--json" in one.opts for one in command.params)}
    assert printing == {name for title in OUTPUTS for name in commands if name in re.findall(r"\w+", title)}


@pytest.mark.slow
def test_commands_that_take_longer_print_what_the_schema_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text(PAIRS)
    Path("text.txt").write_text("Once upon a time there was a small house at the end of a long road. " * 40)
    check("tune", "tune tiny-llada --data pairs.jsonl --out tuned --preset quick --steps 1 --batch 2 --context 64")
    check("train", "train tiny-llada --data text.txt --out trained --steps 1 --batch 2 --context 64")
    for folder in ("tuned", "trained"):
        settings = json.loads(Path(folder, "settings.json").read_text())
        assert problem_of_output(settings, schema_of("settings.json")) is None
    check("convert", "convert tiny-qwen --out converted")
    check("export", "export tiny-llada+distracted --out exported")
    check("diagnose (one", f"diagnose tiny-llada --probes mask-count,recall,filler {QUICK} --out one")
    check("diagnose (one", f"diagnose tiny-dream --probes mask-count,recall,filler {QUICK} --out two")
    check("diagnose (several", "report one two")


class Inner(Typed, frozen=True, kw_only=True):
    b: int


class Further(Typed, frozen=True, kw_only=True):
    OPEN = "more"

    more: dict[str, int] = field(default_factory=dict)


class Outer(Typed, frozen=True, kw_only=True):
    a: dict[str, Inner]
    c: list[Inner] | UnsetType = UNSET
    h: Further | UnsetType = UNSET


@pytest.mark.parametrize(
    "value, problem",
    [
        ({"a": {}}, None),
        ({"a": {}, "h": {"whatever": 1}}, None),
        ({"a": {"x": {"b": 1}}, "c": [{"b": 2}]}, None),
        ({"a": {"x": {}}}, "a[...].b is missing"),
        ({"c": []}, "a is missing"),
        ({"a": {"x": {"b": "1"}}}, "a[...].b: expected int, got str"),
        ({"a": {}, "c": [{"b": None}]}, "c[0].b: expected int, got null"),
        ({"a": {}, "e": 1}, "e is in no struct"),
        ({"a": {"x": {"b": 1, "f": 2}}}, "a.x.f is in no struct"),
        ({"a": {}, "c": [{"b": 1, "g": 2}]}, "c[].g is in no struct"),
    ],
)
def test_a_departure_from_the_structs_is_named(value, problem):
    assert problem_of_output(value, Outer) == problem
