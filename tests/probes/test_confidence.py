"""confidence and trajectory on a Markov source, where the right probabilities are known."""

import re
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from helpers.known import shipped_tokenizer, with_parameters
from helpers.oracle import oracle
from maskwise.probes.answers.commits import LEVELS, watch_commits
from maskwise.probes.answers.looks import Looks
from maskwise.probes.known_tokens import (
    GUESSING,
    SKILL,
    KnownSequence,
    by_source,
    known_prompt,
    pooled,
    sources_in_words,
)
from maskwise.probes.library.confidence import COMMITS, MASKED, _apart, _nine_of_ten, judged, threshold_advice
from maskwise.probes.library.trajectory import _last_steps, looked
from maskwise.probes.library.trajectory import measures as looked_measures
from maskwise.probes.section import Entry
from maskwise.records.record import Record
from maskwise.scoring.power import smallest_detectable
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
    return [known_prompt(one, MASK, number) for number, one in enumerate(known)]


def records_of(answers, condition):
    return [
        Record(model="", probe="", task="markov", point=point, condition=condition, masks=1, predicted="", answer="",
               correct=answer.written.right, evidence=answer.evidence)
        for point, answer in enumerate(answers)
    ]  # fmt: skip


@pytest.fixture(scope="module", params=[1.0, 2.0])
def watched(request):
    model = oracle(lambda sequence: posterior(sequence, request.param), MASK + 1, MASK)
    return request.param, records_of(watch_commits(model, lines(60), "random", 0), {"rule": "random"})


def test_exact_posteriors_are_calibrated_and_log_odds_times_two_give_temperature_two(watched):
    power, records = watched
    for of in (COMMITS, MASKED):
        found = judged(records, of)
        assert found["temperature_low"] < power < found["temperature_high"]
        if power == 1.0:
            assert found["error_low"] == 0 and found["gap_low"] < 0 < found["gap_high"]
        else:
            assert found["error_low"] > 0.03 and found["gap_low"] > 0.03


def test_commits_and_all_masked_positions_are_watched_with_the_share_still_masked(watched):
    _, records = watched
    for record in records[:5]:
        evidence = record.evidence
        assert evidence["share"] == [pytest.approx(left / 10) for left in range(10, 0, -1)]  # one token a step
        assert len(evidence["sure"]) == len(evidence["right"]) == 10
        assert [evidence["all_share"].count(level) for level in LEVELS] == [10, 7, 5, 2]
        assert record.correct == all(evidence["right"])


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
    found = looked({"answers": [-1, 0, 1, 1], "right": 0, "changed": 0})
    assert (found["lost"], found["lost_chance"], found["gained"], found["gained_chance"]) == (1.0, 0.5, 0.0, 0.25)
    assert (found["first_seen"], found["settled"], found["ever"]) == (0.75, 0.75, 1.0)
    mirror = looked({"answers": [0, 1, 1, 1], "right": 1, "changed": 0})
    assert (mirror["lost"], mirror["lost_chance"], mirror["gained"], mirror["gained_chance"]) == (0.0, 0.25, 1.0, 0.75)
    never = looked({"answers": [-1, -1], "right": -1, "changed": 0})
    assert never["unparsable"] == 1.0 and never["lost"] == never["gained_chance"] == 0.0 and never["settled"] == 0.5


def test_the_chance_is_that_of_random_order():
    draws, answers = np.random.default_rng(0), np.array([0, 0, 1, -1, 1, 1])
    orders = [draws.permutation(answers).tolist() for _ in range(4000)]
    seen = [looked({"answers": order, "right": 0, "changed": 0}) for order in orders]
    for kind in ("lost", "gained"):
        assert np.mean([one[kind] for one in seen]) == pytest.approx(seen[0][f"{kind}_chance"], abs=0.03)


def test_the_questions_that_would_decide_are_named():
    lost = {"lost_excess": 0.0, "lost_excess_high": 0.139, "lost_p": 1.0, "lost": 0.0}
    same = {"condition": {"rule": "random", "tokens_per_step": 1}, "masks": 8, "low": 0.7, "high": 1.0}
    for gained in (0.0, 0.1):
        entry = Entry(**same, n=20, accuracy=0.9, measures=lost | {"gained": gained, "gained_high": 0.211})
        _, do = _last_steps(SimpleNamespace(entries=lambda probe, entry=entry: [entry]))
        needed = int(re.search(r"--points (\d+)$", do)[1])
        assert smallest_detectable(needed, gained) <= 0.05 < smallest_detectable(needed - 2, gained)


def test_the_interval_of_a_chance_above_zero_is_no_narrower_than_that_of_none():
    """One of 20 questions with a chance of 1/8: Student's interval was 0 to 1.9 %, that of no chance 0 to 13.9 %."""

    def measured(answers):
        same = {
            "model": "",
            "probe": "",
            "task": "embedded",
            "condition": {},
            "masks": 8,
            "predicted": "",
            "answer": "",
        }
        looks = [[0] * 8] * 19 + [answers]
        found = [{"answers": one, "right": 0, "changed": 0} for one in looks]
        records = [Record(**same, point=n, correct=True, evidence=one) for n, one in enumerate(found)]
        return looked_measures(Entry(condition={}, masks=8, n=20, accuracy=1.0, low=0.8, high=1.0), records)[0].measures

    none, once = measured([0] * 8), measured([0, 1, 0, 0, 0, 0, 0, 0])
    assert none["lost_chance"] == 0 and once["lost_chance"] == pytest.approx(1 / 160)
    assert once["lost_chance_high"] >= none["lost_chance_high"] == none["lost_high"]
    assert once["lost_excess_low"] < -0.05 and once["lost_excess_high"] > 0.05


def test_both_probes_are_run_by_full_and_by_name():
    from maskwise.runs.settings import DEFAULT, FULL, chosen_settings

    names = ("confidence", "trajectory")
    assert set(names) <= set(FULL.probes) and not set(names) & set(DEFAULT.probes)
    assert chosen_settings(probes=",".join(names)).probes == names


def test_more_points_ask_more_questions_of_probes_that_are_named():
    from maskwise.runs.settings import FULL, chosen_settings

    own = chosen_settings(probes="trajectory,contrast", points=60).parameters
    assert own["trajectory"]["questions"] == 60
    assert chosen_settings(probes="trajectory", points=240).parameters["trajectory"]["questions"] == 240
    assert own["contrast"] == FULL.parameters["contrast"]  # its questions are counted per task
    assert chosen_settings(probes="trajectory", points=4).parameters == chosen_settings("full", points=60).parameters


def test_known_sequences_hold_their_right_tokens(tmp_path):
    from helpers.tiny import tiny_llada
    from maskwise.probes.known_tokens import known_sequences
    from maskwise.probes.probe import Asker, Setup
    from maskwise.probes.text import load_text
    from maskwise.runs.settings import QUICK
    from maskwise.tasks.words import load_words

    tokenizer = shipped_tokenizer()
    settings = with_parameters(QUICK, confidence={"questions": 2})
    asker = Asker(tokenizer, tokenizer.mask_token_id, 0)
    own = settings.parameters["confidence"]
    setup = Setup(tiny_llada(), asker, settings, load_words(), load_text(), {}, [], own)
    setup.model.window = 512
    found = known_sequences(setup, "confidence")
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


def gap_of(early, late):
    listed = [
        {"share": share, "gap": gap, "gap_low": gap - 0.05, "gap_high": gap + 0.05}
        for share, gap in (("over 3/4", early), ("1/4 to 1/2", late))
    ]
    share = {"right": 0.78, "sure": 0.75, "gap": 0.0, "gap_low": -0.03, "gap_high": 0.03, "by_share": listed}
    return share | {"bins": [{"sure": 0.95, "right": 0.97, "low": 0.9, "high": 0.99}]}


def test_opposite_gaps_that_cancel_are_said_in_the_heading_and_are_no_calibration():
    (line,) = _nine_of_ten(gap_of(-0.187, 0.13), "commits")
    assert line.startswith(
        "97\u00a0% of commits at a confidence of 0.9 or more are right (90 to 99\u00a0%). Over commits of all"
    )
    assert line.endswith(
        "confidence is 18.7 points below the share right early (over 3/4 masked) and 13.0 points above it late (1/4 to "
        "1/2 masked)"
    )
    verdict = _apart(gap_of(-0.187, 0.13))
    assert "partly cancel in this average" in verdict and "calibrated" not in verdict
    (level,) = _nine_of_ten(gap_of(0.01, 0.02), "commits")
    assert level.endswith("99\u00a0%)") and "calibrated on average" in _apart(gap_of(0.01, 0.02))


def test_a_gap_that_is_shown_is_said_alone_too_and_contradicts_no_other_verdict():
    (early,) = _nine_of_ten(gap_of(-0.175, 0.04), "commits")
    assert early.endswith(
        "all confidences the mean confidence is 17.5 points below the share right early (over 3/4 masked)"
    )
    of = gap_of(-0.133, 0.04)
    under = _apart({**of, "gap": -0.07, "gap_low": -0.12, "gap_high": -0.02})
    assert "underconfident on average; whether by 5 points or more is not shown" in under
    assert under.endswith("(confidence minus share right: \u22127.0\u00a0points (\u221212.0 to \u22122.0))")
    assert "75\u00a0%, underconfident on average (conf" in _apart(
        {**of, "gap": -0.1, "gap_low": -0.14, "gap_high": -0.06}
    )
    assert "not shown to be over- or under" in _apart({**of, "gap": -0.05, "gap_low": -0.11, "gap_high": 0.01})


def test_a_threshold_is_not_advised_before_nine_of_ten_is_shown_or_where_late_commits_are_overconfident():
    measured = {"threshold": 0.63, "verified": 0.92, "verified_low": 0.84, "verified_high": 0.97, "verified_on": 32}
    early, late = gap_of(-0.1, 0.192)["by_share"]
    withheld = threshold_advice({**measured, "above": 0.68}, late)
    assert withheld.startswith(
        "what to do: compare the candidate tau=0.63 on your questions before you use it (maskwise"
    )
    assert "+19.2\u00a0points (14.2 to 24.2)" in withheld and "nine of ten is not yet shown" in withheld
    level = threshold_advice({**measured, "above": 0.68}, {**late, "gap_low": -0.02})
    assert level.startswith("what to do: compare the candidate tau=0.63") and "late commits" not in level
    advised = threshold_advice({**measured, "verified_low": 0.91, "above": 0.68}, early)
    assert advised.startswith(
        "what to do: decode with --rule threshold --parameter tau=0.63. 92\u00a0% of the predictions"
    )
    assert "nine of ten is shown" in advised and "68\u00a0% of the masked positions are that confident" in advised
    missed = threshold_advice({**measured, "verified": 0.8, "verified_high": 0.88, "above": 0.68})
    assert missed.startswith("what to do: ask more questions") and "nine of ten is not reached" in missed
    unchecked = threshold_advice({"threshold": 0.63, "verified": None, "verified_low": None, "verified_high": None})
    assert unchecked.endswith("ask more questions (--points); too few predictions reach tau=0.63 to check it")


def skill_records(right, condition="rule"):
    """`right`: of each source, how many of 12 sequences of the check the model answers."""
    return [
        Record(model="", probe="confidence", task=source, point=point, condition={condition: kind}, masks=1,
               predicted="", answer="", correct=point < count, evidence={} if kind == SKILL else {"sure": [0.5]})
        for source, count in right.items() for point in range(12) for kind in ("random", SKILL)
    ]  # fmt: skip


def test_sources_that_the_model_cannot_do_on_other_sequences_are_left_out_and_named():
    records = skill_records({"embedded": 11, "copy": 3, "recall": 12})
    assert {one.task for one in pooled(records)} == {"embedded", "recall"}
    assert all(one.condition["rule"] == "random" for one in pooled(records))
    # What is scored decides nothing: the same check with all scored answers wrong gives the same pool.
    spoiled = [msgspec.structs.replace(one, correct=one.correct and not one.evidence) for one in records]
    assert {one.task for one in pooled(spoiled)} == {"embedded", "recall"}
    line, each = sources_in_words(by_source(records, {"rule": "random"}, lambda group: {}), "x", lambda one: "y")
    assert line.startswith("figures are over embedded, recall; left out")
    assert line.endswith("copy (3 of 12 right; guessing 25\u00a0%)")
    assert each == "x, source by source: embedded y; copy y; recall y"


def test_a_model_that_can_do_no_source_is_scored_on_all_and_the_page_says_so():
    records = skill_records({"embedded": 4, "markov": 2})
    assert {one.task for one in pooled(records)} == {"embedded", "markov"}
    line, _ = sources_in_words(by_source(records, {"rule": "random"}, lambda group: {}), "x", lambda one: "y")
    assert line.startswith("the model is not shown to do better than guessing on any source")
    assert "--data prompts=FILE" in line


def test_guessing_on_the_markov_source_is_its_commonest_word():
    assert GUESSING["markov"] == pytest.approx(float(CHAIN.stationary.max()), abs=1e-4)


def test_runs_without_the_check_pool_all_sources():
    records = [one for one in skill_records({"embedded": 11, "copy": 3}) if one.evidence]
    assert pooled(records) == records
    found = by_source(records, {"rule": "random"}, lambda group: {})
    assert sources_in_words(found, "x", lambda one: "y") == ["x, source by source: embedded y; copy y"]
