"""`train`: the loss as written, what is measured, whole runs of each objective, resumed runs, and refusals."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from train_cases import SMALL, plain_loss, run_small
from transformers import BertConfig, BertForMaskedLM
from typer.testing import CliRunner

import maskwise as mw
from helpers.same import assert_same
from helpers.tiny import qwen_net
from helpers.tuning import At, interrupt, save_checkpoint, word_tokenizer
from maskwise.cli import app
from maskwise.diffusion import nelbo_call
from maskwise.diffusion.objectives import OBJECTIVES
from maskwise.support.errors import UserError
from maskwise.training.checked_settings import check_training, train_settings
from maskwise.training.data.documents import TextPiece, read_documents, tokenize_rows
from maskwise.training.data.held_out import held_out_noise, held_out_prefixes, split
from maskwise.training.data.noised_rows import NoisedRows, collate_rows
from maskwise.training.train import completed, summary_lines, train
from maskwise.training.training_settings import TrainSettings


@pytest.fixture(scope="session")
def ar_checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny-qwen")
    qwen_net(vocab=32, window=128).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


# The loss


@pytest.mark.parametrize("objective", ["nelbo", "blockwise"])
def test_a_rows_loss_is_that_of_its_documents_alone_over_its_tokens(checkpoint, objective):
    model = mw.open(checkpoint, device="cpu")
    rows = [
        (TextPiece(torch.arange(5, 13)), TextPiece(torch.arange(9, 14))),
        (TextPiece(torch.arange(6, 17)),),
    ]
    data = NoisedRows(rows, replace(SMALL, objective=objective), model.mask_id, 1)
    batch = collate_rows([data.item(0, 3), data.item(1, 3)])
    call = nelbo_call(model, batch["examples"], count=len(batch["rows"]))
    found = model(call.batch, call.index, call.loss)
    singles = [plain_loss(model, one) for one in batch["examples"]]
    torch.testing.assert_close(found, sum(singles) / 2, rtol=1e-4, atol=1e-5)
    again = data.item(0, 3)["examples"][0]
    assert torch.equal(again.ids, batch["examples"][0].ids)  # a pure function of row and micro-batch
    drawn = data.item(0, 4)["examples"]
    assert any(not torch.equal(one.ids, other.ids) for one, other in zip(drawn, batch["examples"], strict=False))


def test_the_weights_of_a_row_sum_to_one_token_on_average():
    """Each token's weight has expectation 1 under the objective; a row's are divided by its tokens."""
    rows = [(TextPiece(torch.arange(5, 13)), TextPiece(torch.arange(9, 15)))]
    for settings in (replace(SMALL, objective="blockwise"), replace(SMALL, schedule="cosine"), SMALL):
        data = NoisedRows(rows, settings, 3, 1)
        sums = torch.tensor(
            [float(sum(one.weights.sum() for one in data.item(0, micro)["examples"])) for micro in range(400)]
        )
        assert float((sums.mean() - 1).abs()) < 5 * float(sums.std()) / 400**0.5


# What is measured


def test_held_out_noise_is_exact_and_never_empty():
    rows = [(TextPiece(torch.arange(5, 5 + n)),) for n in range(2, 14)]
    noised = held_out_noise(rows, 0, 3)
    for (piece,), one in zip(rows, noised, strict=True):
        assert len(one.rows) >= 1 and float(one.weights.sum()) == pytest.approx(len(piece.ids), rel=1e-5)
        assert torch.equal(one.ids == 3, torch.zeros(len(piece.ids)).index_fill(0, one.rows, 1).bool())
    many = held_out_noise([rows[-1]] * 400, 0, 3)
    shares = torch.tensor([len(one.rows) / 13 for one in many]).sort().values
    assert float((shares - (torch.arange(400) + 0.5) / 400).abs().max()) < 1 / 13 + 1e-3  # uniform over 1..n


def test_measures_are_those_of_the_opened_model(checkpoint, text_file, tmp_path):
    result = run_small(checkpoint, text_file, tmp_path / "out")
    model = mw.open(checkpoint, device="cpu", adapter=tmp_path / "out")
    rows = tokenize_rows(read_documents(text_file), model, SMALL.context, SMALL.rows)
    held_out, training = split(rows.kept, SMALL)
    assert (result["rows"], result["held_out"], result["tokens"]) == (len(training), len(held_out), rows.tokens)
    total = 0.0
    for one in held_out_noise(held_out, SMALL.seed, model.mask_id):
        log_p = model.predict([one.ids.tolist()], [one.rows.tolist()])[0].log_softmax(1)
        total -= float((one.weights * log_p[range(len(one.rows)), one.targets]).sum())
    assert result["after"]["nelbo"] == pytest.approx(total / sum(p.count for row in held_out for p in row), rel=1e-4)
    few, many = [], []
    for view in held_out_prefixes(held_out, SMALL, model.mask_id, model.window):
        assert (view.first[view.rows] == model.mask_id).all() and len(view.second) - len(view.first) == 8
        for ids, found in ((view.first, few), (view.second, many)):
            found.append(-float(model.predict([ids.tolist()], [view.rows.tolist()])[0].log_softmax(1)[0, view.targets]))
    assert result["after"]["next_few"] == pytest.approx(sum(few) / len(few), rel=1e-4)
    assert result["after"]["mask_tax"] == pytest.approx((sum(many) - sum(few)) / len(few), rel=1e-3, abs=1e-5)
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result


@pytest.mark.parametrize("many", [10, 5000])
def test_the_number_of_masks_that_is_reported_is_the_one_that_was_appended(checkpoint, text_file, tmp_path, many):
    settings = replace(SMALL, many=many, steps=1, eval_every=0)
    result = run_small(checkpoint, text_file, tmp_path / "out", settings)
    model = mw.open(checkpoint, device="cpu")
    held_out, _ = split(tokenize_rows(read_documents(text_file), model, 24, "documents").kept, settings)
    views = held_out_prefixes(held_out, settings, model.mask_id, model.window)
    appended = [len(view.second) - int(view.rows) - 1 for view in views]
    assert result["masks"] == {"few": 2, "many": max(appended), "many_least": min(appended)}
    shown = "10" if many == 10 else f"{min(appended)} to {max(appended)}"
    assert (shown == "10") == (len(set(appended)) == 1) and max(appended) <= model.window
    table = summary_lines(result)[1:-2]
    assert table[3].startswith(f"next token's NLL, {shown} masks ") and len({len(line) for line in table}) == 1
    assert f"many {shown}." in (tmp_path / "out" / "README.md").read_text()


# Whole runs


@pytest.mark.parametrize(
    ("changes", "warmup"), [({"steps": 1}, 0), ({"steps": 50}, 5), ({"steps": 400}, 20), ({"steps": 4, "warmup": 3}, 3)]
)
def test_the_warm_up_fits_the_steps_where_nobody_says(checkpoint, changes, warmup):
    assert completed(train_settings(changes), checkpoint).warmup == warmup
    assert completed(TrainSettings(**changes), checkpoint).warmup == warmup


def test_one_step_by_the_defaults_learns(checkpoint, text_file, tmp_path):
    mw.train(str(checkpoint), text_file, tmp_path, steps=1, context=24, held_out=0, device="cpu", tensorboard=False)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    assert all(bool(value.any()) for name, value in weights.items() if "lora_B" in name)


WAYS = {
    "nelbo": {},
    "geometric, unweighted, all weights": {"schedule": "geometric", "weighted": False, "full": True},
    "blockwise, full rows": {"objective": "blockwise", "rows": "full"},
    "soft-mask": {"objective": "soft-mask", "soft_share": 0.7},
}


@pytest.mark.parametrize("way", WAYS)
def test_each_objective_learns_and_what_comes_out_opens(checkpoint, text_file, tmp_path, way):
    settings = check_training(replace(SMALL, steps=12, eval_every=0, save_every=12, **WAYS[way]))
    result = run_small(checkpoint, text_file, tmp_path / "out", settings)
    assert result["after"]["nelbo"] < result["before"]["nelbo"]
    opened = mw.open(tmp_path / "out", device="cpu")
    assert opened.mask_id == 3 and hasattr(opened.net, "peft_config") != settings.full


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_losses(dream_checkpoint, text_file, tmp_path):
    settings = replace(SMALL, clip=0.7)
    whole = run_small(dream_checkpoint, text_file, tmp_path / "whole", settings)
    with pytest.raises(KeyboardInterrupt, match="step 2 is kept"):
        run_small(dream_checkpoint, text_file, tmp_path / "cut", settings, callbacks=[At(3, interrupt)])
    resumed = run_small(dream_checkpoint, text_file, tmp_path / "cut", settings)
    assert_same(resumed["losses"], whole["losses"], rel=1e-5)
    assert_same(resumed["after"], whole["after"], rel=1e-4, abs=1e-6)
    with pytest.raises(UserError, match=r"settings\.clip is 0.7 there and 0.4 here"):
        run_small(dream_checkpoint, text_file, tmp_path / "cut", replace(settings, clip=0.4))


@pytest.mark.slow
def test_the_command_and_the_library_take_the_same_settings(checkpoint, text_file, tmp_path):
    arguments = (
        f"train {checkpoint} --data {text_file} --out {tmp_path / 'a'} --steps 2 --batch 2 --context 24 --many 10"
    )
    arguments += " --objective blockwise --block 4 --unweighted --lora-rank 2 --device cpu --no-tensorboard"
    done = CliRunner().invoke(app, [*arguments.split(), "--json", "--eval-every", "1"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    reported = [line for line in done.stderr.splitlines() if "held out: NELBO" in line]
    assert [line.split(",")[0] for line in reported] == ["step 1", "step 2"] and "mask tax" in reported[0]
    same = mw.train(
        str(checkpoint),
        text_file,
        tmp_path / "b",
        steps=2,
        batch=2,
        context=24,
        many=10,
        objective="blockwise",
        block=4,
        weighted=False,
        lora_rank=2,
        eval_every=1,
        device="cpu",
        tensorboard=False,
    )
    assert_same({**same, "out": ""}, {**result, "out": ""}, rel=1e-6)
    texts = Dataset.from_list([{"text": text} for text in text_file.read_text().split("\f")])
    listed = mw.train(
        mw.open(checkpoint, device="cpu"),
        texts,
        tmp_path / "c",
        steps=2,
        batch=2,
        context=24,
        many=10,
        objective="blockwise",
        block=4,
        weighted=False,
        lora_rank=2,
        eval_every=1,
        device="cpu",
        tensorboard=False,
    )
    assert_same({**listed, "out": ""}, {**result, "out": ""}, rel=1e-6)
    stored = [json.loads((tmp_path / name / "settings.json").read_text())["identity"] for name in "ab"]
    assert stored[0] == stored[1] and stored[0]["settings"].keys() == asdict(SMALL).keys()
    again = CliRunner().invoke(app, [*arguments.split(), "--eval-every", "1"])
    assert "finished before" in again.stderr and "NELBO (nats per token)" in again.stdout


# Refusals


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"objective": "next"}, "unknown objective 'next': choose one of nelbo, blockwise, soft-mask"),
        ({"schedule": "log"}, "unknown schedule"),
        ({"rows": "both"}, "unknown rows"),
        ({"soft_share": 1.5}, "soft_share"),
        ({"context": 4}, "context is 4: it must be at least 8"),
        ({"block": 0}, "block is 0"),
        ({"nonsense": 1}, "no setting 'nonsense'"),
        ({"objective": "blockwise", "schedule": "cosine"}, "schedule is of the objective nelbo and soft-mask: leave"),
        ({"block": 4}, "block is of the objective blockwise: leave it out for nelbo"),
        ({"objective": "blockwise", "soft_share": 0.1}, "soft_share is of the objective soft-mask: leave it out for"),
        ({"full": True, "lora_rank": 8}, "lora_rank is of an adapter: leave it out for full"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, reason):
    with pytest.raises(UserError, match=reason):
        train_settings(changes)


def test_settings_that_nobody_gave_are_never_refused():
    """The command line gives None for each of them."""
    unsaid = dict.fromkeys(asdict(SMALL))
    for objective in OBJECTIVES:
        assert train_settings(unsaid | {"objective": objective.name}).objective == objective.name
    assert train_settings({"objective": "soft-mask", "schedule": "cosine", "soft_share": 0.1}).soft_share == 0.1
    assert train_settings({"objective": "blockwise", "block": 8}).block == 8


def test_models_that_do_not_fit_are_one_line(checkpoint, ar_checkpoint, text_file, tmp_path):
    def refused(model, settings=SMALL):
        with pytest.raises(UserError) as problem:
            run_small(model, text_file, tmp_path / "out", settings)
        assert not (tmp_path / "out").exists() and "\n" not in str(problem.value)
        return str(problem.value)

    assert "turn it into a diffusion model first (convert)" in refused(ar_checkpoint)
    assert "lower context" in refused(checkpoint, replace(SMALL, context=4096))
    short = save_checkpoint(tmp_path / "other", lambda **more: qwen_net(**{**more, "vocab": 32}))
    assert "convert" in refused(short)


def test_a_wrapped_network_that_cannot_be_trained_so_is_one_line(text_file, tmp_path):
    tokenizer = word_tokenizer()
    net = BertForMaskedLM(BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(UserError, match="was wrapped with a head of its own, which no fused loss fits"):
        train(mw.wrap(net, tokenizer, head=net.cls), text_file, tmp_path / "out", replace(SMALL, full=True))


@pytest.mark.parametrize(("data", "named"), [(None, "None"), (5, "of the type int")])
def test_what_is_no_data_is_one_line_before_a_model_is_opened(data, named, tmp_path):
    with pytest.raises(UserError, match=f"the data is {named}: give a file, or a list of objects"):
        mw.train("no-such-model", data, tmp_path / "out", steps=1)
