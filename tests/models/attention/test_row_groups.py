"""Groups of rows that see chosen keys, against dense attention with an explicit [T, T] mask."""

from dataclasses import replace

import pytest
import torch

from helpers.known import known_model, uniform
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada, tiny_llada_moe
from maskwise.models.attention.ragged import Layout, RowGroup, attend, grid_places, grouped_parts
from maskwise.models.batch import Batch
from maskwise.support.errors import UserError

FAMILIES = (tiny_llada, tiny_dream, tiny_llada_moe)


@torch.no_grad()
def dense_hidden(model, ids, mask):
    """Hidden states of one sequence with `mask` [T, T] added to the attention scores of every head and layer."""
    offsets = torch.tensor([0, len(ids)], dtype=torch.int32)
    layout = Layout(offsets, offsets, len(ids), len(ids), causal=False, flash=False, key_mask=mask[None, None])
    return model.core.model.run(model.embed(torch.tensor(ids)), torch.arange(len(ids)), layout)


def random_groups(length, draws):
    """Three groups of rows, each seeing keys of its own, and the [T, T] mask that says the same."""
    owner = torch.randint(3, (length,), generator=draws)
    mask = torch.full((length, length), -torch.inf)
    groups = []
    for number in range(3):
        rows = (owner == number).nonzero()[:, 0]
        keys = torch.randperm(length, generator=draws)[: 4 + number].sort().values
        bias = torch.randn(len(keys), generator=draws) if number == 2 else None
        mask[rows[:, None], keys] = 0.0 if bias is None else bias
        groups.append(RowGroup(rows, keys, bias))
    return [group for group in groups if len(group.rows)], mask


@pytest.mark.parametrize("make", FAMILIES)
def test_row_groups_equal_a_dense_mask(make):
    model, draws = make(), torch.Generator().manual_seed(1)
    lengths = (9, 14, 23)
    sequences = [torch.randint(60, (length,), generator=draws).tolist() for length in lengths]
    batch = Batch.pack(sequences)
    groups, wanted = [], []
    for ids, start in zip(sequences, batch.offsets.tolist(), strict=False):
        own, mask = random_groups(len(ids), draws)
        groups += [RowGroup(start + group.rows, start + group.keys, group.bias) for group in own]
        wanted.append(dense_hidden(model, ids, mask))
    found = model.hidden_of_groups(batch, groups)
    torch.testing.assert_close(found, torch.cat(wanted), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("make", FAMILIES)
def test_one_group_that_sees_everything_is_the_plain_pass(make):
    model = make()
    batch = Batch.pack([[5, 6, 7, 8, 9], [10, 63, 12]])
    groups = [RowGroup(torch.arange(0, 5), torch.arange(0, 5)), RowGroup(torch.arange(5, 8), torch.arange(5, 8))]
    with torch.no_grad():
        torch.testing.assert_close(model.hidden_of_groups(batch, groups), model.hidden(batch), atol=2e-5, rtol=2e-5)


def test_groups_of_flash_attention_are_sequences_of_one_ragged_call():
    """The layout that varlen flash attention is given, computed by padded SDPA instead."""
    draws = torch.Generator().manual_seed(2)
    q, k, v = torch.randn(3, 20, 4, 8, generator=draws)
    groups = [
        RowGroup(torch.tensor([3, 0, 7]), torch.arange(0, 9)),
        RowGroup(torch.tensor([11]), torch.arange(4, 20)),
        RowGroup(torch.tensor([1, 2]), torch.tensor([5]), torch.tensor([0.5])),
    ]
    ragged, biased = grouped_parts(groups, flash=True)
    assert ragged.layout.flash and not biased.layout.flash
    plan = ragged.layout
    exists = torch.arange(plan.longest_k) < plan.k_offsets.diff()[:, None]
    padded = replace(
        plan,
        flash=False,
        pad_q=grid_places(plan.q_offsets, plan.longest_q, len(ragged.rows)),
        pad_k=grid_places(plan.k_offsets, plan.longest_k, len(ragged.keys)),
        key_mask=exists[:, None, None, :],
    )
    found = attend(q[ragged.rows], k[ragged.keys], v[ragged.keys], padded, 0.3)
    wanted = []
    for group in groups[:2]:
        scores = torch.einsum("qhd,khd->hqk", q[group.rows], k[group.keys]) * 0.3
        wanted.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[group.keys]))
    torch.testing.assert_close(found, torch.cat(wanted))


def test_what_cannot_be_cut_is_refused():
    batch, everything = Batch.pack([[1, 2, 3]]), torch.arange(3)
    with pytest.raises(ValueError, match="exactly one group"):
        tiny_llada().hidden_of_groups(batch, [RowGroup(everything[:2], everything)])
    for model in (tiny_ar(), known_model(uniform)):
        with pytest.raises(UserError, match="cut in LLaDA, iLLaDA, LLaDA-MoE and Dream models only"):
            model.hidden_of_groups(batch, [RowGroup(everything, everything)])
