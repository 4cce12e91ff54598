"""Holds the kernels of the end of a step against PyTorch; started by test_end_of_step.py in a process of its own."""

import sys
import warnings

import torch

from maskwise.decoding import end_of_step
from maskwise.decoding.sampling import log_confidence
from maskwise.kernels import decoding_step as step_kernels

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def there(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [one.clone().to(DEVICE) for one in tensors]


def random_rows(seed: int, widest: int = 20) -> None:
    """Each kernel on rows of any count, with ties, infinities, padding and parts of a vocabulary."""
    draws = torch.Generator().manual_seed(seed)

    def some(least: int, most: int) -> int:
        return int(torch.randint(least, most, (), generator=draws))

    def chance(share: float) -> torch.Tensor:
        return torch.rand(sequences, width, generator=draws) < share

    sequences, width, vocab = some(1, 4), some(widest - 19, widest), some(5, 300)
    logits = torch.randn(sequences, width, vocab, generator=draws) * 8
    logits = logits.round() if seed % 2 else logits
    logits[..., 2] = -torch.inf
    tokens = logits.argmax(dim=-1)
    found, sure = (one.cpu() for one in step_kernels.likeliest(logits.to(DEVICE)))
    expected = log_confidence(logits, tokens)
    assert torch.equal(found, tokens) and ((sure - expected).abs() <= 1e-5 * expected.abs() + 1e-12).all()

    score, open, padding = torch.randn(sequences, width, generator=draws).mul(2).round(), chance(0.6), chance(0.1)
    for value in (-torch.inf, torch.inf, torch.nan, torch.finfo(score.dtype).min):
        score[chance(0.05)] = value
    count = torch.randint(0, width + 1, (sequences,), generator=draws)
    flip = end_of_step.best_rows(score, open, count)
    assert torch.equal(step_kernels.best_rows(*there(score, open, count)).cpu(), flip)

    total = sequences * width + 5
    places = torch.randperm(total, generator=draws)[: sequences * width].view(sequences, width)
    places[padding], flip = total, chance(0.5)
    ids, order = (torch.randint(-1, 99, (total + 1,), generator=draws) for _ in range(2))
    step = torch.randint(0, 99, (sequences, 1), generator=draws)
    for written, turned in ((tokens, flip), (tokens[:1, :1], flip[:1])):  # some for all, as at an early stop
        ours, plain = there(ids, order), [ids.clone(), order.clone()]
        after = step_kernels.turn(*ours, *there(places, written, turned, open, step), 7)
        assert torch.equal(after.cpu(), end_of_step.turn(*plain, places, written, turned, open, step, 7))
        assert all(torch.equal(one.cpu(), other) for one, other in zip(ours, plain, strict=True))
    kept = some(1, width + 1)
    ours, plain = (
        step_kernels.narrowed(*there(places, tokens, open), kept),
        end_of_step.narrowed(places, tokens, open, kept),
    )
    assert all(torch.equal(one.cpu(), other) for one, other in zip(ours, plain, strict=True))


def rows_that_are_not_finite() -> None:
    logits = torch.zeros(1, 6, 130)
    logits[0, 0, 3], logits[0, 1, 100], logits[0, 2] = torch.nan, torch.inf, -torch.inf
    logits[0, 3], logits[0, 4] = torch.inf, torch.nan
    tokens, sure = step_kernels.likeliest(logits.to(DEVICE))
    assert sure.isfinite().tolist() == [[False] * 5 + [True]]
    assert (tokens < 130).all() and (tokens >= 0).all(), "a token that is none"


def whole_generations() -> None:
    """The same tokens in the same order, whoever ends the steps."""
    import maskwise as mw

    step_kernels.TOKENS = 8192
    model = mw.open("tiny-llada", device=DEVICE)
    prompts = [model.tokenizer.encode(text) for text in ("hello there", "x")]
    stops = {"early_stop": True, "end_ids": tuple(range(10, 200))}
    plain_way, ways = end_of_step._kernels, [
        {"rule": "remdm", "steps": 6}, {"rule": "threshold", "edit": 0.02}, {"rule": "margin", **stops},
        {"guidance": 1.0, **stops}, {"temperature": 0.8}, {"rule": "random", "top_k": 5}, {"cache": "dual"},
    ]  # fmt: skip
    whole = mw.generate(model, prompts, 8, block=4, rule="margin")
    assert mw.generate(model, prompts, 8, block=4, rule="margin", **stops)[1].forwards < whole[1].forwards
    for way in ways:
        found = []
        for kernels in (lambda like: None, lambda like: step_kernels):
            end_of_step._kernels = kernels
            draws = torch.Generator().manual_seed(0)
            found.append(mw.generate(model, prompts, 8, block=4, generator=draws, **way))
        assert [(one.ids, one.order) for one in found[0]] == [(one.ids, one.order) for one in found[1]], way
    model.head_weight.data[5] = torch.nan
    for way in ({}, {"top_k": 5}, {"top_p": 0.9, "rule": "entropy"}, {"temperature": 0.5}):
        try:
            mw.generate(model, prompts, 4, **way)
        except mw.UserError as error:
            assert "are not finite" in str(error)
        else:
            raise AssertionError(f"NaN was not noticed with {way}")
    end_of_step._kernels = plain_way


warnings.filterwarnings("ignore", category=RuntimeWarning)  # numpy's, of what is not finite
assert end_of_step.agree(DEVICE)
step_kernels.TOKENS, step_kernels.SMALLEST = 64, 8  # so that few rows have several parts and sizes
for seed in range(12 if sys.argv[1:] == ["all"] else 4):
    random_rows(seed)
rows_that_are_not_finite()
if sys.argv[1:] == ["all"]:
    random_rows(12, widest=200)  # more than one program writes
    whole_generations()
print(f"the ends of steps agree on {DEVICE.type}")
