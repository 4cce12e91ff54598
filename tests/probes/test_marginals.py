"""Marginals by distance and total correlation, on a Markov source where both are known in closed form."""

import math
from itertools import product

import pytest
import torch

from helpers.known import shipped_tokenizer
from helpers.oracle import oracle
from helpers.tiny import tiny_llada
from maskwise.probes.answers.distant_masks import (
    common_tokens,
    compare_rows,
    correlate,
    pair_correlation,
    text_frequencies,
)
from maskwise.probes.setup import Asker
from maskwise.probes.text import cut_text, with_gap
from maskwise.tasks.markov_source import small_chain
from maskwise.tasks.prompts import Prompt

CHAIN = small_chain()
MASK = CHAIN.states


def chain_marginals(sequence):
    p = CHAIN.conditional([None if token == MASK else token for token in sequence])
    return torch.nn.functional.pad(p, (0, 1))


def entropy(p):
    return float(-(p[p > 0] * p[p > 0].log()).sum())


def variation(p, q):
    return float((p - q).abs().sum() / 2)


@pytest.mark.parametrize("suffix", [(), (7, 8)])
def test_a_perfect_model_of_a_markov_source_shows_the_closed_form(suffix):
    model = oracle(chain_marginals, MASK + 1, MASK)
    masks = 12
    ids = (3, 4, *[MASK] * masks, *suffix)
    pi = torch.nn.functional.pad(CHAIN.stationary, (0, 1)).float()
    common = torch.tensor([0, 1, 2])
    prompts = [Prompt(ids, 1 + d, 0, masks) for d in range(1, masks + 1)]
    answers = compare_rows(model, prompts, pi, common)
    exact = CHAIN.conditional([3, 4, *[None] * masks, *suffix])[2 : 2 + masks]
    for d, answer in enumerate(answers):
        assert answer.entropy == pytest.approx(entropy(exact[d]), abs=1e-4)
        assert answer.confidence == pytest.approx(float(exact[d].max()), abs=1e-5)
        assert answer.evidence["tv_unigram"] == pytest.approx(variation(exact[d], CHAIN.stationary), abs=1e-5)
        assert answer.evidence["common"] == pytest.approx(float(exact[d][:3].sum()), abs=1e-5)
        if d + 1 < masks:
            assert answer.evidence["tv_next"] == pytest.approx(variation(exact[d], exact[d + 1]), abs=1e-5)
        else:
            assert "tv_next" not in answer.evidence
    if not suffix:
        delta = float((CHAIN.kernel[:, None] - CHAIN.kernel[None]).abs().sum(dim=-1).max() / 2)  # Dobrushin's
        assert answers[-1].evidence["tv_unigram"] <= delta**masks + 1e-5
        away = [a.evidence["tv_unigram"] for a in answers]  # entropy need not rise at every step; this must fall
        assert away == sorted(away, reverse=True)
        assert answers[-1].entropy == pytest.approx(entropy(CHAIN.stationary), abs=0.05)


def test_rows_are_those_of_asking_one_at_a_time():
    """The dense way: predict every row of every canvas separately."""
    model = tiny_llada()
    frequencies = torch.full((model.vocab,), 1 / model.vocab)
    common = torch.tensor([1, 5, 9])
    prompts = [Prompt((4, 5, *[model.mask_id] * 6, *end), row, 3, 6) for end in ((), (8, 9)) for row in (2, 4, 7)]
    for prompt, answer in zip(prompts, compare_rows(model, prompts, frequencies, common), strict=True):
        p = model.predict([prompt.ids], [[prompt.row]])[0].softmax(dim=-1)[0]
        assert answer.token == int(p.argmax())
        assert answer.nll == pytest.approx(-math.log(p[3]), abs=1e-4)
        assert answer.evidence["common"] == pytest.approx(float(p[common].sum()), abs=1e-5)
        assert ("tv_next" in answer.evidence) == (prompt.row < 7)
        if prompt.row < 7:
            following = model.predict([prompt.ids], [[prompt.row + 1]])[0].softmax(dim=-1)[0]
            assert answer.evidence["tv_next"] == pytest.approx(variation(p, following), abs=1e-5)


def test_pieces_of_text_become_gaps():
    tokenizer = shipped_tokenizer()
    text = "A plain sentence about ships and weather, said again and again. " * 20
    before, masks, length = 8, 6, 18
    pieces = cut_text(tokenizer, text, length, 5)
    assert len(pieces) == 5 and all(len(piece) == length for piece in pieces)
    assert cut_text(tokenizer, "too short", length, 5) == []
    asker = Asker(tokenizer, tokenizer.mask_token_id, 0)
    for piece, distance, shown in product(pieces, (1, 6), (False, True)):
        prompt = with_gap(asker, piece, before, masks, distance, shown)
        assert prompt.row == 8 + distance - 1 and prompt.ids[:8] == piece[:8]
        assert prompt.ids[8:14] == (tokenizer.mask_token_id,) * 6 and prompt.answer_id == piece[prompt.row]
        assert prompt.ids[14:] == (piece[14:] if shown else ())
    frequencies = text_frequencies(tokenizer, text, len(tokenizer))
    assert float(frequencies.sum()) == pytest.approx(1)
    wrapped = text.replace(" and ", "\nand\n\n")  # how a file breaks its lines changes neither pieces nor frequencies
    assert torch.equal(text_frequencies(tokenizer, wrapped, len(tokenizer)), frequencies)
    assert cut_text(tokenizer, wrapped, length, 5) == pieces
    assert tokenizer.eos_token_id in common_tokens(frequencies, tokenizer.eos_token_id).tolist()


def mutual_information(joint):
    product = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
    held = joint > 0
    return float((joint[held] * (joint[held] / product[held]).log()).sum())


@pytest.mark.parametrize("distance", [1, 2, 5])
def test_the_correlation_of_a_perfect_model_is_the_mutual_information(distance):
    model = oracle(chain_marginals, MASK + 1, MASK)
    start = CHAIN.ahead(1)[4]
    joint = start[:, None] * CHAIN.ahead(distance)
    ids = [4, *[MASK] * 7]
    draws = torch.Generator().manual_seed(0)
    forth, back, _ = pair_correlation(model, ids, 1, 1 + distance, samples=20000, generator=draws)
    truth = mutual_information(joint)
    assert forth == pytest.approx(truth, abs=0.02) and back == pytest.approx(truth, abs=0.02)


def test_independent_places_have_no_correlation():
    p = torch.tensor([0.5, 0.3, 0.2, 0.0])
    model = oracle(lambda sequence: p.expand(len(sequence), -1), 4, 3)
    forth, back, _ = pair_correlation(model, [0, 3, 3], 1, 2, 32, torch.Generator().manual_seed(0))
    assert forth == pytest.approx(0, abs=1e-6) and back == pytest.approx(0, abs=1e-6)


def test_correlations_do_not_depend_on_the_batch():
    tokenizer = shipped_tokenizer()
    model = tiny_llada(vocab=len(tokenizer), mask_token_id=tokenizer.mask_token_id)
    pieces = cut_text(tokenizer, "Ships sail in any weather, and some come home late. " * 9, 20, 2)
    asker = Asker(tokenizer, model.mask_id, 0)
    prompts = [with_gap(asker, piece, 8, 8, 1 + apart) for piece in pieces for apart in (1, 3)]
    together = correlate(model, prompts, seed=0, samples=8)
    assert together == [correlate(model, [prompt], seed=0, samples=8)[0] for prompt in prompts]
    assert all(one.evidence["tc"] >= 0 for one in together)
