"""Objectives on a grid, by the laws of `nelbo` and `blockwise`: which tokens are masked, and what their weights say."""

import pytest
import torch

from dense_noise import blockwise_grid, nelbo_grid

MASK = 63


def test_plain_weights_estimate_the_mean_over_all_tokens():
    """1/t makes up for what is not masked: over draws, each token's weight has mean 1/(B L), whatever its row's t."""
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 50, (16, 64), generator=draws)
    drawn = [nelbo_grid(ids, MASK, draws) for _ in range(400)]
    for masked, weights in drawn[:20]:
        assert ((weights > 0) == (masked == MASK)).all()
        assert (masked[masked != MASK] == ids[masked != MASK]).all()
        in_row = weights.amax(1, keepdim=True)
        assert ((weights == 0) | (weights == in_row)).all()  # one t for a row
    share = torch.stack([(masked == MASK).float().mean(1) for masked, _ in drawn])
    assert share.mean().item() == pytest.approx(0.5, abs=0.01)
    assert torch.histc(share, 4, 0, 1).div(share.numel()).sub(0.25).abs().max() < 0.03  # t is uniform
    total = torch.stack([weights.sum() for _, weights in drawn])
    assert total.mean().item() == pytest.approx(1, abs=0.05)


def test_blockwise_rows_have_a_clean_prefix_one_noised_block_and_masks_after_it():
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 50, (12, 16), generator=draws)
    drawn = [blockwise_grid(ids, MASK, 4, draws) for _ in range(600)]
    amounts, chosen = [], []
    for noised, weights in drawn[:100]:
        for row in range(12):
            carrying = weights[row].nonzero()[:, 0]
            block = int(carrying[0]) // 4
            amounts.append(len(carrying))
            chosen.append(block)
            masked = (noised[row] == MASK).nonzero()[:, 0].tolist()
            assert masked == [*carrying.tolist(), *range(4 * block + 4, 16)]
            assert torch.equal(noised[row][noised[row] != MASK], ids[row][noised[row] != MASK])
            assert weights[row][carrying].tolist() == pytest.approx(
                [4 * 4 / len(carrying) / ids.numel()] * len(carrying)
            )
    for values, kinds in ((amounts, range(1, 5)), (chosen, range(4))):
        shares = torch.tensor([values.count(kind) / len(values) for kind in kinds])
        assert float((shares - 0.25).abs().max()) < 0.05
    mean = torch.stack([weights for _, weights in drawn]).mean(0)  # every token's weight is 1 / (B L) on average
    assert float(mean.sum()) == pytest.approx(1, abs=1e-3)
    assert float((mean.mean(0) * ids.numel() - 1).abs().max()) < 0.15


def test_blocks_in_order_have_their_last_tokens_masked():
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 50, (12, 16), generator=draws)
    drawn = [blockwise_grid(ids, MASK, 4, draws, in_order=True) for _ in range(200)]
    for noised, weights in drawn:
        asked = weights > 0
        first = asked.float().argmax(1)
        assert torch.equal(noised == MASK, torch.arange(16) >= first[:, None])  # nothing visible after the first mask
        assert torch.equal(asked.sum(1), 4 - first % 4)  # the masks of the first one's block
    assert float(torch.stack([weights for _, weights in drawn]).mean(0).sum()) == pytest.approx(1, abs=1e-3)


def test_a_block_must_divide_the_row():
    with pytest.raises(ValueError, match="no whole number"):
        blockwise_grid(torch.zeros(2, 10, dtype=torch.int64), MASK, 4, torch.Generator())
