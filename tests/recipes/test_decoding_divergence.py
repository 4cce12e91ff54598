"""The recipe that measures caches and windows: the work it states is the work done."""

import pytest

import maskwise as mw
from decoding_divergence import computed, few_shot_prompts
from helpers.tiny import tiny_dream, tiny_llada


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
@pytest.mark.parametrize(
    "options",
    [{}, {"cache": "prefix"}, {"cache": "dual", "refresh": 2}, {"canvas": "window", "window": 2, "cache": "dual"}],
)
def test_the_tokens_it_counts_are_those_that_go_through_the_model(make, options):
    model, seen = make(), []
    model.core.get_input_embeddings().register_forward_hook(lambda layer, given, out: seen.append(given[0].numel()))
    mw.generate(model, [[1, 2, 3], [4, 5, 6, 7, 8]], 8, block=4, **options)
    assert sum(seen) == computed([3, 5], 8, 4, options, model.first_row(1) - 1)


def test_prompts_end_where_the_letter_stands():
    for prompt, letter in few_shot_prompts(3, relevant=2, distractors=1):
        assert prompt.endswith("\nAnswer:[") and prompt.count("Answer:[") == 4 and letter in "ABC"
