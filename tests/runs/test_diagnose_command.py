"""`maskwise diagnose` as a user meets it: a checkpoint folder in, a report out; mistakes are one line."""

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.known import shipped_tokenizer
from helpers.outputs import departures
from helpers.tiny import llada_net
from maskwise.cli import app
from maskwise.models.model import Model
from maskwise.runs.diagnose import plan_run
from maskwise.runs.settings import chosen_settings
from maskwise.runs.workload import in_words
from maskwise.support import progress

QUICK = ["--quick", "--questions", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "little"
    llada_net(vocab=2048, window=1024, mask_token_id=1).save_pretrained(folder)
    shipped_tokenizer().save_pretrained(folder)
    return folder


def maskwise(*arguments):
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments)])


def test_a_run_ends_with_the_reports_path(checkpoint, tmp_path):
    result = maskwise(checkpoint, *QUICK, "--probes", "mask-count,natural-text", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "run" / "report.html") in result.stdout.splitlines()[-1]
    assert {"records.jsonl", "manifest.json", "report.html", "result.json", "figures"} <= {
        f.name for f in (tmp_path / "run").iterdir()
    }


def test_json_is_one_object_and_nothing_else(checkpoint, tmp_path):
    arguments = [checkpoint, *QUICK, "--probes", "location", "--json", "--seed", "3"]
    result = maskwise(*arguments, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert departures(found, "diagnose") == [] and found == json.loads((tmp_path / "run" / "result.json").read_text())
    assert max(one["n"] for one in found["estimates"] if one["probe"] == "location") == 5
    again = maskwise(*arguments, "--out", tmp_path / "run")  # nothing is asked again
    assert json.loads(again.stdout) == found


def test_ctrl_c_is_one_line_that_says_what_is_kept(checkpoint, tmp_path, monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "hidden", pressed)
    result = maskwise(checkpoint, *QUICK, "--probes", "location", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert [line for line in result.stderr.splitlines() if line and not line.startswith("Asking")] == [
        f"maskwise: interrupted; the records so far are kept in {tmp_path / 'run'}, the same command goes on from there"
    ]


def test_without_out_the_folder_is_named_after_model_and_settings(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        assert maskwise(checkpoint, *QUICK, "--probes", "mask-count", "--json", "--seed", seed).exit_code == 0
    names = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert len(names) == 2 and all(name.startswith("little-quick-") for name in names)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--quick", "--full"], "--quick and --full exclude each other"),
        (["--probes", "location,moon"], "unknown probe 'moon'"),
        (["--questions", "0"], "--questions must be at least 1, not 0"),
        (["--words", "none.json"], "cannot read none.json: No such file"),
        (["--text", "none.txt"], "cannot read none.txt: No such file"),
        (["--batch-tokens", "0", "--quick", "--questions", "1"], "--batch-tokens must be at least 1"),
        (["--full", "--probes", "location"], "the context length of"),
        (["--distractors", "99999", "--quick"], "examples do not fit into the context length of"),
        (["--quick", "--chat"], "no chat template"),
        (["--dtype", "int3"], "unknown dtype"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(checkpoint, tmp_path, arguments, said):
    result = maskwise(checkpoint, "--out", tmp_path / "run", *arguments)
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]  # after the bar of the weights being loaded
    assert last.startswith("maskwise: ") and said in last and "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists() and result.stdout == ""


def test_every_model_is_looked_at_before_the_first_is_asked(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    file = broken / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    result = maskwise(checkpoint, broken, *QUICK, "--probes", "mask-count")
    assert result.exit_code == 2 and "model.safetensors is corrupt or cut short" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_long_run_states_its_size_and_time(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "WORTH_SAYING", 0.0)
    result = maskwise(checkpoint, *QUICK, "--probes", "mask-count", "--batch-tokens", "5000", "--out", tmp_path / "run")
    planned = plan_run(mw.open(checkpoint, device="cpu"), chosen_settings("quick", "mask-count", questions=1))
    lengths = [len(item.prompt.ids) for unit in planned.units for item in unit.items(unit.points, set())]
    size, said = in_words(len(lengths), sum(lengths)), " ".join(result.stderr.split())
    assert re.search(rf"{re.escape(size)}: about [0-9]+ minutes? at the speed of the second batch", said)


def test_an_unknown_model_and_a_run_folder_of_another_run(checkpoint, tmp_path):
    result = maskwise("no-such-model", "--out", tmp_path / "run")
    assert result.exit_code == 2 and "no-such-model" in result.stderr and not (tmp_path / "run").exists()
    few = [checkpoint, *QUICK, "--probes", "mask-count", "--out", tmp_path / "run"]
    assert maskwise(*few).exit_code == 0
    result = maskwise(*few, "--seed", "7")
    assert result.exit_code == 2 and "seed was 0 and is 7 now" in result.stderr
