"""`maskwise sweep`: jobs from models and settings, checks before anything runs, and real jobs on submitit."""

import json
import os
import shutil
import signal
import stat
import threading
import time
from pathlib import Path

import pytest
import torch
from msgspec import structs
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import maskwise as mw
from helpers.outputs import problem_of_output
from helpers.report_runs import KNOWN, write_run
from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.experiments.sweep.job_board import JobProgress
from maskwise.experiments.sweep.job_process import JobProcess
from maskwise.experiments.sweep.sweep_file import DiagnoseOptions, jobs_of, settings_of
from maskwise.experiments.sweep.workload import Workload
from maskwise.models.checkpoints.locations import ZOO
from maskwise.runs.asked import asked_ids
from maskwise.runs.described_model import tokenizer_of
from maskwise.support.errors import UserError

SMALL = {"preset": "quick", "probes": "mask-count", "points": 1}


def test_every_model_is_run_under_every_setting_in_a_folder_of_its_own(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent / "last").mkdir(parents=True)
    models = [str(tmp_path / "a" / "last"), str(tmp_path / "b" / "last")]
    settings = settings_of({"plain": {}, "chat": {"chat": True, "points": 3}}, {"points": 9})
    jobs = jobs_of(models, settings, tmp_path)
    assert [(job.model, job.setting, job.options.points) for job in jobs] == [
        (model, *of) for model in models for of in (("plain", 9), ("chat", 3))
    ]
    assert len({job.folder for job in jobs}) == 4 and all(job.name.startswith("last-") for job in jobs)
    (other,) = jobs_of(models[:1], settings_of(None, {"points": 8}), tmp_path)
    assert other.folder not in {job.folder for job in jobs}
    with pytest.raises(UserError, match="is named twice: name each model once"):
        jobs_of([*models, models[0]], settings, tmp_path)


def test_a_complete_run_is_finished_until_its_model_changes(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (job,) = jobs_of([str(model)], settings_of(None, {}), tmp_path)
    assert not job.is_finished
    write_run(job.folder, KNOWN, complete=False)
    assert not job.is_finished
    shutil.rmtree(job.folder)
    write_run(job.folder, KNOWN)
    assert job.is_finished
    (model / "model.safetensors").touch()
    os.utime(model / "model.safetensors", (time.time() + 60,) * 2)
    assert not job.is_finished


def test_settings_are_the_arguments_of_diagnose_with_its_defaults():
    from inspect import signature

    parameters = signature(mw.diagnose).parameters
    for field in structs.fields(DiagnoseOptions):
        assert parameters[field.name].default == field.default, field.name


def test_answers_are_counted_as_they_are_appended_and_again_after_they_are_sorted(tmp_path):
    (job,) = jobs_of(["tiny-llada"], settings_of(None, {}), tmp_path)
    row = JobProgress(job)
    row.count_answers()
    job.folder.mkdir()
    for rank, lines in (("", 2), (".1", 3), ("", 1)):
        with (job.folder / f"records{rank}.jsonl").open("a") as file:
            file.write("{}\n" * lines)
        row.count_answers()
    assert row.answered == 6
    (job.folder / "records.1.jsonl").unlink()
    (job.folder / "records.jsonl").write_text("{}\n" * 6)
    row.count_answers()
    assert row.answered == 6


def test_time_is_that_of_one_forward_pass_over_each_prompt():
    one, two = Workload(1, 10**6, 10**9), Workload(1, 3 * 10**6, 10**9)
    assert two.seconds(1e12) - one.seconds(1e12) == pytest.approx(2 * 1e9 * 2e6 / 1e12)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["tiny-lada"], "did you mean tiny-llada"),
        (["tiny-llada", "--executor", "slrum"], "did you mean slurm"),
        (["tiny-llada", "--executor", "slurm"], "there is no sbatch here"),
        (["tiny-llada", "--partition", "gpu"], "go with --executor slurm"),
        (["tiny-llada", "--gpus-per-job", "9"], "9 GPUs are needed and 0 are here"),
        (["tiny-llada", "--workers", "0"], "--workers must be at least 1"),
        (["tiny-llada", "--probes", "mask-cuont"], "did you mean mask-count"),
        (["tiny-llada", "tiny-dream", "--data", "gsm8k=none.jsonl"], "2 of 2 jobs cannot run, and none was started"),
        (["none.yaml"], "cannot read none.yaml"),
        (["wrong.yaml"], "wrong.yaml: object contains unknown field `modles`"),
        (["right.yaml", "--quick"], "stand in it"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(given, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    Path("wrong.yaml").write_text("modles: [tiny-llada]\n")
    Path("right.yaml").write_text("models: [tiny-llada]\n")
    done = CliRunner().invoke(app, ["sweep", *given])
    assert done.exit_code == 2 and wanted in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert sorted(os.listdir()) == ["right.yaml", "wrong.yaml"]


def test_a_checkpoint_that_is_cut_short_is_found_before_the_first_job(tmp_path):
    broken = shutil.copytree(ZOO / "tiny-llada", tmp_path / "broken")
    tokenizer_of("tiny-llada").save_pretrained(broken)
    file = broken / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"1 of 2 jobs cannot run, and none was started.*cut short"):
        mw.sweep(["tiny-llada", str(broken)], {"s": SMALL}, out=tmp_path / "sweep", dry_run=True)
    assert not (tmp_path / "sweep").exists()


def test_unknown_settings_are_one_line_in_python_too():
    with pytest.raises(UserError, match="no setting 'point': did you mean points"):
        mw.sweep(["tiny-llada"], point=3)
    with pytest.raises(UserError, match="settings long: points: expected int"):
        mw.sweep(["tiny-llada"], {"long": {"points": "many"}})


def test_a_dry_run_lists_jobs_with_tokens_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text("models: [tiny-llada]\nsettings: {a: {points: 1, probes: mask-count, preset: quick}}")
    done = CliRunner().invoke(app, ["sweep", "sweep.yaml", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "tiny-llada-a-" in done.stdout and "1 job, 1 at once: about" in done.stdout
    assert os.listdir() == ["sweep.yaml"]


def with_nan(folder: Path) -> Path:
    """tiny-llada with a NaN among its weights: headers and sizes are right, so that it fails when it is opened."""
    shutil.copytree(ZOO / "tiny-llada", folder)
    shutil.copy(ZOO / "tokenizer" / "tokenizer.json", folder)
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def holders(folders: list[Path]) -> dict[Path, int]:
    """The processes that hold the locks of run folders."""
    numbers = {folder.stat().st_ino: folder for folder in folders if folder.exists()}
    lines = [
        line.split() for line in Path("/proc/locks").read_text().splitlines() if "FLOCK" in line and "->" not in line
    ]
    held = {int(line[5].rsplit(":", 1)[1]): int(line[4]) for line in lines}
    return {numbers[number]: process for number, process in held.items() if number in numbers}


class Killer(threading.Thread):
    """Kills the process of one job after its first answers, and counts the jobs that run at once."""

    def __init__(self, jobs: list[Path], victim: Path) -> None:
        super().__init__(daemon=True)
        self.jobs, self.victim, self.most, self.kept, self.over = jobs, victim, 0, 0, False

    def run(self) -> None:
        records = self.victim / "records.jsonl"
        while not self.over:
            running = holders(self.jobs)
            self.most = max(self.most, len(running))
            if not self.kept and self.victim in running and records.exists() and records.stat().st_size:
                os.kill(running[self.victim], signal.SIGKILL)
                self.kept = records.read_bytes().count(b"\n")
            time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_six_jobs_on_two_workers_of_which_one_is_killed_and_one_is_broken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = ["tiny-llada", "tiny-dream", str(with_nan(tmp_path / "broken"))]
    models += [f"tiny-llada+{adapter}" for adapter in ("ma", "distracted", "distracted+ma")]
    options = {"preset": "quick", "probes": ["mask-count"], "points": 10, "exact": True}
    Path("sweep.yaml").write_text(json.dumps({"models": models, "settings": {"s": options}}))
    command = ["sweep", "sweep.yaml", "--workers", "2", "--out", "out", "--json"]
    planned = json.loads(CliRunner().invoke(app, [*command, "--dry-run"]).stdout)["jobs"]
    folders = {job["model"]: Path(job["folder"]) for job in planned}
    assert [job["state"] for job in planned] == 6 * ["planned"] and not Path("out").exists()

    killer = Killer(list(folders.values()), folders["tiny-llada+ma"])
    killer.start()
    done = CliRunner().invoke(app, command)
    killer.over = True
    found = json.loads(done.stdout)
    assert problem_of_output(found, OUTPUTS["sweep"]) is None
    states = {job["model"]: job["state"] for job in found["jobs"]}
    problems = {job["model"]: job.get("problem", "") for job in found["jobs"]}
    assert done.exit_code == 1 and 0 < killer.kept < 100 and killer.most == 2
    assert states == {**dict.fromkeys(models, "finished"), "tiny-llada+ma": "failed", models[2]: "failed"}
    assert "was ended" in problems["tiny-llada+ma"] and "NaN" in problems[models[2]]
    assert done.stderr.count("failed") == 2 and all("\n" not in line for line in problems.values())

    before = {
        model: (folder / "records.jsonl").stat().st_mtime for model, folder in folders.items() if model != models[2]
    }
    kept = set((folders["tiny-llada+ma"] / "records.jsonl").read_text().splitlines()[: killer.kept])
    again = json.loads(CliRunner().invoke(app, command).stdout)
    states = {job["model"]: job["state"] for job in again["jobs"]}
    assert states == {**dict.fromkeys(models, "skipped"), "tiny-llada+ma": "finished", models[2]: "failed"}
    for model, modified in before.items():
        assert ((folders[model] / "records.jsonl").stat().st_mtime == modified) == (model != "tiny-llada+ma")
    assert kept <= set((folders["tiny-llada+ma"] / "records.jsonl").read_text().splitlines())

    page = Path(again["table"]).read_text()
    for model in models:
        link = f'<a href="{folders[model].name.replace("+", "%2B")}/report.html">'
        assert (link in page) == (model != models[2])
    assert "broken-s-" in page and "NaN" in page  # the job that failed is a note
    run = mw.read_run(folders["tiny-llada"])
    tokenizer = tokenizer_of("tiny-llada")
    asked = [len(asked_ids(run.manifest, record, tokenizer)) for record in run.records]
    job = next(job for job in planned if job["model"] == "tiny-llada")
    assert job["answers"] == len(asked) and job["tokens"] == pytest.approx(sum(asked), rel=0.1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_processes_of_a_job_share_its_questions(tmp_path):
    import submitit

    (job,) = jobs_of(["tiny-llada"], settings_of(None, SMALL | {"points": 4}), tmp_path)
    executor = submitit.LocalExecutor(folder=tmp_path / "logs")
    executor.update_parameters(tasks_per_node=2, timeout_min=10)
    assert executor.submit(JobProcess(job, (), 1)).results() == [None, None]
    run, alone = mw.read_run(job.folder), mw.diagnose("tiny-llada", **SMALL | {"points": 4}, out=tmp_path / "alone")
    assert run.manifest.complete and (job.folder / "report.html").exists()
    assert [record.predicted for record in run.records] == [record.predicted for record in alone.records]


SLURM = {  # stand-ins for the cluster's commands: a job is a process of this machine
    "sbatch": """#!/bin/bash
cp "$1" "$SLURM_TEST/submitted.sh"
echo "Submitted batch job 4321"
SLURM_JOB_ID=4321 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 nohup bash "$1" > "$SLURM_TEST/job.log" 2>&1 &
""",
    "srun": """#!/bin/bash
while [[ "$1" == --* ]]; do [[ "$1" == --unbuffered ]] && shift || shift 2; done
exec "$@"
""",
    "sacct": "#!/bin/bash\necho 'JobID|State|NodeList'\necho '4321|RUNNING|here'\n",
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_slurm_gets_the_partition_the_gpus_and_the_time_and_runs_the_job(tmp_path, monkeypatch):
    for name, text in SLURM.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_TEST", str(tmp_path))
    found = mw.sweep(
        ["tiny-llada"], **SMALL, out=tmp_path / "out", executor="slurm", partition="gpu", gpus_per_job=0, hours=2
    )
    assert [job.state for job in found.jobs] == ["finished"] and found.jobs[0].scores["mask_tax"].n == 5
    script = (tmp_path / "submitted.sh").read_text()
    for line in ("--partition=gpu", "--time=120", "--gpus-per-node=0", "--ntasks-per-node=1"):
        assert f"#SBATCH {line}\n" in script
