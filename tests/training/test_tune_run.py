"""Whole tuning runs: the adapter, its settings, the measures, the reports; and runs that are refused."""

import json
import os
import shlex
import sqlite3
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch
from datasets import Dataset
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

import maskwise as mw
from helpers.same import assert_same
from helpers.tiny import sdar_net, tiny_sdar
from helpers.tuning import SMALL, At, assert_same_run, interrupt, run_small
from maskwise.cli import app
from maskwise.models.checkpoints.adapter_base import base_digest, stored_digest
from maskwise.support.errors import UserError
from maskwise.training.data.held_out import held_out_views, split
from maskwise.training.data.pairs import Pair, read_pairs, tokenize_pairs
from maskwise.training.reporters import check_reporters
from maskwise.training.run_folder import complete_checkpoints
from maskwise.training.training_settings import PRESETS, TuneSettings
from maskwise.training.tune import cost_line, summary_lines, tune


def test_a_run_leaves_an_adapter_its_settings_and_its_measures(whole, checkpoint):
    out, result = whole
    assert result["steps"] == len(result["losses"]) == 6 and result["dropped"] == 0
    assert result["pairs"] == 20 and result["held_out"] == 4
    assert set(result["before"]) == set(result["after"]) == {"ce", "tv", "accuracy_few", "accuracy_many", "gap"}
    assert result["after"]["ce"] < result["before"]["ce"]
    stored = json.loads((out / "settings.json").read_text())
    assert stored["identity"]["settings"] == asdict(SMALL) and stored["identity"]["data"]["file"] == "pairs.jsonl"
    assert {"torch", "transformers", "peft", "accelerate", "maskwise"} == set(stored["versions"])
    assert stored_digest(out) == base_digest([checkpoint / "model.safetensors"])  # by which a wrong base is refused
    assert json.loads((out / "result.json").read_text()) == result
    tuned, plain = mw.open(checkpoint, adapter=out), mw.open(checkpoint)
    question = ([[5, 6, 7, tuned.mask_id]], [[3]])
    assert (tuned.predict(*question)[0] - plain.predict(*question)[0]).nan_to_num().abs().max() > 1e-3


def test_the_card_is_ours_and_says_how_to_load_it(whole, checkpoint):
    """Base, data, settings, measures; with PEFT alone it gives what `mw.open` gives; no path of this machine."""
    out, result = whole
    card = (out / "README.md").read_text()
    stored = json.loads((out / "settings.json").read_text())["identity"]["data"]
    measured = f"| {result['before']['ce']:.4f} | {result['after']['ce']:.4f} |"
    shown = [f"LoRA adapter (rank 2) of `{checkpoint.name}`", "`pairs.jsonl`", stored["sha256"], "20 pairs", measured]
    for said in (*shown, "| learning rate | 0.01 |"):
        assert said in card
    assert str(checkpoint.parent) not in card and str(out.parent) not in card
    code = card.split("With PEFT alone:")[1].split("```python\n")[1].split("```")[0]
    code = code.replace(f'"{checkpoint.name}"', f'"{checkpoint}", dtype="float32"').replace("FOLDER", f'"{out}"')
    found: dict = {}
    exec(code, found)
    ids = [5, 6, 7, 9]
    ours = mw.open(checkpoint, adapter=out, device="cpu").predict([ids], [[3]])[0][0]
    theirs = found["net"].eval()(input_ids=torch.tensor([ids])).logits[0, 3]
    keep = ours.isfinite()
    assert_same(theirs[keep], ours[keep], abs=1e-4)


def test_the_papers_steps_on_few_pairs_are_announced_with_their_cost():
    pair = Pair((1,) * 60, (2,) * 40)
    line = cost_line([pair] * 8, TuneSettings())
    assert "paper's 930 steps of 129 pairs: each of the 8 pairs is seen 14,996 times" in line
    assert f"about {2 * 930 * 129 * 400 / 1e6:.0f} million tokens" in line
    assert cost_line([pair] * 8, PRESETS["quick"]) is None and cost_line([pair] * 5000, TuneSettings()) is None


def test_the_hint_at_the_end_works_when_pasted(whole):
    result = whole[1] | {"model": "my models/base", "out": "my runs/it's tuned"}
    words = shlex.split(summary_lines(result)[-1].removeprefix("next: "))
    assert words == ["maskwise", "compare", "my models/base", "my runs/it's tuned"]
    assert summary_lines(result | {"steps": 1, "pairs": 1})[0].startswith("1 step on 1 pair, ")


def test_reports_go_where_they_are_asked_to(checkpoint, pairs_file, tmp_path):
    settings = replace(SMALL, steps=2, eval_every=0)
    tune(str(checkpoint), pairs_file, tmp_path / "a", settings, device="cpu", report_to="none")
    result = tune(str(checkpoint), pairs_file, tmp_path / "b", settings, device="cpu", report_to=["tensorboard"])
    assert not (tmp_path / "a" / "logs").exists() and len(list((tmp_path / "b" / "logs").iterdir())) == 1
    board = EventAccumulator(str(tmp_path / "b" / "logs"))
    board.Reload()
    assert [entry.step for entry in board.Scalars("train/loss")] == [1, 2]
    (last,) = board.Scalars("eval/ce")  # although nothing is measured in between
    assert last.step == 2 and last.value == pytest.approx(result["after"]["ce"])
    with pytest.raises(UserError, match="mlflow is not installed: pip install mlflow"):
        tune(str(checkpoint), pairs_file, tmp_path / "c", settings, report_to="tensorboard,mlflow")
    assert check_reporters(None) is None and check_reporters("none") == ()


@pytest.mark.slow
def test_wandb_and_mlflow_hold_one_finished_run_each(checkpoint, pairs_file, tmp_path):
    """In a process of its own, from the command line; --json prints one object although wandb tells of itself."""
    pytest.importorskip("wandb", reason="not part of the extra dev")
    pytest.importorskip("mlflow", reason="not part of the extra dev")
    given = f"tune {checkpoint} --data {pairs_file} --out out --preset quick --steps 2 --batch 2 --context 64 --many 20"
    given += " --lora-rank 2 --eval-every 0 --held-out 2 --device cpu --report-to wandb,mlflow --json"
    place = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'runs.db'}"}
    done = subprocess.run(
        [sys.executable, "-m", "maskwise", *given.split()],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        env=os.environ | place,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (offline,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"eval/ce" in offline.read_bytes()
    with sqlite3.connect(tmp_path / "runs.db") as kept:
        assert [row[0] for row in kept.execute("select status from runs")] == ["FINISHED"]
        (last,) = kept.execute("select value from metrics where key = 'eval_ce' and step = 2")
    assert last[0] == pytest.approx(result["after"]["ce"])


def test_pairs_may_be_a_list_or_a_dataset_and_the_model_an_open_one(whole, checkpoint, pairs_file, tmp_path):
    """The same losses as from the file; a list is identified by its content; an open model is tuned in place."""
    pairs = [json.loads(line) for line in pairs_file.read_text().splitlines()]
    model = mw.open(checkpoint, device="cpu")
    question = ([[5, 6, 7, model.mask_id]], [[3]])
    result = tune(model, Dataset.from_list(pairs), tmp_path / "out", SMALL, device="cpu", tensorboard=False)
    assert_same_run(result, whole[1])
    tuned = mw.open(checkpoint, adapter=tmp_path / "out")
    assert_same(model.predict(*question)[0], tuned.predict(*question)[0], abs=1e-5)
    assert model.name == f"{checkpoint}+{tmp_path / 'out'}" and tuned.name == model.name
    again = tune(str(checkpoint), pairs, tmp_path / "out", SMALL, device="cpu", tensorboard=False)
    assert again == result
    with pytest.raises(UserError, match=r"other settings \(data.sha256"):
        tune(str(checkpoint), pairs[1:], tmp_path / "out", SMALL, device="cpu")
    with pytest.raises(UserError, match="item 2 has the keys say"):
        tune(str(checkpoint), [pairs[0], {"say": "no pair"}], tmp_path / "other", SMALL)
    with pytest.raises(UserError, match="no setting 'step': did you mean steps"):
        tune(str(checkpoint), pairs, tmp_path / "other", step=3)
    with pytest.raises(UserError, match="settings and steps exclude each other"):
        tune(str(checkpoint), pairs, tmp_path / "other", SMALL, steps=3)
    with pytest.raises(UserError, match="nothing to tune on"):
        tune(str(checkpoint), out=tmp_path / "other")


def test_a_model_tuned_in_place_answers_without_dropout_as_its_folder_does(checkpoint, pairs_file, tmp_path):
    model = mw.open(checkpoint, device="cpu")
    settings = replace(SMALL, lora_dropout=0.5)
    result = tune(model, pairs_file, tmp_path / "out", settings, device="cpu", tensorboard=False)
    written = mw.open(checkpoint, adapter=tmp_path / "out", device="cpu")
    question = ([[5, 6, 7, model.mask_id]], [[3]])
    assert torch.equal(model.predict(*question)[0], written.predict(*question)[0])
    (tmp_path / "out" / "result.json").unlink()  # stopped after the last step: the measures are taken once more
    again = tune(str(checkpoint), pairs_file, tmp_path / "out", settings, device="cpu", tensorboard=False)
    assert again["after"] == result["after"]
    assert not (tmp_path / "other").exists()


def test_measures_are_those_of_the_opened_adapter(whole, checkpoint, pairs_file):
    out, result = whole
    model = mw.open(checkpoint, adapter=out)
    held_out, _ = split(tokenize_pairs(read_pairs(pairs_file), model, SMALL.context).kept, SMALL)
    ces, tvs, hits = [], [], [[], []]
    for view in held_out_views(held_out, SMALL, model.mask_id):
        assert len(view.second) - len(view.first) == SMALL.many - SMALL.few
        rows = view.rows.tolist()
        logs = [z.log_softmax(1) for z in model.predict([view.first.tolist(), view.second.tolist()], [rows, rows])]
        places = range(len(rows)), view.targets.tolist()
        ces += ((-logs[0][places] - logs[1][places]) / 2).tolist()
        tvs += (logs[0].exp() - logs[1].exp()).abs().sum(1).tolist()
        for found, log in zip(hits, logs, strict=True):
            found += (log.argmax(1) == view.targets).tolist()
    expected = [sum(values) / len(values) for values in (ces, tvs, *hits)]
    assert [result["after"][k] for k in ("ce", "tv", "accuracy_few", "accuracy_many")] == pytest.approx(
        expected, rel=1e-4
    )


def test_the_end_token_is_masked_at_times_but_never_measured():
    pairs = [Pair((3, 4, 5), (6, 7, 2)), Pair((3,), (8, 2))] * 40
    views = held_out_views(pairs, SMALL, mask_id=1)
    ends = [view.first[pair.length - 1].item() for pair, view in zip(pairs, views, strict=True)]
    assert set(ends) == {1, 2} and 20 < ends.count(1) < 60
    assert all(len(view.rows) and 2 not in view.targets for view in views)
    assert all((view.first[view.rows] == 1).all() and (view.second[view.rows] == 1).all() for view in views)
    lengths = {len(part) for view in views for part in (view.rows, view.targets, view.ce_weights, view.tv_weights)}
    assert lengths == {1, 2}


def test_the_command_speaks_json_alone_and_a_finished_run_is_not_repeated(checkpoint, pairs_file, tmp_path):
    arguments = f"tune {checkpoint} --data {pairs_file} --out {tmp_path / 'out'} --steps 2 --batch 2 --accumulation 1"
    arguments += " --context 40 --many 10 --lora-rank 2 --device cpu --tensorboard --json"
    first = CliRunner().invoke(app, arguments.split())
    assert first.exit_code == 0, first.output
    result = json.loads(first.stdout)
    assert result["steps"] == 2 and result["masks"] == {"few": 2, "many": 10, "many_least": 10}
    assert list((tmp_path / "out" / "logs").glob("events.*"))
    again = CliRunner().invoke(app, arguments.split())
    assert json.loads(again.stdout) == result
    other = CliRunner().invoke(app, [*arguments.split(), "--lr", "0.5"])
    assert other.exit_code == 2 and other.stdout == ""
    assert "settings.learning_rate is 1e-05 there and 0.5 here" in other.stderr and len(other.stderr.splitlines()) == 1


@pytest.mark.parametrize("variant", ["checkpointing", "keep", "few-saves"])
def test_settings_that_should_not_matter_do_not(whole, checkpoint, pairs_file, tmp_path, variant):
    changes = {"checkpointing": {"gradient_checkpointing": True}, "keep": {"keep": 1}, "few-saves": {"save_every": 5}}
    settings = replace(SMALL, **changes[variant])
    result = run_small(checkpoint, pairs_file, tmp_path / "out", settings)
    assert_same_run(result, whole[1])
    kept = [path.name for path in complete_checkpoints(tmp_path / "out" / "checkpoints")]
    assert kept == {"keep": ["checkpoint-6"], "few-saves": ["checkpoint-5", "checkpoint-6"]}.get(
        variant, ["checkpoint-4", "checkpoint-6"]
    )


@pytest.mark.slow
def test_bfloat16_is_close_and_other_objectives_are_not_the_same(checkpoint, pairs_file, tmp_path):
    losses = {}
    variants = {
        "same": {},
        "bf16": {"bf16": True},
        "pad": {"pad_eos": True},
        "one": {"one_branch": True},
        "ce": {"beta": 0.0},
        "anchored": {"anchored": True, "alpha": 0.0},
    }
    for name, change in variants.items():
        settings = replace(SMALL, steps=2, eval_every=0, warmup=0, **change)
        losses[name] = run_small(checkpoint, pairs_file, tmp_path / name, settings)["losses"]
    first, second = losses["same"]
    assert losses["bf16"] == pytest.approx([first, second], rel=2e-2) and losses["bf16"][0] != first
    assert losses["pad"][0] != pytest.approx(first, rel=1e-4)
    assert losses["one"][0] == pytest.approx(first, rel=1e-5) and losses["one"][1] != pytest.approx(second, rel=1e-6)
    assert losses["ce"][0] < first
    assert 0 < losses["anchored"][0] < 0.1 * first  # only masks move it from where it is anchored


def test_before_and_after_are_measured_in_one_precision(checkpoint, pairs_file, tmp_path):
    settings = replace(SMALL, steps=1, eval_every=0, learning_rate=1e-12, bf16=True)
    result = run_small(checkpoint, pairs_file, tmp_path / "out", settings)
    assert result["after"] == pytest.approx(result["before"], rel=1e-6)


@pytest.mark.slow
def test_full_tuning_writes_a_checkpoint_that_opens(dream_checkpoint, pairs_file, tmp_path):
    settings = replace(SMALL, steps=2, save_every=1, full=True, learning_rate=1e-3)
    with pytest.raises(KeyboardInterrupt):
        run_small(dream_checkpoint, pairs_file, tmp_path / "out", settings, callbacks=[At(1, interrupt)])
    result = run_small(dream_checkpoint, pairs_file, tmp_path / "out", settings)
    straight = run_small(dream_checkpoint, pairs_file, tmp_path / "straight", settings)
    assert_same_run(result, straight)
    model = mw.open(tmp_path / "out")
    assert model.kind == "dream" and model.tokenizer.mask_token_id == model.mask_id
    before = mw.open(dream_checkpoint)
    assert not torch.equal(model.head_weight, before.head_weight)


def test_a_device_that_is_not_there_is_refused(checkpoint, pairs_file, tmp_path):
    for device, said in (("banana", "no device 'banana'"), ("cpu:1", "CUDA_VISIBLE_DEVICES")):
        with pytest.raises(UserError, match=said):
            tune(str(checkpoint), pairs_file, tmp_path / "out", SMALL, device=device)
    assert not (tmp_path / "out").exists()


def test_bad_input_writes_nothing(checkpoint, pairs_file, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(pairs_file.read_text() + "{broken\n")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for data, said in ((bad, "line 25 is not valid JSON"), (empty, "is empty"), (tmp_path / "none", "no data file")):
        arguments = ["tune", str(checkpoint), "--data", str(data), "--out", str(tmp_path / "out"), "--context", "40"]
        result = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
        assert result.exit_code == 2 and said in result.stderr and len(result.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        run_small(checkpoint, pairs_file, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]
    for content in ("{", "{}", "[]"):
        (tmp_path / "full" / "settings.json").write_text(content)
        with pytest.raises(UserError, match=r"settings.json is not (valid JSON|what a tuning run wrote)"):
            run_small(checkpoint, pairs_file, tmp_path / "full")


def test_an_autoregressive_model_is_refused(pairs_file, tmp_path):
    from helpers.tiny import qwen_net
    from helpers.tuning import word_tokenizer

    qwen_net(vocab=32).save_pretrained(tmp_path / "ar")
    word_tokenizer().save_pretrained(tmp_path / "ar")
    with pytest.raises(UserError, match="autoregressive"):
        run_small(tmp_path / "ar", pairs_file, tmp_path / "out")


def test_a_block_diffusion_model_is_refused_by_its_config_before_any_weight_is_read(pairs_file, tmp_path):
    sdar_net().save_pretrained(tmp_path / "sdar")
    (tmp_path / "sdar" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"hardly differ; use train --objective blockwise$"):
        run_small(tmp_path / "sdar", pairs_file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="tiny random SDAR is a block diffusion model"):
        tune(tiny_sdar(), pairs_file, tmp_path / "out", SMALL)
