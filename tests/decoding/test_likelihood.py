"""Likelihood estimators against sums written out one forward pass at a time."""

import itertools
import math

import pytest
import torch
from scipy import stats

import maskwise as mw
from helpers.references import dense_logits
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada
from maskwise.decoding.likelihood import encode_pair, every_subset, log_likelihoods, sampled_subsets
from maskwise.support.errors import UserError

PAIRS = [([5, 9, 2, 30], [4]), ([7, 7], [8, 1, 3]), ([11, 12, 13, 14, 15, 16, 3], [2, 9, 44, 20])]
MASKED = [tiny_llada, tiny_dream]


def log_p(model, prompt, answer, hidden, asked, masks=0):
    """Sum of log-probabilities of the asked answer tokens with the hidden ones masked."""
    view = [model.mask_id if place in hidden else token for place, token in enumerate(answer)]
    logits = dense_logits(model, [*prompt, *view, *[model.mask_id] * masks]).double().log_softmax(-1)
    return sum(float(logits[len(prompt) + place, answer[place]]) for place in asked)


def bound(model, prompt, answer, masks=0):
    n = len(answer)
    total = 0.0
    for size in range(1, n + 1):
        sets = list(itertools.combinations(range(n), size))
        total += sum(n / size * log_p(model, prompt, answer, s, s, masks) for s in sets) / len(sets) / n
    return total


@pytest.mark.parametrize("make", MASKED)
@pytest.mark.parametrize("masks", [0, 5])
def test_exact_is_the_expectation_written_out(make, masks):
    model = make()
    for (prompt, answer), found in zip(PAIRS, log_likelihoods(model, PAIRS, "exact", masks=masks), strict=True):
        assert found.log_likelihood == pytest.approx(bound(model, prompt, answer, masks), abs=1e-4)
        assert (found.method, found.forwards, found.tokens) == ("exact", 2 ** len(answer) - 1, len(answer))


@pytest.mark.parametrize("make", MASKED)
def test_chain_is_the_sum_written_out(make):
    model = make()
    for (prompt, answer), found in zip(PAIRS, log_likelihoods(model, PAIRS, "chain"), strict=True):
        n = len(answer)
        expected = sum(log_p(model, prompt, answer, range(j, n), [j]) for j in range(n))
        assert found.log_likelihood == pytest.approx(expected, abs=1e-4)
        assert (found.method, found.forwards) == ("chain", n)


def test_monte_carlo_agrees_with_the_exact_bound_within_its_error():
    model = tiny_llada()
    prompt, answer = [7, 7], [8, 1, 3, 20, 41]
    (exact,) = log_likelihoods(model, [(prompt, answer)], "exact")
    draws = [log_likelihoods(model, [(prompt, answer)], "monte-carlo", samples=10, seed=seed)[0] for seed in range(150)]
    found = [draw.log_likelihood for draw in draws]
    assert stats.ttest_1samp(found, exact.log_likelihood).pvalue > 0.01
    assert all(draw.forwards <= 10 for draw in draws)


def test_a_one_token_answer_takes_one_pass_by_every_method():
    model = tiny_llada()
    found = [log_likelihoods(model, PAIRS[:1], method)[0] for method in ("auto", "exact", "monte-carlo", "chain")]
    assert {f.forwards for f in found} == {1}
    assert len({round(f.log_likelihood, 5) for f in found}) == 1
    logits = dense_logits(model, [*PAIRS[0][0], model.mask_id])[-1]
    assert found[0].greedy == (int(logits.argmax()) == 4)
    assert log_likelihoods(model, [(PAIRS[0][0], [int(logits.argmax())])])[0].greedy is True


def test_requests_are_batched_and_do_not_touch_each_other(monkeypatch):
    model = tiny_dream()
    together = log_likelihoods(model, PAIRS)
    passes = []
    log_likelihoods(model, PAIRS, on_pass=lambda done, total: passes.append((done, total)))
    assert passes == [(3, 3)]
    monkeypatch.setattr("maskwise.decoding.likelihood.TOKENS_A_PASS", 20)
    small = log_likelihoods(model, PAIRS, on_pass=lambda done, total: passes.append((done, total)))
    assert len(passes) > 5 and passes[-1] == (3, 3) and sorted(passes[1:]) == passes[1:]
    for one, two, pair in zip(together, small, PAIRS, strict=True):
        assert one.log_likelihood == pytest.approx(two.log_likelihood, abs=1e-4)
        assert one.log_likelihood == pytest.approx(log_likelihoods(model, [pair])[0].log_likelihood, abs=1e-4)


@pytest.mark.parametrize("make", MASKED)
def test_an_estimate_depends_on_the_seed_and_the_request_alone(make):
    model = make()
    requests = [*PAIRS, ([7], [7, 8, 1, 3]), PAIRS[2]]

    def estimates(asked, seed=5):
        return [one.log_likelihood for one in log_likelihoods(model, asked, "monte-carlo", samples=3, seed=seed)]

    together = estimates(requests)
    assert together == pytest.approx([estimates([one])[0] for one in requests], abs=1e-4)
    assert together == pytest.approx(estimates(requests[::-1])[::-1], abs=1e-4)
    assert together[2] == pytest.approx(together[4], abs=1e-4)  # one question, one answer
    assert together != pytest.approx(estimates(requests, seed=6), abs=1e-4)


def test_a_score_states_the_masks_after_the_answer():
    assert [one.masks for one in log_likelihoods(tiny_llada(), PAIRS, masks=5)] == [5, 5, 5]
    assert [one.masks for one in log_likelihoods(tiny_ar(), PAIRS)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("make", "masks", "said"),
    [
        (tiny_llada, 100_000, "request 1 leaves room for .* masks in the context length"),
        (tiny_llada, -1, "masks 0 or more"),
        (tiny_ar, 2, "is autoregressive: it has no masks"),
    ],
)
def test_a_number_of_masks_that_cannot_be_is_one_line(make, masks, said):
    with pytest.raises(UserError, match=said):
        log_likelihoods(make(), PAIRS, masks=masks)


def test_auto_is_exact_where_that_is_cheaper():
    model = tiny_llada()
    long = ([1], list(range(2, 12)))
    assert [s.method for s in log_likelihoods(model, [*PAIRS, long], samples=128)] == ["exact"] * 3 + ["monte-carlo"]
    assert [s.method for s in log_likelihoods(model, PAIRS, samples=7)] == ["exact", "exact", "monte-carlo"]


def test_subset_weights_are_those_of_the_expectation():
    for n in range(1, 6):
        sets, weights = every_subset(n)
        assert len(sets) == 2**n - 1 == len(sets.unique(dim=0))
        # The weights of the sets that hold a given token add up to the sum over sizes l of 1/n * n/l * l/n = 1.
        torch.testing.assert_close(weights @ sets.double(), torch.ones(n, dtype=torch.float64))


def test_sampled_sizes_are_stratified_and_weights_keep_the_estimate_unbiased():
    chance = torch.Generator().manual_seed(0)
    sizes = torch.zeros(6)
    share = torch.zeros(6, dtype=torch.float64)
    for _ in range(400):
        sets, weights = sampled_subsets(6, 4, chance)
        assert len(sets) == len(sets.unique(dim=0)) <= 4 and bool(sets.any(dim=1).all())
        assert len(sets.sum(1).unique()) == 4  # four samples, four different sizes
        sizes += sets.sum(1).bincount(minlength=7)[1:]
        share += weights @ sets.double()
    torch.testing.assert_close(sizes / sizes.sum(), torch.full((6,), 1 / 6), atol=0.03, rtol=0)
    torch.testing.assert_close(share / 400, torch.ones(6, dtype=torch.float64), atol=0.08, rtol=0)


def test_a_causal_model_is_scored_by_its_own_likelihood_in_one_pass():
    model = tiny_ar()
    for (prompt, answer), found in zip(PAIRS, log_likelihoods(model, PAIRS), strict=True):
        logits = model.net(input_ids=torch.tensor([[*prompt, *answer]])).logits[0].detach().double().log_softmax(-1)
        expected = sum(float(logits[len(prompt) + j - 1, token]) for j, token in enumerate(answer))
        assert found.log_likelihood == pytest.approx(expected, abs=1e-4)
        assert (found.forwards, found.method) == (1, "chain")
    greedy = mw.generate(model, [PAIRS[1][0]], 3)[0].ids
    assert log_likelihoods(model, [(PAIRS[1][0], greedy)])[0].greedy is True
    assert log_likelihoods(model, [(PAIRS[1][0], [greedy[0], greedy[1], (greedy[2] + 1) % 64])])[0].greedy is False


def test_text_is_tokenised_as_a_whole():
    class Words:
        """One token a word, a space joined to the word after it."""

        bos_token = None

        def __call__(self, text, add_special_tokens=True):
            pieces = text.split(" ")
            words = [pieces[0], *(" " + piece for piece in pieces[1:])] if pieces[0] else [" " + p for p in pieces[1:]]
            return {"input_ids": [sum(map(ord, word)) % 60 for word in words if word]}

    model = tiny_llada(tokenizer=Words())
    assert encode_pair(model, "red green ", "blue") == encode_pair(model, "red green", " blue")
    prompt, answer = encode_pair(model, "red ab", "c blue")
    assert len(prompt) == 1 and len(answer) == 2  # the merged token belongs to the answer
    assert prompt + answer == Words()("red abc blue")["input_ids"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"requests": [([1], [])]}, "answer of no tokens"),
        ({"requests": [([1], [2])], "method": "guess"}, "unknown method"),
        ({"requests": [([1], [2])], "samples": 0}, "samples are 1 or more"),
        ({"requests": [([1], list(range(20)))], "method": "exact"}, "takes 2\\^20"),
        ({"requests": [([1] * 250, [2])], "masks": 6}, "context length"),
        ({"requests": [("one", [2])]}, "both as text or both"),
        ({"requests": [("one", "two")]}, "no tokenizer"),
    ],
)
def test_bad_requests_get_one_clear_line(options, message):
    with pytest.raises(mw.UserError, match=message):
        log_likelihoods(tiny_llada(), **options)


def test_causal_models_have_no_masked_estimators():
    with pytest.raises(mw.UserError, match="only the chain rule"):
        log_likelihoods(tiny_ar(), [([1], [2])], "monte-carlo")
    with pytest.raises(mw.UserError, match="needs at least one token before"):
        log_likelihoods(tiny_ar(), [([], [2])])


def test_bound_is_below_log_of_one():
    assert all(s.log_likelihood < 0 and math.isfinite(s.log_likelihood) for s in log_likelihoods(tiny_llada(), PAIRS))
