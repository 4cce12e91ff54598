"""Two real processes (gloo) give the gradient of one: under DDP through a whole run, under FSDP2 through `forward`.

`tune` and `train` both; of `train` each objective that calls the model in another way.
"""

import io
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as spawning
from transformers import TrainerCallback

import maskwise as mw
from maskwise.diffusion import mask_agnostic_call
from maskwise.training.arguments import arguments_for
from maskwise.training.data.documents import read_documents, tokenize_rows
from maskwise.training.data.noised_pairs import NoisedPairs
from maskwise.training.data.noised_rows import NoisedRows, collate_rows
from maskwise.training.data.pairs import read_pairs, tokenize_pairs
from maskwise.training.train import DiffusionTrainer, HeldOut, train
from maskwise.training.training_settings import TrainSettings, TuneSettings
from maskwise.training.tune import tune
from maskwise.training.weights import load_trained_weights, make_trainable, save_trained_weights, trained_weights

pytestmark = pytest.mark.slow  # processes that each import torch and transformers: half a minute

TWO = TuneSettings(
    steps=2,
    batch=2,
    accumulation=2,
    context=40,
    max_masks=12,
    curriculum=8,
    save_every=1,
    eval_every=1,
    many=10,
    learning_rate=1e-2,
    lora_rank=2,
    lora_alpha=4,
    held_out=4,
    clip=1e9,
)
ONE = replace(TWO, batch=4)
TRAIN_TWO = TrainSettings(
    steps=2,
    batch=2,
    accumulation=2,
    context=24,
    save_every=1,
    eval_every=1,
    many=10,
    learning_rate=1e-2,
    lora_rank=2,
    lora_alpha=4,
    held_out=4,
    clip=1e9,
    objective="soft-mask",
    warmup=0,
)
TRAIN_ONE = replace(TRAIN_TWO, batch=4)
WAYS: dict[str, dict[str, Any]] = {  # of training all weights under FSDP2
    "nelbo": {"objective": "nelbo"},
    "soft-mask": {"objective": "soft-mask", "soft_share": 0.8},
}


class Gradients(TrainerCallback):
    """Saves the gradients that each optimiser step uses."""

    def __init__(self, file: Path) -> None:
        self.file, self.steps = file, []

    def on_pre_optimizer_step(self, args, state, control, **more):
        names = more["model"].named_parameters()
        self.steps.append({name: p.grad.clone() for name, p in names if p.requires_grad})
        torch.save(self.steps, self.file)


def sharded_gradients(checkpoint: Path, data: Path, rank: int, folder: Path) -> dict[str, torch.Tensor]:
    """FSDP2 as the Trainer's launcher sets it up, layers first; then weights to disk and back through the shards."""
    from torch.distributed.fsdp import fully_shard

    model = mw.open(checkpoint, device="cpu")
    make_trainable(model, TWO, mask_row=True)
    dataset = NoisedPairs(tokenize_pairs(read_pairs(data), model, TWO.context).kept, TWO, model.mask_id, world=2)
    for block in model.core.model.transformer["blocks"]:
        fully_shard(block)
    fully_shard(model)
    call = mask_agnostic_call(model, [dataset[place]["views"] for place in range(2 * rank, 2 * rank + 2)])
    model(call.batch, call.index, call.loss).loss.backward()
    found = {n: p.grad.full_tensor() for n, p in model.named_parameters() if p.requires_grad}
    before = trained_weights(model)
    if rank == 0:
        save_trained_weights(model, folder, before, None)
    torch.distributed.barrier()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    load_trained_weights(model, folder)
    assert all(torch.equal(value, before[name]) for name, value in trained_weights(model).items())
    return found


def training_gradients(
    way: str, settings: TrainSettings, checkpoint: Path, text: Path, out: Path, ranks: int, rank: int = 0
) -> dict[str, torch.Tensor]:
    """Of the first micro-batch's loss as the trainer computes it; where ranks are several, of all weights sharded."""
    from torch.distributed.fsdp import fully_shard

    settings = replace(settings, full=True, **WAYS[way])
    model = mw.open(checkpoint, device="cpu")
    model.core.get_output_embeddings().weight.data *= 30  # or a random network is too unsure for any soft mask
    make_trainable(model, settings)
    dataset = NoisedRows(
        tokenize_rows(read_documents(text), model, settings.context, settings.rows).kept, settings, model.mask_id, ranks
    )
    trainer = DiffusionTrainer(
        model, arguments_for(model, settings, out, False), settings, dataset, HeldOut([], 0, []), None
    )
    if ranks > 1:
        for layer in model.core.model.layers:
            fully_shard(layer)
        fully_shard(model)
    own = range(settings.batch * rank, settings.batch * (rank + 1))
    loss, _ = trainer.loss_of(model, collate_rows([dataset[place] for place in own]))
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: grad.full_tensor() if ranks > 1 else grad for name, grad in found.items()}


def work(rank: int, port: int, checkpoint: Path, dream: Path, data: Path, text: Path, folder: Path) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # accelerate's barrier would want a card for each process
    torch.set_num_threads(1)
    callbacks = [Gradients(folder / f"ddp-{rank}.pt")]
    tune(str(checkpoint), data, folder / "ddp", TWO, device="cpu", tensorboard=False, callbacks=callbacks)
    callbacks = [Gradients(folder / f"ddp-train-{rank}.pt")]
    train(str(checkpoint), text, folder / "ddp-train", TRAIN_TWO, device="cpu", tensorboard=False, callbacks=callbacks)
    torch.save(sharded_gradients(checkpoint, data, rank, folder / "sharded"), folder / f"fsdp-{rank}.pt")
    for way in WAYS:
        found = training_gradients(way, TRAIN_TWO, dream, text, folder / "sharded-train", 2, rank)
        torch.save(found, folder / f"fsdp-train-{way}-{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(checkpoint, dream_checkpoint, pairs_file, text_file, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert str(Path(__file__).parent) in sys.path  # the children find this module there
    spawning.spawn(work, (port, checkpoint, dream_checkpoint, pairs_file, text_file, folder), nprocs=2)
    return folder


def close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], share: float = 1e-6) -> None:
    """share: the absolute tolerance, as a share of the largest gradient."""
    assert found.keys() == wanted.keys() and any(bool(value.any()) for value in wanted.values())
    largest = max(float(value.abs().max()) for value in wanted.values())
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=share * largest)


def assert_same_run(folder: Path, name: str, alone: Gradients, result: dict[str, Any]) -> None:
    """The run `name` of two processes against one that ran alone: gradients of every step, losses and measures."""
    for rank in range(2):
        together = torch.load(folder / f"{name}-{rank}.pt")
        for found, wanted in zip(together, alone.steps, strict=True):
            close(found, wanted)
    both = json.loads((folder / name / "result.json").read_text())
    assert both["losses"] == pytest.approx(result["losses"], rel=1e-5)
    assert both["after"] == pytest.approx(result["after"], rel=1e-4)


def test_ddp_steps_with_the_gradient_of_one_process(folder, checkpoint, pairs_file, tmp_path):
    alone = Gradients(tmp_path / "alone.pt")
    result = tune(
        str(checkpoint), pairs_file, tmp_path / "out", ONE, device="cpu", tensorboard=False, callbacks=[alone]
    )
    assert_same_run(folder, "ddp", alone, result)


def test_ddp_training_steps_with_the_gradient_of_one_process(folder, checkpoint, text_file, tmp_path):
    """Soft masks, whose first pass goes through the wrapped model too."""
    alone = Gradients(tmp_path / "alone.pt")
    result = train(
        str(checkpoint), text_file, tmp_path / "out", TRAIN_ONE, device="cpu", tensorboard=False, callbacks=[alone]
    )
    assert_same_run(folder, "ddp-train", alone, result)


def test_fsdp2_shards_have_the_gradient_of_one_process(folder, checkpoint, pairs_file):
    model = mw.open(checkpoint, device="cpu")
    make_trainable(model, ONE, mask_row=True)
    dataset = NoisedPairs(tokenize_pairs(read_pairs(pairs_file), model, ONE.context).kept, ONE, model.mask_id, world=1)
    call = mask_agnostic_call(model, [dataset[place]["views"] for place in range(4)])
    model(call.batch, call.index, call.loss).loss.backward()
    wanted = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    for rank in range(2):
        close(torch.load(folder / f"fsdp-{rank}.pt"), wanted)


@pytest.mark.parametrize("way", WAYS)
def test_fsdp2_shards_have_the_training_gradient_of_one_process(folder, dream_checkpoint, text_file, tmp_path, way):
    wanted = training_gradients(way, TRAIN_ONE, dream_checkpoint, text_file, tmp_path, 1)
    for rank in range(2):
        found = torch.load(folder / f"fsdp-train-{way}-{rank}.pt")
        close(found, wanted, share=5e-6 if way == "soft-mask" else 1e-6)  # one process is 6e-6 from float64 there
    plain = torch.load(folder / "fsdp-train-nelbo-0.pt")
    assert way == "nelbo" or any(float((plain[n] - wanted[n]).abs().max()) > 0.1 for n in plain)


def test_an_optimisers_state_is_read_to_the_device_that_accelerate_names():
    """cpu:0 with several processes and no GPU, which torch does not know by itself."""
    file = io.BytesIO()
    torch.save({"step": torch.ones(3)}, file)
    file.seek(0)
    found = torch.load(file, map_location=torch.device("cpu", 0), weights_only=True)
    assert torch.equal(found["step"], torch.ones(3))
