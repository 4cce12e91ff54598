"""Each vectorised unmasking strategy against a plain Python one, row by row, over batches whose sequences differ."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from maskwise.decoding.end_of_step import ranks
from maskwise.decoding.sampling import entropy, log_confidence, log_margin, propose, sharpen
from maskwise.decoding.schedule import spread_steps
from maskwise.decoding.strategies import STRATEGIES, find_strategy
from maskwise.decoding.strategies.choosing import even_counts
from maskwise.decoding.strategies.dream_alg import dream_counts
from maskwise.decoding.strategies.state import Memory, Rows, State

NAMES = [strategy.name for strategy in STRATEGIES]


def with_parameters(name, given=None):
    strategy = find_strategy(name)
    return strategy, strategy.complete(given)


# The plain versions: one sequence, lists of floats, nothing vectorised.


def softmax(logits):
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    return [w / sum(weights) for w in weights]


def plain_entropy(logits):
    """log Z + sum p (largest - x), every term positive, so exact where the entropy is almost 0."""
    first, *others = sorted(logits, reverse=True)
    rest = sum(math.exp(x - first) for x in others)
    return math.log1p(rest) + sum(math.exp(x - first) * (first - x) for x in others if x > -math.inf) / (1 + rest)


def plain_dream_entropy(logits):
    return -sum(p * math.log(p + 1e-10) for p in softmax(logits))


def plain_margin(logits):
    """The logarithm of the difference, exact where the difference itself rounds to 1."""
    first, second = sorted(logits, reverse=True)[:2]
    rest = sum(math.exp(x - first) for x in sorted(logits)[:-1])
    return math.log1p(-math.exp(second - first)) - math.log1p(rest)


def plain_best(scores, open_rows, held, count):
    """Places of the `count` best open rows, ties to the left, held ones after all others."""
    rows = [i for i, is_open in enumerate(open_rows) if is_open]
    rows.sort(key=lambda i: (held[i], -scores[i] if not held[i] else 0, i))
    return rows[:count]


def plain_rule(name, logits, tokens, open_rows, held, count, draws, parameters, time, after, before, calm):
    """The set of places that change sides."""
    places = range(len(logits))
    confidence = [softmax(logits[i])[tokens[i]] for i in places]
    surprise = [
        math.log1p(sum(math.exp(x - max(row)) for x in sorted(row)[:-1])) + max(row) - row[token]
        for row, token in zip(logits, tokens, strict=True)
    ]
    if name == "random":
        return plain_best(draws, open_rows, held, count)
    if name in ("low-confidence", "dream-maskgit-plus"):
        return plain_best([-nats for nats in surprise], open_rows, held, count)
    if name in ("margin", "dream-topk-margin"):
        return plain_best([plain_margin(logits[i]) for i in places], open_rows, held, count)
    if name == "entropy":
        return plain_best([-plain_entropy(logits[i]) for i in places], open_rows, held, count)
    if name == "dream-entropy":
        return plain_best([-plain_dream_entropy(logits[i]) for i in places], open_rows, held, count)
    if name == "left-to-right":
        return plain_best([-i for i in places], open_rows, held, count)
    order = plain_best([-nats for nats in surprise], open_rows, held, len(logits))
    free = [i for i in order if not held[i]]
    if name == "threshold":
        return [i for i in free if confidence[i] >= parameters["tau"]] or order[:1]
    if name == "factor":
        fitting = [n for n in range(1, len(free) + 1) if (n + 1) * (1 - confidence[free[n - 1]]) < parameters["f"]]
        return free[: max(fitting, default=0)] or order[:1]
    if name == "entropy-bound":
        order = plain_best([-plain_entropy(logits[i]) for i in places], open_rows, held, len(logits))
        free = [i for i in order if not held[i]]
        spread = [plain_entropy(logits[i]) for i in free]
        fitting = [n for n in range(1, len(free) + 1) if sum(spread[:n]) - max(spread[:n]) <= parameters["gamma"]]
        return free[: max(fitting, default=0)] or order[:1]
    if name == "klass":
        stable = []
        for i in free:
            p, q = softmax(logits[i]), softmax(before[i])
            moved = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
            if confidence[i] > parameters["tau"] and moved < parameters["eps"] and calm[i] + 1 >= 2:
                stable.append(i)
        return stable or order[:1]
    if name == "dream-origin":
        return [i for i in places if open_rows[i] and draws[i] < (1 - after / time if after else 1)]
    kept, kept_after = 1 - time, 1 - after
    sigma = min(parameters["eta"], 1, (1 - kept_after) / kept if kept else 1)
    resolve = (kept_after - (1 - sigma) * kept) / (1 - kept)
    return [i for i in places if draws[i] < (resolve if open_rows[i] else sigma)]


@st.composite
def situations(draw):
    sequences, width, vocab = draw(st.integers(1, 4)), draw(st.integers(1, 7)), draw(st.integers(3, 6))
    seed, scale = draw(st.integers(0, 2**31)), draw(st.sampled_from([0.3, 2.0, 8.0]))
    return sequences, width, vocab, seed, scale


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(situation=situations(), with_held=st.booleans(), last=st.booleans())
def test_vectorised_strategy_equals_the_plain_one(name, situation, with_held, last):
    sequences, width, vocab, seed, scale = situation
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(sequences, width, vocab, generator=chance) * scale
    logits[..., 0] = float("-inf")  # the mask token
    tokens = sharpen(logits, 0.0, None, None).argmax(-1)
    if seed % 2:  # sampled tokens need not be the likeliest ones
        tokens = propose(sharpen(logits, 1.0, None, None), 1.0, chance)[0]
    is_open = torch.rand(sequences, width, generator=chance) < 0.7
    held = (torch.rand(sequences, width, generator=chance) < 0.3) & is_open if with_held else torch.zeros_like(is_open)
    draws = torch.rand(sequences, width, generator=chance)
    count = torch.randint(0, width + 1, (sequences,), generator=chance)
    before = logits + torch.randn(logits.shape, generator=chance) * 0.05
    calm = torch.randint(0, 3, (sequences, width), generator=chance)
    time, after = 0.8, 0.0 if last else 0.55
    strategy, parameters = with_parameters(name)
    if name == "dream-entropy":  # published in plain float32, where entropies closer than this are noise
        spread = sorted(plain_dream_entropy(row) for s in logits.tolist() for row in s)
        assume(all(b - a > 1e-5 for a, b in pairwise(spread)))
    memory = Memory(before.log_softmax(-1), calm) if name == "klass" else None

    choice = strategy.pick(
        Rows(logits, tokens, is_open, held if with_held else None),
        State(count, torch.full((sequences,), time), torch.full((sequences,), after), draws, memory),
        parameters,
    )

    for s in range(sequences):
        expected = plain_rule(
            name,
            logits[s].tolist(),
            tokens[s].tolist(),
            is_open[s].tolist(),
            held[s].tolist(),
            int(count[s]),
            draws[s].tolist(),
            parameters,
            time,
            after,
            before[s].tolist(),
            calm[s].tolist(),
        )
        assert set(choice.flip[s].nonzero()[:, 0].tolist()) == set(expected)


@pytest.mark.parametrize("name", [strategy.name for strategy in STRATEGIES if strategy.adaptive])
def test_an_adaptive_strategy_always_commits_something_where_something_is_open(name):
    strategy, parameters = with_parameters(name)
    logits = torch.zeros(3, 4, 5)  # as unsure as can be
    is_open = torch.tensor([[True] * 4, [False, False, True, False], [False] * 4])
    flip = strategy.pick(Rows(logits, logits.argmax(-1), is_open), State(), parameters).flip
    assert flip.sum(-1).tolist() == [1, 1, 0]
    assert flip[0, 0] and flip[1, 2]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "remdm"])
def test_only_open_rows_are_touched(name):
    strategy, parameters = with_parameters(name)
    logits, is_open = torch.randn(2, 6, 5), torch.tensor([[True, False] * 3, [False] * 6])
    state = State(torch.tensor([6, 6]), torch.full((2,), 0.5), torch.zeros(2), torch.zeros(2, 6))
    assert not (strategy.pick(Rows(logits, logits.argmax(-1), is_open), state, parameters).flip & ~is_open).any()


@pytest.mark.parametrize("name", ["dream-maskgit-plus", "dream-topk-margin", "dream-entropy"])
def test_held_rows_wait_in_drawn_orders_too(name):
    strategy, parameters = with_parameters(name, {"alg_temp": 2.0})
    logits = torch.randn(200, 2, 5, generator=torch.Generator().manual_seed(0))
    held = torch.tensor([[True, False]]).expand(200, 2)
    draws = torch.rand(200, 2, generator=torch.Generator().manual_seed(1))
    state = State(torch.ones(200, dtype=torch.int64), draws=draws)
    flip = strategy.pick(Rows(logits, logits.argmax(-1), torch.ones_like(held), held), state, parameters).flip
    assert flip.tolist() == [[False, True]] * 200


def test_ties_go_to_the_left():
    score = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0]])
    assert ranks(score, torch.ones(1, 5, dtype=torch.bool)).tolist() == [[3, 0, 1, 4, 2]]


def test_open_rows_at_minus_infinity_stand_before_closed_ones():
    score = torch.full((1, 3), float("-inf"))
    assert ranks(score, torch.tensor([[False, True, True]])).tolist() == [[2, 0, 1]]


def test_confidence_of_near_certain_rows_keeps_its_order():
    """A float32 logsumexp would call all of these exactly certain."""
    logits = torch.zeros(1, 3, 4)
    logits[0, :, 1] = torch.tensor([25.0, 40.0, 30.0])
    assert (logits.max(-1).values - logits.logsumexp(-1)).tolist() == [[0.0, 0.0, 0.0]]
    confidence = log_confidence(logits, logits.argmax(-1))
    assert confidence.argsort(descending=True).tolist() == [[1, 2, 0]]
    torch.testing.assert_close(confidence[0], -3 * torch.tensor([25.0, 40.0, 30.0]).neg().exp(), rtol=1e-5, atol=0)


def test_entropy_and_margin_of_known_distributions():
    certain = [0.0, float("-inf"), float("-inf"), float("-inf")]
    logits = torch.tensor(
        [[0.0, 0.0, 0.0, 0.0], certain, [30.0, 0.0, 0.0, 0.0], [math.log(3), 0.0, certain[1], certain[1]]]
    )
    tail = 3 * math.exp(-30)
    expected = torch.tensor([math.log(4), 0.0, tail + tail * 30, math.log(4) - 0.75 * math.log(3)])
    torch.testing.assert_close(entropy(logits), expected, rtol=1e-5, atol=0)
    expected = torch.tensor([-math.inf, 0.0, -math.exp(-30) - tail, math.log(0.5)])
    torch.testing.assert_close(log_margin(logits), expected, rtol=1e-5, atol=0)


@settings(max_examples=50)
@given(masks=st.lists(st.integers(1, 9), min_size=1, max_size=8), steps=st.integers(1, 90))
def test_blocks_share_the_steps_by_their_masks(masks, steps):
    shares = spread_steps(steps, masks)
    assert sum(shares) == max(steps, len(masks)) and min(shares) >= 1
    assert steps > sum(masks) or all(one <= most for one, most in zip(shares, masks, strict=True))
    even = spread_steps(steps * len(masks), [7] * len(masks))
    assert even == [steps] * len(masks)  # what divides into blocks of one length is divided so


@settings(max_examples=50)
@given(masks=st.integers(1, 60), steps=st.integers(1, 60))
def test_schedules_commit_every_mask_once(masks, steps):
    even = even_counts(masks, steps, {})
    assert sum(even) == masks and max(even) - min(even) <= 1 and even == sorted(even, reverse=True)
    assert sum(dream_counts(masks, steps, {"eps": 1e-3})) == masks


def test_remdm_masks_again_with_sigma_and_resolves_at_the_published_rate():
    strategy, parameters = with_parameters("remdm", {"eta": 0.2})
    draws = torch.rand(1, 40000, generator=torch.Generator().manual_seed(0))
    is_open = torch.arange(40000)[None] % 2 == 0
    flip = strategy.pick(
        Rows(torch.empty(1, 40000, 0), draws.long(), is_open),
        State(None, torch.tensor([0.6]), torch.tensor([0.5]), draws),
        parameters,
    ).flip
    # a_t = .4, a_s = .5, sigma = .2 <= .5 / .4
    assert flip[~is_open].float().mean() == pytest.approx(0.2, abs=0.01)
    assert flip[is_open].float().mean() == pytest.approx((0.5 - 0.8 * 0.4) / 0.6, abs=0.01)


def test_dream_alg_temp_draws_rows_by_softmax_of_their_probability():
    strategy, parameters = with_parameters("dream-maskgit-plus", {"alg_temp": 0.5})
    logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.0, 0.0]]).expand(20000, 3, 2)
    draws = torch.rand(20000, 3, generator=torch.Generator().manual_seed(0))
    rows = Rows(logits, logits.argmax(-1), torch.ones(20000, 3, dtype=torch.bool))
    flip = strategy.pick(rows, State(torch.ones(20000, dtype=torch.int64), draws=draws), parameters).flip
    expected = (logits[0].softmax(-1).max(-1).values / 0.5).softmax(-1)
    torch.testing.assert_close(flip.float().mean(0), expected, atol=0.01, rtol=0)


def test_sampling_follows_the_tempered_and_filtered_distribution():
    logits = torch.tensor([1.0, 0.5, 0.0, -1.0]).expand(1, 40000, 4)
    sharpened = sharpen(logits, 0.7, 3, None)
    tokens = propose(sharpened, 0.7, torch.Generator().manual_seed(0))[0]
    expected = (torch.tensor([1.0, 0.5, 0.0, float("-inf")]) / 0.7).softmax(-1)
    torch.testing.assert_close(tokens[0].bincount(minlength=4) / 40000, expected, atol=0.01, rtol=0)


def test_top_p_keeps_the_token_that_crosses_the_line():
    logits = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    assert sharpen(logits, 0.0, None, 0.6).isfinite().tolist() == [[True, True, False, False]]
    assert sharpen(logits, 0.0, None, 0.4).isfinite().tolist() == [[True, False, False, False]]
