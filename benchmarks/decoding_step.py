"""Row q: the end of a decoding step, from the logits to the canvas, against PyTorch's operations."""

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.measure import Bench, Line
from benchmarks.small_batch_linear import seconds_each
from maskwise.decoding.end_of_step import best_rows, commit, likeliest, narrowed

STEPS = 8  # inside one CUDA graph


@torch.no_grad()
def decoding_step(bench: Bench) -> Iterator[Line]:
    rows, vocab = (32, 126464) if bench.full else (8, 300)
    draws = torch.Generator(bench.device).manual_seed(0)
    logits = torch.randn(1, rows, vocab, generator=draws, device=bench.device)
    places = torch.arange(rows, device=bench.device)[None]
    open, count, step = places >= 0, places.new_full((1,), 2), places.new_zeros(1, 1)
    ids, order = places.new_zeros(rows + 1), places.new_full((rows + 1,), -1)

    def ours() -> tuple[Tensor, ...]:
        tokens, sure = likeliest(logits)
        sure = plain_confidence(logits, tokens) if sure is None else sure
        after = commit(ids, order, places, tokens, best_rows(sure, open, count), open, step, vocab)
        return ids, *narrowed(places, places, after, rows - 2)

    def plain() -> tuple[Tensor, ...]:
        tokens = logits.argmax(dim=-1)
        score = plain_confidence(logits, tokens).masked_fill(~open, float("-inf"))
        rank = score.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        flip = (rank < count[:, None]) & open
        ids[places] = torch.where(flip, tokens, ids[places])
        order[places] = torch.where(flip, step, order[places])
        after = open & ~flip
        front = (~after).byte().argsort(dim=-1, stable=True)[:, : rows - 2]
        return ids, places.gather(1, front), places.gather(1, front), after.gather(1, front)

    found, expected = [one.clone() for one in ours()], [one.clone() for one in plain()]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), "other tokens"
    times = seconds_each(bench, [ours] * STEPS), seconds_each(bench, [plain] * STEPS)
    yield Line("q", f"{rows} rows of {vocab} logits, 2 tokens per step", "s", *times)


def plain_confidence(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(dim=-1)
