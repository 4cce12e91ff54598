"""Blockwise reverse-order training against random masking, at equal tokens, on a source whose truth is known.

1. A Markov source of 12 states (`maskwise.tasks.markov_source`) gives sequences of 33 tokens; the first is the prompt.
2. Two small LLaDAs see the same number of sequences: one with random masks (NELBO), one with blocks of 4 noised from
   the last to the first: clean prefix, one partly masked block, everything after it masked. Once for each seed.
3. Both are measured where the truth is known in closed form, and the source itself is the reference:
   - NLL by distance: the prompt and 32 masks in one pass; the source's own entropy is the least possible;
   - semi-autoregressive accuracy by block size: the share of the written transitions that the source can make, one
     token a step and one step a block;
   - infilling: 8 masked tokens with text on both sides, which blockwise training never sees;
   - total correlation of the first mask and one further on, and the order in which greedy decoding fills the canvas.
4. One table (mean over seeds, 95 % interval), and the marginals of the first model by distance with the closed form
   (marginals.svg).

CPU, two cores, about two minutes a seed:    python recipes/studies/blockwise.py --seeds 3 --out runs/blockwise
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from maskwise.decoding.generate import generate
from maskwise.diffusion import Noised, blockwise, nelbo
from maskwise.models.families.llada import LLaDAConfig
from maskwise.models.model import Model
from maskwise.probes.answers.decoded import global_arness, kendall_tau
from maskwise.probes.probe import Figure
from maskwise.report import chart
from maskwise.support.files import replace_file
from maskwise.tasks.markov_source import Chain, small_chain
from small_llada import train_small

BLOCK, BLOCKS = 4, 8
DRAWING = Figure(
    lambda table, others: table,
    "distance",
    "Distance from the last visible token",
    "",
    series="series",
    panel="measure",
    unit="",
)
LENGTH = 1 + BLOCK * BLOCKS
DISTANCES = (1, 2, 3, 4, 8, 16, 32)
PAIR_DISTANCES = (1, 2, 4, 8)
BLOCK_SIZES = (1, 4, 8, 32)
DRAWN = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 29, 30, 31)  # distances in the figure
GAP = 8
Noise = Callable[[Tensor, torch.Generator], Noised]
Row = dict[str, float]  # the name of a measure, in the order of the table -> its value


def train(chain: Chain, noise: Noise, steps: int, batch: int, seed: int, name: str) -> Model:
    config = LLaDAConfig(
        d_model=64,
        n_layers=2,
        n_heads=4,
        mlp_hidden_size=128,
        vocab_size=chain.states + 1,
        max_sequence_length=64,
        mask_token_id=chain.states,
        init_std=0.05,
    )
    draws = torch.Generator().manual_seed(seed)
    return train_small(
        config, lambda: [noise(ids, draws) for ids in chain.sample(batch, LENGTH, draws)], steps, seed, name
    )


# What is measured; a model of None is the source itself


def nll_by_distance(model: Model | None, chain: Chain) -> list[float]:
    """Expected -log p of the token at each distance from the prompt, exactly: over all prompts and all tokens."""
    truth = torch.stack([chain.ahead(d) for d in range(1, LENGTH)], dim=1)  # [states, distances, V]
    said = truth if model is None else read_after_prompt(model, chain)
    surprise = torch.where(truth > 0, -truth * said.clamp(min=1e-30).log(), 0.0).sum(dim=-1)
    return (chain.stationary @ surprise).tolist()


def read_after_prompt(model: Model, chain: Chain) -> Tensor:
    """What the model says of the masks after each one-token prompt, [states, distances, V]."""
    canvases = [[state, *[chain.states] * (LENGTH - 1)] for state in range(chain.states)]
    return _ask(model, canvases, range(1, LENGTH))[..., : chain.states]


def possible_share(model: Model, chain: Chain, block: int, one_step: bool, tries: int) -> float:
    """Share of the written transitions that the source can make; tokens drawn at temperature 1, places at random."""
    draws = torch.Generator().manual_seed(1)
    prompts = chain.sample(tries, 1, draws).tolist()
    blocks = (LENGTH - 1) // block
    steps = blocks if one_step else None
    written = generate(
        model, prompts, LENGTH - 1, steps=steps, block=block, rule="random", temperature=1.0, generator=draws
    )
    fits = [fit for one in written for fit in chain.possible(one.sequence)]
    return sum(fits) / len(fits)


def possible_by_chance(chain: Chain, block: int) -> float:
    """The same share, exactly, of the source's own marginals drawn one step a block.

    Given l, the last token before the block, its tokens are drawn each from its own marginal P^d[l, .]. The first fits;
    the pair (d, d+1) fits with sum over x, y of P^d[l, x] P^(d+1)[l, y] 1[P[x, y] > 0]. The prompt is stationary, and
    so is each block's last token, whatever was drawn between them.
    """
    allowed = (chain.kernel > 0).double()
    within = [
        float(chain.stationary @ ((chain.ahead(d) @ allowed) * chain.ahead(d + 1)).sum(dim=-1)) for d in range(1, block)
    ]
    return (1 + sum(within)) / block


def infilling_nll(model: Model | None, chain: Chain, tries: int) -> float:
    """Mean -log p of the tokens of a gap in the middle, given everything around it."""
    start = (LENGTH - GAP) // 2
    rows = list(range(start, start + GAP))
    sequences = chain.sample(tries, LENGTH, torch.Generator().manual_seed(2))
    canvases = [[chain.states if i in rows else token for i, token in enumerate(line)] for line in sequences.tolist()]
    if model is None:
        said = torch.stack([chain.conditional(_visible(canvas, chain))[rows] for canvas in canvases])
    else:
        said = _ask(model, canvases, rows)
    return float(-said.gather(-1, sequences[:, rows, None]).log().mean())


def pair_correlation(model: Model | None, chain: Chain, distance: int) -> float:
    """Total correlation of the first mask and the one `distance` on: all prompts, all tokens, both orders, exactly."""
    i, j = 1, 1 + distance
    if model is None:
        joint = chain.kernel[:, :, None] * chain.ahead(distance)  # [prompt, x_i, x_j]
        product = chain.kernel[:, :, None] * chain.ahead(j)[:, None, :]
        return float(chain.stationary @ torch.where(joint > 0, joint * (joint / product).log(), 0.0).sum(dim=(1, 2)))
    before = read_after_prompt(model, chain)[:, [i - 1, j - 1]]  # [prompt, place, V]
    found = 0.0
    for given, asked in ((i, j), (j, i)):
        canvases = [
            [chain.states if place not in (0, given) else (token if place else prompt) for place in range(LENGTH)]
            for prompt in range(chain.states)
            for token in range(chain.states)
        ]
        after = _ask(model, canvases, [asked])[:, 0, : chain.states].unflatten(0, (chain.states, chain.states))
        p_given, p_asked = (before[:, 0], before[:, 1]) if given == i else (before[:, 1], before[:, 0])
        divergence = torch.where(after > 0, after * (after / p_asked[:, None]).log(), 0.0).sum(dim=-1)
        # A source has pairs it never makes; what is said after them does not count, and may be nothing at all.
        found += float(chain.stationary @ torch.where(p_given > 0, p_given * divergence, 0.0).sum(dim=-1)) / 2
    return found


def greedy_orders(model: Model | None, chain: Chain) -> list[list[int]]:
    """After each prompt, the step at which low confidence, greedy and one token a step, fills each place."""
    prompts = [[state] for state in range(chain.states)]
    if model is not None:
        return [one.order for one in generate(model, prompts, LENGTH - 1, rule="low-confidence")]
    orders = []
    for prompt in prompts:
        canvas, order = prompt + [chain.states] * (LENGTH - 1), [0] * LENGTH
        for step in range(LENGTH - 1):
            best, token = chain.conditional(_visible(canvas, chain)).max(dim=-1)
            masked = torch.tensor([token == chain.states for token in canvas])
            place = int(torch.where(masked, best, -1.0).argmax())
            canvas[place], order[place] = int(token[place]), step
        orders.append(order[1:])
    return orders


def measure(model: Model | None, chain: Chain, tries: int) -> Row:
    nll = nll_by_distance(model, chain)
    row = {f"NLL at distance {d}": nll[d - 1] for d in DISTANCES}
    for name, one_step in (("one token a step", False), ("one step a block", True)):
        for b in BLOCK_SIZES:
            if model is None:
                share = possible_by_chance(chain, b) if one_step else 1.0
            else:
                share = possible_share(model, chain, b, one_step, tries)
            row[f"possible, blocks of {b}, {name}"] = share
    row["infilling, NLL"] = infilling_nll(model, chain, tries)
    row |= {f"total correlation at distance {d}": pair_correlation(model, chain, d) for d in PAIR_DISTANCES}
    orders = greedy_orders(model, chain)
    row["Kendall's tau"] = sum(map(kendall_tau, orders)) / len(orders)
    row["global AR-ness@1"] = sum(map(global_arness, orders)) / len(orders)
    return row


def _ask(model: Model, canvases: list[list[int]], rows: range | list[int]) -> Tensor:
    """Probabilities, [canvases, rows, V]"""
    return torch.stack(model.predict(canvases, [rows] * len(canvases))).double().softmax(dim=-1)


def _visible(canvas: list[int], chain: Chain) -> list[int | None]:
    return [None if token == chain.states else token for token in canvas]


# The table and the figure


def table_lines(source: Row, by_kind: dict[str, list[Row]]) -> list[str]:
    """A table in Markdown: a line for each measure; models with the mean over their seeds and its 95 % interval."""
    lines = [f"| | the source itself | {' | '.join(by_kind)} |", "|---" * (2 + len(by_kind)) + "|"]
    for name, truth in source.items():
        cells = [_cell([row[name] for row in rows]) for rows in by_kind.values()]
        lines.append(f"| {name} | {truth:.3f} | {' | '.join(cells)} |")
    return lines


def _cell(values: list[float]) -> str:
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    # Half the width of Student's interval of the mean.
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})"


def marginals_table(model: Model, chain: Chain) -> pd.DataFrame:
    """Entropy by distance, and distance to the stationary frequencies, of the model and in closed form."""
    masks = LENGTH - 2
    rows = []
    for name, suffix in (("open end", [None]), ("both ends visible", [6])):
        visible = [0, *[None] * masks, *suffix]
        canvas = [chain.states if token is None else token for token in visible]
        closed = chain.conditional(visible)[1 : 1 + masks]
        said = _ask(model, [canvas], range(1, 1 + masks))[0, :, : chain.states]
        for kind, found in (("closed form", closed), ("model", said)):
            for d in DRAWN:
                at = {"distance": d, "series": f"{name}, {kind}"}
                rows.append({**at, "measure": "entropy", "value": _entropy(found[d - 1])})
                rows.append({**at, "measure": "TV to stationary frequencies", "value": _distance(chain, found[d - 1])})
    return pd.DataFrame(rows)


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
    parser.add_argument("--seeds", type=int, default=3, help="models of each kind")
    asked = parser.parse_args()
    chain = small_chain()

    def random_masks(ids: Tensor, draws: torch.Generator) -> Noised:
        return nelbo(ids, chain.states, draws, start=1)

    def blocks_in_reverse(ids: Tensor, draws: torch.Generator) -> Noised:
        return blockwise(ids, chain.states, BLOCK, draws, start=1)

    kinds = {"random masks": random_masks, "blocks in reverse": blocks_in_reverse}
    asked.out.mkdir(parents=True, exist_ok=True)
    source = measure(None, chain, asked.tries)
    by_kind: dict[str, list[Row]] = {name: [] for name in kinds}
    for seed in range(asked.seeds):
        for name, noise in kinds.items():
            model = train(chain, noise, asked.steps, asked.batch, seed, name)
            by_kind[name].append(measure(model, chain, asked.tries))
            if seed == 0 and name == "random masks":
                drawn = chart.draw(DRAWING, marginals_table(model, chain))
                for kind, content in chart.files(drawn).items():
                    (asked.out / f"marginals.{kind}").write_bytes(content)
    output = {"tokens": asked.steps * asked.batch * LENGTH, "source": source, "models": by_kind}
    replace_file(asked.out / "blockwise.json", [json.dumps(output, indent=2)])
    print("\n".join(table_lines(source, by_kind)))


if __name__ == "__main__":
    main()
