"""`train` on block diffusion models: blocks learnt from clean ones, and losses that do not fit."""

import json
from dataclasses import replace

import pytest
import torch
from train_cases import SMALL, plain_loss, run_small

import maskwise as mw
from helpers.tiny import fast_dllm_net, llada2_net, sdar_net
from helpers.tuning import word_tokenizer
from maskwise.diffusion import nelbo_call
from maskwise.support.errors import UserError
from maskwise.training.data.documents import TextPiece
from maskwise.training.data.noised_rows import NoisedRows, collate_rows


@pytest.mark.parametrize("make", [sdar_net, fast_dllm_net, llada2_net])
def test_a_block_diffusion_model_learns_blocks_from_clean_ones(make, text_file, tmp_path):
    make(vocab=32, window=128).save_pretrained(tmp_path / "base")
    word_tokenizer().save_pretrained(tmp_path / "base")
    block = 4 if make is sdar_net else 8
    settings = replace(SMALL, objective="blockwise", block=block, steps=12, learning_rate=3e-2)
    result = run_small(tmp_path / "base", text_file, tmp_path / "out", settings)
    assert result["after"]["nelbo"] < result["before"]["nelbo"] and "mask_tax" not in result["after"]
    tuned = mw.open(tmp_path / "base", adapter=tmp_path / "out", device="cpu")
    assert tuned.block == block and len(mw.generate(tuned, [[5, 6]], max_new_tokens=6)[0].ids) <= 6


def test_a_block_diffusion_models_loss_is_that_of_its_own_dense_call(tmp_path):
    sdar_net(vocab=32, mask_token_id=1).save_pretrained(tmp_path)
    model = mw.open(tmp_path, device="cpu")
    rows = [
        (TextPiece(torch.arange(5, 13)), TextPiece(torch.arange(9, 14))),
        (TextPiece(torch.arange(6, 17)),),
    ]
    data = NoisedRows(rows, replace(SMALL, objective="blockwise"), model.mask_id, 1, model_block=4)
    batch = collate_rows([data.item(0, 3), data.item(1, 3)])
    call = nelbo_call(model, batch["examples"], count=2)
    singles = [plain_loss(model, one) for one in batch["examples"]]
    torch.testing.assert_close(model(call.batch, call.index, call.loss), sum(singles) / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"block": None}, "before it: use objective blockwise"),
        ({"objective": "soft-mask", "block": None}, "before it: use objective blockwise"),
        ({"objective": "blockwise", "block": 8}, "leave block out, or say 4"),
    ],
    ids=str,
)
def test_other_losses_are_refused_for_block_diffusion_models_before_weights_are_read(
    changes, remedy, text_file, tmp_path
):
    sdar_net(vocab=32).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=f"learns a block of 4 tokens.*{remedy}$"):
        run_small(tmp_path / "base", text_file, tmp_path / "out", replace(SMALL, **changes))


@pytest.mark.slow
@pytest.mark.parametrize("opened", [False, True])
def test_the_block_is_the_models_own_where_nobody_says(opened, checkpoint, text_file, tmp_path):
    sdar_net(vocab=32, window=128).save_pretrained(tmp_path / "base")
    word_tokenizer().save_pretrained(tmp_path / "base")
    for name, model, block in (("own", tmp_path / "base", 4), ("none", checkpoint, 32)):
        model = mw.open(model, device="cpu") if opened else str(model)
        mw.train(
            model,
            text_file,
            tmp_path / name,
            objective="blockwise",
            steps=1,
            batch=2,
            context=24,
            many=10,
            held_out=0,
            lora_rank=2,
            warmup=0,
            device="cpu",
            tensorboard=False,
        )
        stored = json.loads((tmp_path / name / "settings.json").read_text())["identity"]
        assert stored["settings"]["block"] == block
