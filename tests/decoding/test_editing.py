"""Token editing against a dense loop: one sequence at a time, everything computed anew in each pass."""

import pytest

import maskwise as mw
from helpers.references import dense_logits
from helpers.tiny import tiny_fast_dllm, tiny_llada, tiny_llada2, tiny_sdar
from maskwise.decoding.schedule import PASSES_AFTER
from maskwise.support.errors import UserError

PROMPTS = [[5, 9, 3, 4, 8, 7], [1, 2, 3]]
NEW, TAU, EDIT = 8, 0.15, 0.2


def edited(model, prompt, tau, edit, block=None):
    """LLaDA2.1's loop: commits above tau or the best one, edits above `edit`, passes until nothing changes any more.

    -> the canvas, forward passes, edits, and whether a block was left at the limit, after a pass that still changed it.
    """
    mask, size = model.mask_id, model.block or block
    canvas, forwards, changed, left = [*prompt, *[mask] * NEW], 0, 0, False
    first = len(prompt) // size * size if model.block else len(prompt)
    for start in range(first, len(canvas), size):
        places = [place for place in range(start, min(start + size, len(canvas))) if place >= len(prompt)]
        end = min(start + size, len(canvas)) if model.block else len(canvas)
        after = 0
        while True:
            masked = [place for place in places if canvas[place] == mask]
            after += not masked
            if after > PASSES_AFTER:
                left = True
                break
            chances = dense_logits(model, canvas[:end]).softmax(-1)
            forwards += 1
            best = {place: (float(chances[place].max()), int(chances[place].argmax())) for place in places}
            sure = [place for place in masked if best[place][0] >= tau]
            taken = sure or sorted(masked, key=lambda place: -best[place][0])[:1]
            edits = [
                place
                for place in places
                if place not in masked and best[place][0] > edit and best[place][1] != canvas[place]
            ]
            for place in (*taken, *edits):
                canvas[place] = best[place][1]
            changed += len(edits)
            if not masked and not edits:
                break
    return canvas, forwards, changed, left


@pytest.mark.parametrize("make", [tiny_sdar, tiny_llada2, tiny_fast_dllm])
def test_a_block_model_edits_as_the_dense_loop_does_with_any_cache(make):
    model, prompts = make(seed=2), PROMPTS if make is tiny_sdar else PROMPTS[:1]
    expected = [edited(model, prompt, TAU, EDIT) for prompt in prompts]
    assert sum(changed for _, _, changed, _ in expected) > 0
    for cache in ("none", "prefix", "dual"):
        found = mw.generate(model, prompts, NEW, rule="threshold", tau=TAU, edit=EDIT, cache=cache)
        assert [(one.sequence, one.forwards) for one in found] == [dense[:2] for dense in expected]


def test_a_model_that_sees_every_mask_edits_its_active_block():
    model, several = tiny_llada(seed=2), 0
    for prompt in PROMPTS:
        found = mw.generate(model, [prompt], NEW, block=4, rule="threshold", tau=TAU, edit=EDIT)[0]
        canvas, forwards, changed, _ = edited(model, prompt, TAU, EDIT, block=4)
        assert (found.sequence, found.forwards) == (canvas, forwards)
        several += changed
    assert several > 0


def test_a_block_that_changes_its_mind_for_ever_is_left():
    model, prompt = tiny_sdar(seed=2), PROMPTS[1]
    found = mw.generate(model, [prompt], NEW, rule="threshold", tau=TAU, edit=TAU)[0]
    canvas, forwards, _, left = edited(model, prompt, TAU, TAU)
    assert (found.sequence, found.forwards) == (canvas, forwards) and left


def test_at_one_nothing_is_edited_and_each_block_is_read_once_more():
    model = tiny_sdar(seed=2)
    plain = mw.generate(model, [PROMPTS[0]], NEW, rule="threshold", tau=TAU)[0]
    read = mw.generate(model, [PROMPTS[0]], NEW, rule="threshold", tau=TAU, edit=1.0)[0]
    assert read.sequence == plain.sequence and read.order != [] and read.forwards == plain.forwards + 3


def test_what_edit_does_not_go_with_is_said():
    with pytest.raises(UserError, match="such as threshold, not with low-confidence"):
        mw.generate(tiny_sdar(), [PROMPTS[0]], NEW, edit=0.9)
    with pytest.raises(UserError, match=r"edit 1.5 is outside 0..1"):
        mw.generate(tiny_sdar(), [PROMPTS[0]], NEW, rule="threshold", edit=1.5)


def test_with_late_end_no_edit_writes_an_end_token_next_to_a_mask():
    model, block, written = tiny_llada(seed=2), range(len(PROMPTS[0]), len(PROMPTS[0]) + 8), {}
    for late in (False, True):
        ends_beside_masks = []

        def look(step, found=ends_beside_masks):
            tokens = [step.canvases[0][place] for place in block]
            found.append(0 in tokens and model.mask_id in tokens)

        mw.generate(
            model,
            PROMPTS[:1],
            8,
            block=8,
            rule="threshold",
            tau=0.12,
            edit=0.12,
            late_end=late,
            end_ids=[0],
            on_step=look,
        )
        written[late] = any(ends_beside_masks)
    assert written == {False: True, True: False}
