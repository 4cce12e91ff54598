"""What commands print with --json and the files they write have the fields that docs/fields.md lists.

Those of advise, compare, toy and verify are compared where their tests run them.
"""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from helpers import outputs
from helpers.outputs import departures, sections
from maskwise.cli import app
from maskwise.records.record import Record
from maskwise.records.sample import SampledPrompt

PAIRS = "".join(json.dumps({"prompt": f"{n} and {n} is", "answer": f" {n + n}."}) + "\n" for n in range(10))
QUICK = "--quick --questions 1"


def check(heading: str, command: str) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--json"])
    assert done.exit_code == 0, done.output
    assert departures(json.loads(done.stdout), heading) == [], command


@pytest.mark.slow
def test_commands_print_the_listed_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text(PAIRS)
    check("models", "models")
    check("generate", "generate tiny-llada hi -n 4 --block 2 --cache dual --divergence --out traces.jsonl")
    check("score", "score tiny-llada --data pairs.jsonl --samples 2")
    for name, model in (("one", "tiny-llada"), ("two", "tiny-dream")):
        check("diagnose", f"diagnose {model} --probes mask-count,recall,filler {QUICK} --out {name}")
        assert departures(json.loads(Path(name, "result.json").read_text()), "diagnose") == []
        assert departures(json.loads(Path(name, "manifest.json").read_text()), "manifest.json") == []
        for prompt in json.loads(Path(name, "sample.json").read_text()):
            assert departures(prompt, "sample.json") == []
        for line in Path(name, "records.jsonl").read_text().splitlines():
            assert departures(json.loads(line), "records.jsonl") == []
    check("report", "report one two")
    for line in Path("traces.jsonl").read_text().splitlines():
        assert departures({"generations": [json.loads(line)]}, "generate") == [
            f"{name} is missing" for name in ("model", "settings", "divergence", "seed")
        ]


@pytest.mark.slow
def test_commands_that_take_longer_print_the_listed_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text(PAIRS)
    Path("text.txt").write_text("Once upon a time there was a small house at the end of a long road. " * 40)
    check("tune", "tune tiny-llada --data pairs.jsonl --out tuned --preset quick --steps 1 --batch 2 --context 64")
    check("train", "train tiny-llada --data text.txt --out trained --steps 1 --batch 2 --context 64")
    for folder in ("tuned", "trained"):
        assert departures(json.loads(Path(folder, "settings.json").read_text()), "settings.json") == []
    check("convert", "convert tiny-qwen --out converted")
    check("export", "export tiny-llada+distracted --out exported")


def test_every_command_with_json_and_every_field_of_a_file_is_listed():
    commands = typer.main.get_command(app).commands
    printing = {name for name, command in commands.items() if any("--json" in one.opts for one in command.params)}
    assert printing <= sections().keys()
    assert {*sections()["records.jsonl"]} == {*Record.__struct_fields__}
    assert {*sections()["sample.json"]} == {*SampledPrompt.__struct_fields__}


@pytest.mark.parametrize(
    "value, found",
    [
        ({"a": {}, "c": [{"b": 1}], "o": {"any": {"x": 1}}}, []),
        ({"a": {"x": {"b": 1}}, "c": []}, ["o is missing"]),
        ({"a": {"x": {}}, "c": [{}], "o": 0}, ["a.*.b is missing", "c[].b is missing"]),
        ({"a": {"x": {"b": 1, "f": 2}}, "c": None, "o": 0}, ["a.*.f is not listed"]),
        ({"a": {}, "c": [], "o": 0, "e": 1, "n": 1}, ["e is not listed"]),
    ],
)
def test_a_departure_from_the_list_is_named(value, found, monkeypatch):
    listed = {"a.*.b": True, "c[].b": True, "n": False, "o": True}
    monkeypatch.setattr(outputs, "sections", lambda: {"of": listed})
    assert departures(value, "of") == found
