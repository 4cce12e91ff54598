"""Passes that come back: the same hidden states as passes made anew, whatever moved in between.

On CPU nothing is recorded, but all else is as on CUDA: tensors that stay, refilled when the spans move. The recording
itself is compared with the ordinary pass by row f of benchmarks/, on CUDA.
"""

from itertools import pairwise

import pytest
import torch

from helpers.tiny import tiny_dream, tiny_llada
from maskwise.decoding import replay
from maskwise.decoding.canvas import Frame, Sheet

PROMPTS = [[3, 4, 5, 6, 7], [8, 9, 10]]


@torch.no_grad()
@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
@pytest.mark.parametrize("cached", [True, False])
def test_a_pass_that_comes_back_reads_the_canvas_as_it_is_now(make, cached):
    model = make()
    sheet = Sheet.lay(PROMPTS, 8, model.mask_id, model.device)
    whole = Frame.of(sheet, [0, 1], [(0, length) for length in sheet.lengths])
    caches = [model.new_cache(sheet.lengths) if cached else None for _ in range(2)]
    for cache in caches if cached else []:
        model.hidden(whole.batch(sheet), cache)
    passes = replay.Passes(model)

    def run(frame, cache):
        return model.hidden(frame.batch(sheet), cache)

    seen = []
    for start in (0, 4, 4, 2):
        spans = [(len(p) + start, len(p) + start + 4) for p in PROMPTS] if cached else [(0, n) for n in sheet.lengths]
        frame = Frame.of(sheet, [0, 1], spans)
        for token in (11, 12, 13):
            sheet.ids[frame.index[-1 - start]] = token
            found = passes.hidden(frame, caches[0], run).clone()
            torch.testing.assert_close(found, run(frame, caches[1]))
            seen.append(found)
    assert len(passes.repeats) == 1  # every span was given the same tensors
    assert not any(torch.equal(a, b) for a, b in pairwise(seen))


@torch.no_grad()
def test_another_cache_forgets_the_passes_over_the_one_before():
    model = tiny_llada()
    sheet = Sheet.lay(PROMPTS, 4, model.mask_id, model.device)
    whole = Frame.of(sheet, [0, 1], [(0, length) for length in sheet.lengths])
    passes = replay.Passes(model)

    def run(frame, cache):
        return model.hidden(frame.batch(sheet), cache)

    for _ in range(2):
        cache = model.new_cache(sheet.lengths)
        passes.hidden(whole, cache, run)
        assert cache.layers[0][0].abs().sum() > 0  # this one was filled
    assert len(passes.repeats) == 1
