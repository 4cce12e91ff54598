"""The toy experiment: two coupled tokens in a small masked diffusion model, and the output of each decoding strategy.

100 sequences `x1 x2 C D G`: 55 begin with AB, 14 with EB, 31 with EF (the paper publishes P(A) = .55 and P(B) = .69
but not its rows; these are ours). A small LLaDA is trained on them in seconds and asked `mask mask C D mask`.
Everything is read from its probabilities; nothing is sampled.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import torch

from maskwise.decoding.exact import Canvas, Outcomes, outcomes
from maskwise.decoding.strategies import STRATEGIES
from maskwise.diffusion import Noised, nelbo_call
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.families.llada import LLaDAConfig, LLaDAModelLM
from maskwise.models.model import Model
from maskwise.report.pages.results import make_folder, write_result
from maskwise.report.pages.toy_page import toy_result
from maskwise.scoring.experiment_results import Toy
from maskwise.support.progress import progress_bar

SYMBOLS = "ABCDEFG"
MASK = len(SYMBOLS)
COUNTS = {"ABCDG": 55, "EBCDG": 14, "EFCDG": 31}
QUESTION: Canvas = (MASK, MASK, SYMBOLS.index("C"), SYMBOLS.index("D"), MASK)
STEPS = 300
RATE = 1e-2


def toy(seed: int = 0, advance: Callable[[], None] | None = None, *, out: str | Path | None = None) -> Toy:
    """Trains a small model on 100 sequences, in seconds, and computes what every strategy makes of two coupled tokens.

    Arguments:
        seed: draws the starting weights. advance: called after each step of the training, in place of a progress bar.
        out: a folder for toy.json, the figure and the page; nothing is written without it.

    Returns:
        Shares of [AB, A and not B, B and not A, neither] in the data and under every strategy, exactly.

    >>> import maskwise as mw
    >>> found = mw.toy()
    >>> round(found.data[2], 2), round(found.parallel[1], 1)  # the data never hold A without B
    (0.14, 0.2)
    """
    folder = None if out is None else make_folder(Path(out))
    with progress_bar(silent=advance is not None) as bar:
        task = bar.add_task("Training", total=STEPS)
        found = read_toy(train_toy(seed, advance or (lambda: bar.advance(task))))
    if folder is not None:
        write_result(folder, found, toy_result(found))
    return found


def sequences() -> list[Canvas]:
    return [ids_of(text) for text, count in COUNTS.items() for _ in range(count)]


def ids_of(text: str) -> Canvas:
    return tuple(SYMBOLS.index(symbol) for symbol in text)


def every_noise() -> list[Noised]:
    """The exact NELBO of the data: each of the three sequences under all 31 patterns of masks, none drawn at random.

    The NELBO draws l uniformly from 1..n, masks l of the n tokens and weights their losses by n/l. One pattern of l
    masks therefore has probability 1 / (n C(n, l)) and total weight 1 / (l C(n, l)). `nelbo_call` takes the mean over
    the examples it is given, so each weight is also multiplied by the number of examples: the result is the sum.
    """
    length, total = len(QUESTION), sum(COUNTS.values())
    patterns = [torch.tensor(rows) for count in range(1, length + 1) for rows in combinations(range(length), count)]
    found = []
    for text, count in COUNTS.items():
        ids = torch.tensor(ids_of(text))
        for rows in patterns:
            weight = count / total / (len(rows) * math.comb(length, len(rows))) * len(COUNTS) * len(patterns)
            found.append(Noised(ids.index_fill(0, rows, MASK), rows, ids[rows], torch.full((len(rows),), weight)))
    return found


def train_toy(seed: int = 0, advance: Callable[[], None] = lambda: None) -> Model:
    """A LLaDA of 2 layers; the expectation over the noise is exact, so only the starting weights are random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = LLaDAModelLM(
            LLaDAConfig(
                d_model=32,
                n_layers=2,
                n_heads=2,
                mlp_hidden_size=64,
                vocab_size=MASK + 1,
                max_sequence_length=16,
                mask_token_id=MASK,
                init_std=0.1,
            )
        )
    model = as_model(net, None, "toy")
    call = nelbo_call(model, every_noise())
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        optimiser.zero_grad()
        model(call.batch, call.index, call.loss).backward()
        optimiser.step()
        falling.step()
        advance()
    return model.eval()


def read_toy(model: Model) -> Toy:
    """The model's own marginals, and the distribution of the first two tokens under every decoding."""

    def predict(canvases: Sequence[Canvas]) -> list[torch.Tensor]:
        return model.predict(canvases, [range(len(canvas)) for canvas in canvases])

    first, second = predict([QUESTION])[0][:2].softmax(dim=-1)
    rows = sequences()
    data = Outcomes({row: rows.count(row) / len(rows) for row in rows}, 0.0)
    decoded = {strategy.name: outcomes(predict, QUESTION, MASK, strategy.name) for strategy in STRATEGIES}
    return Toy(
        marginals={"A": float(first[SYMBOLS.index("A")]), "B": float(second[SYMBOLS.index("B")])},
        data=shares(data),
        parallel=shares(outcomes(predict, QUESTION, MASK, "left-to-right", steps=1)),
        sequential=shares(decoded["left-to-right"]),
        rules={rule: shares(found) for rule, found in decoded.items()},
        forwards={rule: found.forwards for rule, found in decoded.items()},
    )


def shares(found: Outcomes) -> list[float]:
    """[AB, A and not B, B and not A, neither] of the first two tokens."""
    a, b = SYMBOLS.index("A"), SYMBOLS.index("B")
    total = [0.0] * 4
    for canvas, probability in found.probability.items():
        total[2 * (canvas[0] != a) + (canvas[1] != b)] += probability
    return total
