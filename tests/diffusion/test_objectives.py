"""Objectives by their laws: exactness against enumeration, bounds on a source of known entropy, the loss as written."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model

from helpers.tiny import tiny_dream, tiny_llada
from maskwise.diffusion import (
    Draw,
    anchored_call,
    block_diffusion,
    blockwise,
    draw_noise,
    linear_ce,
    mask_agnostic,
    mask_agnostic_call,
    nelbo,
    nelbo_call,
    pad_visibly,
)

MASK = 63


# The NELBO on a source of known entropy: three tokens, each the same as the one before with probability .9


def source_probability(sequence: tuple[int, ...]) -> float:
    chance = 0.7 if sequence[0] == 1 else 0.3
    for before, after in itertools.pairwise(sequence):
        chance *= 0.9 if before == after else 0.1
    return chance


SOURCE = {s: source_probability(s) for s in itertools.product([1, 2], repeat=3)}
ENTROPY = -sum(p * math.log(p) for p in SOURCE.values())


def state(ids: torch.Tensor) -> int:
    """The number of a noised sequence over {mask, 1, 2}, for the smallest model there is: a table of its states."""
    return int((torch.where(ids == MASK, 0, ids) * torch.tensor([9, 3, 1])).sum())


def exact_nelbo(table: torch.Tensor) -> float:
    """Every sequence and every set of masks; a set of l among n has weight B(l, n - l + 1), the integral of
    u^(l-1) (1-u)^(n-l) du. table [27, 3, 3]: logits of the tokens at each place of each state."""
    total = 0.0
    for sequence, chance in SOURCE.items():
        for size, masked in ((len(p), p) for p in patterns(3)):
            noised = torch.tensor([MASK if place in masked else token for place, token in enumerate(sequence)])
            logs = table[state(noised)].double().log_softmax(-1)
            factor = math.factorial(size - 1) * math.factorial(3 - size) / math.factorial(3)
            total -= chance * factor * float(sum(logs[place, sequence[place]] for place in masked))
    return total


@pytest.mark.slow
def test_the_nelbo_is_an_upper_bound_that_a_trained_model_approaches():
    generator = torch.Generator().manual_seed(0)
    table = torch.zeros(27, 3, 3, requires_grad=True)
    sequences, chances = torch.tensor(list(SOURCE)), torch.tensor(list(SOURCE.values()))
    optimizer = torch.optim.Adam([table], lr=0.2)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=150)
    bounds = [exact_nelbo(table.detach())]
    for _ in range(150):
        drawn = sequences[torch.multinomial(chances, 64, replacement=True, generator=generator)]
        examples = [nelbo(ids, MASK, generator) for ids in drawn]
        hidden = torch.cat([table[state(example.ids), example.rows] for example in examples])
        targets = torch.cat([example.targets for example in examples])
        weights = torch.cat([example.weights for example in examples]) / len(examples)
        optimizer.zero_grad()
        linear_ce(hidden, torch.eye(3), targets, weights).backward()
        optimizer.step()
        decay.step()
        bounds.append(exact_nelbo(table.detach()) if len(bounds) < 5 else math.inf)
    bounds.append(exact_nelbo(table.detach()))
    assert min(bounds) > ENTROPY
    assert bounds[0] > ENTROPY + 1.5
    assert bounds[-1] < ENTROPY + 0.04


def test_noise_falls_on_the_places_named_and_may_go_unweighted():
    ids, places = torch.arange(20), torch.tensor([3, 4, 5, 11, 12, 17])
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        for one in (nelbo(ids, MASK, generator, places=places), blockwise(ids, MASK, 4, generator, places=places)):
            assert set(one.rows.tolist()) <= set(places.tolist())
            outside = torch.ones(20, dtype=torch.bool).index_fill(0, places, False)
            assert torch.equal(one.ids[outside], ids[outside])
            assert torch.equal(one.targets, ids[one.rows])
    assert set(nelbo(ids, MASK, generator, weighted=False).weights.tolist()) <= {1.0}
    assert set(blockwise(ids, MASK, 4, generator, weighted=False).weights.tolist()) == {1.0}


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
def test_a_call_is_the_mean_over_examples_of_their_weighted_cross_entropies(make):
    model = make()
    generator = torch.Generator().manual_seed(0)
    examples = [nelbo(torch.arange(1, n), model.mask_id, generator, start=2) for n in (6, 9, 14)]
    call = nelbo_call(model, examples)
    logits = model.predict([e.ids.tolist() for e in examples], [e.rows.tolist() for e in examples])
    expected = sum(
        float((e.weights * torch.nn.functional.cross_entropy(z, e.targets, reduction="none")).sum())
        for e, z in zip(examples, logits, strict=True)
    )
    assert float(model(call.batch, call.index, call.loss).detach()) == pytest.approx(expected / 3, rel=1e-5)


# Blockwise training, B = 4


def pattern_cost(masked: tuple[int, ...]) -> float:
    """The summed cross-entropy of an arbitrary model for this set of masked places of a block."""
    return sum(0.2 + 0.1 * place + 0.15 * len(masked) for place in masked)


def patterns(size: int = 4):
    return [p for n in range(1, size + 1) for p in itertools.combinations(range(size), n)]


def enumerated(size: int = 4) -> float:
    """The integral over u of 1/u E[cost] with Bernoulli(u) masks, pattern by pattern."""
    return sum(
        pattern_cost(p) * math.factorial(len(p) - 1) * math.factorial(size - len(p)) / math.factorial(size)
        for p in patterns(size)
    )


def draws_of(noise, count: int = 3000, ids=None, block: int = 4, **more) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(4) if ids is None else ids
    values = []
    for _ in range(count):
        noised = noise(ids, MASK, block, generator, **more)
        cost = pattern_cost(tuple(int(row) % block for row in noised.rows))
        values.append(float(noised.weights[0]) * cost if len(noised.rows) else 0.0)
    return torch.tensor(values, dtype=torch.float64)


def test_blockwise_is_exact_at_four_tokens_a_block():
    size = 4
    by_count = sum(
        (size / len(p)) * pattern_cost(p) / (size * math.comb(size, len(p))) for p in patterns(size)
    )  # l uniform, then a uniform set of l tokens, weight B/l
    assert by_count == pytest.approx(enumerated(), rel=1e-12)
    values = draws_of(blockwise)
    assert abs(float(values.mean()) - enumerated()) < 4 * float(values.std()) / math.sqrt(len(values))


def test_blocks_add_up_and_a_short_last_block_keeps_its_own_size():
    values = draws_of(blockwise, ids=torch.arange(10))
    exact = 2 * enumerated(4) + enumerated(2)
    assert abs(float(values.mean()) - exact) < 4 * float(values.std()) / math.sqrt(len(values))


def test_block_diffusion_is_exact_on_the_grid_of_positions():
    """Places 3 to 8 lie in three blocks of four: the last token of one, all of another, the first of a third."""
    generator, ids, places = torch.Generator().manual_seed(0), torch.arange(20, 30), torch.arange(3, 9)
    values, seen = [], set()
    for _ in range(3000):
        noised = block_diffusion(ids, MASK, 4, generator, places)
        block = int(noised.rows[0]) // 4
        first = max(3, 4 * block)
        assert len(noised.ids) == min(4 * block + 4, 10) and torch.equal(noised.ids[:first], ids[:first])
        assert sorted(noised.rows.tolist()) == (noised.ids == MASK).nonzero()[:, 0].tolist()
        assert set((noised.rows // 4).tolist()) == {block} and set(noised.rows.tolist()) <= set(places.tolist())
        assert torch.equal(noised.targets, ids[noised.rows])
        values.append(float(noised.weights[0]) * pattern_cost(tuple(int(row) - first for row in noised.rows)))
        seen.add(block)
    exact = 2 * enumerated(1) + enumerated(4)
    assert seen == {0, 1, 2}
    assert abs(sum(values) / 3000 - exact) < 4 * float(torch.tensor(values).std()) / math.sqrt(3000)
    assert set(block_diffusion(ids, MASK, 4, generator, weighted=False).weights.tolist()) == {1.0}


def test_training_states_are_decoding_states():
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(5, 16)  # a prompt of 2 and blocks 4, 4, 1
    seen = set()
    for _ in range(60):
        noised = blockwise(ids, MASK, 4, generator, start=2)
        block = (int(noised.rows[0]) - 2) // 4
        first, last = 2 + 4 * block, min(6 + 4 * block, len(ids))
        assert torch.equal(noised.ids[:first], ids[:first])
        assert (noised.ids[last:] == MASK).all() and len(noised.ids) == len(ids)
        assert (noised.rows >= first).all() and (noised.rows < last).all()
        assert (noised.ids[noised.rows] == MASK).all() and torch.equal(noised.targets, ids[noised.rows])
        assert int((noised.ids[first:last] == MASK).sum()) == len(noised.rows)
        torch.testing.assert_close(
            noised.weights, torch.full((len(noised.rows),), 3 * (last - first) / len(noised.rows))
        )
        seen.add(block)
    assert seen == {0, 1, 2}


# The mask-agnostic loss


def test_noise_keeps_its_promises():
    generator = torch.Generator().manual_seed(0)
    draws = [draw_noise(3, 2, generator) for _ in range(3000)]
    assert all(0.2 <= d.p <= 0.8 and d.masked.any() and d.l1 != d.l2 for d in draws)
    pairs = [(d.l1, d.l2) for d in draws]
    for pair in itertools.permutations(range(3), 2):
        assert pairs.count(pair) / 3000 == pytest.approx(1 / 6, abs=0.03)
    # P(masked token | at least one) at p, averaged over p ~ U(.2, .8)
    grid = (torch.arange(1000) + 0.5) / 1000 * 0.6 + 0.2
    expected = float((grid / (1 - (1 - grid) ** 3)).mean())
    assert torch.stack([d.masked for d in draws]).double().mean().item() == pytest.approx(expected, abs=0.02)


def loss_as_written(model, pairs, draws, alpha, beta):
    """The specification's formulas on full log-probabilities from the plain door, and the mean over the pairs."""
    ces, tvs = [], []
    for (prompt, answer), draw in zip(pairs, draws, strict=True):
        noised = [model.mask_id if m else a for m, a in zip(draw.masked.tolist(), answer, strict=True)]
        rows = [len(prompt) + j for j, m in enumerate(draw.masked.tolist()) if m]
        truth = [answer[row - len(prompt)] for row in rows]
        inputs = [prompt + noised + [model.mask_id] * masks for masks in (draw.l1, draw.l2)]
        logs = [logits.double().log_softmax(1) for logits in model.predict(inputs, [rows, rows])]
        ce = sum(-log[range(len(rows)), truth].sum() for log in logs) / (2 * draw.p * len(rows))
        tv = draw.p / len(rows) * (logs[0].exp() - logs[1].exp()).abs().sum()
        ces.append(alpha * ce)
        tvs.append(beta * tv)
    return float(sum(ces) / len(pairs)), float(sum(tvs) / len(pairs))


PAIRS = [([5, 6, 7, 8], [9, 10, 11, 0]), ([12, 13], [14, 0]), ([20, 21, 22], [23, 24, 25, 26, 27, 0])]
DRAWS = [
    Draw(0.5, torch.tensor([True, False, True, False]), 0, 3),
    Draw(0.3, torch.tensor([False, True]), 5, 1),
    Draw(0.75, torch.tensor([True, True, True, False, True, True]), 2, 7),
]


def views_of(model, alpha=0.1, beta=10.0):
    return [
        mask_agnostic(torch.tensor(p), torch.tensor(a), draw, model.mask_id, alpha, beta)
        for (p, a), draw in zip(PAIRS, DRAWS, strict=True)
    ]


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 10.0), (1.0, 0.0), (0.0, 1.0)])
def test_the_loss_is_the_specification(make, alpha, beta):
    model = make()
    call = mask_agnostic_call(model, views_of(model, alpha, beta))
    loss, ce, tv = model(call.batch, call.index, call.loss)
    expected_ce, expected_tv = loss_as_written(model, PAIRS, DRAWS, alpha, beta)
    assert float(ce) == pytest.approx(expected_ce, rel=1e-5, abs=1e-9)
    assert float(tv) == pytest.approx(expected_tv, rel=1e-5, abs=1e-9)
    assert float(loss.detach()) == pytest.approx(expected_ce + expected_tv, rel=1e-5)


def test_one_branch_takes_the_gradient_of_the_first_view_alone():
    model = tiny_llada()
    embeddings = []
    for one_branch in (False, True):
        call = mask_agnostic_call(model, views_of(model), one_branch)
        embeds = model.embed(call.batch.ids).detach().requires_grad_()
        batch = type(call.batch)(None, embeds, call.batch.offsets, call.batch.starts, call.batch.longest)
        model(batch, call.index, call.loss).loss.backward()
        embeddings.append(embeds.grad)
    both, one = embeddings
    boundary = int(call.batch.offsets[len(PAIRS)])
    torch.testing.assert_close(one[:boundary], both[:boundary])
    assert torch.count_nonzero(one[boundary:]) == 0 and torch.count_nonzero(both[boundary:]) > 0


def adapted(model):
    """The model with an adapter that changes it, and itself before."""
    torch.manual_seed(1)
    before = copy.deepcopy(model)
    model.net = get_peft_model(model.core, LoraConfig(r=2, target_modules=model.lora_targets, init_lora_weights=False))
    return model, before


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
def test_the_anchored_loss_is_ce_and_the_divergence_from_the_untuned_model_without_masks(make):
    model, before = adapted(make())
    views = views_of(model, alpha=0.7, beta=2.0)
    call = anchored_call(model, model, views)
    loss, ce, kl = model(call.batch, call.index, call.loss)
    expected_ce = expected_kl = 0.0
    for view in views:
        with torch.no_grad():
            said, anchor = (
                one.predict([ids.tolist()], rows=[view.rows.tolist()])[0].double().log_softmax(-1)
                for one, ids in ((model, view.first), (before, view.second))
            )
        allowed = torch.arange(said.shape[1]) != model.mask_id
        said, anchor = (rows[:, allowed].log_softmax(-1) for rows in (said, anchor))
        own = view.targets - (view.targets > model.mask_id).long()
        expected_ce -= float((view.ce_weights * said.gather(1, own[:, None])[:, 0]).sum()) / len(views)
        expected_kl += float((view.tv_weights * (anchor.exp() * (anchor - said)).sum(1)).sum()) / len(views)
    assert float(ce) == pytest.approx(expected_ce, rel=1e-5)
    assert float(kl) == pytest.approx(expected_kl, rel=1e-4)
    assert float(loss.detach()) == pytest.approx(expected_ce + expected_kl, rel=1e-5)
    loss.backward()
    assert all(parameter.grad is not None for name, parameter in model.net.named_parameters() if "lora_" in name)


def test_an_adapter_that_does_nothing_yet_is_at_its_anchor_where_no_masks_are_appended():
    model = tiny_llada()
    model.net = get_peft_model(model.core, LoraConfig(r=2, target_modules=model.lora_targets))
    views = [replace(view, first=view.second) for view in views_of(model, alpha=0.0, beta=1.0)]
    call = anchored_call(model, model, views)
    loss, _, kl = model(call.batch, call.index, call.loss)
    loss.backward()
    assert float(kl) == pytest.approx(0, abs=1e-9)
    assert all(
        float(parameter.grad.abs().max()) < 1e-6 for parameter in model.net.parameters() if parameter.grad is not None
    )


def test_visible_padding_changes_lengths_and_nothing_else():
    model = tiny_llada()
    views = views_of(model)
    padded = pad_visibly(views, 0)
    assert {len(ids) for view in padded for ids in (view.first, view.second)} == {16}
    for before, after in zip(views, padded, strict=True):
        for short, long in ((before.first, after.first), (before.second, after.second)):
            assert torch.equal(long[: len(short)], short) and (long[len(short) :] == 0).all()
        assert before.rows is after.rows and before.targets is after.targets
