"""`toy`: two coupled tokens in a small masked diffusion model, and what each decoding strategy makes of them.

100 sequences `x1 x2 C D G`: 55 begin with AB, 14 with EB, 31 with EF. Sun, Wen and Wang (Why mask diffusion does not
work, arXiv 2510.03289) publish P(A) = .55 and P(B) = .69 but not their rows; these are ours. A small LLaDA is trained
on them in seconds and asked `mask mask C D mask`. All is computed from its probabilities; nothing is sampled.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import torch
from msgspec import Meta

from maskwise.decoding.exact import Canvas, Outcomes, outcomes
from maskwise.decoding.strategies import STRATEGIES
from maskwise.diffusion import Noised, nelbo_call
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.families.llada import LLaDAConfig, LLaDAModelLM
from maskwise.models.model import Model
from maskwise.report import chart
from maskwise.support.files import OTHER_FOLDER, make_folder, replace_file, to_json, writing
from maskwise.support.progress import progress_bar
from maskwise.support.typed import Typed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

A, B, C, D, E, F, G, MASK = range(8)
COUNTS: dict[Canvas, int] = {(A, B, C, D, G): 55, (E, B, C, D, G): 14, (E, F, C, D, G): 31}
TOTAL = sum(COUNTS.values())
QUESTION: Canvas = (MASK, MASK, C, D, MASK)
STEPS, RATE = 300, 1e-2
PARTS = ["AB", "A, not B", "B, not A", "neither"]
PARALLEL, SEQUENTIAL = "one parallel step", "left to right, one by one"
TEXT = """\
What filling in two tokens at once costs
100 sequences x1 x2 C D G (55 AB, 14 EB, 31 EF); a LLaDA of 2 layers is asked: mask mask C D mask

{table}

Shares of the outcomes at temperature 1, computed, not sampled. Distance: total variation from the
data, 0 to 1. Passes: mean forward passes for three tokens.

The model knows P(A) = {0.marginals[A]:.2f} and P(B) = {0.marginals[B]:.2f}, but one parallel step
draws from their product: {0.parallel[1]:.0%} of its outcomes are A without B, which the data never hold. From left
to right, one by one, the distance is {exact:.3f}: the second token is drawn when the first stands. Where
the place depends on what was drawn, one by one is not enough: low-confidence writes AB in
{0.rules[low-confidence][0]:.0%} of the outcomes, the data have it in {0.data[0]:.0%}."""


class Toy(Typed, frozen=True, kw_only=True):
    """toy --json, also toy.json"""

    marginals: Annotated[dict[str, float], Meta(description="P(A) and P(B) of the model in one parallel step")]
    data: Annotated[list[float], Meta(description="shares of [AB, A without B, B without A, neither] in the data")]
    parallel: Annotated[list[float], Meta(description="of one parallel step")]
    sequential: Annotated[list[float], Meta(description="of decoding from left to right")]
    rules: Annotated[dict[str, list[float]], Meta(description="of each strategy, by name")]
    forwards: Annotated[dict[str, float], Meta(description="mean forward passes of each strategy")]

    def table(self) -> pd.DataFrame:
        """A row for the data, then one for each decoding, the nearest to the data first."""
        shares = {"data": self.data, PARALLEL: self.parallel, SEQUENTIAL: self.sequential} | self.rules
        passes = {PARALLEL: 1.0, SEQUENTIAL: self.forwards["left-to-right"]} | self.forwards
        rows = pd.DataFrame.from_dict(shares, "index", columns=PARTS).drop("left-to-right")
        distance = (rows - self.data).abs().sum(axis=1) / 2
        rows = rows.assign(distance=distance.round(6), passes=pd.Series(passes))
        return rows.sort_values("distance", kind="stable")

    def __str__(self) -> str:
        rows = self.table()
        shown = dict.fromkeys(PARTS, "{:.1%}".format) | {"distance": "{:.3f}".format, "passes": "{:.2f}".format}
        table = rows.to_string(formatters=shown, na_rep="")
        return TEXT.format(self, table=table, exact=rows.distance[SEQUENTIAL])


def toy(seed: int = 0, *, out: str | Path | None = None) -> Toy:
    """Trains a small model on 100 sequences, in seconds, and computes what every strategy makes of two coupled tokens.

    Arguments:
        seed: draws the starting weights. out: a folder for toy.json and toy.svg; nothing is written without it.

    Returns:
        Shares of [AB, A and not B, B and not A, neither] in the data and under every strategy, exactly.

    >>> import maskwise as mw
    >>> found = mw.toy()
    >>> round(found.data[2], 2), round(found.parallel[1], 1)  # the data never hold A without B
    (0.14, 0.2)
    """
    folder = None if out is None else make_folder(Path(out))
    found = read_toy(train_toy(seed))
    if folder is not None:
        with writing(f"into {folder}", OTHER_FOLDER):
            replace_file(folder / "toy.json", [to_json(found, indent=2), "\n"])
            replace_file(folder / "toy.svg", [chart.svg(figure(found))])
    return found


def figure(found: Toy) -> "Figure":
    """A bar for each row of the table: its shares from left to right, and its distance from the data."""
    from matplotlib.figure import Figure

    rows = found.table()
    with chart.style():
        canvas = Figure(figsize=(chart.WIDE + 1.2, 1 + 0.3 * len(rows)), layout="constrained")
        axis = canvas.subplots()
        starts = rows[PARTS].cumsum(axis=1) - rows[PARTS]
        for part, colour in zip(PARTS, chart.COLOURS, strict=False):
            look: dict[str, Any] = {"color": colour, "edgecolor": chart.PAPER, "linewidth": 0.5, "label": part}
            bars = axis.barh(rows.index, rows[part], 0.66, starts[part], **look)
            written = [f"{100 * share:.0f}" if share > 0.025 else "" for share in rows[part]]
            axis.bar_label(bars, written, label_type="center", color=chart.PAPER, fontsize=8)
        for place, distance in enumerate(rows.distance):
            axis.text(1.01, place, f"distance {distance:.2f}", va="center", color=chart.SOFT)
        axis.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xlabel="Share of the outcomes")
        axis.xaxis.set_major_formatter("{x:.0%}")
        axis.grid(axis="y", visible=False)
        canvas.legend(loc="outside upper left", ncols=len(PARTS), frameon=False)
    return canvas


def every_noise() -> list[Noised]:
    """The exact NELBO of the data: each of the three sequences under all 31 patterns of masks, none drawn at random.

    The NELBO draws l from 1..n, masks l of n tokens and weights their losses by n/l, so a pattern of l masks has the
    weight 1 / (l C(n, l)). `nelbo_call` takes the mean over the examples: times their number it is the sum.
    """
    n, found = len(QUESTION), []
    patterns = [torch.tensor(rows) for masks in range(1, n + 1) for rows in combinations(range(n), masks)]
    for row, count in COUNTS.items():
        ids = torch.tensor(row)
        for rows in patterns:
            weight = count / TOTAL / (len(rows) * math.comb(n, len(rows))) * len(COUNTS) * len(patterns)
            found.append(Noised(ids.index_fill(0, rows, MASK), rows, ids[rows], torch.full((len(rows),), weight)))
    return found


def train_toy(seed: int) -> Model:
    """A LLaDA of 2 layers; the expectation over the noise is exact, so only the starting weights are random."""
    sizes: Any = {"d_model": 32, "n_layers": 2, "n_heads": 2, "mlp_hidden_size": 64, "vocab_size": MASK + 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = LLaDAModelLM(LLaDAConfig(**sizes, max_sequence_length=16, mask_token_id=MASK, init_std=0.1))
    model = as_model(net, None, "toy")
    call = nelbo_call(model, every_noise())
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    with progress_bar() as bar:
        for _ in bar.track(range(STEPS), description="Training"):
            optimiser.zero_grad()
            model(call.batch, call.index, call.loss).backward()
            optimiser.step()
            falling.step()
    return model.eval()


def read_toy(model: Model) -> Toy:
    """The model's own marginals, and the distribution of the first two tokens under every decoding."""

    def predict(canvases: Sequence[Canvas]) -> list[torch.Tensor]:
        return model.predict(canvases, [range(len(canvas)) for canvas in canvases])

    first, second = predict([QUESTION])[0][:2].softmax(dim=-1)
    data = Outcomes({row: count / TOTAL for row, count in COUNTS.items()}, 0.0)
    decoded = {strategy.name: outcomes(predict, QUESTION, MASK, strategy.name) for strategy in STRATEGIES}
    return Toy(
        marginals={"A": float(first[A]), "B": float(second[B])},
        data=shares(data),
        parallel=shares(outcomes(predict, QUESTION, MASK, "left-to-right", steps=1)),
        sequential=shares(decoded["left-to-right"]),
        rules={rule: shares(found) for rule, found in decoded.items()},
        forwards={rule: found.forwards for rule, found in decoded.items()},
    )


def shares(found: Outcomes) -> list[float]:
    """[AB, A and not B, B and not A, neither] of the first two tokens."""
    total = [0.0] * 4
    for canvas, probability in found.probability.items():
        total[2 * (canvas[0] != A) + (canvas[1] != B)] += probability
    return total
