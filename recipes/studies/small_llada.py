"""A small LLaDA trained from scratch on the CPU, for sources whose truth is known."""

from collections.abc import Callable, Sequence

import torch
from rich.console import Console
from rich.progress import track

from maskwise.diffusion import Noised, nelbo_call
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.families.llada import LLaDAConfig, LLaDAModelLM
from maskwise.models.model import Model

RATE = 3e-3


def train_small(config: LLaDAConfig, draw: Callable[[], Sequence[Noised]], steps: int, seed: int, name: str) -> Model:
    """The seed draws the starting weights, `draw` the noised sequences of a step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = LLaDAModelLM(config)
    model = as_model(net, None, name)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    falling = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.1)
    for _ in track(range(steps), f"Training: {name}, seed {seed}", console=Console(stderr=True)):
        call = nelbo_call(model, draw())
        optimiser.zero_grad()
        model(call.batch, call.index, call.loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        falling.step()
    return model.eval()
