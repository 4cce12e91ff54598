"""One row of each sequence, with a last layer that computes no other: the same as that row of the whole pass."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from helpers.tiny import (
    tiny_ar,
    tiny_dream,
    tiny_fast_dllm,
    tiny_llada,
    tiny_llada2,
    tiny_llada_moe,
    tiny_sdar,
)
from maskwise.models.attention.stored_weights import KeptAttention
from maskwise.models.batch import Batch

SKIP = (tiny_llada, tiny_dream)
WHOLE = (tiny_ar, tiny_fast_dllm, tiny_sdar, tiny_llada_moe, tiny_llada2)
RAGGED = [[5, 9, 63, 3, 8, 7, 6], [7, 63], [1, 2, 3, 63, 63, 8]]
EVEN = [[5, 9, 63, 3], [7, 63, 2, 1]]


def asked(model, sequences):
    """The batch as embeddings that want gradients, and one row of each sequence."""
    batch = Batch.pack(sequences)
    index = model.flat_rows(batch, [[len(ids) // 2] for ids in sequences])
    embeds = model.embed(batch.ids).detach().requires_grad_()
    return replace(batch, ids=None, embeds=embeds), index


@pytest.mark.parametrize("sequences", [RAGGED, EVEN, EVEN[:1]])
@pytest.mark.parametrize("make", [*SKIP, *WHOLE])
def test_rows_attention_and_gradients_are_those_of_the_whole_pass(make, sequences):
    model = make()
    batch, index = asked(model, sequences)
    plain = model.hidden(batch)[index]
    wanted = model.attention(batch, [[len(ids) // 2] for ids in sequences])
    found, seen = model.asked_rows_and_attention(batch, index)
    torch.testing.assert_close(found, plain, atol=2e-6, rtol=2e-5)
    for ours, theirs in zip(seen, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    weight = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1))
    (ours,) = torch.autograd.grad((found * weight).sum(), batch.embeds)
    (theirs,) = torch.autograd.grad((plain * weight).sum(), batch.embeds)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("make", [*SKIP, *WHOLE])
def test_the_last_layer_computes_the_asked_rows_alone_where_it_can(make):
    model, shapes = make(), []
    batch, index = asked(model, RAGGED)
    body = model.core.base_model
    last = body.transformer["blocks"][-1] if hasattr(body, "transformer") else body.layers[-1]
    last.register_forward_hook(lambda module, given, out: shapes.append(out.shape[-2]))
    model.asked_rows(batch, index)
    assert shapes == [3 if make in SKIP else batch.tokens]


@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (1, 9), (40, 40)])
def test_attention_that_keeps_its_weights_equals_torchs(queries, keys):
    draws = torch.Generator().manual_seed(0)
    q, k, v, weight = (torch.randn(6, n, 16, generator=draws) for n in (queries, keys, keys, queries))
    given = tuple(x.requires_grad_() for x in (q, k, v))
    found = KeptAttention.apply(*given, 0.3)
    wanted = F.scaled_dot_product_attention(*(x[None] for x in given), scale=0.3)[0]
    torch.testing.assert_close(found, wanted)
    ours = torch.autograd.grad((found * weight).sum(), given)
    theirs = torch.autograd.grad((wanted * weight).sum(), given)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_its_gradients_are_those_of_finite_differences():
    draws = torch.Generator().manual_seed(0)
    given = tuple(torch.randn(2, n, 4, generator=draws, dtype=torch.float64).requires_grad_() for n in (3, 5, 5))
    assert torch.autograd.gradcheck(lambda q, k, v: KeptAttention.apply(q, k, v, 0.5), given)
