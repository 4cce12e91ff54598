"""Attention over blocks from causal attention and the rest of each block, against a loop over queries.

The causal part is a flash kernel on CUDA; here it is written out. Row l of benchmarks/ compares the whole there.
"""

import pytest
import torch

from maskwise.models.attention.block_attention import block_places, later_in_block, merged

SCALE = 0.3


def dense(q, k, v, seen):
    """q [T, H, D], k and v [T, G, D], seen(i, j): does query i see key j? -> [T, H, D] and [T, H], one at a time."""
    length, heads, _ = q.shape
    out, sums = torch.zeros_like(q), torch.full((length, heads), float("-inf"))
    for i in range(length):
        keys = [j for j in range(length) if seen(i, j)]
        for head in range(heads if keys else 0):
            group = head * k.shape[1] // heads
            scores = k[keys, group] @ q[i, head] * SCALE
            out[i, head], sums[i, head] = scores.softmax(0) @ v[keys, group], scores.logsumexp(0)
    return out, sums


def drawn(lengths, heads=4, groups=2, width=8, seed=0):
    torch.manual_seed(seed)
    total = sum(lengths)
    offsets = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    owner = [s for s, length in enumerate(lengths) for _ in range(length)]
    q, k, v = (torch.randn(total, count, width) for count in (heads, groups, groups))
    return q, k, v, offsets, owner


CASES = {
    "ragged": ([7, 4, 1, 9], [0, 0, 0, 0], 4),
    "spans that begin within a block": ([5, 6, 3], [3, 4, 9], 4),
    "an empty one": ([3, 0, 5], [0, 0, 2], 4),
    "blocks longer than all": ([3, 2], [0, 0], 32),
    "blocks of two": ([6, 5], [1, 0], 2),
}


@pytest.mark.parametrize(("lengths", "first", "size"), CASES.values(), ids=list(CASES))
def test_the_two_parts_are_attention_over_blocks(lengths, first, size):
    q, k, v, offsets, owner = drawn(lengths)
    position = [i - int(offsets[s]) + first[s] for i, s in enumerate(owner)]
    blocks = block_places(offsets, torch.tensor(first), size, len(q))
    assert len(set(blocks.places.tolist())) == len(q) and int(blocks.places.max()) < blocks.count * size

    def before(i, j):
        return owner[i] == owner[j] and position[j] <= position[i]

    def later(i, j):
        return owner[i] == owner[j] and position[j] > position[i] and position[i] // size == position[j] // size

    found, sums = later_in_block(q, k, v, blocks, SCALE)
    expected, expected_sums = dense(q, k, v, later)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(sums, expected_sums)
    whole = merged(*dense(q, k, v, before), found, sums)
    torch.testing.assert_close(whole, dense(q, k, v, lambda i, j: before(i, j) or later(i, j))[0])


def test_half_precision_stays_close():
    q, k, v, offsets, _ = drawn([16, 9], width=16)
    blocks = block_places(offsets, torch.zeros(2, dtype=torch.int64), 8, len(q))
    found, sums = later_in_block(*(x.to(torch.bfloat16) for x in (q, k, v)), blocks, SCALE)
    expected, expected_sums = later_in_block(q, k, v, blocks, SCALE)
    assert found.dtype == torch.bfloat16 and sums.dtype == torch.float32
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    torch.testing.assert_close(sums, expected_sums, rtol=0.05, atol=0.05)
