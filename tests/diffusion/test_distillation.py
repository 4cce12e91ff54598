"""Distillation and soft masks by their laws: the divergence as written, which rows are taught, what a teacher says."""

from dataclasses import replace

import pytest
import torch

from helpers.tiny import qwen_net, tiny_ar, tiny_dream, tiny_llada
from maskwise.decoding.canvas import SoftSheet
from maskwise.diffusion import (
    Noised,
    SoftMask,
    blockwise,
    linear_ce,
    linear_kl,
    nelbo,
    nelbo_call,
    soft_masks,
    taught_rows,
    teach,
)
from maskwise.models.checkpoints.opening import as_model
from maskwise.support.errors import UserError

MASK = 63


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("fewer", [0, 3])
def test_the_fused_divergence_is_the_plain_one(chunk, fewer):
    torch.manual_seed(0)
    h, weight = torch.randn(5, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    teacher_h, teacher_weight, weights = torch.randn(5, 6), torch.randn(20 - fewer, 6), torch.rand(5)
    mask_id = 4
    found = 2 * linear_kl(h, weight, teacher_h, teacher_weight, weights, mask_id, chunk)
    found_grads = torch.autograd.grad(found, (h, weight))

    keep = [token for token in range(20) if token != mask_id]
    theirs = torch.cat([teacher_h @ teacher_weight.t(), torch.full((5, fewer), -torch.inf)], dim=1)[:, keep]
    q, log_p = theirs.softmax(-1), (h @ weight.t())[:, keep].log_softmax(-1)
    plain = 2 * (weights[:, None] * torch.where(q > 0, q * (q.log() - log_p), 0.0)).sum()
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
    for one, other in zip(found_grads, torch.autograd.grad(plain, (h, weight)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_teacher_with_more_tokens_is_refused():
    with pytest.raises(UserError, match="another teacher"):
        linear_kl(torch.zeros(1, 2), torch.zeros(3, 2), torch.zeros(1, 2), torch.zeros(4, 2), torch.ones(1))


def test_taught_rows_have_nothing_visible_to_their_right():
    ids = torch.arange(10)
    rows = torch.tensor([2, 5, 8, 9])
    noised = ids.clone()
    noised[rows] = MASK
    assert taught_rows(Noised(noised, rows, ids[rows], torch.ones(4)), MASK).tolist() == [False, False, True, True]
    rows = torch.tensor([2, 5])
    noised = ids.clone()
    noised[rows] = MASK
    assert not taught_rows(Noised(noised, rows, ids[rows], torch.ones(2)), MASK).any()
    generator = torch.Generator().manual_seed(0)
    last = blockwise(ids, MASK, 5, generator, which=0)  # all after the block is masked, so a block's end is taught
    visible = (last.ids != MASK).nonzero()[:, 0]
    assert (
        taught_rows(last, MASK).tolist() == (last.rows > int(visible[-1]) if len(visible) else last.rows >= 0).tolist()
    )


def same_weights():
    """An autoregressive model, and the Dream with its weights, whose mask no text contains."""
    teacher = tiny_ar()
    student = tiny_dream(mask_token_id=MASK, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    student.core.load_state_dict(qwen_net().state_dict())
    return teacher, student


def test_a_causal_student_with_the_teachers_weights_has_nothing_to_learn_after_a_clean_prefix():
    teacher, student = same_weights()
    clean = [torch.arange(1, 9), torch.arange(20, 32)]
    examples = []
    for ids in clean:
        noised = ids.clone()
        noised[-1] = MASK
        examples.append(Noised(noised, torch.tensor([len(ids) - 1]), ids[-1:], torch.ones(1)))
    taught = teach(teacher, clean, examples, MASK)
    assert taught.rows.tolist() == [0, 1]
    call = nelbo_call(student, examples, block=1, taught=taught)
    assert student(call.batch, call.index, call.loss).item() == pytest.approx(0.0, abs=1e-6)
    wide = nelbo_call(student, examples, taught=taught)  # with bidirectional attention it is another model
    assert student(wide.batch, wide.index, wide.loss).item() > 0.01


def test_rows_with_something_visible_to_their_right_learn_the_clean_token():
    teacher, student = same_weights()
    ids, rows = torch.arange(1, 13), torch.tensor([2, 5, 10, 11])
    example = Noised(ids.index_fill(0, rows, MASK), rows, ids[rows], torch.tensor([0.5, 1.0, 2.0, 1.5]))
    taught = teach(teacher, [ids], [example], MASK)
    flags = taught_rows(example, MASK)
    assert flags.tolist() == [False, False, True, True]
    call = nelbo_call(student, [example], taught=taught)
    found = student(call.batch, call.index, call.loss)
    hidden = student.hidden(call.batch)[call.index]
    divergence = linear_kl(
        hidden[flags], student.head_weight, taught.hidden, teacher.head_weight, example.weights[flags], MASK
    )
    others = linear_ce(hidden[~flags], student.head_weight, example.targets[~flags], example.weights[~flags], MASK)
    torch.testing.assert_close(found, divergence + others)


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
