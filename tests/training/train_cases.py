"""Short training runs on documents, and the loss of one document computed densely."""

import torch
import torch.nn.functional as F

from maskwise.training.train import train
from maskwise.training.training_settings import TrainSettings

SMALL = TrainSettings(
    steps=6,
    batch=2,
    accumulation=2,
    context=24,
    save_every=2,
    eval_every=3,
    many=10,
    learning_rate=1e-2,
    lora_rank=2,
    lora_alpha=4,
    held_out=4,
    warmup=1,
    block=4,
)


def run_small(model, text, out, settings=SMALL, callbacks=None):
    return train(str(model), text, out, settings, device="cpu", tensorboard=False, callbacks=callbacks)


def plain_loss(model, example):
    """The weighted cross-entropies of one document, alone and with all its logits."""
    logits = model.core(example.ids[None]).logits[0].index_fill(1, torch.tensor([model.mask_id]), -torch.inf)
    return (example.weights * F.cross_entropy(logits[example.rows], example.targets, reduction="none")).sum()
