"""The noise of an item is a pure function of the seed, the pair and the micro-batch."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from maskwise.support.errors import UserError
from maskwise.support.randomness import torch_generator
from maskwise.training.checked_settings import check, settings_from
from maskwise.training.data.noised_pairs import NoisedPairs, collate_pairs, largest_mask_count
from maskwise.training.data.pairs import Pair
from maskwise.training.training_settings import PRESETS, TuneSettings

MASK = 99
PAIRS = [Pair(tuple(range(1, 3 + n)), tuple(range(20, 24 + n % 3))) for n in range(7)]
SMALL = TuneSettings(steps=6, batch=2, accumulation=3, context=24, max_masks=10, curriculum=8)


def fingerprint(item) -> tuple:
    return item["micro"], item["pair"], *(tuple(value.tolist()) for value in vars(item["views"]).values())


def test_an_item_is_the_same_whenever_it_is_asked_for():
    forwards = NoisedPairs(PAIRS, SMALL, MASK, world=1)
    backwards = NoisedPairs(PAIRS, SMALL, MASK, world=1)
    assert len(forwards) == 6 * 3 * 2
    first = [fingerprint(forwards[n]) for n in range(len(forwards))]
    torch.manual_seed(123)  # the global state must not matter
    assert first == [fingerprint(backwards[n]) for n in reversed(range(len(backwards)))][::-1]
    other = NoisedPairs(PAIRS, replace(SMALL, seed=1), MASK, world=1)
    assert first != [fingerprint(other[n]) for n in range(len(other))]


def test_two_processes_see_together_what_one_sees():
    one = NoisedPairs(PAIRS, replace(SMALL, batch=4), MASK, world=1)
    two = NoisedPairs(PAIRS, SMALL, MASK, world=2)
    assert [fingerprint(one[n]) for n in range(len(one))] == [fingerprint(two[n]) for n in range(len(two))]


def test_every_pair_comes_once_an_epoch_and_epochs_differ():
    dataset = NoisedPairs(PAIRS, SMALL, MASK, world=1)
    order = [dataset[n]["pair"] for n in range(28)]
    epochs = [order[start : start + 7] for start in range(0, 28, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_views_differ_in_masks_alone_and_fit_the_context():
    dataset = NoisedPairs(PAIRS, SMALL, MASK, world=1)
    for number in range(len(dataset)):
        item = dataset[number]
        views, pair = item["views"], PAIRS[item["pair"]]
        l1, l2 = len(views.first) - pair.length, len(views.second) - pair.length
        most = min(24 - pair.length, largest_mask_count(SMALL, item["micro"]))
        assert l1 != l2 and min(l1, l2) >= 0 and max(l1, l2) <= most
        assert torch.equal(views.first[: pair.length], views.second[: pair.length])
        assert (views.first[pair.length :] == MASK).all() and (views.second[pair.length :] == MASK).all()
        whole = torch.tensor(pair.prompt + pair.answer)
        assert torch.equal(whole[views.rows], views.targets)
        shown = views.first[: pair.length] != MASK
        assert torch.equal(views.first[: pair.length][shown], whole[shown])
        assert (views.rows >= len(pair.prompt)).all() and int((~shown).sum()) == len(views.rows) >= 1


def test_anchored_pairs_have_masks_after_the_first_view_alone_and_held_ones_few():
    anchored = replace(SMALL, anchored=True, curriculum=0, steps=60)
    plain, held = (NoisedPairs(PAIRS, replace(anchored, held=share), MASK, world=1) for share in (0.0, 0.3))
    both = NoisedPairs(PAIRS, replace(anchored, anchored=False), MASK, world=1)
    changed = 0
    for number in range(len(plain)):
        lengths = [PAIRS[data[number]["pair"]].length for data in (plain, held)]
        first, second, other = (data[number]["views"] for data in (plain, held, both))
        assert [len(first.second), len(second.second)] == lengths
        assert torch.equal(first.first, other.first)  # only what is held is drawn otherwise
        if not torch.equal(first.first, second.first):
            changed += 1
            assert len(second.first) - lengths[1] <= 4
        assert torch.equal(first.rows, second.rows) and torch.equal(first.second, second.second)
    # a held pair may draw the number of masks that it had
    assert 0.15 < changed / len(plain) < 0.4


def test_the_sham_control_has_the_same_rows_and_noise_and_no_masks():
    masks, sham = (
        NoisedPairs(PAIRS, replace(SMALL, anchored=True, held=0.3, max_masks=most), MASK, world=1) for most in (10, 0)
    )
    for number in range(len(masks)):
        (view, same), pair = (one[number]["views"] for one in (masks, sham)), PAIRS[masks[number]["pair"]]
        assert torch.equal(same.first, same.second) and torch.equal(same.first, view.first[: pair.length])
        assert torch.equal(same.rows, view.rows) and torch.equal(same.ce_weights, view.ce_weights)
    with pytest.raises(UserError, match="both views are the same text"):
        settings_from("quick", {"max_masks": 0})
    assert settings_from("quick", {"max_masks": 0, "alpha": 0.1}).max_masks == 0


def test_the_curriculum_is_a_straight_line_from_one_in_micro_batches():
    assert [largest_mask_count(SMALL, micro) for micro in (0, 1, 3, 7, 8, 100)] == [1, 2, 5, 10, 10, 10]
    assert largest_mask_count(replace(SMALL, curriculum=0), 0) == 10
    paper = PRESETS["paper-base"]
    assert (
        largest_mask_count(paper, 0) == 1
        and largest_mask_count(paper, 2499) == 300
        and largest_mask_count(paper, 5000) == 600
    )


def test_the_collator_pads_visibly_only_when_asked():
    dataset = [NoisedPairs(PAIRS, SMALL, MASK, world=1)[number] for number in (30, 31)]
    packed, padded = collate_pairs(dataset), collate_pairs(dataset, pad_token=0)
    assert packed["views"] == [item["views"] for item in dataset] and packed["micro"] == 15
    lengths = {len(ids) for view in padded["views"] for ids in (view.first, view.second)}
    assert lengths == {max(len(ids) for view in packed["views"] for ids in (view.first, view.second))}


def test_seeds_are_stable_and_spread():
    assert (
        torch.randint(1000, (3,), generator=torch_generator(0, "noise", 1, 2)).tolist()
        == torch.randint(1000, (3,), generator=torch_generator(0, "noise", 1, 2)).tolist()
    )
    firsts = Counter(int(torch.randint(2, (), generator=torch_generator(0, "noise", n, 0))) for n in range(400))
    assert abs(firsts[0] - 200) < 50


def test_presets_are_the_papers_and_changes_are_checked():
    base, instruct = PRESETS["paper-base"], PRESETS["paper-instruct"]
    assert (base.alpha, base.beta, base.learning_rate, base.context, base.max_masks) == (0.1, 1.0, 1e-5, 1024, 600)
    assert (base.batch, base.accumulation, base.steps, base.curriculum) == (3, 43, 930, 5000)
    assert (base.lora_rank, base.lora_alpha, base.lora_dropout, base.clip, base.weight_decay) == (64, 128, 0, 1.0, 0)
    assert (instruct.beta, instruct.learning_rate) == (10.0, 1e-6)
    ce_alone = [PRESETS["paper-base-ce"], PRESETS["paper-instruct-ce"]]
    assert [(preset.beta, preset.learning_rate) for preset in ce_alone] == [(0, 1e-6), (0, 1e-5)]
    changed = settings_from("paper-instruct", {"steps": 5, "learning_rate": None})
    assert (changed.steps, changed.learning_rate) == (5, 1e-6)
    for change, said in [
        ({"steps": 0}, "steps is 0"),
        ({"alpha": 0.0, "beta": 0.0}, "nothing would be learnt"),
        ({"decay": "wild"}, "unknown decay"),
        ({"targets": "("}, "not a regular expression"),
        ({"mask_low": 0.9}, "0 < low <= high < 1"),
        ({"many": 1}, "more masks than few"),
        ({"held": 0.5}, "need anchored"),
        ({"held": 1.0, "anchored": True}, "below 1"),
        ({"full": True, "targets": "attention"}, "targets is of an adapter: leave it out for full"),
    ]:
        with pytest.raises(UserError, match=said):
            settings_from("paper-base", change)
    with pytest.raises(UserError, match="unknown preset"):
        settings_from("paper", {})
    assert check(base) is base
