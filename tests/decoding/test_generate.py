"""generate against dense loops, batches against single prompts, refreshed caches against none."""

import itertools
import json

import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

import maskwise as mw
from helpers.references import dense_logits, dream_reference, llada_reference
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada
from maskwise.decoding.canvas import plan
from maskwise.decoding.checks import check_request
from maskwise.decoding.loop import DecodingLoop
from maskwise.decoding.options import DecodingOptions, SoftMask
from maskwise.decoding.sampling import entropy
from maskwise.decoding.strategies import STRATEGIES
from maskwise.support.errors import UserError

PROMPTS = [[5, 9, 2, 30], [7], [11, 12, 13, 14, 15, 16, 3, 2, 9]]
MASKED = [tiny_llada, tiny_dream]
NAMES = [strategy.name for strategy in STRATEGIES]


@pytest.mark.parametrize("make", MASKED)
@pytest.mark.parametrize(("new", "steps", "block"), [(12, 12, None), (12, 12, 4), (12, 6, 4), (12, 5, None), (8, 2, 4)])
def test_greedy_low_confidence_is_the_dense_reference(make, new, steps, block):
    for seed in range(3):
        model = make(seed)
        found = mw.generate(model, PROMPTS, new, steps=steps, block=block)
        for prompt, generation in zip(PROMPTS, found, strict=True):
            canvas, order = llada_reference(model, prompt, new, steps, block or new)
            assert generation.sequence == canvas
            assert generation.ids == canvas[len(prompt) :]
            assert generation.order == order
            assert generation.forwards == steps


def test_steps_default_to_one_token_a_step():
    (found,) = mw.generate(tiny_llada(), PROMPTS[:1], 10)
    assert sorted(found.order) == list(range(10)) and found.forwards == 10


@pytest.mark.parametrize(
    ("rule", "score"),
    [
        ("margin", lambda logits, tokens: logits.softmax(-1).topk(2).values @ torch.tensor([1.0, -1.0])),
        ("entropy", lambda logits, tokens: -entropy(logits)),
        ("left-to-right", lambda logits, tokens: -torch.arange(len(tokens))),
    ],
)
def test_other_counted_rules_are_the_same_loop_with_another_score(rule, score):
    model = tiny_llada()
    found = mw.generate(model, PROMPTS, 12, steps=6, block=6, rule=rule)
    for prompt, generation in zip(PROMPTS, found, strict=True):
        assert generation.sequence == llada_reference(model, prompt, 12, 6, 6, score=score)[0]


@pytest.mark.parametrize("algorithm", ["maskgit_plus", "topk_margin", "entropy"])
@pytest.mark.parametrize("steps", [1, 4, 7, 12])
def test_dream_rules_are_dreams_own_loop(algorithm, steps):
    rule = f"dream-{algorithm.replace('_', '-')}"
    for make, seed in itertools.product(MASKED, range(2)):
        model = make(seed)
        found = mw.generate(model, PROMPTS, 12, steps=steps, rule=rule)
        for prompt, generation in zip(PROMPTS, found, strict=True):
            assert generation.sequence == dream_reference(model, prompt, 12, steps, algorithm)


@pytest.mark.parametrize("steps", [1, 5, 12])
def test_dream_origin_is_dreams_own_loop_given_the_same_draws(steps):
    model = tiny_dream()
    for prompt in PROMPTS:
        (found,) = mw.generate(model, [prompt], 12, steps=steps, rule="dream-origin", generator=seeded(3))
        chance = seeded(3)
        canvas = dream_reference(
            model, prompt, 12, steps, "origin", draw=lambda n, c=chance: torch.rand(n, generator=c)
        )
        assert found.sequence == canvas


def test_dream_judges_by_the_filtered_distribution():
    model = tiny_dream()
    found = mw.generate(model, PROMPTS, 12, steps=12, rule="dream-entropy", top_k=4)
    for prompt, generation in zip(PROMPTS, found, strict=True):
        assert generation.sequence == dream_reference(model, prompt, 12, 12, "entropy", top_k=4)


CANVASES = {"fixed": {}, "blocks": {"block": 4}, "growing": {"block": 4}, "window": {"block": 4, "window": 3}}


@pytest.mark.parametrize("make", MASKED)
@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("canvas", CANVASES)
def test_a_batch_equals_one_at_a_time(make, cache, canvas):
    model = make(1, layers=1)
    prompts = [[5, model.mask_id, 9, model.mask_id, 8, 8], *PROMPTS[:2]]  # the first has masks of its own to fill
    for rule in ("low-confidence", "klass", "dream-entropy"):
        settings = {"rule": rule, "canvas": canvas, "cache": cache, **CANVASES[canvas]}
        together = mw.generate(model, prompts, 8, **settings)
        assert together == [mw.generate(model, [prompt], 8, **settings)[0] for prompt in prompts]


@pytest.mark.parametrize("rule", [rule for rule in NAMES if rule not in ("random", "remdm", "dream-origin")])
def test_a_batch_equals_one_at_a_time_under_every_rule_without_draws(rule):
    model = tiny_llada(1, layers=1, init_std=0.8)
    together = mw.generate(model, PROMPTS, 8, block=4, rule=rule)
    assert together == [mw.generate(model, [prompt], 8, block=4, rule=rule)[0] for prompt in PROMPTS]


def own_generators(count):
    return [torch.Generator().manual_seed(number) for number in range(count)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", NAMES)
def test_with_a_generator_each_a_batch_equals_one_at_a_time_under_every_rule(rule, temperature):
    model = tiny_llada(1, layers=1, init_std=0.8)
    mask = model.mask_id
    prompts = [[5, mask, 9, mask, mask, 8], [7, mask, 3], *PROMPTS]  # different numbers of masks to fill
    settings = {"rule": rule, "temperature": temperature}
    together = mw.generate(model, prompts, 6, **settings, generator=own_generators(len(prompts)))
    alone = [
        mw.generate(model, [prompt], 6, **settings, generator=[chance])[0]
        for prompt, chance in zip(prompts, own_generators(len(prompts)), strict=True)
    ]
    assert together == alone
    if temperature:
        assert mw.generate(model, prompts[:1] * 8, 6, **settings, generator=own_generators(8))[1:] != together[:1] * 7
    with pytest.raises(UserError, match="one each"):
        mw.generate(model, prompts, 6, generator=own_generators(2))


def test_a_generator_for_a_single_prompt_may_stand_in_a_list():
    model = tiny_llada(1)
    for rule in ("random", "remdm"):
        listed, plain = ([own_generators(1)[0]], own_generators(1)[0])
        found = [mw.generate(model, PROMPTS[:1], 6, rule=rule, generator=chance) for chance in (listed, plain)]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "options",
    [
        {"guidance": 1.5},
        {"early_stop": True},
        {"late_end": True},
        {"forbid_end": True},
        {"soft_mask": SoftMask()},
        {"top_k": 3},
    ],
)
@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_a_batch_equals_one_at_a_time_with_options(options, cache):
    model = tiny_dream(2, layers=1, eos_token_id=45)
    for rule in ("low-confidence", "threshold"):
        settings = {"rule": rule, "block": 4, "cache": cache, **options}
        together = mw.generate(model, PROMPTS, 8, **settings)
        assert together == [mw.generate(model, [prompt], 8, **settings)[0] for prompt in PROMPTS]


@pytest.mark.parametrize("make", MASKED)
@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("canvas", CANVASES)
def test_a_cache_refreshed_at_every_step_equals_none(make, cache, canvas):
    model = make(1)
    for rule in ("low-confidence", "dream-entropy"):
        settings = {"rule": rule, "canvas": canvas, **CANVASES[canvas]}
        exact = mw.generate(model, PROMPTS, 8, **settings)
        assert mw.generate(model, PROMPTS, 8, cache=cache, refresh=1, **settings) == exact


@pytest.mark.parametrize("make", MASKED)
@pytest.mark.parametrize("rule", ["low-confidence", "threshold"])
def test_caches_of_one_layer_are_exact(make, rule):
    """One layer's keys and values depend on the token alone, so nothing stored goes stale while it stays as it is."""
    model = make(4, layers=1)
    exact = mw.generate(model, PROMPTS, 12, block=4, rule=rule)
    for cache in ("prefix", "dual"):
        assert mw.generate(model, PROMPTS, 12, block=4, rule=rule, cache=cache) == exact


def test_caches_are_approximate_and_prefix_is_the_closer_one():
    """Agreement with exact decoding, measured: neither cache is exact, and what dual stores in addition costs more."""
    agreement = {"prefix": 0, "dual": 0}
    for make, seed in itertools.product(MASKED, range(3)):
        model = make(seed)
        exact = mw.generate(model, PROMPTS, 16, block=8)
        for cache in agreement:
            found = mw.generate(model, PROMPTS, 16, block=8, cache=cache)
            agreement[cache] += sum(
                a == b for one, two in zip(exact, found, strict=True) for a, b in zip(one.ids, two.ids, strict=True)
            )
    asked = 2 * 3 * len(PROMPTS) * 16
    assert asked / 4 < agreement["dual"] < agreement["prefix"] < asked


@pytest.mark.parametrize("make", MASKED)
def test_the_first_step_after_a_full_pass_reads_fresh_rows(make):
    """A cached block of one token has nothing stale in it: exact whatever the cache, also for shifted models."""
    model = make(3)
    exact = mw.generate(model, PROMPTS, 6, block=1)
    for cache in ("prefix", "dual"):
        assert mw.generate(model, PROMPTS, 6, block=1, cache=cache) == exact


@pytest.mark.parametrize("make", MASKED)
def test_growing_shows_no_mask_past_the_block_and_a_wide_window_shows_all(make):
    model = make(0)
    grown = mw.generate(model, PROMPTS, 8, block=4, canvas="growing")
    for prompt, generation in zip(PROMPTS, grown, strict=True):
        first, _ = llada_reference(model, prompt, 4, 4, 4)
        second, _ = llada_reference(model, first, 4, 4, 4)
        assert generation.sequence == second
    assert mw.generate(model, PROMPTS, 8, block=4, canvas="window", window=0) == grown
    everything = mw.generate(model, PROMPTS, 8, block=4)
    assert mw.generate(model, PROMPTS, 8, block=4, canvas="window", window=8) == everything
    assert grown != everything


def test_guidance_is_the_references():
    model = tiny_llada()
    found = mw.generate(model, PROMPTS, 8, steps=4, block=4, guidance=1.5)
    for prompt, generation in zip(PROMPTS, found, strict=True):
        assert generation.sequence == llada_reference(model, prompt, 8, 4, 4, scale=1.5)[0]
        assert generation.forwards == 8


def test_end_token_switches():
    """Of the tokens this model would write, one is called the end token."""
    plain = mw.generate(tiny_llada(), PROMPTS, 8, block=4)
    common = max((t for g in plain for t in g.ids), key=[t for g in plain for t in g.ids].count)
    model = tiny_llada(eos_token_id=common)
    for prompt, found in zip(PROMPTS, mw.generate(model, PROMPTS, 8, block=4, forbid_end=True), strict=True):
        assert found.sequence == llada_reference(model, prompt, 8, 8, 4, forbidden=[common])[0]
        assert common not in found.ids
    late = mw.generate(model, PROMPTS, 8, block=4, late_end=True)
    for prompt, found in zip(PROMPTS, late, strict=True):
        canvas, order = llada_reference(model, prompt, 8, 8, 4, late=[common])
        assert (found.sequence, found.order) == (canvas, order)
    assert [g.ids for g in late] != [g.ids for g in plain]


def test_early_stop_ends_a_sequence_at_its_end_token():
    plain = mw.generate(tiny_llada(), PROMPTS, 12, block=4, rule="left-to-right")
    end = plain[1].ids[2]
    model = tiny_llada(eos_token_id=end)
    stopped = mw.generate(model, PROMPTS, 12, block=4, rule="left-to-right", early_stop=True)
    for full, short in zip(plain, stopped, strict=True):
        if end not in full.ids:
            assert short == full
            continue
        length = full.ids.index(end) + 1
        assert short.ids[:length] == full.ids[:length]
        assert short.ids[length:] == [end] * (12 - length)
        assert short.forwards == length
    assert stopped[1].forwards == plain[1].ids.index(end) + 1 < 12


def test_of_several_end_tokens_the_first_is_forbidden_and_the_others_stop():
    plain = mw.generate(tiny_llada(), PROMPTS, 12, block=4, rule="left-to-right")
    forbidden, end = plain[0].ids[1], plain[1].ids[2]
    ends = {"forbid_end": True, "early_stop": True, "end_ids": [forbidden, end]}
    found = mw.generate(tiny_llada(), PROMPTS, 12, block=4, rule="left-to-right", **ends)
    written = [one.ids[: one.ids.index(end)] if end in one.ids else one.ids for one in found]
    assert not any(forbidden in ids for ids in written)
    assert any(one.forwards == len(ids) + 1 < 12 for one, ids in zip(found, written, strict=True))


def test_without_early_stop_nothing_changes_at_an_end_token():
    end = mw.generate(tiny_llada(), PROMPTS, 12, block=4)[0].ids[1]
    assert mw.generate(tiny_llada(eos_token_id=end), PROMPTS, 12, block=4) == mw.generate(
        tiny_llada(), PROMPTS, 12, block=4
    )


@pytest.mark.parametrize("make", MASKED)
def test_infilling_fills_masks_anywhere(make):
    model = make(0)
    mask = model.mask_id
    prompts = [[mask, 4, mask, mask, 9], [3, mask, 8, 8, 1, 2, mask]]
    found = mw.generate(model, prompts, 0)
    for prompt, generation in zip(prompts, found, strict=True):
        masks = [place for place, token in enumerate(prompt) if token == mask]
        canvas, order = infill(model, prompt, len(masks))
        assert generation.sequence == canvas
        assert generation.ids == [canvas[place] for place in masks]
        assert generation.order == order
        assert all(a == b for a, b in zip(prompt, generation.sequence, strict=True) if a != mask)


def infill(model, prompt, steps):
    """The reference with the masked prompt as its only block."""
    canvas, order = list(prompt), {}
    for clock in range(steps):
        logits = dense_logits(model, canvas)
        confidence, tokens = logits.softmax(-1).max(-1)
        place = max((p for p, t in enumerate(canvas) if t == model.mask_id), key=lambda p: (float(confidence[p]), -p))
        canvas[place], order[place] = int(tokens[place]), clock
    return canvas, [order[place] for place in sorted(order)]


def test_masks_in_the_prompt_go_with_the_first_block():
    model = tiny_llada()
    prompt = [4, model.mask_id, 9]
    (found,) = mw.generate(model, [prompt], 8, steps=4, block=4)
    canvas, order = llada_reference(model, prompt, 8, 4, 4)
    assert found.sequence == canvas and found.order == order and len(found.ids) == 9


def test_remdm_fills_everything_and_can_change_its_mind():
    model = tiny_llada()
    changed = 0
    for seed in range(5):
        states = []
        settings = {"steps": 30, "rule": "remdm", "parameters": {"eta": 0.3}, "temperature": 1.0}
        keep = lambda snapshot, seen=states: seen.append(snapshot.canvases[0])  # noqa: E731
        (found,) = mw.generate(model, [[7, 8]], 10, on_step=keep, generator=seeded(seed), **settings)
        assert model.mask_id not in found.sequence and found.forwards == 30
        changed += any(
            before != model.mask_id and after == model.mask_id
            for one, two in itertools.pairwise(states)
            for before, after in zip(one, two, strict=True)
        )
    assert changed == 5


def test_adaptive_rules_take_fewer_passes_when_the_model_is_sure():
    model = tiny_llada(init_std=1.0)  # steep logits
    for rule, parameters in (("threshold", {"tau": 0.5}), ("factor", {"f": 2.0}), ("entropy-bound", {"gamma": 1.0})):
        found = mw.generate(model, PROMPTS, 16, block=8, rule=rule, parameters=parameters)
        assert all(generation.forwards == len(set(generation.order)) < 16 for generation in found)


def test_sampling_follows_the_model_and_repeats_with_the_seed():
    model = tiny_llada()
    canvas = [5, 9, model.mask_id]
    expected = dense_logits(model, canvas)[2].div(0.8).softmax(-1)
    drawn = mw.generate(model, [canvas] * 4000, 0, temperature=0.8, generator=seeded(0))
    counts = torch.tensor([generation.ids[0] for generation in drawn]).bincount(minlength=64) / 4000
    torch.testing.assert_close(counts, expected, atol=0.03, rtol=0)
    again = mw.generate(model, PROMPTS, 8, temperature=1.0, generator=seeded(1))
    assert again == mw.generate(model, PROMPTS, 8, temperature=1.0, generator=seeded(1))
    assert again != mw.generate(model, PROMPTS, 8, temperature=1.0, generator=seeded(2))


def test_soft_masks_show_the_mixture_and_nothing_at_a_share_of_zero():
    model = tiny_llada()
    plain = mw.generate(model, PROMPTS, 8)
    assert mw.generate(model, PROMPTS, 8, soft_mask=SoftMask(scale=0.0)) == plain
    prompt, soft = [5, 9, 2, 30], SoftMask(0.9, 1.0, -2.0)
    (found,) = mw.generate(model, [prompt], 2, soft_mask=soft)
    canvas = [*prompt, model.mask_id, model.mask_id]
    logits = dense_logits(model, canvas)
    confidence, tokens = logits.softmax(-1).max(-1)
    first = 4 if confidence[4] >= confidence[5] else 5
    other = 9 - first
    table = model.net.get_input_embeddings().weight
    canvas[first] = int(tokens[first])
    p = logits[other].softmax(-1)
    best = p.topk(3)
    share = 0.9 * torch.sigmoid(1.0 * ((p[p > 0] * p[p > 0].log()).sum() + 2.0))
    embeds = table[torch.tensor(canvas)].detach().clone()
    mixture = (best.values / best.values.sum()) @ table[best.indices]
    embeds[other] = (1 - share) * table[model.mask_id] + share * mixture
    second = model.net(inputs_embeds=embeds[None]).logits[0, other]
    second[model.mask_id] = float("-inf")
    canvas[other] = int(second.argmax())
    assert found.sequence == canvas


def test_callback_sees_every_step():
    seen: list[tuple[int, list[list[int]]]] = []
    model = tiny_llada()
    found = mw.generate(model, PROMPTS, 8, block=4, on_step=lambda now: seen.append((now.step, now.canvases)))
    assert [step for step, _ in seen] == list(range(8))
    assert seen[-1][1] == [generation.sequence for generation in found]
    for step, canvases in seen:
        assert [canvas.count(model.mask_id) for canvas in canvases] == [7 - step] * 3


def test_callback_gets_how_sure_the_model_was_and_what_it_saw():
    model = tiny_llada()
    before = [[*prompt, *[model.mask_id] * 8] for prompt in PROMPTS]
    steps = []

    def check(now):
        for canvas, after, sure, shown in zip(before, now.canvases, now.confidences, now.shown, strict=True):
            logits = dense_logits(model, canvas[:shown])
            written = [place for place, token in enumerate(canvas) if token != after[place]]
            assert len(written) == 1 and max(written) < shown
            expected = logits.softmax(-1)[written[0], after[written[0]]]
            torch.testing.assert_close(torch.tensor(sure[written[0]]), expected, atol=1e-5, rtol=1e-4)
            steps.append(shown - len(canvas))
        before[:] = now.canvases

    mw.generate(model, PROMPTS, 8, block=4, canvas="growing", on_step=check)
    assert steps == [-4] * 12 + [0] * 12


def test_causal_models_generate_through_the_same_call():
    model = tiny_ar()
    found = mw.generate(model, PROMPTS, 8)
    for prompt, generation in zip(PROMPTS, found, strict=True):
        sequence = list(prompt)
        for _ in range(8):
            sequence.append(int(model.net(input_ids=torch.tensor([sequence])).logits[0, -1].argmax()))
        assert generation.sequence == sequence
        assert generation.ids == sequence[len(prompt) :]
        assert (generation.forwards, generation.order) == (8, list(range(8)))
    end = found[0].ids[3]
    (short,) = mw.generate(model, PROMPTS[:1], 8, early_stop=True, end_ids=[end])
    assert short.ids == found[0].ids[: found[0].ids.index(end) + 1]
    model.core.generation_config.repetition_penalty = 5.0  # a checkpoint's own default, which nobody asked for here
    assert mw.generate(model, PROMPTS, 8) == found and model.core.generation_config.repetition_penalty == 5.0
    sampled = mw.generate(model, PROMPTS, 8, temperature=1.0, generator=seeded(0))
    assert sampled == mw.generate(model, PROMPTS, 8, temperature=1.0, generator=seeded(0)) != found


def test_causal_models_sample_from_their_own_distribution_each_prompt_by_its_own_generator():
    model = tiny_ar()
    prompt, count = PROMPTS[0], 4000
    logits = model.net(input_ids=torch.tensor([prompt])).logits[0, -1].detach().double()
    kept = logits.topk(5)
    found = mw.generate(model, [prompt] * count, 1, temperature=2.0, top_k=5, generator=seeded(0))
    drawn = torch.tensor([generation.ids[0] for generation in found])
    times = torch.tensor([int((drawn == token).sum()) for token in kept.indices])
    assert times.sum() == count
    assert stats.chisquare(times, (kept.values / 2).softmax(-1) * count).pvalue > 0.01
    settings = {"temperature": 1.0, "early_stop": True, "end_ids": [found[0].ids[0]]}
    together = mw.generate(model, PROMPTS, 8, **settings, generator=own_generators(3))
    assert together == [
        mw.generate(model, [prompt], 8, **settings, generator=[chance])[0]
        for prompt, chance in zip(PROMPTS, own_generators(3), strict=True)
    ]


@pytest.mark.parametrize("rule", [strategy.name for strategy in STRATEGIES if not strategy.adaptive])
def test_steps_read_nothing_back_to_the_host(rule):
    """On the meta device tensors have no values, so whatever looks at one raises; nothing does until the very end."""
    model = tiny_llada().to("meta")
    options = DecodingOptions(
        max_new_tokens=8,
        block=4,
        rule=rule,
        cache="dual",
        temperature=0.5,
        refresh=2,
        top_k=3,
        top_p=0.9,
        forbid_end=True,
        late_end=rule not in ("remdm", "dream-origin"),
        soft_mask=SoftMask(),
    )
    loop = DecodingLoop(model, check_request(model, PROMPTS, options), PROMPTS, seeded(0), None)
    with torch.no_grad():
        for block in plan(PROMPTS, model.mask_id, 8, "blocks", 4, None):
            assert loop.fill(block, [0, 1, 2]) == [0, 1, 2]
    assert loop.forwards == [8, 8, 8]
    with pytest.raises(RuntimeError, match="meta tensor"):
        loop.generations()


def test_no_prompts_give_no_generations():
    assert mw.generate(tiny_llada(), []) == mw.generate(tiny_ar(), []) == []


def bad(model, message, prompts=((1, 2),), **options):
    with pytest.raises(mw.UserError, match=message) as caught:
        mw.generate(model, [list(prompt) for prompt in prompts], **options)
    assert "\n" not in str(caught.value)


def test_bad_requests_get_one_clear_line():
    model = tiny_llada()
    bad(model, "leaves nothing to generate", max_new_tokens=0)
    bad(model, "leaves nothing to generate", max_new_tokens=-3)
    bad(model, "16 steps for 8 masks", max_new_tokens=8, steps=16)
    bad(model, "do not divide into 2 blocks", max_new_tokens=8, steps=3, block=4)
    bad(model, "steps 0 leave no time", max_new_tokens=8, steps=0)
    bad(model, "9 steps for 8 masks", max_new_tokens=8, steps=9, rule="dream-entropy")
    bad(model, "block 3 does not divide", max_new_tokens=8, block=3)
    bad(model, "nothing to cut into blocks", prompts=((1, model.mask_id),), max_new_tokens=0, block=4)
    bad(model, "unknown unmasking strategy 'best'", rule="best")
    bad(model, "unknown canvas 'oil'", canvas="oil")
    bad(model, "unknown cache 'triple'", cache="triple")
    bad(model, "needs a block", canvas="growing")
    bad(model, "has no blocks", canvas="fixed", block=8)
    bad(model, "needs window", canvas="window", block=8)
    bad(model, "option of the canvas window", window=8)
    bad(model, "needs a cache", refresh=2)
    bad(model, "leave steps out", rule="threshold", steps=8)
    bad(model, "has no parameter 'tau'", parameters={"tau": 0.5})
    bad(model, "temperature -1", temperature=-1.0)
    bad(model, "temperature nan", temperature=float("nan"))
    bad(model, "top_k 0", top_k=0)
    bad(model, "top_p 1.5", top_p=1.5)
    bad(model, "guidance -1", guidance=-1.0)
    bad(model, "guidance nan", guidance=float("nan"))
    bad(model, "end_ids .* outside 0..63", forbid_end=True, end_ids=[64])
    bad(model, "context length of .* is 256", prompts=[[1] * 200])
    bad(model, "token id 64", prompts=[[64]])
    bad(model, "draws for each at random", rule="dream-origin", late_end=True)
    bad(tiny_llada(eos_token_id=None), "names no end token", early_stop=True)
    bad(model, "the only end token is forbidden", forbid_end=True, early_stop=True, end_ids=[3])
    bad(tiny_ar(), "autoregressive: rule applies to masked models only", rule="threshold")
    bad(tiny_ar(), "autoregressive: cache", cache="dual")
    bad(tiny_ar(), "is empty", prompts=[[]])
    with pytest.raises(mw.UserError, match="put the token ids of one prompt in a list"):
        mw.generate(model, [1, 2])
    with pytest.raises(mw.UserError, match="has no tokenizer"):
        mw.generate(model, ["hello"])
    maskless = tiny_llada()
    maskless.mask_id = None
    bad(maskless, "has no mask token")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


class LargestTensor(TorchDispatchMode):
    """The bytes of the largest tensor that any operation makes."""

    bytes = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        made = function(*arguments, **(named or {}))
        if isinstance(made, torch.Tensor):
            self.bytes = max(self.bytes, made.numel() * made.element_size())
        return made


@pytest.mark.slow
@pytest.mark.parametrize("family", [tiny_llada, tiny_ar])
def test_a_call_takes_the_memory_of_a_batch_however_many_prompts_it_has(family, monkeypatch):
    from maskwise.decoding import generate as module

    model = family(init_std=1.0) if family is tiny_llada else family()
    prompts = [[5 + n % 7, 9, *range(2, 2 + n % 3)] for n in range(60)]
    alone = [mw.generate(model, [prompt], 8)[0] for prompt in prompts]
    assert mw.generate(model, prompts, 8) == alone  # one batch: it is small
    monkeypatch.setattr(module, "BATCH_BYTES", 1 << 17)
    sizes = []
    for count, batch in ((30, None), (60, None), (60, 60)):
        with LargestTensor() as largest:
            found = mw.generate(model, prompts[:count], 8, batch=batch)
        assert found == alone[:count]
        sizes.append(largest.bytes)
    assert sizes[1] < 1.2 * sizes[0] and sizes[2] > 2 * sizes[0]


def test_batches_are_counted_in_prompts_and_a_callback_sees_all_canvases_without():
    model, prompts, seen = tiny_llada(), [[5, 9], [7], [3, 4, 5]], []
    alone = mw.generate(model, prompts, 4, seed=3, temperature=1.0)
    for batch, shown in ((None, {3}), (2, {2, 1}), (1, {1})):
        seen.clear()
        found = mw.generate(
            model,
            prompts,
            4,
            seed=3,
            temperature=1.0,
            batch=batch,
            on_step=lambda step: seen.append(len(step.canvases)),
        )
        assert found == alone and set(seen) == shown
    with pytest.raises(UserError, match="batch 0 holds no prompt"):
        mw.generate(model, prompts, 4, batch=0)
    with pytest.raises(UserError, match="seed and generator exclude each other"):
        mw.generate(model, prompts, 4, seed=0, generator=torch.Generator())


def test_the_library_writes_traces_and_measures_divergence_as_the_command_does(tmp_path):
    model, out = tiny_llada(init_std=1.0), tmp_path / "out.jsonl"
    found = mw.generate(model, [[5, 9], [7]], 8, block=4, cache="dual", out=out, divergence=True)
    assert [json.loads(line) for line in out.read_text().splitlines()] == found.traces
    assert found.traces[1]["prompt"] == [7] and found.traces[1]["ids"] == found[1].ids
    assert found.divergence["tokens"] == 16 and found.settings["cache"] == "dual"
    with pytest.raises(UserError, match="exists already"):
        mw.generate(model, [[5, 9]], 8, out=out)
