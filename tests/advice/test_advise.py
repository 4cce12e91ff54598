"""A search from start to finish on an embedded model: it resumes, it finds what was planted."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from markupsafe import escape
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import maskwise as mw
from helpers.checkpoints import save
from helpers.known import shipped_tokenizer
from helpers.outputs import problem_of_output
from helpers.tiny import tiny_sdar
from maskwise.advice.outcome import outcome
from maskwise.advice.search_folder import SettingAnswer, append_answers, gather_answers, read_answers
from maskwise.advice.search_request import prepare
from maskwise.advice.selection import Plan, confirm
from maskwise.advice.setting_evaluator import SearchResult
from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.records.search import SearchManifest
from maskwise.report.pages.advice import read_search
from maskwise.report.pages.registry import runs_in, search_table
from maskwise.report.words.advice_text import advice_text
from maskwise.report.words.card import run_card_of
from maskwise.support.errors import UserError
from maskwise.support.typed import json_object

WORDS = ("otter", "zebra", "lemon", "apple", "green", "brave", "tiger", "horse")
KINDS = [{"prompt": f"Word: {word} {n}\nKind:[", "answer": "animal"} for n in range(5) for word in WORDS][:36]
SMALL = {
    "max_new_tokens": 4,
    "blocks": [2],
    "steps": [2],
    "rules": "low-confidence",
    "caches": "dual",
    "canvases": "fixed,growing",
}


class Grader:
    """Counts what it is shown; stops the search, as Ctrl-C would, after so many texts."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.seen, self.stop_after = 0, stop_after

    def grade(self, text: str, answer: str) -> float:
        if self.stop_after is not None and self.seen == self.stop_after:
            raise KeyboardInterrupt
        self.seen += 1
        return float(len(text) % 2)


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada", device="cpu")


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """A search that nothing stopped, and how many texts were graded in addition to the answers themselves."""
    grader, said = Grader(), []
    folder = tmp_path_factory.mktemp("advise") / "whole"
    found = mw.advise(model, KINDS, function=grader.grade, out=folder, on_cost=said.append, **SMALL)
    return found, grader.seen - len(KINDS), said


def numbers(found: dict) -> list:
    return [(row["setting"], row["quality"], row["to_reference"], row["passes"]) for row in found["confirmed"]]


@pytest.mark.slow
def test_a_block_diffusion_model_is_searched_over_its_blocks(tmp_path):
    tokenizer = shipped_tokenizer()
    model = tiny_sdar(tokenizer=tokenizer, vocab=len(tokenizer), mask_token_id=tokenizer.mask_token_id)
    found = mw.advise(
        model,
        KINDS,
        function=lambda text, answer: float(len(text)),
        out=tmp_path / "found",
        max_new_tokens=8,
        blocks=[2, 3],
        steps=[4],
        rules="low-confidence",
        caches="none",
    )
    names = {row["setting"] for row in found["confirmed"]} | {found["reference"]}
    assert found["reference"] == "blocks canvas, block 4, low-confidence, 4 steps"
    assert all(name.startswith(("blocks canvas, block 4", "blocks canvas, block 2")) for name in names)
    assert found["sentence"]


def test_a_search_states_its_cost_and_names_no_setting_on_too_few_questions(whole, model):
    found, graded, said = whole
    assert len(said) == 1 and "2 settings on 6 questions" in said[0] and "forward passes of" in said[0]
    assert found["questions"] == {"searched": 12, "held_back": 24, "embedded": False}
    assert [row["goal"] for row in (*found["advice"], *found["undecided"])] == [
        "best quality",
        "fastest within 1 point",
        "fastest within 3 points",
    ]
    assert not found["advice"] and all(row["questions"] > 24 for row in found["undecided"])
    assert "Not enough questions" in found["sentence"] and "would decide" in found["sentence"]
    assert found["passes"] == 2 * graded
    names = [row["setting"] for row in found["confirmed"]]
    assert len(names) == 3 and sum("dual cache" in name for name in names) == 1  # one has blocks


@pytest.mark.slow
def test_a_killed_search_goes_on_where_it_was(whole, model, tmp_path):
    found, graded, _ = whole
    with pytest.raises(KeyboardInterrupt):
        mw.advise(model, KINDS, function=Grader(len(KINDS) + 50).grade, out=tmp_path, **SMALL)
    records = tmp_path / "records.jsonl"
    assert len(records.read_text().splitlines()) == 50  # one at a time on a CPU: nothing that was graded is lost
    with records.open("a") as file:
        file.write('{"setting": "fixed canvas, low-con')  # torn by a kill
    grader, said = Grader(), []
    again = mw.advise(model, KINDS, function=grader.grade, out=tmp_path, on_cost=said.append, **SMALL)
    assert grader.seen == len(KINDS) + graded - 50 and "50 answers on file" in said[0]
    assert {row["setting"] for row in again["confirmed"]} == {row["setting"] for row in found["confirmed"]}
    same = {row[0]: row[1:] for row in numbers(found)}
    assert all(same[name] == tuple(values) for name, *values in numbers(again))


def test_a_folder_of_another_search_or_with_a_strange_line_is_refused(whole, model, tmp_path):
    folder = whole[0]["folder"]
    with pytest.raises(UserError, match="was made with another questions"):
        mw.advise(model, KINDS[:33], function=Grader().grade, out=folder, **SMALL)
    (tmp_path / "records.jsonl").write_text('{"setting": "x"}\n')
    with pytest.raises(UserError, match=r"line 1 is not an answer of this search"):
        read_answers(tmp_path, {"x"}, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"identity": 3}, "is not the manifest of a search"),
        ({"identity": None}, "is not the manifest of a search"),
        ({"plan": {"rounds": [4], "held": 2}}, "is not the manifest of a search"),
        ({"plan": {"rounds": [], "held": 1, "seconds_per_pass": 1.0}}, "has no plan for"),
        ({"plan": {"rounds": [9, 4], "held": 1, "seconds_per_pass": 1.0}}, "has no plan for"),
        ({"plan": {"rounds": [4], "held": 10**15, "seconds_per_pass": 1.0}}, "has no plan for"),
        ({"plan": {"rounds": ["4"], "held": 1, "seconds_per_pass": 1.0}}, "is not the manifest of a search"),
    ],
)
def test_a_damaged_manifest_of_a_search_is_one_line(whole, model, tmp_path, change, said):
    manifest = json.loads((Path(whole[0]["folder"]) / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(UserError, match=said) as caught:
        mw.advise(model, KINDS, function=Grader().grade, out=tmp_path, **SMALL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [{"passes": 10**400}, {"quality": "1"}, {"question": 1.5}, {"question": -1}, {"seconds": -1}, {"setting": ["x"]}],
)
def test_a_damaged_answer_of_a_search_is_refused_by_its_line(tmp_path, change):
    sound = {"setting": "x", "question": 1, "quality": 1.0, "passes": 2, "seconds": 0.5, "text": "t"}
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(sound) + "\n")
    assert len(read_answers(tmp_path, {"x"}, 3)) == 1
    file.write_text(json.dumps(sound) + "\n" + json.dumps(sound | change) + "\n")
    with pytest.raises(UserError, match="line 2 is not an answer of this search"):
        read_answers(tmp_path, {"x"}, 3)


def test_the_judge_is_looked_through_for_nan_by_default(model, tmp_path):
    judge, file = save(tmp_path / "judge"), tmp_path / "judge" / "model.safetensors"
    weights = load_file(file)
    weights["model.transformer.blocks.1.ff_proj.weight"].view(-1)[3] = torch.nan
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UserError, match="NaN or infinity in its weights"):
        mw.advise(model, KINDS, judge=judge, out=tmp_path / "looked", **SMALL)
    with pytest.raises(UserError, match="are not finite, from"):
        mw.advise(model, KINDS, judge=judge, check_weights=False, out=tmp_path / "not", **SMALL)


def test_answers_of_several_processes_are_one_file_and_a_torn_line_is_left_out(tmp_path):
    first, second, third = (SettingAnswer("x", number, 0.5, 2, 0.25, "text") for number in range(3))
    append_answers(tmp_path, [second])
    append_answers(tmp_path, [first, third], rank=1)
    with (tmp_path / "records.1.jsonl").open("a") as file:
        file.write('{"setting": "x", "ques')
    found = read_answers(tmp_path, {"x"}, 3)
    assert set(found.values()) == {first, second, third}
    gather_answers(tmp_path, found.values())
    assert [file.name for file in tmp_path.iterdir()] == ["records.jsonl"]
    assert list(read_answers(tmp_path, {"x"}, 3).values()) == [first, second, third]


@pytest.mark.slow  # starts processes
def test_two_processes_find_what_one_finds_and_share_the_questions(tmp_path):
    data = tmp_path / "kinds.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in KINDS))
    searched = "-n 4 --blocks 2 --steps 2 --canvases fixed,growing --caches dual --rules low-confidence"
    command = [
        sys.executable,
        "-m",
        "maskwise.cli",
        "advise",
        "tiny-llada",
        "--data",
        str(data),
        "--pattern",
        "animal",
        *searched.split(),
        "--device",
        "cpu",
        "--json",
    ]
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
    assert b"in 2 processes" in printed[0][1] and printed[1] == (b"", b"")
    alone = subprocess.run([*command, "--out", str(tmp_path / "one")], capture_output=True, check=True, timeout=200)
    two, one = json.loads(printed[0][0]), json.loads(alone.stdout)
    # Among settings of equal quality the measured speed decides which are confirmed: it differs from run to run.
    qualities = [{row["setting"]: row["quality"] for row in found["confirmed"]} for found in (two, one)]
    confirmed_by_both = qualities[0].keys() & qualities[1].keys()
    assert confirmed_by_both
    assert all(qualities[0][setting] == qualities[1][setting] for setting in confirmed_by_both)
    texts = []
    for folder in ("two", "one"):
        lines = map(json.loads, (tmp_path / folder / "records.jsonl").read_text().splitlines())
        texts.append({(line["setting"], line["question"]): line["text"] for line in lines})
        assert not list((tmp_path / folder).glob("records.*.jsonl"))
    asked_by_both = texts[0].keys() & texts[1].keys()
    assert len(asked_by_both) > len(texts[1]) / 2
    assert all(texts[0][one] == texts[1][one] for one in asked_by_both)


def test_an_autoregressive_model_is_refused():
    with pytest.raises(UserError, match="tiny-qwen is autoregressive"):
        mw.advise("tiny-qwen", KINDS, exact=True, **SMALL)


@pytest.mark.slow
def test_the_command_prints_the_finding_or_one_object(tmp_path):
    data = tmp_path / "kinds.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in KINDS[:33]))
    searched = "-n 2 --blocks 1 --steps 2 --canvases fixed,growing --caches none --rules low-confidence"
    options = ["--pattern", "animal", *searched.split(), "--device", "cpu", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["advise", "tiny-llada", "--data", str(data), *options])
    assert done.exit_code == 0, done.stderr
    assert (
        done.stdout.startswith("0 of 24 right: not shown to be able") and "not tried: strategies random" in done.stdout
    )
    assert "on the frontier" not in done.stdout and "not decided" not in done.stdout
    assert "forward passes of" in done.stderr
    printed = CliRunner().invoke(app, ["advise", "tiny-llada", "--data", str(data), *options, "--json"])
    found = json.loads(printed.stdout)
    assert found["all_equal"] and found["winner"] is None
    assert " ".join(found["sentence"].split()) in " ".join(done.stdout.split())
    copied = ("  maskwise generate", "  mw.generate", "  lm_eval", "folder: ", "page: ")  # each on one line of its own
    assert all(len(line) <= 80 or line.startswith(copied) for line in done.stdout.splitlines())
    assert json.loads((tmp_path / "out" / "advice.json").read_text()) == found
    assert problem_of_output(found, OUTPUTS["advise (also advice.json)"]) is None
    page = (tmp_path / "out" / "advice.html").read_text()
    assert "<script" not in page and "http" not in re.sub(r"http://www\.w3\.org/[\w/]+", "", page)
    assert found["sentence"].partition(" (-n)")[0] in page and "<svg" not in page and "Settings to use" not in page
    assert all(str(escape(line)) in page for line in found["not_tried"])


def test_a_search_is_a_row_of_the_table_of_runs_and_a_part_of_a_model_card(whole):
    found = whole[0]
    folder = Path(found["folder"])
    assert runs_in([folder.parent]) == [folder]
    search = read_search(folder)
    assert problem_of_output(json_object(search.manifest), SearchManifest) is None
    assert [search.number(value, signed=True) for value in (-0.162, 0.0, 0.1)] == ["−0.162", "0.000", "+0.100"]
    (row,) = search_table([search]).rows
    texts = [cell.text for cell in row]
    best = max(found["confirmed"], key=lambda row: row["quality"]["mean"])
    assert texts[0] == "tiny-llada" and texts[4:6] == [best["setting"], "not decided"]
    assert row[1].order == best["quality"]["mean"] and "maskwise" in texts[-1]
    card = run_card_of(folder)
    for line in (
        "- best quality: not decided",
        f"| {best['setting']}",
        "| seed | 0 |",
        "| max new tokens | 4 |",
        "torch version",
    ):
        assert line in card
    assert str(folder) not in card
    drawn = CliRunner().invoke(app, ["report", str(folder), "--json"])
    assert problem_of_output(json.loads(drawn.stdout), OUTPUTS["diagnose (several models), report"]) is None
    assert json.loads(drawn.stdout)["searches"] == [found] and (folder / "advice.html").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"advice": 3},
        {"undecided": []},
        {"confirmed": [{"setting": 3}]},
        {"confirmed": [7]},
        {"confirmed": []},
        {"dropped": None},
        {"model": None},
        {"passes": "many"},
        {"seconds": []},
        {"questions": {"searched": 8}},
        {"unit": 1},
    ],
)
def test_an_advice_file_of_a_stranger_is_one_line(whole, tmp_path, damage):
    for name in ("manifest.json", "advice.json"):
        (tmp_path / name).write_text((Path(whole[0]["folder"]) / name).read_text())
    written = json.loads((tmp_path / "advice.json").read_text())
    (tmp_path / "advice.json").write_text(json.dumps(written | damage))
    with pytest.raises(UserError, match="is not what maskwise advise writes"):
        read_search(tmp_path)
    for lost in ("passes", "quality"):
        rows = [{name: value for name, value in row.items() if name != lost} for row in written["confirmed"]]
        (tmp_path / "advice.json").write_text(json.dumps(written | {"confirmed": rows}))
        with pytest.raises(UserError, match=rf"confirmed\[0\].{lost} is missing"):
            read_search(tmp_path)
    (tmp_path / "advice.json").unlink()
    with pytest.raises(UserError, match="has not ended"):
        read_search(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"versions": [7]}))
    with pytest.raises(UserError, match="versions: expected object, got array"):
        read_search(tmp_path)


def test_a_search_of_a_servers_model_is_refused_by_the_commit_that_reads_it(whole, tmp_path):
    manifest = json.loads((Path(whole[0]["folder"]) / "manifest.json").read_text())
    manifest["identity"]["model"]["served"] = {"stated_by": {}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="cc8a75cd"):
        read_search(tmp_path)


def test_a_search_of_an_earlier_version_without_undecided_goals_still_opens(whole, tmp_path):
    folder = Path(whole[0]["folder"])
    (tmp_path / "manifest.json").write_text((folder / "manifest.json").read_text())
    written = json.loads((folder / "advice.json").read_text())
    goals = [row["goal"] for row in written.pop("undecided")]
    how = {"options": {}, "command": "maskwise generate", "python": "mw.generate()", "lm_eval": "--model maskwise"}
    written["advice"] = [written["confirmed"][0] | how | {"goal": goal} for goal in goals]
    (tmp_path / "advice.json").write_text(json.dumps(written))
    search = read_search(tmp_path)
    assert len(search.found.advice) == 3 and search.undecided == search.found.undecided == []
    assert "not decided" not in run_card_of(tmp_path)


def test_a_model_that_answers_nothing_is_given_no_setting(model, tmp_path):
    found = mw.advise(model, KINDS, exact=True, out=tmp_path, **SMALL)
    assert found["sentence"].startswith("0 of 24 right: not shown to be able to do the task, so nothing can be lost.")
    assert not found["advice"] and found["winner"] is None and "What to do: look at" in found["sentence"]
    assert [row["questions"] for row in found["undecided"]] == [None] * 3
    assert not any(row["frontier"] for row in found["confirmed"])


def test_questions_that_every_setting_answers_are_too_easy(model, tmp_path):
    found = mw.advise(model, KINDS, pattern="^", out=tmp_path, **SMALL)
    easy = "24 of 24 right with the best setting and no loss detected: too easy to show a loss."
    assert found["sentence"].startswith(easy) and not found["advice"]
    assert not any(row["frontier"] for row in found["confirmed"])  # so that no level line is drawn
    assert " ".join(advice_text(read_search(tmp_path), tmp_path).split()).startswith(easy)


def outcome_of(right: list[int], held: int, **measure):
    """What is advised where each setting has so many right answers, the reference first."""
    request = prepare([{"prompt": "a", "answer": "b"}] * 36, **measure, **SMALL)
    quality = np.array([[place < count for place in range(held)] for count in right], dtype=float)
    cost = np.arange(len(right), 0, -1.0)
    places, seconds = tuple(range(len(right))), (1.0,) * len(right)
    confirmed = confirm(quality, cost)
    found = SearchResult(request.settings, Plan((12,), held), [], places, confirmed, tuple(cost), seconds)
    return outcome(found, request, "tiny", None, cost="", passes=1, seconds=1, device="cpu", folder="")


def test_the_right_answers_of_easy_questions_are_those_of_the_best_setting():
    found = outcome_of([22, 24], 24, exact=True)
    assert found.sentence.startswith("24 of 24 right with the best setting and no loss detected: too easy")
    assert [round(24 * row.quality.mean) for row in found.confirmed if row.setting == found.reference] == [22]


def test_a_value_of_1_is_not_called_right_where_a_function_may_give_more():
    """1 may be the lowest grade of 1 to 5."""
    found = outcome_of([24, 24], 24, function=lambda text, answer: 5.0)
    assert found.sentence.startswith("24 of 24 texts got 1 with the best setting, and no loss was detected. If 1")
    assert "right" not in found.sentence and "too easy" not in found.sentence


def test_a_setting_is_on_the_frontier_in_the_advice_where_it_is_among_the_confirmed():
    for right, on_it in ([240, 240], False), ([230, 120], True):
        found = outcome_of(right, 240, exact=True)
        confirmed = {row.setting: row.frontier for row in found.confirmed}
        assert found.advice and all(row.frontier == confirmed[row.setting] for row in found.advice)
        assert any(confirmed.values()) == on_it


@pytest.mark.slow
def test_where_nothing_is_lost_the_fastest_is_named_and_runs(model, tmp_path):
    """Every text counts as right, so a few hundred questions show that no setting is worse by 3 points."""
    many = [{"prompt": f"Word: {n}\nKind:[", "answer": "x"} for n in range(240)]
    found = mw.advise(model, many, function=lambda text, answer: True, out=tmp_path, **SMALL)
    assert [row["goal"] for row in found["advice"]] == ["best quality", "fastest within 3 points"]
    assert found["undecided"][0]["goal"] == "fastest within 1 point"
    for row in found["advice"]:
        assert len(mw.generate(model, [KINDS[0]["prompt"]], **row["options"])[0].ids) == 4


@pytest.mark.slow  # a minute of decoding
def test_on_the_phantom_a_growing_canvas_wins(tmp_path):
    """Its accuracy falls with the masks after the answer. The budget is more than all embedded questions take."""
    found = mw.advise(
        "tiny-llada+distracted",
        budget=60,
        canvases="fixed,growing",
        blocks=[8],
        caches="none",
        device="cpu",
        out=tmp_path,
    )
    assert found["winner"].startswith("growing canvas") and not found["all_equal"]
    won = next(row for row in found["confirmed"] if row["setting"] == found["winner"])
    assert won["to_reference"]["low"] > 0 and "is better than the reference" in found["sentence"]
