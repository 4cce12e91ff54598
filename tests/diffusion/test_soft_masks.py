"""Soft masks by their laws: training shows what decoding would, and gradients reach the embeddings of a mixture."""

from dataclasses import replace

import torch

from helpers.tiny import tiny_llada
from maskwise.decoding.canvas import SoftSheet
from maskwise.diffusion import SoftMask, nelbo, nelbo_call, soft_masks
from maskwise.models.checkpoints.opening import as_model

MASK = 63


def test_training_shows_the_soft_masks_that_decoding_would():
    model = as_model(tiny_llada().core, None, "tiny")
    ids = [torch.arange(1, 11), torch.arange(5, 12)]
    generator = torch.Generator().manual_seed(1)
    examples = [nelbo(one, MASK, generator) for one in ids]
    call = nelbo_call(model, examples)
    mixture = soft_masks(model, call, examples, [False, True], MASK, SoftMask(0.7, 3.0, -2.0))

    logits = model(call.batch, call.index)[len(examples[0].rows) :]
    places = 10 + examples[1].rows
    sheet = SoftSheet.blank(model, 17)
    sheet.mix(model, SoftMask(0.7, 3.0, -2.0), logits[None], places[None])
    shown = sheet.show(model, call.batch.ids, torch.arange(17))
    assert torch.equal(mixture.places, places)
    found = model._mixed(replace(call.batch, mixture=mixture), mixture).embeds
    torch.testing.assert_close(found, shown)
    assert not torch.allclose(found, model.embed(call.batch.ids))


def test_gradients_reach_the_embeddings_of_a_mixture():
    model = tiny_llada()
    examples = [nelbo(torch.arange(1, 11), MASK, torch.Generator().manual_seed(1))]
    call = nelbo_call(model, examples)
    mixture = soft_masks(model, call, examples, [True], MASK, SoftMask())
    model(replace(call.batch, mixture=mixture), call.index, call.loss).backward()
    gradient = model.core.get_input_embeddings().weight.grad
    assert all(bool(gradient[token].any()) for token in mixture.tokens.flatten().tolist())
