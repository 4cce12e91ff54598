"""Grouped products over all experts: the same as a sum token by token, and weights that stay what they were."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

import maskwise as mw
from helpers.references import gated_mlp
from helpers.tiny import llada2_net, llada_moe_net, sdar_moe_net, tiny_llada2, tiny_llada_moe, tiny_sdar_moe
from maskwise.models.batch import Batch
from maskwise.models.families.experts import Experts
from maskwise.models.families.layers import GatedMLP
from maskwise.models.families.packing import columnwise_products
from maskwise.probes.answers.gradients import embedding_gradients
from maskwise.tasks.prompts import Prompt

NETS = [llada_moe_net, sdar_moe_net, llada2_net]
RAGGED = [[5, 9, 63, 3], [7, 63], [1, 2, 3, 63, 63, 8, 4, 4, 9]]
WIDTH, INNER, COUNT = 16, 24, 5


class Given(nn.Module):
    """A router that chooses what the test sets."""

    def __init__(self, share, chosen):
        super().__init__()
        self.share, self.chosen = share, chosen

    def forward(self, x):
        return self.share, self.chosen


def experts(chosen, seed=0, share_type=torch.float32):
    torch.manual_seed(seed)
    chosen = torch.tensor(chosen)
    share = torch.rand(chosen.shape).to(share_type).requires_grad_()
    module = Experts(Given(share, chosen), [GatedMLP(WIDTH, INNER) for _ in range(COUNT)])
    return module.requires_grad_(False), torch.randn(len(chosen), WIDTH, requires_grad=True)


def token_by_token(module, x):
    """[T, d] -> [T, d]: the sum over each token's experts, one at a time."""
    share, chosen = module.gate(x)
    state = module.state_dict()
    return torch.stack(
        [
            sum(
                share[t, n] * gated_mlp(state, f"experts.{expert}", token)
                for n, expert in enumerate(chosen[t].tolist())
            )
            for t, token in enumerate(x)
        ]
    )


CHOICES = {
    "mixed": [[0, 3], [3, 1], [4, 0], [1, 3], [3, 4], [0, 1], [3, 0]],  # nobody asks expert 2
    "one token": [[4, 2]],
    "all tokens to one expert": [[2]] * 6,
    "first and last expert": [[0], [4], [0]],
}


@pytest.mark.parametrize("chosen", CHOICES.values(), ids=list(CHOICES))
def test_outputs_and_gradients_are_those_of_a_sum_token_by_token(chosen):
    module, x = experts(chosen)
    module.lay_out()
    assert module.grouped is not None
    out, expected = module(x), token_by_token(module, x)
    torch.testing.assert_close(out, expected)
    up = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    wanted = (x, module.gate.share)
    for ours, reference in zip(
        torch.autograd.grad(out, wanted, up), torch.autograd.grad(expected, wanted, up), strict=True
    ):
        torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_the_grouped_product_is_the_loop(dtype):
    module, x = experts(CHOICES["mixed"])
    module, x = module.to(dtype), x.to(dtype)
    assert module.grouped is None
    loop = module(x)
    module.lay_out()
    assert module.grouped is not None and module.grouped[0].dtype == dtype
    torch.testing.assert_close(module(x), loop, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


def test_weights_that_learn_have_their_own_gradients():
    module, x = experts(CHOICES["mixed"])
    module.lay_out()
    module.requires_grad_(True)
    module.lay_out()
    assert module.grouped is None
    module(x).square().sum().backward()
    weights = list(module.experts.parameters())
    ours = [weight.grad.clone() for weight in weights]
    reference = copy.deepcopy(module)
    loss = 0
    share, chosen = module.gate(x)
    for t, row in enumerate(chosen.tolist()):
        loss = loss + sum(share[t, n] * reference.experts[e](x[t]) for n, e in enumerate(row)).square().sum()
    theirs = torch.autograd.grad(loss, list(reference.experts.parameters()), allow_unused=True)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if other is None else other)
    with torch.no_grad():  # what is not learnt from takes the grouped product again
        module.lay_out()
        assert module.grouped is not None


@pytest.mark.parametrize("make", NETS)
@torch.no_grad()
def test_names_and_values_stay_and_weights_move_once(make):
    net = make()
    before = {name: weight.clone() for name, weight in net.state_dict().items()}
    ids = torch.arange(10)[None]
    net(ids)
    mixtures = [module for module in net.modules() if isinstance(module, Experts)]
    where = [[stack.data_ptr() for stack in module.stacks] for module in mixtures]
    net(ids)
    assert where == [[stack.data_ptr() for stack in module.stacks] for module in mixtures] and where
    after = net.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    for module in mixtures:  # one piece of memory each: no second copy
        first, last = module.experts[0], module.experts[-1]
        assert first.gate_proj.weight.untyped_storage().data_ptr() == last.up_proj.weight.untyped_storage().data_ptr()
        assert first.down_proj.weight.untyped_storage().data_ptr() == module.stacks[1].untyped_storage().data_ptr()


def changed_in_place(module):
    module.experts[1].up_proj.weight.mul_(2)


def put_in_its_place(module):
    module.experts[1].up_proj.weight = nn.Parameter(module.experts[1].up_proj.weight * 2, requires_grad=False)


def other_data(module):
    module.experts[1].up_proj.weight.data = module.experts[1].up_proj.weight * 2


def loaded(module):
    state = module.state_dict()
    module.load_state_dict(state | {"experts.1.up_proj.weight": state["experts.1.up_proj.weight"] * 2}, assign=True)


def hooked(module):
    module.experts[1].up_proj.register_forward_hook(lambda map_, given, out: out * 2)


@pytest.mark.parametrize("change", [changed_in_place, put_in_its_place, other_data, loaded, hooked])
@torch.no_grad()
def test_whatever_becomes_of_a_weight_is_seen(change):
    module, x = experts(CHOICES["mixed"])
    module.lay_out()
    module(x)
    expected = copy.deepcopy(module)
    expected.experts[1].up_proj.weight.mul_(2)
    change(module)
    module.lay_out()
    torch.testing.assert_close(module(x), token_by_token(expected, x))


@torch.no_grad()
def test_an_adapter_on_an_expert_is_heard():
    net = llada_moe_net()
    ids = torch.arange(10)[None]
    net(ids)
    adapted = get_peft_model(copy.deepcopy(net), LoraConfig(target_modules=r".*experts\.1\.up_proj"))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.normal_(generator=torch.Generator().manual_seed(0))
    heard = adapted(ids).logits
    assert all(module.grouped is None for module in adapted.modules() if isinstance(module, Experts))
    assert not torch.allclose(heard, net(ids).logits)
    torch.testing.assert_close(adapted.merge_and_unload()(ids).logits, heard, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_moved_weights_let_go_of_the_memory_they_lay_in():
    module, _ = experts(CHOICES["mixed"])
    module.lay_out()
    module.to(torch.bfloat16)
    assert module.stacks is None and module.grouped is None
    module.lay_out()
    assert module.stacks[0].dtype == torch.bfloat16


def test_rows_of_odd_length_are_left_to_the_loop():
    module = Experts(Given(torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int64)), [GatedMLP(6, 5) for _ in range(2)])
    with torch.no_grad():
        module.lay_out()
        assert module.stacks is None
        torch.testing.assert_close(module(torch.ones(1, 6)), token_by_token(module, torch.ones(1, 6)))


@torch.no_grad()
def test_autocast_is_left_to_the_loop():
    module, _ = experts(CHOICES["mixed"])
    with torch.autocast("cpu", torch.bfloat16):
        module.lay_out()
        assert module.grouped is None
    module.lay_out()
    assert module.grouped is not None


@pytest.mark.parametrize("make", [tiny_llada_moe, tiny_sdar_moe, tiny_llada2])
@torch.no_grad()
def test_files_written_after_a_pass_are_those_written_before(make, tmp_path):
    model = make()
    model.save_pretrained(tmp_path / "before")
    batch = Batch.pack(RAGGED)
    hidden = model.hidden(batch)
    model.save_pretrained(tmp_path / "after")
    name = "model.safetensors"
    assert (tmp_path / "before" / name).read_bytes() == (tmp_path / "after" / name).read_bytes()
    torch.testing.assert_close(mw.open(tmp_path / "after", device="cpu").hidden(batch), hidden)


@torch.no_grad()
def test_columnwise_products_leave_experts_where_they_lie():
    model = tiny_llada2()
    model.hidden(Batch.pack(RAGGED))
    module = next(module for module in model.core.modules() if isinstance(module, Experts))
    where = module.stacks[0].data_ptr()
    with columnwise_products(model.core):
        model.hidden(Batch.pack(RAGGED))
    assert module.stacks[0].data_ptr() == where


@torch.no_grad()
def test_on_a_cpu_nothing_can_be_recorded():
    model = tiny_llada_moe()
    model.hidden(Batch.pack(RAGGED))
    assert not model.recordable


def test_an_adapter_on_attention_learns_the_same_through_grouped_products():
    """Experts are frozen then, so their products are grouped, with and without gradient checkpointing."""
    found = {}
    for how in ("loop", "grouped", "checkpointed"):
        model = tiny_llada_moe()
        model.net = get_peft_model(model.core, LoraConfig(target_modules=model.lora_targets, init_lora_weights=False))
        for name, weight in model.net.named_parameters():
            if "lora_" in name:
                nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(len(name)))
        mixtures = [module for module in model.core.modules() if isinstance(module, Experts)]
        for module in mixtures if how == "loop" else []:
            module.lay_out = lambda: None
        if how == "checkpointed":
            model.train()
            model.core.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        batch = Batch.pack(RAGGED)
        logits = model(batch, model.flat_rows(batch, [[1], [0], [5]]))
        logits[:, :60].square().sum().backward()
        assert all((module.grouped is None) == (how == "loop") for module in mixtures)
        found[how] = [weight.grad for name, weight in model.net.named_parameters() if "lora_" in name]
    for how in ("grouped", "checkpointed"):
        for ours, loop in zip(found[how], found["loop"], strict=True):
            torch.testing.assert_close(ours, loop, rtol=1e-4, atol=1e-5 * float(loop.abs().max()))
    assert all(gradient.abs().sum() > 0 for gradient in found["loop"])


@pytest.mark.parametrize("make", [tiny_llada_moe, tiny_sdar_moe, tiny_llada2])
def test_attribution_needs_no_loop_over_experts(make):
    """Gradients go to the embeddings alone."""
    model = make()
    prompt = Prompt((*range(5, 20), 63), 15, 7, 1)
    _, (norms,) = embedding_gradients(model, [prompt])
    assert all(one.grouped is not None for one in model.core.modules() if isinstance(one, Experts))
    assert norms.max() > 0


def test_the_router_counts_the_two_best_and_keeps_the_best_groups_as_topk_does():
    from maskwise.models.families.routing import among_the_best, sum_of_two_best

    values = torch.randn(50, 8, 6, generator=torch.Generator().manual_seed(0))
    values[0, 0] = 1.0  # the best one twice
    worth = sum_of_two_best(values)
    torch.testing.assert_close(worth, values.topk(2, dim=-1).values.sum(dim=-1), rtol=0, atol=0)
    best = worth.topk(3, dim=-1).indices
    assert torch.equal(among_the_best(worth, 3), torch.zeros(50, 8, dtype=torch.bool).scatter(1, best, True))
    assert among_the_best(torch.ones(1, 4), 2).tolist() == [[True, True, False, False]]
    assert among_the_best(torch.tensor([[0.0, -torch.inf, 2.0]]), 3).all()


@pytest.mark.parametrize("make", [tiny_llada_moe, tiny_sdar_moe, tiny_llada2])
@torch.no_grad()
def test_a_hook_sees_what_the_experts_say_without_the_residual(make):
    model = make()
    batch = Batch.pack(RAGGED)
    expected = model.hidden(batch)
    mlp, seen = model.core.model.layers[-1].mlp, []
    assert isinstance(mlp, Experts)
    mlp.register_forward_hook(lambda module, given, out: seen.append((given[0], out)))
    torch.testing.assert_close(model.hidden(batch), expected)
    ((normed, said),) = seen
    mlp._forward_hooks.clear()
    torch.testing.assert_close(said, mlp(normed))
