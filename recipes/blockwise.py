"""Blockwise reverse-order training against random masking, at equal tokens, on a source whose truth is known.

1. A Markov source of 12 states (`maskwise.tasks.markov`) gives sequences of 33 tokens; the first is the prompt.
2. Two small LLaDAs see the same sequences the same number of times: one with random masks (NELBO), one with blocks of
   4 noised from the last to the first: clean prefix, one partly masked block, everything after it masked.
3. Both are measured where the truth is known in closed form:
   - NLL by distance: the prompt and 32 masks in one pass; the source's own entropy is the least possible;
   - semi-autoregressive accuracy by block size: the share of the written transitions that the source can make, one
     token a step and one step a block;
   - infilling: 8 masked tokens with text on both sides, which blockwise training never sees.
4. The marginals of the first model by distance are drawn beside the closed form (marginals.svg).

CPU, a few minutes:    python recipes/blockwise.py --out runs/blockwise
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from maskwise.decoding.generate import generate
from maskwise.diffusion import Noised, blockwise, nelbo, nelbo_call
from maskwise.models.base import Model
from maskwise.models.llada import LLaDAConfig, LLaDAModelLM
from maskwise.models.opening import behind_the_seam
from maskwise.report.figures import Curve, Panel, svg_and_png
from maskwise.tasks.markov import Chain, small_chain

BLOCK, BLOCKS = 4, 8
LENGTH = 1 + BLOCK * BLOCKS
DISTANCES = (1, 2, 3, 4, 8, 16, 32)
BLOCK_SIZES = (1, 4, 8, 32)
DRAWN = (1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 26, 28, 29, 30, 31)  # distances in the figure
GAP = 8
Noise = Callable[[Tensor, torch.Generator], Noised]


def train(chain: Chain, noise: Noise, steps: int, batch: int, seed: int, name: str) -> Model:
    mask_id = chain.states
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = LLaDAModelLM(
            LLaDAConfig(d_model=64, n_layers=2, n_heads=4, mlp_hidden_size=128, vocab_size=mask_id + 1,
                        max_sequence_length=64, mask_token_id=mask_id, init_std=0.05)
        )  # fmt: skip
    model = behind_the_seam(net, None, name)
    draws = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    falling = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps, pct_start=0.1)
    for _ in track(range(steps), f"Training with {name}", console=Console(stderr=True)):
        sequences = chain.sample(batch, LENGTH, draws)
        call = nelbo_call(model, [noise(ids, draws) for ids in sequences])
        optimiser.zero_grad()
        model(call.batch, call.index, call.loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        falling.step()
    return model.eval()


# What is measured


def nll_by_distance(model: Model | None, chain: Chain) -> list[float]:
    """Expected -log p of the token at each distance from the prompt, exactly: over all prompts and all tokens.

    None is the source itself: its entropy, the least any model can have.
    """
    truth = torch.stack([chain.ahead(d) for d in range(1, LENGTH)], dim=1)  # [states, distances, V]
    said = truth if model is None else read_after_prompt(model, chain)
    surprise = torch.where(truth > 0, -truth * said.clamp(min=1e-30).log(), 0.0).sum(dim=-1)
    return (chain.stationary @ surprise).tolist()


def read_after_prompt(model: Model, chain: Chain) -> Tensor:
    """What the model says of the masks after each one-token prompt, [states, distances, V]."""
    canvases = [[state, *[chain.states] * (LENGTH - 1)] for state in range(chain.states)]
    logits = model.predict(canvases, [range(1, LENGTH)] * chain.states)
    return torch.stack(logits).double().softmax(dim=-1)[..., : chain.states]


def possible_share(model: Model, chain: Chain, block: int, one_step: bool, tries: int) -> float:
    """Share of the written transitions that the source can make; tokens drawn at temperature 1, places at random."""
    draws = torch.Generator().manual_seed(1)
    prompts = chain.sample(tries, 1, draws).tolist()
    blocks = (LENGTH - 1) // block
    steps = blocks if one_step else None
    written = generate(model, prompts, LENGTH - 1, steps=steps, block=block, rule="random", temperature=1.0,
                       generator=draws)  # fmt: skip
    fits = [fit for one in written for fit in chain.possible(one.sequence)]
    return sum(fits) / len(fits)


def infilling_nll(model: Model | None, chain: Chain, tries: int) -> float:
    """Mean -log p of the tokens of a gap in the middle, given everything around it."""
    start = (LENGTH - GAP) // 2
    rows = list(range(start, start + GAP))
    sequences = chain.sample(tries, LENGTH, torch.Generator().manual_seed(2))
    canvases = [[chain.states if i in rows else token for i, token in enumerate(line)] for line in sequences.tolist()]
    if model is None:
        said = [chain.conditional([None if t == chain.states else t for t in canvas])[rows] for canvas in canvases]
    else:
        said = [logits.double().softmax(dim=-1) for logits in model.predict(canvases, [rows] * tries)]
    found = torch.stack(said).gather(-1, sequences[:, rows, None])[..., 0]
    return float(-found.log().mean())


def measure(model: Model | None, chain: Chain, tries: int) -> dict[str, object]:
    nll = nll_by_distance(model, chain)
    row: dict[str, object] = {
        "nll": {d: nll[d - 1] for d in DISTANCES},
        "infilling": infilling_nll(model, chain, tries),
    }
    if model is not None:
        for name, one_step in (("one token a step", False), ("one step a block", True)):
            row[name] = {b: possible_share(model, chain, b, one_step, tries) for b in BLOCK_SIZES}
    return row


# The figure of the marginals


def marginals_panels(model: Model, chain: Chain) -> list[Panel]:
    """Entropy by distance, and distance to the stationary frequencies, of the model and in closed form."""
    masks = LENGTH - 2
    closed, said = {}, {}
    for name, suffix in (("open end", [None]), ("both ends visible", [6])):
        visible = [0, *[None] * masks, *suffix]
        canvas = [chain.states if token is None else token for token in visible]
        closed[name] = chain.conditional(visible)[1 : 1 + masks]
        said[name] = model.predict([canvas], [range(1, 1 + masks)])[0].double().softmax(dim=-1)[:, : chain.states]
    panels = []
    for label, value in (("Entropy (nats)", _entropy), ("Distance to the stationary", partial(_distance, chain))):
        curves = []
        for number, name in enumerate(closed):
            for style, kind, found in ((2 * number, "closed form", closed), (2 * number + 1, "model", said)):
                heights = tuple(value(found[name][d - 1]) for d in DRAWN)
                nothing = (None,) * len(DRAWN)
                curves.append(Curve(f"{name}, {kind}", style, DRAWN, heights, nothing, nothing))
        panels.append(Panel("", "Distance from the last visible token", label, tuple(curves), percent=False))
    return panels


def _entropy(p: Tensor) -> float:
    return float(torch.special.entr(p).sum())


def _distance(chain: Chain, p: Tensor) -> float:
    return float((p - chain.stationary).abs().sum() / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/blockwise"))
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tries", type=int, default=64, help="sequences decoded and filled in at each measurement")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chain = small_chain()

    def random_masks(ids: Tensor, draws: torch.Generator) -> Noised:
        return nelbo(ids, chain.states, draws, start=1)

    def blocks_in_reverse(ids: Tensor, draws: torch.Generator) -> Noised:
        return blockwise(ids, chain.states, BLOCK, draws, start=1)

    kinds = {"random masks": random_masks, "blocks in reverse": blocks_in_reverse}
    models = {name: train(chain, noise, asked.steps, asked.batch, asked.seed, name) for name, noise in kinds.items()}
    table = {"the source itself": measure(None, chain, asked.tries)}
    table |= {name: measure(model, chain, asked.tries) for name, model in models.items()}
    asked.out.mkdir(parents=True, exist_ok=True)
    svg, png = svg_and_png(marginals_panels(models["random masks"], chain))
    (asked.out / "marginals.svg").write_text(svg)
    (asked.out / "marginals.png").write_bytes(png)
    (asked.out / "blockwise.json").write_text(json.dumps({"tokens": asked.steps * asked.batch * LENGTH, "rows": table}))
    for name, row in table.items():
        print(name)
        for what, value in row.items():
            shown = (
                {key: round(number, 3) for key, number in value.items()} if isinstance(value, dict) else round(value, 3)
            )
            print(f"  {what}: {shown}")


if __name__ == "__main__":
    main()
