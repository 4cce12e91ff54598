"""The kernels of the end of a decoding step equal decoding/end_of_step.py in PyTorch's operations."""

import sys
import warnings

import pytest
import torch

from helpers.interpreted import DEVICE, DONE, few_and_all, run_cases

WAYS = (
    {"rule": "remdm", "steps": 6},
    {"rule": "threshold", "edit": 0.02},
    {"rule": "margin", "early_stop": True, "end_ids": tuple(range(10, 200))},
    {"guidance": 1.0, "early_stop": True, "end_ids": tuple(range(10, 200))},
    {"temperature": 0.8},
    {"rule": "random", "top_k": 5},
    {"cache": "dual"},
)


@pytest.mark.slow
@few_and_all
def test_decoding_step_equals_plain_operations(cases):
    run_cases(__file__, cases)


def there(*tensors):
    return [one.clone().to(DEVICE) for one in tensors]


def random_rows(kernel, seed, widest=20):
    """Each kernel on rows of any count, with ties, infinities, padding and parts of a vocabulary."""
    from maskwise.decoding import end_of_step
    from maskwise.decoding.sampling import log_confidence

    draws = torch.Generator().manual_seed(seed)

    def some(least, most):
        return int(torch.randint(least, most, (), generator=draws))

    def chance(share):
        return torch.rand(sequences, width, generator=draws) < share

    sequences, width, vocab = some(1, 4), some(widest - 19, widest), some(5, 300)
    logits = torch.randn(sequences, width, vocab, generator=draws) * 8
    logits = logits.round() if seed % 2 else logits
    logits[..., 2] = -torch.inf
    tokens = logits.argmax(dim=-1)
    found, sure = (one.cpu() for one in kernel.likeliest(logits.to(DEVICE)))
    expected = log_confidence(logits, tokens)
    assert torch.equal(found, tokens) and ((sure - expected).abs() <= 1e-5 * expected.abs() + 1e-12).all()

    score, open, padding = torch.randn(sequences, width, generator=draws).mul(2).round(), chance(0.6), chance(0.1)
    for value in (-torch.inf, torch.inf, torch.nan, torch.finfo(score.dtype).min):
        score[chance(0.05)] = value
    count = torch.randint(0, width + 1, (sequences,), generator=draws)
    flip = end_of_step.best_rows(score, open, count)
    assert torch.equal(kernel.best_rows(*there(score, open, count)).cpu(), flip)

    total = sequences * width + 5
    places = torch.randperm(total, generator=draws)[: sequences * width].view(sequences, width)
    places[padding], flip = total, chance(0.5)
    ids, order = (torch.randint(-1, 99, (total + 1,), generator=draws) for _ in range(2))
    step = torch.randint(0, 99, (sequences, 1), generator=draws)
    for written, flips in ((tokens, flip), (tokens[:1, :1], flip[:1])):  # some for all, as at an early stop
        ours, plain = there(ids, order), [ids.clone(), order.clone()]
        after = kernel.commit(*ours, *there(places, written, flips, open, step), 7)
        assert torch.equal(after.cpu(), end_of_step.commit(*plain, places, written, flips, open, step, 7))
        assert all(torch.equal(one.cpu(), other) for one, other in zip(ours, plain, strict=True))
    kept = some(1, width + 1)
    ours = kernel.narrowed(*there(places, tokens, open), kept)
    plain = end_of_step.narrowed(places, tokens, open, kept)
    assert all(torch.equal(one.cpu(), other) for one, other in zip(ours, plain, strict=True))


def rows_that_are_not_finite(kernel):
    logits = torch.zeros(1, 6, 130)
    logits[0, 0, 3], logits[0, 1, 100], logits[0, 2] = torch.nan, torch.inf, -torch.inf
    logits[0, 3], logits[0, 4] = torch.inf, torch.nan
    tokens, sure = kernel.likeliest(logits.to(DEVICE))
    assert sure.isfinite().tolist() == [[False] * 5 + [True]]
    assert (tokens < 130).all() and (tokens >= 0).all(), "a token that is none"


def whole_generations(kernel):
    """The same tokens in the same order, with and without the kernels."""
    import maskwise as mw
    from maskwise.decoding import end_of_step

    kernel.TOKENS = 8192
    model = mw.open("tiny-llada", device=DEVICE)
    prompts = [model.tokenizer.encode(text) for text in ("hello there", "x")]
    whole = mw.generate(model, prompts, 8, block=4, rule="margin")
    assert mw.generate(model, prompts, 8, block=4, **WAYS[2])[1].forwards < whole[1].forwards
    gated = end_of_step._kernel
    for way in WAYS:
        found = []
        for chosen in (None, kernel):
            end_of_step._kernel = lambda like, chosen=chosen: chosen
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
    end_of_step._kernel = gated


def the_trial_finds_each_wrong_kernel(kernel):
    wrong = {
        "likeliest": lambda logits: (logits.argmin(dim=-1), logits.amax(dim=-1)),
        "best_rows": lambda score, open, count: open,
        "commit": lambda ids, order, places, tokens, flip, open, step, mask_id: open,
        "narrowed": lambda places, positions, open, width: (places[:, :width], positions[:, :width], open[:, :width]),
    }
    for name, function in wrong.items():
        right = getattr(kernel, name)
        setattr(kernel, name, function)
        assert not kernel.agrees(DEVICE, 64), f"a wrong {name} is found"
        setattr(kernel, name, right)


def main(few):
    from maskwise.kernels import decoding_step as kernel

    warnings.filterwarnings("ignore", category=RuntimeWarning)  # numpy's, of what is not finite
    assert kernel.agrees(DEVICE, 64 if few else 512)
    if not few:
        the_trial_finds_each_wrong_kernel(kernel)
    kernel.TOKENS, kernel.SMALLEST = 64, 8  # so that few rows have several parts and sizes
    for seed in range(4 if few else 12):
        random_rows(kernel, seed)
    rows_that_are_not_finite(kernel)
    if not few:
        random_rows(kernel, 12, widest=200)  # more than one program writes
        whole_generations(kernel)
    print(DONE)


if __name__ == "__main__":
    main(few=sys.argv[1:] == ["few"])
