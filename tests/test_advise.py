"""A search for settings on an embedded model, from start to finish: it resumes, and it finds what was planted."""

import json
import math
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

import maskwise as mw
from helpers.known import shipped_tokenizer
from helpers.outputs import departures
from helpers.tiny import tiny_sdar
from maskwise.advise import EMBEDDED, Advice, _named, _usual
from maskwise.cli import app
from maskwise.cli.decoding import decoding_options
from maskwise.decoding.known_names import listed_options
from maskwise.decoding.options import OPTION_NAMES, DecodingOptions
from maskwise.support.errors import UserError
from maskwise.tasks.checkable import measured_by

WORDS = ("otter", "zebra", "lemon", "apple", "green", "brave", "tiger", "horse")
KINDS = [{"prompt": f"Word: {word} {n}\nKind:[", "answer": "animal"} for n in range(3) for word in WORDS]
SMALL = {"max_new_tokens": 4, "settings": "steps=4 steps=2 canvas=growing,block=2,steps=2"}


class Grader:
    """Counts what it is shown; stops the search, as Ctrl-C would, after so many texts."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.seen, self.stop_after = -len(KINDS), stop_after  # the answers themselves come first

    def grade(self, text: str, answer: str) -> float:
        if self.seen == self.stop_after:
            raise KeyboardInterrupt
        self.seen += 1
        return float(len(text) % 2)


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada", device="cpu")


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """A search that nothing stopped, and how many texts were graded."""
    grader = Grader()
    found = mw.advise(model, KINDS, function=grader.grade, out=tmp_path_factory.mktemp("advise") / "whole", **SMALL)
    return found, grader.seen


def numbers(found: Advice) -> dict:
    return {row.setting: (row.quality, row.change, row.passes) for row in found.confirmed}


def test_there_is_always_a_best_setting_its_command_and_how_sure_it_is(whole, model):
    found, graded = whole
    assert (found.chosen_on, found.questions) == (12, 12)
    assert graded == 12 * (3 + len(found.confirmed))
    assert len(found.confirmed) + len(found.others) == 3
    best = found.confirmed[0]
    assert best.setting == found.best and best.change is None and not found.certain
    assert all(row.change.n == 12 for row in found.confirmed[1:])
    printed = str(found).splitlines()
    assert printed[1].startswith(found.best) and "not yet certain: about" in printed[1] and found.command in printed
    assert len(mw.generate(model, [KINDS[0]["prompt"]], **found.options)[0].ids) == 4
    stored = msgspec.to_builtins(found)
    assert json.loads((Path(found.folder) / "advice.json").read_text()) == stored
    assert departures(stored, "advise") == []


@pytest.mark.slow
def test_a_killed_search_goes_on_where_it_was(whole, model, tmp_path):
    found, graded = whole
    with pytest.raises(KeyboardInterrupt, match="the records so far are kept"):
        mw.advise(model, KINDS, function=Grader(30).grade, out=tmp_path, **SMALL)
    records = tmp_path / "records.jsonl"
    assert len(records.read_text().splitlines()) == 30  # one at a time on a CPU: nothing that was graded is lost
    with records.open("a") as file:
        file.write('{"model": "tiny-llada", "pro')  # torn by a kill
    grader = Grader()
    again = mw.advise(model, KINDS, function=grader.grade, out=tmp_path, **SMALL)
    assert grader.seen == graded - 30 and numbers(again).keys() == numbers(found).keys()
    assert {name: row[0] for name, row in numbers(again).items()} == {n: row[0] for n, row in numbers(found).items()}


def test_another_search_in_the_folder_and_a_strangers_line_are_refused(whole, model):
    folder = Path(whole[0].folder)
    for other in (
        {"data": KINDS[:16]},
        {"settings": "steps=4 steps=1"},
        {"exact": True, "function": None},
        {"seed": 1},
    ):
        given = {"data": KINDS, "function": Grader().grade, "out": folder, **SMALL} | other
        with pytest.raises(UserError, match="was made with other settings"):
            mw.advise(model, **given)
    records = folder / "records.jsonl"
    sound = records.read_text()
    try:
        for change in ({"quality": "1"}, {"passes": 1.5}, {"seconds": None}):
            line = json.loads(sound.splitlines()[0])
            line["evidence"] |= change
            records.write_text(json.dumps(line) + "\n")
            with pytest.raises(UserError, match="line 1 is not a record of this run"):
                mw.advise(model, KINDS, function=Grader().grade, out=folder, **SMALL)
    finally:
        records.write_text(sound)


def test_more_questions_go_on_in_the_same_folder_and_leave_each_in_its_half(model, tmp_path):
    first = mw.advise(model, KINDS, pattern="a", out=tmp_path, questions=8, **SMALL)
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    more = mw.advise(model, KINDS, pattern="a", out=tmp_path, questions=16, **SMALL)
    assert set(lines) <= set((tmp_path / "records.jsonl").read_text().splitlines())
    assert (first.questions, more.questions) == (4, 8)
    for wrong in (4, 100):
        with pytest.raises(UserError, match=f"{wrong} of 24 questions"):
            mw.advise(model, KINDS, pattern="a", questions=wrong, **SMALL)


def test_a_folder_of_a_search_is_no_run_and_one_of_0_2_says_which_commit_reads_it(whole, tmp_path):
    for command in ("report", "compare"):
        done = CliRunner().invoke(app, [command, whole[0].folder, *([whole[0].folder] if command == "compare" else [])])
        assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    (tmp_path / "manifest.json").write_text('{\n  "command": "advise",\n  "identity": {}\n}\n')
    for command in (["report", str(tmp_path)], ["advise", "tiny-llada", "--out", str(tmp_path)]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2 and "is of advise in maskwise 0.2" in done.stderr and "cc8a75cd" in done.stderr


def test_where_all_answers_are_wrong_two_are_shown_beside_the_expected(model, tmp_path):
    found = mw.advise(model, KINDS, pattern="^animal$", out=tmp_path, questions=8, **SMALL)
    assert found.best == "4 steps" and not found.certain and "guessing" in found.why
    assert len(found.wrong) == 2 and all(one[0] == "animal" for one in found.wrong)
    assert 'expected "animal", generated' in str(found)


@pytest.mark.slow  # starts processes
def test_two_processes_find_what_one_finds_and_share_the_questions(tmp_path):
    data = tmp_path / "kinds.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in KINDS))
    command = [sys.executable, "-m", "maskwise.cli", "advise", "tiny-llada", "--data", str(data), "--pattern", "animal"]
    command += ["-n", "4", "--settings", SMALL["settings"], "--device", "cpu", "--json"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        crew = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    shared = [
        subprocess.Popen(
            [*command, "--out", str(tmp_path / "two")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | crew | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in ("0", "1")
    ]
    try:
        printed = [process.communicate(timeout=200) for process in shared]
    finally:
        for process in shared:
            process.kill()
    assert [process.returncode for process in shared] == [0, 0], printed
    assert printed[1] == (b"", b"")
    alone = subprocess.run([*command, "--out", str(tmp_path / "one")], capture_output=True, check=True, timeout=200)
    two, one = json.loads(printed[0][0]), json.loads(alone.stdout)
    # Among settings of equal quality and passes the measured speed decides which are confirmed.
    qualities = [{row["setting"]: row["quality"] for row in found["confirmed"]} for found in (two, one)]
    assert all(qualities[0][setting] == qualities[1][setting] for setting in qualities[0].keys() & qualities[1].keys())
    texts = []
    for folder in ("two", "one"):
        lines = map(json.loads, (tmp_path / folder / "records.jsonl").read_text().splitlines())
        texts.append({(line["condition"]["setting"], line["point"]): line["predicted"] for line in lines})
        assert not list((tmp_path / folder).glob("records.*.jsonl"))
    asked_by_both = texts[0].keys() & texts[1].keys()
    assert len(asked_by_both) > len(texts[1]) / 2
    assert all(texts[0][one] == texts[1][one] for one in asked_by_both)


@pytest.mark.slow  # a minute of decoding
def test_on_the_phantom_a_growing_canvas_is_certain(tmp_path):
    """Its accuracy falls with the masks after the answer."""
    settings = "steps=24 canvas=growing,block=8,steps=24"
    found = mw.advise("tiny-llada+distracted", settings=settings, questions=64, device="cpu", out=tmp_path)
    assert "growing canvas" in found.best and found.certain
    assert found.confirmed[1].change.side < 0


# Settings


def test_settings_are_options_of_generate_named_by_what_differs():
    options = listed_options("steps=6 steps=2 canvas=growing,block=8,rule=threshold,tau=0.9 cache=dual,block=8", 64)
    assert options == listed_options(
        [
            {"steps": 6},
            {"steps": 2},
            {"canvas": "growing", "block": 8, "rule": "threshold", "tau": 0.9},
            {"cache": "dual", "block": 8},
        ],
        64,
    )
    assert list(_named(options)) == [
        "6 steps",
        "2 steps",
        "block 8, threshold, growing canvas, tau 0.9",
        "block 8, dual cache",
    ]
    assert list(_named(listed_options([{}, {"steps": 2}], 64))) == ["fixed canvas, 64 steps", "2 steps"]
    assert listed_options("max-new-tokens=16,steps=4", 64) == [DecodingOptions(16, steps=4)]


@pytest.mark.parametrize("written", [EMBEDDED, "usual"])
def test_the_command_line_and_python_give_the_same_options(written, model):
    command = typer.main.get_command(app).commands["generate"]
    options = listed_options(_usual(128, model) if written == "usual" else written, 128)
    assert len(_named(options)) == len(options) >= 5 and options[0].blocks == 1
    for one in [*options, DecodingOptions(64, early_stop=True, end_ids=(382, 7))]:
        assert DecodingOptions(**one.given) == one
        words = shlex.split(one.command("tiny-llada", "folder"))
        assert words[:3] == ["maskwise", "generate", "tiny-llada"]
        given = command.make_context("generate", words[2:]).params
        assert given["adapter"] == "folder"
        assert decoding_options({name: given[name] for name in OPTION_NAMES}) == one


@pytest.mark.slow
def test_a_block_diffusion_model_is_asked_over_its_blocks(tmp_path):
    tokenizer = shipped_tokenizer()
    model = tiny_sdar(tokenizer=tokenizer, vocab=len(tokenizer), mask_token_id=tokenizer.mask_token_id)
    usual = [one.block for one in listed_options(_usual(8, model), 8)]
    assert set(usual) == {None, 2}
    found = mw.advise(model, KINDS, function=lambda text, answer: float(len(text)), out=tmp_path, max_new_tokens=8)
    assert found.confirmed and all(row.quality.unit == "" for row in found.confirmed)


# Measures


def test_each_measure_gives_what_its_name_says():
    exact = measured_by(True, None, None, embedded=False)[1]
    assert exact(" 42\n", "42") == 1 and exact("4 2", "42") == 0
    last = measured_by(False, r"#### (\d+)", None, embedded=False)[1]
    assert last("well #### 7 #### 8", "#### 7") == 1 and last("7", "#### 7") == last("nothing", "#### 7") == 0
    assert measured_by(False, "otter|zebra", None, embedded=False)[1]("a zebra", "zebra") == 1
    assert measured_by(False, "exact", None, embedded=False)[1]("an exact one", "exact") == 1  # a word like any other
    assert measured_by(False, None, lambda text, answer: len(text) / len(answer), False)[1]("ab", "abcd") == 0.5


def test_a_function_is_found_by_name_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "my_grading.py").write_text("def is_right(text, answer):\n    return answer in text\nno = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert measured_by(False, None, "my_grading:is_right", False)[1]("so 42.", "42") == 1
    with pytest.raises(UserError, match="there is no function 'my_grading:no'"):
        measured_by(False, None, "my_grading:no", False)


SUMS = [{"prompt": f"{n} + 1 =", "answer": f"so it is #### {n + 1}"} for n in range(20)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "say how answers are judged"),
        ({"pattern": "a{99999999999}"}, "does not compile"),
        ({"pattern": r"#### ([1-9])$"}, r"does not match the answer 'so it is #### 10'"),
        ({"function": lambda text, answer: None}, "returned None: it must return a finite number"),
        ({"function": lambda text, answer: math.nan}, "must return a finite number"),
        ({"exact": True, "settings": "step=8 steps=4"}, "generate has no 'step'"),
        ({"exact": True, "questions": 2}, "2 of 20 questions: give 8 or more"),
        ({"exact": True, "data": [{"prompt": "Once"}] * 60}, r"has the keys .*: write prompt and answer"),
        ({"exact": True, "data": [{"prompt": "Once", "answer": " "}] * 9}, "question 1 has an empty answer"),
    ],
)
def test_what_cannot_work_is_refused_before_a_model_is_opened(given, said):
    with pytest.raises(UserError, match=said):
        mw.advise("no such model", **({"data": SUMS} | given))


def test_settings_that_a_model_does_not_take_are_refused_before_anything_is_asked(model):
    for settings, said in (
        ("steps=8 steps=2", "8 steps for 4 masks"),
        ("block=3 steps=2", "block 3 does not divide"),
        ("steps=2 steps=2", "two or more settings, each different"),
    ):
        with pytest.raises(UserError, match=said):
            mw.advise(model, KINDS, exact=True, max_new_tokens=4, settings=settings)
    with pytest.raises(UserError, match="tiny-qwen has no mask token"):
        mw.advise("tiny-qwen", KINDS, exact=True)
