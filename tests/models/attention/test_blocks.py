"""Attention over blocks: against dense scores, in ragged batches, and at its two ends, causal and bidirectional."""

from dataclasses import replace

import pytest
import torch

from helpers.tiny import qwen_net, tiny_ar, tiny_dream, tiny_illada, tiny_llada, tiny_llada_moe
from maskwise.models.attention.ragged import attend
from maskwise.models.batch import Batch
from maskwise.support.errors import UserError


def dense(q, k, v, lengths, block, scale):
    """Scores of every query and key of a sequence, those after the query's block at minus infinity."""
    out, start = [], 0
    for length in lengths:
        rows = slice(start, start + length)
        keys, values = (x[rows].repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[rows], keys) * scale
        for query in range(length):
            scores[:, query, (query // block + 1) * block :] = -torch.inf
        out.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
        start += length
    return torch.cat(out)


@pytest.mark.parametrize("block", [1, 3, 4, 100])
@pytest.mark.parametrize("lengths", [(7, 7), (10, 3, 6)])
def test_a_query_sees_its_own_block_and_those_before(block, lengths):
    torch.manual_seed(0)
    total = sum(lengths)
    q, k, v = torch.randn(total, 4, 8), torch.randn(total, 2, 8), torch.randn(total, 2, 8)
    batch = replace(Batch.pack([[1] * length for length in lengths]), block=block)
    layout = tiny_llada()._layout(batch, None)
    torch.testing.assert_close(attend(q, k, v, layout, 0.3), dense(q, k, v, lengths, block, 0.3))


def test_blocks_of_one_are_the_autoregressive_model():
    causal, wide = tiny_ar(), tiny_dream(rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    wide.core.load_state_dict(qwen_net().state_dict())
    batch = Batch.pack([list(range(1, 12)), list(range(20, 25))])
    torch.testing.assert_close(wide.hidden(replace(batch, block=1)), causal.hidden(batch), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [tiny_llada, tiny_illada, tiny_llada_moe, tiny_dream])
def test_one_block_is_bidirectional_and_batches_change_nothing(make):
    model = make()
    sequences = [list(range(1, 12)), list(range(20, 25)), list(range(30, 39))]
    batch = Batch.pack(sequences)
    torch.testing.assert_close(model.hidden(replace(batch, block=11)), model.hidden(batch), rtol=1e-4, atol=1e-4)
    together = model.hidden(replace(batch, block=4)).split([len(one) for one in sequences])
    for sequence, rows in zip(sequences, together, strict=True):
        alone = model.hidden(replace(Batch.pack([sequence]), block=4))
        torch.testing.assert_close(rows, alone, rtol=1e-4, atol=1e-4)


def test_a_causal_model_takes_no_blocks():
    with pytest.raises(UserError, match="over blocks is for LLaDA, iLLaDA, LLaDA-MoE and Dream models"):
        tiny_ar().hidden(replace(Batch.pack([[1, 2, 3]]), block=2))
