"""Passes that come back: the same hidden states as passes made anew, whatever moved in between, and what is kept.

On CPU nothing is recorded, but all else is as on CUDA: tensors that stay, refilled before each pass. Here a recorder
that runs the pass again stands for CUDA graphs, to see when passes are recorded, kept and dropped. Graphs themselves
are compared with the ordinary pass by rows f and m of benchmarks/, on CUDA.
"""

import copy
from itertools import pairwise

import pytest
import torch
from peft import LoraConfig, get_peft_model

import maskwise as mw
from helpers.tiny import tiny_dream, tiny_llada, tiny_llada_moe, tiny_sdar
from maskwise.decoding import replay
from maskwise.decoding.canvas import Frame, Sheet
from maskwise.models.families.experts import Experts

PROMPTS = [[3, 4, 5, 6, 7], [8, 9, 10]]


@torch.no_grad()
@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
@pytest.mark.parametrize("cached", [True, False])
def test_a_pass_that_comes_back_reads_the_canvas_as_it_is_now(make, cached):
    model = make()
    sheet = Sheet.lay(PROMPTS, 8, model.mask_id, model.device)
    whole = Frame.of(sheet, [0, 1], [(0, length) for length in sheet.lengths])
    passes = replay.Passes(model)
    ours, theirs = (passes.new_cache(sheet.lengths), model.new_cache(sheet.lengths)) if cached else (None, None)
    if cached:
        model.hidden(whole.batch(sheet), ours)
        model.hidden(whole.batch(sheet), theirs)
    seen = []
    for start in (0, 4, 4, 2):
        spans = [(len(p) + start, len(p) + start + 4) for p in PROMPTS] if cached else [(0, n) for n in sheet.lengths]
        frame = Frame.of(sheet, [0, 1], spans)
        for token in (11, 12, 13):
            sheet.ids[frame.index[-1 - start]] = token
            found = passes.hidden(frame.batch(sheet), ours).clone()
            torch.testing.assert_close(found, model.hidden(frame.batch(sheet), theirs))
            seen.append(found)
    assert len(passes.used.repeats) == 1  # every span was given the same tensors
    assert not any(torch.equal(a, b) for a, b in pairwise(seen))


@torch.no_grad()
def test_another_cache_forgets_the_passes_over_the_one_before():
    model = tiny_llada()
    sheet = Sheet.lay(PROMPTS, 4, model.mask_id, model.device)
    whole = Frame.of(sheet, [0, 1], [(0, length) for length in sheet.lengths])
    passes = replay.Passes(model)
    for _ in range(2):
        cache = passes.new_cache(sheet.lengths)
        passes.hidden(whole.batch(sheet), cache)
        assert cache.layers[0][0].abs().sum() > 0  # this one was filled
        assert len(passes.used.repeats) == 1
    passes.close()
    assert model.recordings.sets == {}  # on a CPU nothing is held on to


# What is kept with the model


class Again:
    """Recorders that run the pass again, and how often they recorded one."""

    def __init__(self, size=10):
        self.size, self.recorded = size, 0

    def __call__(self):
        def record(run):
            self.recorded += 1
            return run, self.size

        return record


def recording(model, budget=10**9, size=10):
    """The model, with something that counts what is recorded."""
    again = Again(size)
    model.recordings = replay.Kept(again, budget)
    return again


OPTIONS = {"max_new_tokens": 8, "block": 4}


def decoded(model, prompts=PROMPTS, **more):
    return [one.sequence for one in mw.generate(model, prompts, **(OPTIONS | more))]


@pytest.mark.parametrize(("make", "cache"), [(tiny_llada, "none"), (tiny_dream, "dual"), (tiny_sdar, "prefix")])
def test_later_generations_of_the_same_lengths_record_nothing_and_give_the_same_tokens(make, cache):
    model, plain = make(), make()
    again, counts = recording(model), []
    for prompts in (PROMPTS, PROMPTS, PROMPTS, [[5, 9, 4, 4, 8], [60, 2, 1]], PROMPTS):
        assert decoded(model, prompts, cache=cache) == decoded(plain, prompts, cache=cache)
        counts.append(again.recorded)
    once = counts[-1]
    assert counts[0] > 0 and counts[2:] == [once] * 3
    # With a cache the passes that open a block come back too seldom to be recorded in the first generation.
    assert (counts[0] < once) == (cache != "none")
    assert decoded(model, [[1, 2]], cache=cache) == decoded(plain, [[1, 2]], cache=cache)
    assert again.recorded > once  # another length


@pytest.mark.parametrize("cache", ["none", "prefix"])
def test_a_growing_canvas_is_recorded_block_by_block_and_kept(cache):
    model, plain = tiny_llada(), tiny_llada()
    again, counts, options = recording(model), [], {"canvas": "growing", "cache": cache, "max_new_tokens": 12}
    for _ in range(5):
        assert decoded(model, **options) == decoded(plain, **options)
        counts.append(again.recorded)
    assert counts[0] >= 12 // OPTIONS["block"] and counts[-1] == counts[-2]


def test_soft_masks_and_guidance_have_recordings_of_their_own():
    model, plain = tiny_llada(), tiny_llada()
    again, counts = recording(model), []
    for more in ({}, {"soft_mask": True}, {"guidance": 1.5}, {}, {"soft_mask": True}, {"guidance": 1.5}):
        before = again.recorded
        assert decoded(model, **more) == decoded(plain, **more)
        counts.append(again.recorded - before)
    assert all(count > 0 for count in counts[:3]) and counts[3:] == [0, 0, 0]


def moved(model):
    """The weights they were stay, lest new ones come to lie in their place."""
    model.before = [weight.data for weight in model.core.parameters()]
    model.core.to(torch.float64).to(torch.float32)


def another_weight(model):
    embeddings = model.core.get_input_embeddings()
    embeddings.weight = torch.nn.Parameter(embeddings.weight.detach().clone())


def adapted(model):
    model.net = get_peft_model(model.core, LoraConfig(target_modules=model.lora_targets))


def hooked(model):
    model.core.get_submodule("model").register_forward_hook(lambda *_: None)


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
def test_generations_in_and_out_of_inference_mode_do_not_share_what_is_kept(make):
    model, plain = make(), make()
    recording(model)
    for cache in ("none", "dual"):
        with torch.inference_mode():
            inside = decoded(model, cache=cache)
        assert decoded(model, cache=cache) == decoded(model, cache=cache) == inside == decoded(plain, cache=cache)


@pytest.mark.parametrize("change", [moved, another_weight, adapted, hooked])
def test_a_changed_network_is_recorded_anew(change):
    model = tiny_llada()
    again = recording(model)
    decoded(model)
    once = again.recorded
    change(model)
    decoded(model)
    assert again.recorded == 2 * once
    decoded(model)
    assert again.recorded == 2 * once


def test_a_scaled_and_a_merged_adapter_are_recorded_anew():
    model = tiny_llada()
    adapted(model)
    again = recording(model)
    decoded(model)
    once = again.recorded
    for module in model.net.modules():
        if hasattr(module, "scaling"):
            module.scaling["default"] *= 2
    decoded(model)
    assert again.recorded == 2 * once
    model.net = model.net.merge_and_unload()
    decoded(model)
    assert again.recorded == 3 * once


@torch.no_grad()
def test_the_state_of_experts_is_where_they_lie():
    model = tiny_llada_moe()
    first = replay.network_state(model)
    decoded(model)
    state = replay.network_state(model)  # other than the first: rotary frequencies are made by the first pass
    assert replay.network_state(model) == state != first
    module = next(module for module in model.core.modules() if isinstance(module, Experts))
    expert, model.before = module.experts[2], module.stacks  # which stay, lest new ones come to lie in their place
    expert.up_proj.weight.mul_(2)
    assert replay.network_state(model) == state
    expert.up_proj.weight = torch.nn.Parameter(expert.up_proj.weight.clone())
    changed = replay.network_state(model)
    assert changed != state
    expert.up_proj.register_forward_hook(lambda *_: None)
    assert replay.network_state(model) not in (state, changed)


def test_new_values_in_the_same_place_need_no_new_recording():
    model, plain = tiny_llada(), tiny_llada(seed=1)
    again = recording(model)
    decoded(model)
    once = again.recorded
    model.core.load_state_dict(plain.core.state_dict())
    assert decoded(model) == decoded(plain) and again.recorded == once


def test_a_model_that_is_moved_or_copied_lets_go():
    model = tiny_llada()
    recording(model)
    decoded(model)
    assert model.recordings.sets
    assert copy.deepcopy(model).recordings.sets == {}
    model.to(torch.float64)
    assert model.recordings is None


def test_no_more_is_kept_than_the_budget_and_the_number_allow():
    model = tiny_llada()
    recording(model, budget=25)
    decoded(model, cache="none")
    kept = model.recordings.sets
    assert sum(one.bytes for one in kept.values()) <= 25 and len(kept) == 1
    decoded(model, cache="dual")  # its cache alone is larger
    assert kept == {}
    recording(model, size=0)
    for length in range(1, replay.MOST_KEPT + 3):
        decoded(model, [[5] * length], cache="dual")
    assert len(model.recordings.sets) == replay.MOST_KEPT
    assert (1 + 8,) not in model.recordings.sets and (replay.MOST_KEPT + 2 + 8,) in model.recordings.sets
    for length in range(1, replay.MOST_KEPT + 3):
        decoded(model, [[5] * length], cache="none")
    assert len(model.recordings.sets[None].repeats) == replay.MOST_KEPT


def test_a_generation_inside_another_has_recordings_of_its_own():
    model, plain = tiny_llada(), tiny_llada()
    recording(model)
    inner = []
    expected = decoded(plain, cache="dual")
    decoded(model, cache="dual")
    outer = decoded(model, cache="dual", on_step=lambda _: inner.append(decoded(model, cache="dual")))
    assert outer == expected and all(one == expected for one in inner) and inner


def test_what_was_recorded_is_kept_when_a_step_fails():
    model = tiny_llada()
    again = recording(model)

    def fail(snapshot):
        if snapshot.step == 5:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        decoded(model, on_step=fail)
    once = again.recorded
    assert once > 0
    assert decoded(model) == decoded(tiny_llada()) and again.recorded == once
