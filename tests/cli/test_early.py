"""What can be known at once is said at once: wrong names, files and numbers, before torch is imported."""

import ctypes
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from maskwise.cli import app
from maskwise.models.families import FAMILIES
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean, nearest
from maskwise.training.checked_settings import settings_from

WRONG = {
    "diagnose --probes 'mask-count filler'": "separate probes by commas",
    "diagnose --data missing.jsonl": "there is no file missing.jsonl: give a .jsonl file",
    "diagnose notes": "notes has no config.json: give the folder of a checkpoint",
    "generate 'Once upon a time' tiny-llada": "reads like a prompt: name the model first",
    "generate hi tiny-llada": "'tiny-llada' is a model, and 'hi' is none",
    "generate tiny-llada Once upon a time": "put a text of several words in quotes",
    "generate tiny-llada hi --out traces.csv": "traces.csv would hold JSON lines: name a .jsonl file",
    "score tiny-llada --data data.xlsx": "data.xlsx is not UTF-8 text but an Excel workbook or a zip archive: save",
    "score tiny-llada --data wide.jsonl": "wide.jsonl is not UTF-8 text but UTF-16 text: save it in the encoding UTF-8",
    "score tiny-llada --data old.jsonl --method exact": "old.jsonl is not UTF-8 text: save it in the encoding UTF-8",
    "score tiny-llada --data old.jsonl --method exact --samples 4": "--method exact draws nothing: leave --samples out",
    "toy --epochs 3": "--epochs: the length of a training is given in --steps (tune, train)",
    "generate tiny-llada hi --threshold 0.9": "use --parameter threshold=0.9",
    "models tiny-llada tiny-dream": "(tiny-dream): leave it out, or put",
    "generate tiny-llada hi --top-p 0": "top_p 0.0 is out of range: it must be over 0 and at most 1",
    "generate tiny-llada hi --parameter tau=0.8 --parameter tau=0.9": "parameter tau is given twice",
    "tune tiny-llada --preset quick --clip inf": "--clip is inf: it must be a finite number",
    "tune tiny-llada --preset quick --lora-dropout 1": "--lora-dropout is 1.0: it must be at least 0, below 1",
    "score tiny-llada --data notes": "cannot read notes: Is a directory; give a file, not a folder",
    "generate tiny-llada hi --rule bets": "unknown unmasking strategy 'bets'",
    "generate tiny-llada hi --rule thresold": "did you mean threshold?",
    "generate tiny-llada hi --parameter thresold=1": "has no parameter 'thresold'",
    "generate tiny-llada hi --batch 0": "'--batch'",
    "generate tiny-llada hi --steps three": "'--steps'",
    "generate tiny-llada hi --stepz 3": "--steps",
    "generate tiny-llada hi --dtype float23": "did you mean float32?",
    "generate tiny-llada --file missing.txt": "cannot read missing.txt",
    "generate tiny-llada hi --out no/such/folder": "there is no folder",
    "generate tiny-lada hi": "did you mean tiny-llada?",
    "generate LLaDA-8B-Base hi": "did you mean GSAI-ML/LLaDA-8B-Base?",
    "generate tiny-llada hi --adapter nowhere": "nowhere has no adapter_config.json",
    "generate tiny-llada hi --device gpu": "no device 'gpu': use cuda",
    "tune tiny-llada --preset quick --device gpu:1": "no device 'gpu:1': use cuda",
    "score tiny-llada --data missing.jsonl --device cdua": "no device 'cdua': use cuda",
    "genrate tiny-llada hi": "generate",
    "generate --model tiny-llada": "No such option: --model: the model is the first argument (see maskwise generate",
    "generate tiny-llada hi --load-in-4bit": "use --weights fp8",
    "chat tiny-llada": "No such command 'chat': use maskwise generate, or maskwise studio",
    "compare tiny-llada tiny-llada": "tiny-llada is named twice",
    "generate inclusionAI/LLaDA2.0-mini hi --weights fp8": "--weights fp8 is not written for models with experts",
    "score tiny-llada --data missing.jsonl": "cannot read missing.jsonl",
    "score tiny-llada --data missing.jsonl --method exat": "did you mean exact?",
    "score tiny-llada --data missing.jsonl --masks -1": "Invalid value for '--masks'",
    "score tiny-llada --data missing.jsonl --masks two": "Invalid value for '--masks'",
    "generate tiny-llada hi -n -3": "max_new_tokens -3 leaves nothing to generate",
    "generate tiny-llada hi --block 0": "block 0 holds no token",
    "generate tiny-llada hi -n 4 --block 3": "block 3 does not divide max_new_tokens 4",
    "diagnose tiny-llada --adapter tiny-dream": "tiny-dream is an embedded model: name it as the model",
    "score tiny-llada --data missing.jsonl --samples 0": "'--samples'",
    "tune tiny-llada --data missing.jsonl": "there is no data file missing.jsonl",
    "tune tiny-llada --data missing.jsonl --steps 0": "steps is 0: it must be at least 1",
    "tune tiny-llada --preset quick --max-masks -3": "maskwise: --max-masks is -3: it must not be negative",
    "tune tiny-llada --preset quick --out /dev/null/x": "cannot write into /dev/null/x: Not a directory; choose",
    "train tiny-llada --data missing --out /dev/null/x": "cannot write into /dev/null/x",
    "diagnose --out /dev/null/x": "cannot write into /dev/null/x",
    "diagnose --out model": "model is the folder of a model: choose another --out",
    "compare tiny-llada tiny-dream --out model": "model is the folder of a model",
    "advise tiny-llada --out model": "model is the folder of a model",
    "toy --out /dev/null": "cannot write into /dev/null: not a folder you may write to",
    "export tiny-llada+distracted --out /dev/null/x": "cannot write into /dev/null/x",
    "convert tiny-qwen --out /dev/null/x": "cannot write into /dev/null/x",
    "tune tiny-llada --preset quik": "did you mean quick?",
    "tune tiny-llada --preset quick --report-to wandbb": "did you mean wandb?",
    "tune tiny-llada --preset quick --report-to mlflow": "mlflow is not installed: pip install mlflow",
    "train tiny-llada --data missing --out out": "there is no data file missing",
    "train tiny-llada --data missing --out out --objective nelbow": "did you mean nelbo?",
    "diagnose tiny-lada": "did you mean tiny-llada?",
    "diagnose --questions 0": "--questions must be at least 1",
    "diagnose --probes mask-cont": "did you mean mask-count?",
    "diagnose --words missing.json": "cannot read missing.json",
    "diagnose --probes templates --templates missing.yaml": "cannot read missing.yaml",
    "diagnose --probes mask-count --templates missing.yaml": "no probe of this run rewords questions",
    "advise tiny-lada": "did you mean tiny-llada?",
    "advise tiny-llada --settings rule=bets": "unknown unmasking strategy 'bets'",
    "advise tiny-llada --settings rule=threshold,tua=1": "generate has no 'tua'",
    "advise tiny-llada --settings canvas=growin,block=8": "unknown canvas 'growin'",
    "advise tiny-llada --settings block=eight": "block must be a number",
    "advise tiny-llada --questions 2": "2 of 128 questions: give 8 or more",
    "advise tiny-llada --pattern '([ABC]'": "does not compile",
    "advise tiny-llada --pattern zebra": "does not match the answer",
    "advise tiny-llada --exact --pattern x": "exclude each other",
    "advise tiny-llada --exact-match --pattern x": "exclude each other",
    "advise tiny-llada --function nosuch:is_right": "cannot be imported",
    "advise tiny-llada --function is_right": "write it as MODULE:NAME",
    "advise tiny-llada --data missing.jsonl": "say how answers are judged: --exact, --pattern",
    "advise tiny-llada --data missing.jsonl --exact": "cannot read missing.jsonl",
    "compare tiny-llada tiny-dram": "did you mean tiny-dream?",
    "report nowhere": "nowhere is not a run folder",
    "report tiny-llada": "run maskwise diagnose first, and give the folder it writes",
    "report tiny-llada --card": "run maskwise diagnose first, and give the folder it writes",
    "report notes --sort mask_tax": "--sort was removed in 0.3",
    "report notes notes": "notes is named twice: name each folder once",
    "diagnose --probes mask-count,mask-count": "the probe mask-count is named twice",
    "compare run-a run-b --questions 50": "--questions is for models: leave it out, run folders are",
    "compare run-a run-b --quick": "--quick is for models",
    "compare run-a run-b --no-check-weights": "--no-check-weights is for models: leave it out, run folders are",
    "compare run-a run-b --device cuda": "--device is for models",
    "tune tiny-llada --data mute.jsonl --steps 4 --warmup 4": "--warmup 4 is not shorter than --steps 4: lower it",
    "generate tiny-llada hi --tau 0.8": "--tau: use --parameter tau=0.8",
    "report README.md": "nor does it hold any: give the folder that maskwise diagnose wrote",
    "score tiny-llada --data mute.jsonl": "mute.jsonl line 1 has an answer of no tokens",
    "generate tiny-llada hi --device-map cuda": "use auto, or --device cuda for one GPU",
    "export tiny-llda --out out": "did you mean tiny-llada?",
    "convert tiny-qwn --out out": "did you mean tiny-qwen?",
    "verify nosuch": "no model 'nosuch'",
    "verify tiny-llada+distracted": "is an adapter on another model: merge it first (maskwise export)",
    "tune tiny-llada --preset quick --targets ''": "--targets is empty, so no layer would get an adapter",
    "verify tiny-llada": "tiny-llada has no original code to compare with (no auto_map in config.json)",
    "verify model": "model has no original code to compare with",
    "export tiny-llada --out new": "tiny-llada has no adapter, so there is nothing to merge: give one with --adapter",
    "export model --out new": "model has no adapter",
    "export GSAI-ML/LLaDA-8B-Base --out new": "GSAI-ML/LLaDA-8B-Base has no adapter",
}
CODE = """
import json, shlex, sys, time
class NoTorch:
    def find_spec(self, name, *_):
        assert name not in ("torch", "transformers", "peft"), f"{name} is imported"
sys.meta_path.insert(0, NoTorch())
from typer.testing import CliRunner
from maskwise.cli import app
found = {}
for line in json.load(sys.stdin):
    start = time.process_time()
    done = CliRunner().invoke(app, shlex.split(line), prog_name="maskwise")
    found[line] = [done.exit_code, done.stderr, repr(done.exception), time.process_time() - start]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, list]:
    """All wrong commands in one process in which torch cannot be imported."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    (folder / "notes").mkdir()
    for run in ("run-a", "run-b"):
        (folder / run).mkdir()
        (folder / run / "manifest.json").write_text("{}")
    (folder / "README.md").write_text("# A model\nThis is no card: it is: prose\n")
    (folder / "mute.jsonl").write_text('{"prompt": "a", "answer": ""}')
    (folder / "data.xlsx").write_bytes(b"PK\x03\x04\xff\xfe")
    (folder / "wide.jsonl").write_text('{"prompt": "ä"}', encoding="utf-16")
    (folder / "old.jsonl").write_text('{"prompt": "ä"}', encoding="latin-1")
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=json.dumps(list(WRONG)), capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_is_answered_without_torch_in_one_line(answers, line):
    status, said, problem, seconds = answers[line]
    assert status == 2, problem
    assert WRONG[line] in said and len(said.splitlines()) == 1 and said.startswith("maskwise: ")
    assert seconds < 1.5  # of the processor, however busy it is; the first that lists probes imports numpy and scipy


def test_a_setting_is_named_as_an_argument_in_python():
    with pytest.raises(UserError) as caught:
        settings_from("quick", {"max_masks": -3})
    assert str(caught.value) == "max_masks is -3: it must not be negative"


def test_an_embedded_model_is_described_without_torch():
    code = CODE.replace("found[line] = [done.exit_code, done.stderr,", "found[line] = [done.exit_code, done.stdout,")
    lines = ["models tiny-llada --json", "models tiny-llada+distracted", "models GSAI-ML/LLaDA-8B-Base"]
    given = {"input": json.dumps(lines), "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", code], **given)
    found = json.loads(done.stdout)
    assert [found[line][0] for line in lines] == [0, 0, 0], done.stderr
    assert json.loads(found[lines[0]][1])["models"][0]["mask_id"] == 1
    assert max(seconds for *_, seconds in found.values()) < 1


def test_names_are_met_by_the_nearest_known_one():
    assert nearest("gsai-ml/llada-8b-base", ["GSAI-ML/LLaDA-8B-Base", "tiny-llada"]) == "GSAI-ML/LLaDA-8B-Base"
    assert nearest("xyz", ["tiny-llada"]) is None
    assert did_you_mean("xyz", ["a", "b"]) == ": choose one of a, b"
    assert did_you_mean("marginn", ["margin", "b"]) == ": did you mean margin? There are margin, b"


def test_help_says_types_and_ranges_in_words_and_lists_the_choices():
    for command in ("generate", "diagnose", "tune", "train", "score", "advise"):
        text = CliRunner().invoke(app, [command, "--help"]).stdout
        assert not {"<int", "<str", "<float", "x>=", "<=x"} & set(text.split()) and "<=x" not in text, command
    assert "[default: 0; 0 or more]" in " ".join(CliRunner().invoke(app, ["score", "--help"]).stdout.split())
    rules = CliRunner().invoke(app, ["generate", "--help"]).stdout
    assert "low-confidence" in rules and "--steps <number>" in rules and "--file <path>" in rules
    assert "mask-count" in CliRunner().invoke(app, ["diagnose", "--help"]).stdout


def test_the_table_of_models_can_be_copied_at_80_columns():
    done = CliRunner().invoke(app, ["models"], env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    names = [entry["name"] for entry in json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)["models"]]
    table = lines[1 : 1 + len(names)]
    assert [line.split()[0] for line in table] == names
    assert max(map(len, table)) <= 80
    checked = {
        line.split()[0] for line in lines[lines.index("Each kind: what it was checked against, and what works.") + 1 :]
    }
    assert checked == {family.name for family in FAMILIES if family.checked}


def test_our_own_warnings_are_lines_of_the_command_and_those_of_others_as_python_shows_them():
    code = """
import sys, warnings
from maskwise.support.errors import UserNotice
from maskwise.start import main
sys.argv = ["maskwise", "--version"]
try:
    main()
except SystemExit:
    warnings.warn("maps keep\\ntheir precision", UserNotice)
    warnings.warn("of another package")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    first, second, *_ = done.stderr.splitlines()
    assert first == "maskwise: maps keep\\ntheir precision"
    assert second.endswith("UserWarning: of another package")


@pytest.mark.parametrize(
    ("shell", "said"), [("bash", "complete -o default"), ("zsh", "#compdef"), ("fish", "complete")]
)
def test_completion_is_typers_own(shell, said):
    """What `maskwise --install-completion` puts into the shell's start-up file, and what that asks then."""
    code = "import sys; sys.argv = ['maskwise']; from maskwise.start import main; main()"
    script = {"_MASKWISE_COMPLETE": f"source_{shell}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | script)
    assert said in done.stdout and "_MASKWISE_COMPLETE" in done.stdout
    if shell == "bash":
        asked = {"_MASKWISE_COMPLETE": "complete_bash", "COMP_WORDS": "maskwise gen", "COMP_CWORD": "1"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | asked)
        assert done.stdout.split() == ["generate"]


LONG = "a" * 300


@pytest.mark.parametrize(
    "command",
    [
        f"report {LONG}",
        f"report {LONG} --card",
        f"compare {LONG} tiny-llada",
        f"diagnose tiny-llada --adapter {LONG}",
        f"diagnose tiny-llada --data gsm8k={LONG}",
        f"diagnose tiny-llada --words {LONG}",
        f"tune tiny-llada --data {LONG} --out new",
        f"train tiny-llada --data {LONG} --out new",
        f"generate tiny-llada hi --adapter {LONG}",
        f"score tiny-llada --data {LONG}",
        f"export tiny-llada --adapter {LONG} --out new",
        f"models {LONG}",
    ],
)
def test_a_path_that_the_system_refuses_is_one_line(command):
    done = CliRunner().invoke(app, command.split(), prog_name="maskwise")
    assert done.exit_code == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("maskwise: ") and "aaaa" in line


def _as_any_owner() -> None:
    """Drops CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH from what the program that is started can have."""
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability)  # PR_CAPBSET_DROP


def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path):
    """Without the rights of root, who may enter every folder; another user could not read a clone of root's."""
    (tmp_path / "closed").mkdir()
    tmp_path.chmod(0o755)
    (tmp_path / "closed").chmod(0)
    path = tmp_path / "closed" / "x"
    lines = [
        f"report {path}",
        f"report {path} --card",
        f"diagnose --words {path}",
        f"diagnose --out {path}",
        f"diagnose --data gsm8k={path}",
        f"diagnose tiny-llada --adapter {path}",
        f"compare {path} tiny-llada",
        f"compare tiny-llada tiny-dream --out {path}",
        f"generate tiny-llada hi --adapter {path}",
        f"generate tiny-llada hi --out {path}/traces.jsonl",
        f"score tiny-llada --data {path}",
        f"tune tiny-llada --data {path}",
        f"tune tiny-llada --preset quick --out {path}",
        f"advise tiny-llada --exact --data {path}",
        f"export tiny-llada --adapter {path} --out new",
        f"export tiny-llada+distracted --out {path}",
        f"convert tiny-qwen --out {path}",
    ]
    code = CODE.replace("found = {}", "import os\nfound = {}\nif os.access('closed', os.X_OK): os.setuid(65534)")
    # The folders above belong to this user alone: entered before the rights are given up, and named from there.
    given = {"input": json.dumps([line.replace(f"{tmp_path}/", "") for line in lines]), "cwd": tmp_path}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=_as_any_owner, **given
    )
    assert done.returncode == 0, done.stderr
    for line, (status, said, problem, _) in json.loads(done.stdout).items():
        assert status == 2 and len(said.splitlines()) == 1 and "ermission denied" in said, (line, said, problem)


@pytest.mark.parametrize("command", ["models --json", "models", "--help"])
def test_output_that_cannot_be_written_is_one_line(command):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "maskwise", *command.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr == "maskwise: cannot write the output: no space left on device\n"


def test_json_to_a_closed_output_is_one_line():
    done = subprocess.run(f"{sys.executable} -m maskwise models --json >&-", shell=True, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("maskwise: standard output is closed")
    assert len(done.stderr.splitlines()) == 1
