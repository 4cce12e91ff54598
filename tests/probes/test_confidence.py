"""confidence and trajectory on a Markov source, where the right probabilities are known."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.known import shipped_tokenizer
from helpers.oracle import oracle
from maskwise.probes.answers.decoded import watch_commits, watch_looks
from maskwise.probes.checked import AskedSet, CheckedQuestion
from maskwise.probes.known_tokens import GUESSING, known_prompt, of_able_sources
from maskwise.probes.library.confidence import HELD, TAU, advice, curves, diagram, metrics
from maskwise.probes.library.trajectory import KINDS, along, looked
from maskwise.probes.library.trajectory import advice as advise_steps
from maskwise.probes.library.trajectory import metrics as measure_looks
from maskwise.scoring.estimates import Estimate
from maskwise.scoring.reliability import FEWEST
from maskwise.tasks.markov_source import small_chain
from maskwise.tasks.prompts import Prompt

CHAIN = small_chain()
MASK = CHAIN.states
LENGTH = 12


def posterior(sequence, power=1.0):
    """The exact posterior of every place, with its log-odds times `power`; uniform next to tokens that cannot be."""
    p = CHAIN.conditional([None if token == MASK else token for token in sequence]).nan_to_num(1.0) ** power
    p = p / p.sum(-1, keepdim=True)
    return torch.nn.functional.pad(p, (0, 1)).clamp(min=1e-30)


def lines(count, seed=0):
    """Prompts of the source: two words visible, the others masked."""
    drawn = CHAIN.sample(count, LENGTH, torch.Generator().manual_seed(seed)).tolist()
    return [known_prompt(line, LENGTH - 2, MASK) for line in drawn]


def answered(task, rule, point, correct, evidence):
    """A row of the table of confidence."""
    return {"task": task, "rule": rule, "point": point, "correct": float(correct), **evidence}


@pytest.fixture(scope="module", params=[1.0, 2.0])
def watched(request):
    model = oracle(lambda sequence: posterior(sequence, request.param), MASK + 1, MASK)
    return request.param, watch_commits(model, lines(60), "random", 0)


def test_exact_posteriors_are_calibrated_and_log_odds_times_two_are_not(watched):
    power, answers = watched
    table = pd.DataFrame(
        answered("markov", "random", n, one.written.right, one.evidence) for n, one in enumerate(answers)
    )
    found = {one.name: one for one in metrics(table, {})}
    for of in ("commits", "masked positions"):
        error, auroc = (found[f"{of}, random: {what}"] for what in ("calibration error", "AUROC of confidence"))
        assert (error.low == 0) == (power == 1.0) and (error.low > 0.03) == (power == 2.0)
        assert auroc.low > 0.5 and error.n == auroc.n == 60
    assert [*found][-2:] == [TAU, HELD] and len(found) == len(metrics(table, {}))
    drawn = diagram(table, {})
    assert set(drawn.of) == {"commits", "masked positions"} and (drawn.low <= drawn.value).all()
    assert drawn.n.min() >= FEWEST
    below = drawn.x - drawn.value  # overconfident predictions are below the diagonal
    assert (below[drawn.x > 0.8].mean() > 0.05) == (power == 2.0)


def test_commits_and_all_masked_positions_are_watched(watched):
    _, answers = watched
    for answer in answers[:5]:
        evidence = answer.evidence
        assert len(evidence["sure"]) == len(evidence["right"]) == 10  # one token a step
        assert len(evidence["all_sure"]) == len(evidence["all_right"]) == 10 + 7 + 5 + 2  # at each of LEVELS
        assert answer.written.right == all(evidence["right"])


def test_the_last_look_is_the_end_and_looks_are_those_of_each_step():
    """A model that writes 1 in its first steps and 2 in its last: right, then wrong."""
    tokenizer = shipped_tokenizer()
    one, two = (tokenizer.convert_tokens_to_ids(letter) for letter in "AB")

    def body(sequence):
        masked = sequence.count(tokenizer.mask_token_id)
        p = torch.full((len(sequence), len(tokenizer)), 1e-9)
        p[:, one if masked > 2 else two] = 1.0
        p[-1, [one, two]] = torch.tensor([1.0, 0.0]) if masked > 2 else torch.tensor([0.0, 1.0])
        return p / p.sum(-1, keepdim=True)

    model = oracle(body, len(tokenizer), tokenizer.mask_token_id)
    model.tokenizer = tokenizer
    ids = tuple(tokenizer("Answer:")["input_ids"])
    asked = AskedSet("own", (CheckedQuestion(ids, (one,), "AAAA"),))
    prompt = Prompt((*ids, *[tokenizer.mask_token_id] * 4), len(ids), one, 4)
    (answer,) = watch_looks(model, [prompt], asked, "left-to-right", 4, 4, 0)
    assert answer.evidence["answers"][:2] == [0, 0] and answer.evidence["right"] == 0
    assert answer.evidence["answers"][-1] != 0 and not answer.written.right


def test_right_then_wrong_and_its_mirror_above_chance():
    found = looked([-1, 0, 1, 1], right=0)
    assert (found["lost"], found["gained"], found["settled"]) == (1 - 0.5, 0 - 0.25, 0.75)
    mirror = looked([0, 1, 1, 1], right=1)
    assert (mirror["lost"], mirror["gained"]) == (0 - 0.25, 1 - 0.75)
    never = looked([-1, -1], right=-1)
    assert never["lost"] == never["gained"] == 0.0 and never["settled"] == 0.5


def test_random_order_is_chance():
    draws, given = np.random.default_rng(0), np.array([0, 0, 1, -1, 1, 1])
    seen = [looked(draws.permutation(given).tolist(), right=0) for _ in range(4000)]
    for kind in KINDS:
        assert np.mean([one[kind] for one in seen]) == pytest.approx(0, abs=0.03)


def trajectories(*given):
    """The table of questions with these classes of the answer after each step; 0 is right."""
    plain = {"task": "embedded", "rule": "random", "tokens_per_step": 1, "changed": 0}
    return pd.DataFrame(
        plain | {"point": n, "correct": float(one[-1] == 0), "answers": one, "right": 0 if 0 in one else -1}
        for n, one in enumerate(given)
    )


def test_an_order_that_destroys_answers_is_found_and_one_that_does_not_is_not():
    late, early = [0, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0, 0]
    found = measure_looks(trajectories(*[late] * 30), {})
    lost, gained, _ = found
    assert lost.value == pytest.approx(7 / 8) and lost.low > 0.5
    assert gained.value == pytest.approx(-7 / 8)  # in random order most would end right
    assert "commit fewer tokens per step" in advise_steps(found)
    lost, gained, _ = measure_looks(trajectories(*[early] * 30), {})
    assert lost.value == pytest.approx(-1 / 8) and gained.value == pytest.approx(1 / 8)
    drawn = along(trajectories(*[late] * 10, *[early] * 10), {}).set_index("steps").value
    assert drawn[10] == drawn[100] == 0.5 and drawn[50] == 1.0
    *_, settled = measure_looks(trajectories(late, early), {})
    assert (settled.value, settled.n) == (pytest.approx((1 + 2 / 8) / 2), 2)


def test_what_is_not_shown_asks_for_more_questions():
    for count, asks in ((20, True), (200, False)):
        found = measure_looks(trajectories(*[[0] * 8] * count), {})
        assert ("--questions" in advise_steps(found)) == asks
    once = measure_looks(trajectories(*[[0] * 8] * 19, [0, 1, *[0] * 6]), {})[0]
    assert once.low < -0.05 and once.high > 0.05  # one of 20 questions with a chance of 1/8


def test_both_probes_are_run_by_full_and_by_name():
    from maskwise.runs.settings import DEFAULT, FULL, chosen_settings

    names = ("confidence", "trajectory")
    assert set(names) <= set(FULL.probes) and not set(names) & set(DEFAULT.probes)
    assert chosen_settings(probes=",".join(names)).probes == names


def test_more_points_ask_more_questions_of_probes_that_are_named():
    from maskwise.runs.settings import chosen_settings

    asked = {n: chosen_settings(probes="trajectory", questions=n).parameters["trajectory"] for n in (4, 60, 240)}
    assert (asked[60]["questions"], asked[240]["questions"]) == (60, 240)
    assert asked[4] == chosen_settings(probes="trajectory").parameters["trajectory"]


def test_known_sequences_hold_their_right_tokens(tmp_path):
    from helpers.tiny import tiny_llada
    from maskwise.probes.known_tokens import known_prompts
    from maskwise.probes.setup import Asker, Setup
    from maskwise.probes.text import load_text
    from maskwise.runs.settings import QUICK
    from maskwise.tasks.words import load_words

    tokenizer = shipped_tokenizer()
    asker = Asker(tokenizer, tokenizer.mask_token_id, 0)
    setup = Setup(tiny_llada(), asker, QUICK, load_words(), load_text(), {}, [])
    setup.model.window = 512
    found = known_prompts(setup, "confidence", 2)
    assert list(found) == ["embedded", "copy", "recall", "markov"] and not setup.notes
    whole = {name: tokenizer.decode(ids) for name, ids in ids_of(found).items()}
    right = {name: tokenizer.decode(prompts[0].right) for name, prompts in found.items()}
    copied = whole["copy"].splitlines()
    assert copied[-1].removeprefix("Copied:") == copied[-2].removeprefix("Copy:") == right["copy"]
    asked = whole["recall"].rsplit("Key: ", 1)[1].splitlines()[0]
    assert f"Key: {asked}\nValue:[{right['recall']}]" in whole["recall"]
    assert right["embedded"][0] in "ABC"
    line = ids_of(found)["markov"][-72:]
    after = {token: set() for token in line}
    for token, following in pairwise(line):
        after[token].add(following)
    assert len(after) <= CHAIN.states and max(map(len, after.values())) <= 3  # one on, two on, back to the first


def ids_of(found):
    """The first sequence of each source with its right tokens in place."""
    return {name: (*prompts[0].ids[: prompts[0].row], *prompts[0].right) for name, prompts in found.items()}


def threshold_that_held(held):
    """Estimates of a threshold that was verified on 32 questions."""
    return [Estimate(TAU, 0.63), Estimate(HELD, held, held - 0.04, held + 0.04, 32, against=0.9, claim="above")]


def test_a_threshold_is_advised_where_nine_of_ten_is_shown():
    decode, compare = "--rule threshold --parameter tau=0.63", "rule=threshold,tau=0.63"
    assert decode in advice(threshold_that_held(0.95))
    assert compare in advice(threshold_that_held(0.92)) and decode not in advice(threshold_that_held(0.92))
    assert "--questions" in advice(threshold_that_held(0.8))
    assert "--questions" in advice([Estimate(TAU, 0.63), Estimate(HELD, None)])
    assert advice([Estimate(TAU, None, why="never"), Estimate(HELD, None)]) == "commit one token per step: never"
    assert advice([]) is None


def answers_of_sources(right):
    """`right`: of each source, in how many of 12 sequences the first token is predicted."""
    return pd.DataFrame(
        answered(source, rule, point, 0, {"sure": [0.5], "right": [0], "all_sure": [0.5, 0.5], "all_right": all_right})
        for source, count in right.items()
        for point in range(12)
        for rule, all_right in (("random", [int(point < count), 0]), ("threshold", [int(point < count), 1]))
    )


def test_a_threshold_is_chosen_on_even_questions_and_verified_on_odd_ones():
    """Right from .7 on in the even ones; of the odd ones half of these are wrong."""
    rows = [
        answered("copy", "random", n, 1, {"sure": sure, "right": right, "all_sure": sure, "all_right": right})
        for n in range(40)
        for sure in [[0.5, 0.71, 0.9, 0.9]]
        for right in ([[0, 1, 1, 1]] if n % 2 == 0 else [[1, 0, 0, 1]])
    ]
    found = {one.name: one for one in metrics(pd.DataFrame(rows), {})}
    assert found[TAU].value == pytest.approx(0.51, abs=0.001) and found[TAU].n == found[HELD].n == 20
    assert found[HELD].value == pytest.approx(1 / 3) and found[HELD].verdict == "does not hold"


def test_sources_whose_first_token_is_a_guess_are_left_out():
    table = answers_of_sources({"embedded": 11, "copy": 3, "recall": 12, "mine": 0})
    kept = of_able_sources(table)
    assert set(kept.task) == {"embedded", "recall"} and set(kept.rule) == {"random", "threshold"}
    assert {one.n for one in metrics(table, {})} == {24, 12}  # two sources; a half for the threshold


def test_a_model_that_can_do_no_source_is_scored_on_all():
    table = answers_of_sources({"embedded": 4, "markov": 2})
    assert set(of_able_sources(table).task) == {"embedded", "markov"}


def test_answers_of_0_2_without_evidence_are_left_out():
    """It asked for the first token of other sequences."""
    table = answers_of_sources({"embedded": 11})
    check = {"task": "embedded", "rule": "skill", "point": 0, "correct": 1.0}
    with_check = pd.concat([table, pd.DataFrame([check])], ignore_index=True)
    assert {named["rule"] for named, _, _ in curves(with_check)} == {"random", "threshold"}
    assert metrics(with_check, {}) == metrics(table, {})
    assert metrics(table[:0], {}) == []


def test_guessing_on_the_markov_source_is_its_commonest_word():
    assert GUESSING["markov"] == pytest.approx(float(CHAIN.stationary.max()), abs=1e-4)
