"""Tuning runs that are killed, interrupted, damaged or out of disk space, and how they resume."""

import errno
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback
from typer.testing import CliRunner

from helpers.tuning import At, assert_same_run, interrupt, run_small
from maskwise.cli import app
from maskwise.support.errors import UserError
from maskwise.training.run_folder import complete_checkpoints, damage_of, newest_whole, saving, vouch


def test_a_run_whose_draws_followed_another_law_is_not_continued(checkpoint, pairs_file, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_small(checkpoint, pairs_file, out, callbacks=[At(3, interrupt)])
    stored = json.loads((out / "settings.json").read_text())
    del stored["identity"]["seeds"]  # as version 0.1 wrote it
    (out / "settings.json").write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"seeds is None there and 2 here"):
        run_small(checkpoint, pairs_file, out)


def test_a_setting_that_did_not_exist_when_a_run_began_counts_as_its_default(checkpoint, pairs_file, tmp_path):
    out = tmp_path / "out"
    run_small(checkpoint, pairs_file, out)
    stored = json.loads((out / "settings.json").read_text())
    del stored["identity"]["settings"]["held"]
    (out / "settings.json").write_text(json.dumps(stored))
    assert run_small(checkpoint, pairs_file, out) == json.loads((out / "result.json").read_text())
    del stored["identity"]["settings"]["steps"]
    (out / "settings.json").write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"settings.steps is 930 there and"):
        run_small(checkpoint, pairs_file, out)


KILLED = """
import os, signal, sys
from pathlib import Path
from helpers.tuning import At, run_small
run_small(*map(Path, sys.argv[1:4]), callbacks=[At(3, lambda _: os.kill(os.getpid(), signal.SIGKILL))])
"""


@pytest.mark.slow  # two processes; a killed training run is among the quick ones
def test_a_killed_process_resumes_on_the_same_trajectory(whole, checkpoint, pairs_file, tmp_path):
    out = tmp_path / "out"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # where `helpers` is found
    command = [sys.executable, "-c", KILLED, checkpoint, pairs_file, out]
    process = subprocess.run(command, capture_output=True, env=environment)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()[-2000:]
    assert [path.name for path in complete_checkpoints(out / "checkpoints")] == ["checkpoint-2"]
    assert not (out / "result.json").exists()
    assert_same_run(run_small(checkpoint, pairs_file, out), whole[1])


@pytest.mark.slow
def test_an_interrupted_save_is_not_resumed_from(whole, checkpoint, pairs_file, tmp_path, monkeypatch):
    out, save = tmp_path / "out", torch.save

    def cut_short(value, path, *more, **rest):
        if "checkpoint-4" in str(path) and "scheduler" in str(path):
            raise KeyboardInterrupt
        save(value, path, *more, **rest)

    monkeypatch.setattr(torch, "save", cut_short)
    with pytest.raises(KeyboardInterrupt):
        run_small(checkpoint, pairs_file, out)
    monkeypatch.undo()
    assert (out / "checkpoints" / "checkpoint-4" / "optimizer.pt").exists()
    assert [path.name for path in complete_checkpoints(out / "checkpoints")] == ["checkpoint-2"]
    assert_same_run(run_small(checkpoint, pairs_file, out), whole[1])


@contextmanager
def files_no_larger_than(size: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_last_checkpoint_is_kept(whole, checkpoint, pairs_file, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_small(checkpoint, pairs_file, out, callbacks=[At(3, interrupt)])
    with files_no_larger_than(6000), pytest.raises(UserError) as problem:
        run_small(checkpoint, pairs_file, out)
    assert "checkpoint-4" in str(problem.value) and "the checkpoint of step 2 is kept" in str(problem.value)
    assert "\n" not in str(problem.value)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["checkpoint-2"]
    assert_same_run(run_small(checkpoint, pairs_file, out), whole[1])


def test_no_room_for_the_folder_of_checkpoints_is_one_line(whole, checkpoint, pairs_file, tmp_path, monkeypatch):
    make = os.mkdir

    def full(path, *how, **named):
        if str(path).endswith("checkpoints"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        make(path, *how, **named)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(UserError, match=r"no space left on the disk\): nothing was begun"):
        run_small(checkpoint, pairs_file, tmp_path / "out")
    monkeypatch.undo()
    assert_same_run(run_small(checkpoint, pairs_file, tmp_path / "out"), whole[1])


@pytest.mark.slow
def test_no_room_at_the_end_keeps_the_checkpoint_and_finishes_later(whole, checkpoint, pairs_file, tmp_path):
    out = tmp_path / "out"

    class Fill(TrainerCallback):
        def on_train_end(self, *_, **__):
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    with files_no_larger_than(resource.getrlimit(resource.RLIMIT_FSIZE)[0]), pytest.raises(UserError) as problem:
        run_small(checkpoint, pairs_file, out, callbacks=[Fill()])
    assert "the checkpoint of step 6 is kept" in str(problem.value)
    assert not (out / "result.json").exists() and not (out / "adapter_config.json").exists()
    assert_same_run(run_small(checkpoint, pairs_file, out), whole[1])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_loss_stops_before_the_step_with_its_batch_saved(checkpoint, pairs_file, tmp_path, value):
    def spoil(model):
        with torch.no_grad():
            next(p for n, p in model.named_parameters() if "lora_B" in n).fill_(value)

    with pytest.raises(UserError) as problem:
        run_small(checkpoint, pairs_file, tmp_path / "out", callbacks=[At(3, spoil)])
    said = str(problem.value)
    assert "the loss became nan at step 4 (micro-batch 7)" in said and "the checkpoint of step 2 is kept" in said
    batch = json.loads((tmp_path / "out" / "bad-batch-0.json").read_text())
    assert batch["micro_batch"] == 7 and len(batch["pairs"]) == len(batch["views"]) == 2
    assert {"first", "second", "rows", "targets", "ce_weights", "tv_weights"} == set(batch["views"][0])
    assert [path.name for path in complete_checkpoints(tmp_path / "out" / "checkpoints")] == ["checkpoint-2"]


def test_resume_state_is_read_as_plain_data_only(checkpoint, pairs_file, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_small(checkpoint, pairs_file, out, callbacks=[At(3, interrupt)])

    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    (out / "checkpoints" / "checkpoint-2" / "optimizer.pt").write_bytes(pickle.dumps(Harm()))
    vouch(out / "checkpoints" / "checkpoint-2", 2)
    with pytest.raises(UserError, match="cannot be resumed"):
        run_small(checkpoint, pairs_file, out)
    assert not (tmp_path / "harm").exists()


def flip_a_byte(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture(scope="module")
def stopped(checkpoint, pairs_file, tmp_path_factory):
    """A run that was interrupted after its second checkpoint."""
    out = tmp_path_factory.mktemp("stopped") / "out"
    with pytest.raises(KeyboardInterrupt):
        run_small(checkpoint, pairs_file, out, callbacks=[At(5, interrupt)])
    return out


@pytest.mark.parametrize("damage", [flip_a_byte, Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-9])])
@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "trainer_state.json",
        "adapter_model.safetensors",
        "complete.json",
    ],
)
def test_a_damaged_checkpoint_is_not_used_and_the_one_before_is(stopped, tmp_path, capsys, name, damage):
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    folder = out / "checkpoints"
    assert damage_of(folder / "checkpoint-4") is None and newest_whole(folder, print) == folder / "checkpoint-4"
    damage(folder / "checkpoint-4" / name)
    assert newest_whole(folder, print) == folder / "checkpoint-2"
    if name != "complete.json":
        assert name in capsys.readouterr().out


def test_a_run_with_a_damaged_checkpoint_ends_like_any_other(whole, stopped, checkpoint, pairs_file, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    flip_a_byte(out / "checkpoints" / "checkpoint-4" / "rng_state.pth")
    assert_same_run(run_small(checkpoint, pairs_file, out), whole[1])
    assert "checkpoint-4 is not used: rng_state.pth is not what was saved" in capsys.readouterr().err
    for path in complete_checkpoints(out / "checkpoints"):
        assert damage_of(path) is None


def test_a_copy_of_a_checkpoint_and_a_card_of_other_bytes_do_not_stop_a_run(
    whole, stopped, checkpoint, pairs_file, tmp_path
):
    """PEFT reads the card that lies in the folder it saves to, as UTF-8."""
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    folder = out / "checkpoints"
    shutil.copytree(folder / "checkpoint-4", folder / "checkpoint-4-backup")
    (folder / "checkpoint-x").mkdir()
    (folder / "checkpoint-4" / "README.md").write_bytes(b"\xff\xfe")
    assert_same_run(run_small(checkpoint, pairs_file, out), whole[1])
    assert (folder / "checkpoint-4-backup" / "adapter_model.safetensors").exists() and (
        folder / "checkpoint-x"
    ).exists()


def test_a_run_goes_on_with_its_own_base_alone(stopped, checkpoint, pairs_file, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.copytree(checkpoint, model)
    with pytest.raises(KeyboardInterrupt):
        run_small(model, pairs_file, out, callbacks=[At(3, interrupt)])
    weights = load_file(model / "model.safetensors")
    weights["model.transformer.blocks.0.q_proj.weight"][3, 5] += 1e-3
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="another model of this name"):
        run_small(model, pairs_file, out)


def test_a_kill_while_the_settings_are_written_does_not_block_a_rerun(whole, checkpoint, pairs_file, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "settings.json.partial").write_text('{"identi')
    assert_same_run(run_small(checkpoint, pairs_file, out), whole[1])
    (out / "settings.json").rename(out / "something.else")
    with pytest.raises(UserError, match="is not empty"):
        run_small(checkpoint, pairs_file, out)


def test_ctrl_c_is_one_line_and_says_what_is_kept(checkpoint, pairs_file, tmp_path, monkeypatch):
    from maskwise.training import trainer

    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.SequentialSampler, "__iter__", pressed)
    arguments = f"tune {checkpoint} --data {pairs_file} --out {tmp_path / 'out'} --steps 2 --context 40 --many 10"
    result = CliRunner().invoke(app, [*arguments.split(), "--device", "cpu", "--no-tensorboard"])
    assert result.exit_code == 2 and "interrupted; no checkpoint was due yet in" in result.stderr


def test_a_folder_that_may_not_be_written_is_not_called_full(tmp_path):
    """As root nothing is forbidden: the error is raised as the system would."""
    for number, said in (
        (errno.EACCES, r"permission denied\): nothing was begun; choose an --out that you may write to"),
        (errno.EROFS, r"read-only file system\): nothing was begun; choose an --out"),
        (errno.ENOSPC, r"no space left on the disk\): nothing was begun; make room"),
    ):
        with pytest.raises(UserError) as caught, saving(tmp_path / "settings.json", "nothing was begun"):
            raise OSError(number, os.strerror(number))
        assert re.search(said, caught.value.as_typed)
