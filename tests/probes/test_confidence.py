"""confidence and trajectory on a Markov source, where the right probabilities are known."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.known import shipped_tokenizer
from helpers.oracle import oracle
from maskwise.probes.answers.commits import LEVELS, watch_commits
from maskwise.probes.answers.looks import Looks
from maskwise.probes.known_tokens import (
    GUESSING,
    SKILL,
    KnownSequence,
    known_prompt,
    of_able_sources,
    source_checks,
)
from maskwise.probes.library.confidence import (
    HELD,
    LATE,
    TAU,
    advice,
    by_share,
    by_source,
    diagram,
    gaps,
    metrics,
    ranking,
    scored,
    settings,
)
from maskwise.probes.library.trajectory import advice as advise_steps
from maskwise.probes.library.trajectory import along, looked, lost_and_gained, stands
from maskwise.probes.library.trajectory import metrics as measure_looks
from maskwise.scoring.estimates import POINTS, Estimate
from maskwise.scoring.power import smallest_detectable
from maskwise.scoring.reliability import FEWEST, TEMPERATURES
from maskwise.tasks.markov_source import small_chain

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
    known = [KnownSequence(tuple(line), tuple(range(2, LENGTH))) for line in drawn]
    return [known_prompt(one, MASK) for one in known]


def answered(task, rule, point, correct, evidence):
    """A row of the table of confidence."""
    own = {"nll_found" if name == "nll" else name: values for name, values in evidence.items()}
    return {"task": task, "rule": rule, "point": point, "correct": float(correct), **own}


@pytest.fixture(scope="module", params=[1.0, 2.0])
def watched(request):
    model = oracle(lambda sequence: posterior(sequence, request.param), MASK + 1, MASK)
    return request.param, watch_commits(model, lines(60), "random", 0)


def test_exact_posteriors_are_calibrated_and_log_odds_times_two_give_temperature_two(watched):
    power, answers = watched
    table = pd.DataFrame(
        answered("markov", "random", n, one.written.right, one.evidence) for n, one in enumerate(answers)
    )
    for one in scored(table):
        gap, (_, error, _), temperature = gaps(one)[0], ranking(one), settings(one)[0]
        assert temperature.low < power < temperature.high
        if power == 1.0:
            assert error.low == 0 and gap.side == 0
        else:
            assert error.low > 0.03 and gap.low > 0.03
    found = metrics(table, {})
    assert found[0].name == "commits, random: confidence less share right" and found[0].n == 60
    assert len({one.name for one in found}) == len(found)
    for drawn in (diagram(table, {}), by_share(table, {})):
        assert set(drawn.of) == {"commits", "masked positions"} and (drawn.low <= drawn.value).all()
    assert by_share(table, {}).n.sum() == 60 * (10 + 24) and diagram(table, {}).n.min() >= FEWEST


def test_commits_and_all_masked_positions_are_watched_with_the_share_still_masked(watched):
    _, answers = watched
    for answer in answers[:5]:
        evidence = answer.evidence
        assert evidence["share"] == [pytest.approx(left / 10) for left in range(10, 0, -1)]  # one token a step
        assert len(evidence["sure"]) == len(evidence["right"]) == 10
        assert [evidence["all_share"].count(level) for level in LEVELS] == [10, 7, 5, 2]
        assert answer.written.right == all(evidence["right"])


@pytest.mark.parametrize(("rule", "changes"), [("low-confidence", False), ("random", False), ("remdm", True)])
def test_committed_tokens_change_only_where_a_strategy_masks_them_again(rule, changes):
    from maskwise.decoding.generate import decode
    from maskwise.decoding.options import DecodingOptions

    model = oracle(posterior, MASK + 1, MASK)
    counter = Looks([list(prompt.ids) for prompt in lines(4)], MASK)
    parameters = {"eta": 0.3} if rule == "remdm" else None
    options = DecodingOptions(max_new_tokens=0, rule=rule, steps=8, parameters=parameters)
    made = decode(model, [list(prompt.ids) for prompt in lines(4)], options, on_step=counter)
    assert (sum(counter.changed) > 0) == changes
    assert [counter.new_tokens(n)[-1] for n in range(4)] == [one.ids for one in made]  # the last look is the end


def test_right_then_wrong_and_its_mirror_with_their_chance():
    found = looked([-1, 0, 1, 1], right=0)
    assert (found["lost"], found["lost_chance"], found["gained"], found["gained_chance"]) == (1.0, 0.5, 0.0, 0.25)
    assert (found["first_seen"], found["settled"], found["ever"]) == (0.75, 0.75, 1.0)
    mirror = looked([0, 1, 1, 1], right=1)
    assert (mirror["lost"], mirror["lost_chance"], mirror["gained"], mirror["gained_chance"]) == (0.0, 0.25, 1.0, 0.75)
    never = looked([-1, -1], right=-1)
    assert never["unparsable"] == 1.0 and never["lost"] == never["gained_chance"] == 0.0 and never["settled"] == 0.5


def test_the_chance_is_that_of_random_order():
    draws, given = np.random.default_rng(0), np.array([0, 0, 1, -1, 1, 1])
    seen = [looked(draws.permutation(given).tolist(), right=0) for _ in range(4000)]
    for kind in ("lost", "gained"):
        assert np.mean([one[kind] for one in seen]) == pytest.approx(seen[0][f"{kind}_chance"], abs=0.03)


def trajectories(*given):
    """The table of questions with these classes of the answer after each step; 0 is right."""
    plain = {"task": "embedded", "rule": "random", "tokens_per_step": 1, "changed": 0}
    return pd.DataFrame(
        plain | {"point": n, "correct": float(one[-1] == 0), "answers": one, "right": 0 if 0 in one else -1}
        for n, one in enumerate(given)
    )


def test_an_order_that_destroys_answers_is_found_and_one_that_does_not_is_not():
    late, early = [0, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0, 0]
    lost, gained, changed = measure_looks(trajectories(*[late] * 30), {})
    assert lost.value == pytest.approx(7 / 8) and lost.low > 0.5 and changed.value == 1.0
    assert gained.value == pytest.approx(-7 / 8)  # in random order most would end right
    assert "commit fewer tokens per step" in advise_steps([lost, gained, changed])
    lost, gained, _ = measure_looks(trajectories(*[early] * 30), {})
    assert lost.value == pytest.approx(-1 / 8) and gained.value == pytest.approx(1 / 8)
    drawn = along(trajectories(*[late] * 10, *[early] * 10), {}).set_index("steps").value
    assert drawn[10] == drawn[100] == 0.5 and drawn[50] == 1.0
    where = stands(trajectories(late, early), {}).iloc[0]
    assert (where.value, where.ever, where.n) == (pytest.approx((1 + 2 / 8) / 2), 1.0, 2)


def test_the_questions_that_would_decide_are_named():
    for steady, gained in ((20, 0), (18, 2)):
        found = measure_looks(trajectories(*[[0] * 8] * steady, *[[1] + [0] * 7] * gained), {})
        needed = int(re.search(r"--questions (\d+)$", advise_steps(found))[1])
        share = max(gained / 20, 0.05)
        assert smallest_detectable(needed, share) <= 0.05 < smallest_detectable(needed - 2, share)


def test_the_interval_of_a_chance_above_zero_is_no_narrower_than_that_of_none():
    """One of 20 questions with a chance of 1/8: Student's interval was 0 to 1.9 %, that of no chance 0 to 13.9 %."""
    drawn, above = {}, {}
    for name, last in (("none", [0] * 8), ("once", [0, 1, *[0] * 6])):
        table = trajectories(*[[0] * 8] * 19, last)
        listed = lost_and_gained(table, {}).set_index("what")
        drawn[name] = listed.loc["right then wrong, by chance"]
        above[name] = measure_looks(table, {})[0]
    assert drawn["none"].value == 0 and drawn["once"].value == pytest.approx(1 / 160)
    assert drawn["once"].high >= drawn["none"].high == listed.loc["right then wrong"].high
    assert above["once"].low < -0.05 and above["once"].high > 0.05


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
    from maskwise.probes.known_tokens import known_sequences
    from maskwise.probes.setup import Asker, Setup
    from maskwise.probes.text import load_text
    from maskwise.runs.settings import QUICK
    from maskwise.tasks.words import load_words

    tokenizer = shipped_tokenizer()
    asker = Asker(tokenizer, tokenizer.mask_token_id, 0)
    setup = Setup(tiny_llada(), asker, QUICK, load_words(), load_text(), {}, [])
    setup.model.window = 512
    found = known_sequences(setup, "confidence", 2)
    assert list(found) == ["embedded", "copy", "recall", "markov"] and not setup.notes
    copied = tokenizer.decode(found["copy"][0].ids).splitlines()
    assert copied[-1].removeprefix("Copied:") == copied[-2].removeprefix("Copy:")
    assert tokenizer.decode(found["copy"][0].right) == copied[-1].removeprefix("Copied:")
    recalled = tokenizer.decode(found["recall"][0].ids)
    asked = recalled.rsplit("Key: ", 1)[1].splitlines()[0]
    assert f"Key: {asked}\nValue:[{tokenizer.decode(found['recall'][0].right)}]" in recalled
    assert tokenizer.decode(found["embedded"][0].right)[0] in "ABC"
    line = found["markov"][0]
    after = {token: set() for token in line.ids[-72:]}
    for token, following in pairwise(line.ids[-72:]):
        after[token].add(following)
    assert len(after) <= CHAIN.states and max(map(len, after.values())) <= 3  # one on, two on, back to the first


def late_and_held(late, held):
    """Estimates of a threshold that was verified on 32 questions, and of its late commits."""
    gap = Estimate(LATE, late, late - 0.05, late + 0.05, 32, POINTS)
    return [gap, Estimate(TAU, 0.63), Estimate(HELD, held, held - 0.04, held + 0.04, 32, against=0.9, claim="above")]


def test_a_threshold_is_advised_where_nine_of_ten_is_shown_and_late_commits_are_not_overconfident():
    decode, compare = "--rule threshold --parameter tau=0.63", "rule=threshold,tau=0.63"
    assert decode in advice(late_and_held(-0.1, 0.95)) and decode in advice(late_and_held(0.04, 0.95)[1:])
    for late, held in ((0.1, 0.95), (-0.1, 0.92)):  # overconfident late; not yet shown
        assert compare in advice(late_and_held(late, held)) and decode not in advice(late_and_held(late, held))
    assert "--questions" in advice(late_and_held(-0.1, 0.8))
    assert "--questions" in advice([Estimate(TAU, 0.63), Estimate(HELD, None)])
    assert advice([Estimate(TAU, None, why="never"), Estimate(HELD, None)]) == "commit one token per step: never"
    assert advice([]) is None


def answers_of_sources(right):
    """`right`: of each source, how many of 12 sequences of the check the model answers."""
    nll = [0.0] * len(TEMPERATURES)
    looked = {"sure": [0.5], "right": [1], "share": [1.0], "nll": nll}
    found = looked | {f"all_{name}": values for name, values in looked.items()}
    return pd.DataFrame(
        answered(source, rule, point, point < count, {} if rule == SKILL else found)
        for source, count in right.items()
        for point in range(12)
        for rule in ("random", SKILL)
    )


def test_sources_that_the_model_cannot_do_on_other_sequences_are_left_out_and_listed():
    table = answers_of_sources({"embedded": 11, "copy": 3, "recall": 12})
    kept = of_able_sources(table)
    assert set(kept.task) == {"embedded", "recall"} and set(kept.rule) == {"random"}
    # What is scored decides nothing: the same check with all scored answers wrong gives the same pool.
    spoiled = table.assign(correct=table.correct.where(table.rule == SKILL, 0.0))
    assert set(of_able_sources(spoiled).task) == {"embedded", "recall"}
    listed = by_source(table, {}).set_index("source")
    assert listed.pooled.to_dict() == {"embedded": True, "copy": False, "recall": True}
    assert tuple(listed.loc["copy", ["right in check", "checked", "guessing"]]) == (3, 12, 0.25)
    assert {one.n for one in metrics(table, {})} <= {24, 12}  # two sources; a half for the threshold


def test_a_model_that_can_do_no_source_is_scored_on_all():
    table = answers_of_sources({"embedded": 4, "markov": 2})
    assert set(of_able_sources(table).task) == {"embedded", "markov"}
    assert not source_checks(table).able.any()


def test_runs_without_the_check_pool_all_sources():
    table = answers_of_sources({"embedded": 11, "copy": 3})
    asked = table[table.rule != SKILL]
    assert len(of_able_sources(asked)) == 24 and by_source(asked, {}).pooled.all()
    assert metrics(table[table.rule == SKILL].dropna(axis=1), {}) == []


def test_guessing_on_the_markov_source_is_its_commonest_word():
    assert GUESSING["markov"] == pytest.approx(float(CHAIN.stationary.max()), abs=1e-4)
