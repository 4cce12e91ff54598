"""A LoRA step: dllm's trainer's loss on LLaDA's modelling file, and ours."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from benchmarks import peer_code
from benchmarks.measure import timed
from benchmarks.peers.harness import compare_logits, shape_of
from benchmarks.peers.report import Report
from benchmarks.shapes import random_ids
from benchmarks.step import adapted, half, trained
from benchmarks.training_step import ROWS, TOY_ROWS, noised_rows, our_loss
from maskwise.models.model import Model


def lora(report: Report) -> None:
    """Masked diffusion loss, adapter of rank 64, AdamW: dllm's trainer's loss on LLaDA's modelling file, and ours."""
    bench = report.bench
    model = adapted(bench, "llada")
    net = with_our_adapter(report, model)
    compare_logits(report, model.eval(), "dllm, with an adapter", net.eval())
    for one in (model, net):
        one.train()
    count, length = ROWS if bench.full else TOY_ROWS
    examples = noised_rows(model, count, length)
    if bench.full:
        model.compile_layers()
    our_step = stepping(lambda: our_loss(bench, model, examples), trained(model))
    our_step()
    report.wait()
    report.add("LoRA step", "maskwise", timed(bench.device, our_step, warm=2).seconds, "s")
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    their_step = stepping(dllm_loss(report, model, net, length, count), weights)
    report.add("LoRA step", "dllm", timed(bench.device, their_step, warm=2).seconds, "s")


def stepping(loss: Callable[[], Tensor], weights: Sequence[Tensor]) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(weights, lr=0.0)  # all its work, and the weights stay as they are

    def step() -> None:
        loss().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def with_our_adapter(report: Report, model: Model) -> nn.Module:
    """LLaDA's modelling file under PEFT with the same maps adapted, by the same numbers."""
    _, _, modelling = peer_code.llada(report.peers)
    every = model.net.state_dict()
    base = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): value
        for name, value in every.items()
        if "lora_" not in name
    }
    ours: Any = model.net.peft_config["default"]  # type: ignore[index, union-attr]
    net = peer_code.llada_net(modelling, shape_of(model), base).requires_grad_(False)
    adapter = LoraConfig(r=ours.r, lora_alpha=ours.lora_alpha, lora_dropout=0.0, target_modules=ours.target_modules)
    net = get_peft_model(net, adapter)  # type: ignore[arg-type]
    net.load_state_dict({name: value for name, value in every.items() if "lora_" in name}, strict=False)
    return net


def dllm_loss(report: Report, model: Model, net: nn.Module, length: int, count: int) -> Callable[[], Tensor]:
    """Its trainer's loss without the trainer: schedule, weights and norm are its defaults."""
    *_, module = peer_code.dllm(report.peers)
    trainer = object.__new__(module.MDLMTrainer)
    trainer.__dict__.update(
        time_epsilon=1e-3,
        scheduler=module.LinearAlphaScheduler(),
        loss_weight_type="scheduler",
        loss_norm_type="token",
        right_shift_logits=False,
        meter=SimpleNamespace(update=lambda **_: None),
        processing_class=SimpleNamespace(padding_side="right", mask_token_id=model.mask_id),
    )
    ids = torch.tensor(random_ids([length] * count, model), device=report.bench.device)

    def loss() -> Tensor:
        with half(report.bench):
            return trainer.compute_loss(net, {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)})

    return loss
