"""The factorial of trainings: the stacked network against single ones, its rows and masks, the design."""

import argparse
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np
import pytest
import torch

from corpus import Corpus, load_zoo_tokenizer
from dense_noise import nelbo_grid
from exams import recall_questions
from factorial import (
    FACTORS,
    REPEATED,
    SMALL,
    Masker,
    Run,
    Supply,
    design,
    ended,
    make_questions,
    mask_suffix,
    new_net,
    next_token_weights,
    train,
)
from factorial_effects import Experiment
from maskwise.tasks.prompts import opened
from stacked import Stack, clip_each_run, packed
from task_accuracy import answers, hidden_states
from tiny_step import ANSWER, KINDS, Training

TOKENIZER = load_zoo_tokenizer()
MASK, EOS = TOKENIZER.mask_token_id, TOKENIZER.eos_token_id
CPU = torch.device("cpu")
RUNS = [Run((1, -1, -1, 1, 1)), Run((1, -1, -1, -1, -1))]


def new_nets():
    return [new_net(run, SMALL, TOKENIZER, seed=0) for run in RUNS]


def some_rows(seed: int, count: int = 6, length: int = 40) -> torch.Tensor:
    rows = torch.randint(3, 2000, (count, length), generator=torch.Generator().manual_seed(seed), dtype=torch.int16)
    rows[:, ::7] |= ANSWER
    return rows


def test_a_stacked_network_is_its_networks():
    nets = new_nets()
    stack = Stack(nets, 1e-2, CPU)
    ids = torch.stack([some_rows(seed).long() & (ANSWER - 1) for seed in (1, 2)])
    for causal in (0, 1, 2):
        hidden = stack.hidden(ids, causal)
        for place, net in enumerate(nets):
            torch.testing.assert_close(hidden[place], hidden_states(net, ids[place], place < causal))


def test_stacked_training_is_each_training_alone():
    """Different rows and masks for each run, gradients large enough to be clipped in one run at least."""
    nets = new_nets()
    stack = Stack(nets, 1e-2, CPU)
    alone = [Training(KINDS["tiny-llada"], net, MASK, 1e-2, CPU, seed) for seed, net in enumerate(new_nets())]
    draws = [torch.Generator().manual_seed(seed) for seed in range(2)]
    for step in range(3):
        rows = [some_rows(10 * step + seed) for seed in range(2)]
        losses = [one.step(part, 0.9, 1.0) for one, part in zip(alone, rows, strict=True)]
        ids = torch.stack(rows).long() & (ANSWER - 1)
        given, weights = map(torch.stack, zip(*map(nelbo_grid, ids, [MASK, MASK], draws), strict=True))
        found = stack.step(given, ids, weights, (1 - 0.9) / 0.4)
        torch.testing.assert_close(found, torch.stack(losses))
    for place, one in enumerate(alone):
        for mine, wanted in zip(stack.masters, packed(one.plain_net()), strict=True):
            torch.testing.assert_close(mine[place], wanted, rtol=1e-4, atol=1e-5)
    assert not torch.equal(stack.masters[0][0], nets[0].get_input_embeddings().weight)


def test_clipping_counts_each_run_alone():
    gradients = [torch.tensor([[3.0, 0.0], [0.3, 0.0]]), torch.tensor([[[4.0]], [[0.4]]])]
    clip_each_run(gradients)
    torch.testing.assert_close(gradients[0], torch.tensor([[0.6, 0.0], [0.3, 0.0]]))
    torch.testing.assert_close(gradients[1], torch.tensor([[[0.8]], [[0.4]]]))


def test_stacked_answers_are_each_networks_answers():
    nets = new_nets()
    stack = Stack(nets, 1e-2, CPU)
    questions = recall_questions(TOKENIZER, 3, "near", 5, seed=0)
    for causal in (0, 2):
        prompts = [opened(question, None if causal else MASK, 0 if causal else 4) for question in questions]
        right, nats = stack.answers(prompts, SMALL.length, causal)
        for place, net in enumerate(nets):
            wanted = answers(net, prompts, shift=causal > 0, causal=causal > 0)
            assert right[place].float().tolist() == wanted[0].tolist()
            torch.testing.assert_close(nats[place], wanted[1])


def test_design_has_resolution_five_and_its_repeats():
    runs = design()
    cells = np.array([run.levels for run in runs if not run.repeat])
    assert len({tuple(cell) for cell in cells}) == len(cells) == 16 and (cells.prod(1) == 1).all()
    columns = [prod(cells.T[list(which)]) for size in (1, 2) for which in combinations(range(len(FACTORS)), size)]
    columns.insert(0, np.ones(16, dtype=int))
    np.testing.assert_array_equal(np.stack(columns) @ np.stack(columns).T, 16 * np.eye(16))
    assert [sum(run.levels == cell for run in runs) for cell in REPEATED] == [3, 3]
    assert len({run.name for run in runs}) == 20
    starts = [run.levels[3] for run in runs]
    assert starts == sorted(starts, reverse=True)


def test_documents_end_with_a_line_and_eos_fills_the_row():
    ids = some_rows(0, 200, 64).long() & (ANSWER - 1)
    answer = torch.ones_like(ids, dtype=torch.bool)
    line_end = torch.zeros(2048, dtype=torch.bool)
    line_end[7] = True
    ids[:100, 4::5] = 7
    after, kept, ends = ended(ids, answer, EOS, line_end, torch.Generator().manual_seed(0))
    inside = torch.arange(64) < ends[:, None]
    assert (after[inside] == ids[inside]).all() and (after[~inside] == EOS).all() and (kept == inside).all()
    assert (ids[torch.arange(100), ends[:100] - 1] == 7).all()
    assert ends.min() >= 8 and ends[100:].max() > 60 and ends[100:].float().mean().item() == pytest.approx(40, abs=3)


@pytest.mark.parametrize("focused", [False, True])
def test_suffixes_are_masked_from_the_second_half_on(focused):
    ids = some_rows(0, 300, 64).long() & (ANSWER - 1)
    answer = (some_rows(0, 300, 64) & ANSWER) > 0
    ends = torch.full((300,), 64)
    ends[150:] = 20
    given, weights = mask_suffix(ids, answer, ends, focused, MASK, 0.5, torch.Generator().manual_seed(0))
    hidden = given == MASK
    start = hidden.int().argmax(1)
    assert (hidden == (torch.arange(64) >= start[:, None])).all() and ((weights > 0) == hidden).all()
    assert (start < ends).all() and (start >= ends // 2).all() and len(start[:150].unique()) > 25
    assert (given[~hidden] == ids[~hidden]).all()
    assert weights.sum().item() == pytest.approx(2 if focused else 1)


def test_each_run_gets_rows_by_its_levels():
    rows, line_end = some_rows(0, 20, 64), torch.zeros(2048, dtype=torch.bool)

    def drawn(levels, causal=False):
        masker = Masker(Run(levels), MASK, EOS, line_end, torch.Generator().manual_seed(0))
        return masker(rows, 0.5, causal)

    def suffixes(given):
        return sum(len(set((row == MASK).int().diff().nonzero().flatten().tolist())) == 1 for row in given)

    ids = rows.long() & (ANSWER - 1)
    for levels in ((1, -1, -1, 1, -1), (1, 1, -1, 1, -1), (1, 1, -1, 1, 1), (1, -1, -1, 1, 1)):
        given, targets, weights = drawn(levels)
        assert (targets == ids).all() and ((given == MASK) == (weights > 0)).all()
        assert (suffixes(given[:6]) == 6) == (levels[1] > 0)
        assert (weights.sum().item() == pytest.approx(2)) == (levels[4] > 0)
    given, targets, weights = drawn((1, -1, 1, -1, -1))
    assert (targets[:, -1] == EOS).float().mean() > 0.8
    given, targets, weights = drawn((1, 1, -1, 1, -1), causal=True)
    assert (given == ids).all() and (targets[:, :-1] == ids[:, 1:]).all() and (weights[:, -1] == 0).all()


def test_rows_go_to_the_runs_of_their_mixture():
    """Few-shot rows are recognised by the piece that every question begins with."""
    prose = np.array(TOKENIZER.encode("It was a dark and stormy night. " * 50), dtype=np.int16)
    runs = design()
    supply = Supply(Corpus(TOKENIZER, prose), runs, replace(SMALL, rows=10), 0, CPU)
    options = TOKENIZER.encode("Options: (A)")[0]
    for progress in (0.0, 0.5):
        rows = supply.rows(progress, step=0)
        assert rows.shape == (20, 10, SMALL.length)
        few_shot = ((rows & (ANSWER - 1)) == options).any(2).sum(1)
        by_level = {
            level: [int(n) for n, run in zip(few_shot, runs, strict=True) if run.levels[0] == level]
            for level in (1, -1)
        }
        assert sum(by_level[1]) == 40 and sum(by_level[-1]) == 2


def test_the_answers_count_once_more_only_under_the_recipes_objective():
    answer = torch.zeros(2, 5, dtype=torch.bool)
    answer[0, 3] = True
    plain, focused = next_token_weights(answer, False), next_token_weights(answer, True)
    assert plain.sum().item() == pytest.approx(0.8) and (plain[:, :-1] == plain[0, 0]).all()
    assert focused[0, 2].item() == pytest.approx(1.1) and focused.sum().item() == pytest.approx(1.8)


@pytest.mark.slow
@pytest.mark.parametrize("learnt", [False, True])
def test_toy_runs_end_with_a_table_and_all_answers(learnt, tmp_path):
    english = tmp_path / "english.npy"
    np.save(english, np.array(TOKENIZER.encode("It was a dark and stormy night. " * 50), dtype=np.int16))
    options = argparse.Namespace(english=english, out=tmp_path / "out", seconds=4, seed=0, toy=True, learnt=learnt)
    book = train(options)
    experiment = Experiment(tmp_path / "out")
    kinds = [exam["kind"] for exam in experiment.exams]
    assert kinds[-1] == "final" and ("start" in kinds) != learnt and ("start" in experiment.facts) == learnt
    assert len(experiment.names) == len(book.table().splitlines()) - 1 == (12 if learnt else 20)
    last = experiment.answers[f"{len(kinds) - 1} contrast far 5 nats"]
    assert last.shape == (len(experiment.names), 24) and np.isfinite(last).all()


def test_a_stack_begins_with_one_network():
    nets = new_nets()
    stack = Stack(nets, 1e-2, CPU)
    stack.begin_with(Stack(nets[1:], 1e-2, CPU))
    for mine, wanted in zip(stack.weights, packed(nets[1]), strict=True):
        assert (mine == wanted).all()


def test_near_and_far_ask_the_same():
    exams = make_questions(TOKENIZER, SMALL, (2, 3), seed=1)
    assert {name: len(asked) for name, asked in exams.items()} == {
        "contrast near": 8 * 2 * 3,
        "contrast far": 8 * 2 * 3,
        "recall near": 3,
        "recall far": 3,
    }
    for near, far in zip(exams["contrast near"], exams["contrast far"], strict=True):
        left, right = (TOKENIZER.decode(one.ids).split("\n\n") for one in (near, far))
        assert len(left) == SMALL.distractors + 2 and left[-1] == right[-1] and left[-2] == right[0]
    longest = max(question.row for asked in exams.values() for question in asked)
    assert longest + max(SMALL.masks) <= SMALL.length
