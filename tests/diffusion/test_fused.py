"""The fused head + CE + TV against float64 autograd on full logits."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from maskwise.diffusion import compare_views, linear_ce, linear_ce_tv, linear_kl
from maskwise.support.errors import UserError

ROWS, WIDTH, VOCAB, MASK = 24, 32, 501, 17
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def case(seed: int = 0, size: float | None = None, apart: float | None = None):
    """h1, h2, weight, targets, ce_weights, tv_weights; logits up to `size`, views `apart` from each other."""
    g = torch.Generator().manual_seed(seed)
    h1, other = torch.randn(ROWS, WIDTH, generator=g), torch.randn(ROWS, WIDTH, generator=g)
    h2 = other if apart is None else h1 + apart * other
    weight = torch.randn(VOCAB, WIDTH, generator=g) / WIDTH**0.5
    if size is not None:
        scale = size / (h1 @ weight.T).abs().max()
        h1, h2 = h1 * scale, h2 * scale
    targets = torch.randint(MASK + 1, VOCAB, (ROWS,), generator=g)
    return h1, h2, weight, targets, torch.rand(ROWS, generator=g), torch.rand(ROWS, generator=g)


def dense(h1, h2, weight, targets, ce_weights, tv_weights, mask_id):
    """The definition, on whole logits in float64, and the gradients of h1, h2 and weight by autograd."""
    h1, h2, weight = (x.detach().double().requires_grad_() for x in (h1, h2, weight))
    forbidden = torch.arange(len(weight)) == (-1 if mask_id is None else mask_id)
    log1, log2 = ((h @ weight.T).masked_fill(forbidden, -torch.inf).log_softmax(1) for h in (h1, h2))
    picked = [log[torch.arange(len(targets)), targets] for log in (log1, log2)]
    ce = (ce_weights.double() * -(picked[0] + picked[1]) / 2).sum()
    tv = (tv_weights.double() * (log1.exp() - log2.exp()).abs().sum(1)).sum()
    (ce + tv).backward()
    return (ce + tv, ce, tv), (h1.grad, h2.grad, weight.grad)


def relative(value, reference) -> float:
    value, reference = value.detach().cpu().double(), reference.detach().cpu()
    return float((value - reference).abs().max() / reference.abs().max())


@pytest.mark.parametrize("mask_id", [None, MASK])
@pytest.mark.parametrize("chunk", [None, 1, 7, 1000])
@pytest.mark.parametrize(
    ("size", "apart", "tolerance"),
    [(None, None, 2e-5), (300, None, 1e-4), (None, 1e-3, 2e-5), (None, 1e-5, 2e-5), (300, 1e-3, 1e-4)],
)
def test_values_and_gradients_are_those_of_float64_autograd(size, apart, tolerance, chunk, mask_id):
    inputs = case(1, size, apart)
    values, gradients = dense(*inputs, mask_id)
    leaves = [x.clone().requires_grad_() for x in inputs[:3]]
    result = linear_ce_tv(*leaves, *inputs[3:], mask_id=mask_id, chunk=chunk)
    result.loss.backward()
    assert not result.ce.requires_grad and not result.tv.requires_grad
    for got, wanted in zip(result, values, strict=True):
        assert relative(got, wanted) < 1e-6
    for leaf, wanted in zip(leaves, gradients, strict=True):
        assert relative(leaf.grad, wanted) < tolerance


def test_the_closed_forms_are_the_slopes_in_every_direction():
    h1, h2, weight, targets, ce_weights, tv_weights = case(2)
    places = [h1[:4, :5].double(), h2[:4, :5].double(), weight[:12, :5].double()]

    def loss(*inputs):
        return linear_ce_tv(*inputs, targets[:4] % 12, ce_weights[:4], tv_weights[:4], chunk=3).loss

    leaves = [place.clone().requires_grad_() for place in places]
    loss(*leaves).backward()
    for number, place in enumerate(places):
        for entry in range(place.numel()):  # one input moved a little up and down, the others where they are
            moved = [torch.zeros_like(place) for place in places]
            moved[number].view(-1)[entry] = 1e-6
            up, down = (loss(*(p + sign * m for p, m in zip(places, moved, strict=True))) for sign in (1, -1))
            assert abs(float(up - down) / 2e-6 - float(leaves[number].grad.view(-1)[entry])) < 1e-6


def test_equal_views_have_no_variation_and_no_variation_gradient():
    h, _, weight, targets, _, tv_weights = case(3)
    h1, h2, weight = (x.clone().requires_grad_() for x in (h, h, weight))
    result = linear_ce_tv(h1, h2, weight, targets, torch.zeros(ROWS), tv_weights, MASK, chunk=5)
    result.loss.backward()
    assert float(result.tv) == 0.0
    for leaf in (h1, h2, weight):
        assert torch.count_nonzero(leaf.grad) == 0


def test_the_gradient_is_scaled_by_what_follows_and_given_out_once():
    inputs = case(4)
    whole, fifth = ([x.clone().requires_grad_() for x in inputs[:3]] for _ in range(2))
    linear_ce_tv(*whole, *inputs[3:]).loss.backward()
    loss = linear_ce_tv(*fifth, *inputs[3:]).loss
    (loss / 5).backward(retain_graph=True)
    for a, b in zip(whole, fifth, strict=True):
        torch.testing.assert_close(a.grad / 5, b.grad)
    with pytest.raises(RuntimeError, match="backward once"):
        loss.backward()


def test_sign_of_zero_is_zero():
    """Mirrored logits (1, 0, -1) and (-1, 0, 1): the middle token has exactly the same probability in both views."""
    weight = torch.tensor([[1.0], [0.0], [-1.0]])
    h1, h2 = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[-1.0]], requires_grad=True)
    linear_ce_tv(h1, h2, weight, torch.tensor([0]), torch.zeros(1), torch.ones(1)).loss.backward()
    p = torch.softmax(weight[:, 0].double(), 0)
    sign = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
    expected = (p * (sign - (sign * p).sum()) * weight[:, 0].double()).sum()
    torch.testing.assert_close(h1.grad.double(), expected.view(1, 1), rtol=1e-6, atol=1e-7)


def test_the_mask_column_gets_no_probability_and_no_gradient():
    inputs = case(4)
    leaves = [x.clone().requires_grad_() for x in inputs[:3]]
    linear_ce_tv(*leaves, *inputs[3:], mask_id=MASK).loss.backward()
    assert torch.count_nonzero(leaves[2].grad[MASK]) == 0
    louder = inputs[2].clone()
    louder[MASK] += 100
    values = [linear_ce_tv(*inputs[:2], weight, *inputs[3:], mask_id=MASK) for weight in (inputs[2], louder)]
    assert all(torch.equal(a, b) for a, b in zip(*values, strict=True))


def test_a_frozen_head_gets_no_gradient_and_none_is_computed():
    h1, h2, weight, *rest = case(5)
    _, gradients = dense(h1, h2, weight, *rest, None)
    h1 = h1.clone().requires_grad_()
    with Products() as frozen:
        loss = linear_ce_tv(h1, h2, weight, *rest, chunk=4).loss
        (3 * loss).backward()
    assert weight.grad is None
    assert relative(h1.grad, 3 * gradients[0]) < 2e-5
    with Products() as evaluated, torch.no_grad():
        linear_ce_tv(h1, h2, weight.clone().requires_grad_(), *rest, chunk=4)
    assert (frozen.count, evaluated.count) == (2 * ROWS / 4, ROWS / 4)
    with Products() as trained:
        linear_ce_tv(h1, h2, weight.clone().requires_grad_(), *rest, chunk=4).loss.backward()
    assert trained.count == 3 * ROWS / 4


class Products(TorchDispatchMode):
    """Counts matrix products: logits are made once a chunk, then one product for each gradient that is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket is torch.ops.aten.mm
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_is_summed_in_float32(dtype, device):
    """Against float64 on the same rounded inputs: values are float32's, gradients carry one rounding to half."""
    h1, h2, weight, *rest = case(6)
    halves = [x.to(dtype) for x in (h1, h2, weight)]
    values, gradients = dense(*halves, *rest, MASK)
    leaves = [x.to(device).requires_grad_() for x in halves]
    result = linear_ce_tv(*leaves, *(x.to(device) for x in rest), mask_id=MASK)
    result.loss.backward()
    assert all(part.dtype == torch.float32 for part in result)
    for got, wanted in zip(result, values, strict=True):
        assert relative(got, wanted) < 1e-5
    for leaf, wanted in zip(leaves, gradients, strict=True):
        assert leaf.grad.dtype == dtype
        assert relative(leaf.grad, wanted) < 1e-2


def test_autocast_does_not_round_the_products():
    inputs = case(7)
    leaves = [x.clone().requires_grad_() for x in inputs[:3]]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = linear_ce_tv(*leaves, *inputs[3:])
    result.loss.backward()
    values, gradients = dense(*inputs, None)
    assert relative(result.loss, values[0]) < 1e-6
    assert relative(leaves[0].grad, gradients[0]) < 2e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="rounds on CUDA alone: needs a CUDA device")
def test_autocast_on_cuda_rounds_the_factors_of_one_view_and_not_of_two():
    h, _, weight, targets, weights, _ = (x.cuda() for x in case(7))
    leaves = [x.clone().requires_grad_() for x in (h, weight)]
    wide = [x.bfloat16().double().requires_grad_() for x in (h, weight)]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = linear_ce(*leaves, targets, weights)
        exact = linear_ce_tv(*(x.cuda() for x in case(7))).loss
    loss.backward()
    rows = torch.nn.functional.cross_entropy(wide[0] @ wide[1].T, targets, reduction="none")
    (weights.double() * rows).sum().backward()
    assert relative(loss, (weights.double() * rows).sum()) < 1e-5
    for leaf, wanted in zip(leaves, wide, strict=True):
        assert leaf.grad.dtype == torch.float32 and relative(leaf.grad, wanted.grad) < 1e-2
    assert relative(exact, dense(*case(7), None)[0][0]) < 1e-5


def test_one_view_is_plain_cross_entropy():
    h, _, weight, targets, weights, _ = case(8)
    leaves = [x.clone().requires_grad_() for x in (h, weight)]
    linear_ce(*leaves, targets, weights, mask_id=None, chunk=5).backward()
    wide = [x.double().requires_grad_() for x in (h, weight)]
    rows = torch.nn.functional.cross_entropy(wide[0] @ wide[1].T, targets, reduction="none")
    (weights.double() * rows).sum().backward()
    assert relative(linear_ce(h, weight, targets, weights), (weights.double() * rows).sum()) < 1e-6
    for leaf, wanted in zip(leaves, wide, strict=True):
        assert relative(leaf.grad, wanted.grad) < 2e-5


def test_view_scores_are_the_parts_of_the_loss():
    h1, h2, weight, targets, ce_weights, tv_weights = case(9)
    scores = compare_views(h1, h2, weight, targets, MASK, chunk=7)
    result = linear_ce_tv(h1, h2, weight, targets, ce_weights, tv_weights, MASK)
    assert relative(result.ce, (ce_weights.double() * (scores.ce1 + scores.ce2) / 2).sum()) < 1e-6
    assert relative(result.tv, (tv_weights.double() * scores.tv).sum()) < 1e-6
    logits = (h1 @ weight.T).index_fill(1, torch.tensor([MASK]), -torch.inf)
    assert torch.equal(scores.hit1, logits.argmax(1) == targets)
    assert len(compare_views(h1[:0], h2[:0], weight, targets[:0]).tv) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compare_views(h1, h2, weight, targets, MASK, chunk=7).tv, scores.tv)


def test_rows_that_no_chunk_would_visit_are_refused():
    h, weight, targets, weights = torch.randn(4, 8), torch.randn(9, 8), torch.zeros(4, dtype=torch.long), torch.ones(4)
    for chunk in (0, -1):
        with pytest.raises(UserError, match="holds no row"):
            linear_ce_tv(h, h, weight, targets, weights, weights, chunk=chunk)
    with pytest.raises(UserError, match="3 targets, but 4, 4, 3, 3 rows"):
        linear_ce_tv(h, h, weight, targets[:3], weights[:3], weights[:3])
    with pytest.raises(UserError, match="4 targets, but 4, 1 rows"):
        linear_ce(h, weight, targets, weights[:1])


def test_no_rows_is_a_loss_of_zero():
    h1, h2, weight, *rest = case(10)
    h1 = h1[:0].requires_grad_()
    result = linear_ce_tv(h1, h2[:0], weight, *(x[:0] for x in rest))
    result.loss.backward()
    assert float(result.loss.detach()) == 0.0 and h1.grad.shape == (0, WIDTH)


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that operators made and nobody has dropped yet, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in known:
                storage = tensor.untyped_storage()
                self.live[id(storage)] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, id(storage), None)
        self.peak = max(self.peak, sum(self.live.values()))
        return result


def peak_bytes(rows: int, chunk: int | None, vocab: int = 8000, width: int = 4) -> int:
    """Peak of what the forward and backward passes hold beyond the inputs and their gradients."""
    g = torch.Generator().manual_seed(0)
    h1, h2 = (torch.randn(rows, width, generator=g).requires_grad_() for _ in range(2))
    weight, targets, weights = torch.randn(vocab, width, generator=g), torch.zeros(rows).long(), torch.ones(rows)
    with LiveBytes() as meter:
        linear_ce_tv(h1, h2, weight, targets, weights, weights, chunk=chunk).loss.backward()
    return meter.peak


def test_memory_follows_the_chunk_and_not_the_rows():
    few, many = peak_bytes(32, 16), peak_bytes(512, 16)
    per_row = 4 * 4 * 2 * 2 + 64  # gradients of both views, saved and handed out, and a few numbers a row
    assert many - few < 480 * per_row
    assert peak_bytes(512, 64) > 3 * many
    full_logits = 2 * 512 * 8000 * 8
    assert many < full_logits / 8


def test_the_default_chunk_keeps_the_logits_within_the_budget():
    assert peak_bytes(300, None, vocab=60_000, width=1) < 4 * (64 << 20)


@pytest.mark.parametrize("chunk", [None, 2])
def test_the_divergence_from_an_anchor_is_the_plain_one(chunk):
    torch.manual_seed(0)
    h, weight = torch.randn(5, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    anchor_h, anchor_weight, weights = torch.randn(5, 6), torch.randn(20, 6), torch.rand(5)
    found = 2 * linear_kl(h, weight, anchor_h, anchor_weight, weights, 4, chunk)
    found_grads = torch.autograd.grad(found, (h, weight))

    keep = [token for token in range(20) if token != 4]
    log_q, log_p = ((x @ w.t())[:, keep].log_softmax(-1) for x, w in ((anchor_h, anchor_weight), (h, weight)))
    plain = 2 * (weights[:, None] * log_q.exp() * (log_q - log_p)).sum()
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
    for one, other in zip(found_grads, torch.autograd.grad(plain, (h, weight)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
