"""A search from start to finish on an embedded model: it resumes, it finds what was planted."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import maskwise as mw
from helpers.checkpoints import save
from helpers.outputs import problem_of_output
from maskwise.advice.folder import read_answers
from maskwise.cli import app
from maskwise.errors import UserError
from maskwise.records.outputs import OUTPUTS

WORDS = ("otter", "zebra", "lemon", "apple", "green", "brave", "tiger", "horse")
KINDS = [{"prompt": f"Word: {word} {n}\nKind:[", "answer": "animal"} for n in range(5) for word in WORDS][:36]
SMALL = {"max_new_tokens": 4, "blocks": [2], "steps": [2], "rules": "low-confidence", "caches": "dual",
         "canvases": "fixed,growing"}  # fmt: skip


class Grader:
    """Counts what it is shown; stops the search, as Ctrl-C would, after so many texts."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.seen, self.stop_after = 0, stop_after

    def grade(self, text: str, answer: str) -> float:
        if self.stop_after is not None and self.seen == self.stop_after:
            raise KeyboardInterrupt
        self.seen += 1
        return float("animal" in text)


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada", device="cpu")


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """A search that nothing stopped, and how many texts were graded beside the answers themselves."""
    grader, said = Grader(), []
    folder = tmp_path_factory.mktemp("advise") / "whole"
    found = mw.advise(model, KINDS, function=grader.grade, out=folder, on_cost=said.append, **SMALL)
    return found, grader.seen - len(KINDS), said


def numbers(found: dict) -> list:
    return [(row["setting"], row["quality"], row["to_reference"], row["passes"]) for row in found["confirmed"]]


def test_a_search_states_its_cost_and_gives_three_settings_that_run(whole, model):
    found, graded, said = whole
    assert len(said) == 1 and "2 settings on 6 questions" in said[0] and "forward passes of" in said[0]
    assert found["questions"] == {"searched": 12, "held_back": 24, "embedded": False}
    assert [row["goal"] for row in found["advice"]] == [
        "best quality",
        "fastest within 1 point",
        "fastest within 3 points",
    ]
    assert found["passes"] == 2 * graded
    for row in found["advice"]:
        made = mw.generate(model, [KINDS[0]["prompt"]], **row["options"])
        assert len(made[0].ids) == 4
    names = [row["setting"] for row in found["confirmed"]]
    assert len(names) == 3 and sum("dual cache" in name for name in names) == 1  # one has blocks


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


def test_the_judge_is_looked_through_for_nan_unless_told_otherwise(model, tmp_path):
    judge, file = save(tmp_path / "judge"), tmp_path / "judge" / "model.safetensors"
    weights = load_file(file)
    weights["model.transformer.blocks.1.ff_proj.weight"].view(-1)[3] = torch.nan
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UserError, match="NaN or infinity in its weights"):
        mw.advise(model, KINDS, judge=judge, out=tmp_path / "looked", **SMALL)
    with pytest.raises(UserError, match="are not finite, from"):
        mw.advise(model, KINDS, judge=judge, check_weights=False, out=tmp_path / "not", **SMALL)


def test_an_autoregressive_model_is_refused():
    with pytest.raises(UserError, match="tiny-qwen is autoregressive"):
        mw.advise("tiny-qwen", KINDS, exact=True, **SMALL)


def test_the_command_prints_the_finding_or_one_object(tmp_path):
    data = tmp_path / "kinds.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in KINDS[:33]))
    searched = "-n 2 --blocks 1 --steps 2 --canvases fixed,growing --caches none --rules low-confidence"
    options = ["--pattern", "animal", *searched.split(), "--device", "cpu", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["advise", "tiny-llada", "--data", str(data), *options])
    assert done.exit_code == 0, done.stderr
    assert "maskwise generate tiny-llada" in done.stdout and "not tried: strategies random" in done.stdout
    assert "forward passes of" in done.stderr
    printed = CliRunner().invoke(app, ["advise", "tiny-llada", "--data", str(data), *options, "--json"])
    found = json.loads(printed.stdout)
    assert found["all_equal"] is (found["winner"] is None and "All equal" in found["sentence"])
    assert found["sentence"] in done.stdout and json.loads((tmp_path / "out" / "advice.json").read_text()) == found
    assert problem_of_output(found, OUTPUTS["advise (also advice.json)"]) is None


@pytest.mark.slow  # a minute of decoding
def test_on_the_phantom_a_growing_canvas_wins(tmp_path):
    """Its accuracy falls with the masks after the answer. The budget is more than all embedded questions take."""
    found = mw.advise(
        "tiny-llada+distracted", budget=60, canvases="fixed,growing", blocks=[8], caches="none", device="cpu",
        out=tmp_path,
    )  # fmt: skip
    assert found["winner"].startswith("growing canvas") and not found["all_equal"]
    assert found["advice"][0]["to_reference"]["low"] > 0 and "--early-stop" in found["advice"][0]["command"]
