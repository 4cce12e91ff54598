"""The recall probe on models made so that the answer is known, and on the shipped tokenizer's prompts."""

from dataclasses import replace

import pytest

import maskwise as mw
from helpers.known import SMALL, with_parameters
from helpers.recalling import no_value, pair_before, recalling_model, recalls_what_it_sees
from helpers.records import record as plain_record
from helpers.records import table_of
from helpers.same_records import assert_same_records, sampled_again
from maskwise.probes.library.recall import ANOTHER, NEIGHBOUR, by_distance, metrics
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL, QUICK
from maskwise.scoring.scores import NO_SKILL

PAIRS, POINTS = 16, 24
ASKED = with_parameters(
    replace(SMALL, probes=("recall",), questions=POINTS),
    recall={"pairs": PAIRS, "distances": ("near", "middle", "far"), "mask_counts": (2, 5), "filler_counts": (3,)},
)
NEAR_TOKENS = 90  # holds the pairs that count as near, and none of the other half of the list


def recalled(folder, reply, settings=ASKED, **model):
    return mw.read_run(diagnose(recalling_model(reply, **model), settings, folder)).table("recall")


def curves_of(table, *measures):
    drawn = by_distance(table, {})
    return drawn[drawn.measure.isin(measures or ("correct",))]


def estimates(table):
    return {one.name: one for one in metrics(table, {})}


def test_full_asks_it():
    assert [one.preset for one in (QUICK, DEFAULT, FULL) if "recall" in one.probes] == ["full"]
    assert QUICK.parameters["recall"]["pairs"] == 30 and DEFAULT.parameters["recall"]["pairs"] == 60
    assert QUICK.parameters["recall"]["mask_counts"] == (2,)


def test_seeing_only_what_is_near_is_full_locality(tmp_path):
    table = recalled(tmp_path, recalls_what_it_sees, sees=NEAR_TOKENS)
    found = estimates(table)
    lost = found["accuracy with a far pair less a near one"]
    assert lost.value < -0.8 and lost.side == -1 and lost.n == POINTS
    locality = found["locality"]
    assert locality.value == pytest.approx(1, abs=1.5 / PAIRS) and 0.7 < locality.low <= 1 <= locality.high
    curves = curves_of(table)
    near = curves.distance == "near"
    assert set(curves.question) == {"right", "left"} and set(curves.value[near]) == {1.0}
    assert curves.value[~near].max() < 0.2 and (curves.change[~near] < -0.8).all()
    assert set(curves.between[curves.distance == "far"]) == {PAIRS - 1}
    assert list(curves.asked.unique()) == ["2 masks", "5 masks", "2 masks, 3 full stops", "question first"]
    # sure of another pair's value: all that is lost is content (a logit of 50 against 0 where it is wrong)
    assert found["nats lost to distance"].value > 40
    assert table.nll_choice.sum() == pytest.approx(table.nll.sum())
    far = curves_of(table, "correct", NEIGHBOUR, ANOTHER).query("distance == 'far'")
    assert far.groupby("asked").value.sum().tolist() == pytest.approx([1] * 4)  # no word is of no pair
    assert far.query("measure == @ANOTHER").value.min() > 0.4  # its guesses are spread over the list


def test_reading_everything_is_no_locality(tmp_path):
    table = recalled(tmp_path, recalls_what_it_sees)
    found, curves = estimates(table), curves_of(table)
    assert found["locality"].value == 0 and found["accuracy with a far pair less a near one"].side == 0
    assert len(curves) == 3 * (2 + 1 + 1) and set(curves.value) == {1.0} and set(curves.n) == {POINTS}
    assert table.nll.max() == pytest.approx(0, abs=1e-6)
    assert set(curves_of(table, NEIGHBOUR, ANOTHER).value) == {0.0}
    assert found["nats lost to distance"].value == pytest.approx(0, abs=1e-6)


def test_the_question_last_alone_counts():
    right = {("right", "near"): 10, ("right", "far"): 5, ("left", "near"): 6, ("left", "far"): 0}
    records = [
        plain_record(
            task="pairs",
            point=point,
            correct=point < count,
            evidence={"pairs": 10, "between": 3, "offset": None},
            condition={"question": question, "distance": distance, "masks": 2, "fillers": 0},
        )
        for (question, distance), count in right.items()
        for point in range(10)
    ]
    table = table_of(records)
    assert estimates(table)["locality"].value == pytest.approx((1 - 0.5) / (1 - 0.1))
    last = table[table.question == "right"]
    assert metrics(last, {}) == metrics(table, {})
    assert metrics(table[table.question == "left"], {}) == [] == metrics(last[last.distance == "far"], {})


def test_the_value_of_a_neighbouring_pair_is_counted_separately(tmp_path):
    table = recalled(tmp_path, pair_before)
    found = estimates(table)
    assert found["locality"].why == NO_SKILL and found["locality"].value is None
    assert found["accuracy with a far pair less a near one"].why == NO_SKILL  # and no verdict
    assert set(curves_of(table, NEIGHBOUR).value) == {1.0} and set(curves_of(table, ANOTHER).value) == {0.0}
    last = table[table.question == "right"]
    assert set(last.offset[last.distance == "far"]) == {1}  # the first of the list has none before
    assert set(last.offset[last.distance == "near"]) == {-1}


def test_words_of_no_pair_are_distinguished_from_other_values(tmp_path):
    table = recalled(tmp_path, no_value)
    assert set(curves_of(table, "correct", NEIGHBOUR, ANOTHER).value) == {0.0}
    assert table.offset.isna().all() and set(table.pairs) == {PAIRS}


def test_an_autoregressive_model_is_asked_last_and_without_masks(tmp_path):
    table = recalled(tmp_path, recalls_what_it_sees, sees=NEAR_TOKENS, causal=True)
    assert {*zip(table.question, table.masks, table.fillers, strict=True)} == {("right", 0, 0)}
    assert estimates(table)["locality"].value == pytest.approx(1, abs=1.5 / PAIRS)


def test_a_point_has_one_list_under_all_its_conditions_and_every_point_another(tmp_path):
    table = recalled(tmp_path, recalls_what_it_sees)
    far = table[(table.distance == "far") & (table.question == "right")]
    answers = far.set_index(["point", "masks", "fillers"]).answer
    assert all(answers[point, 2, 0] == answers[point, 5, 0] for point in range(POINTS))
    assert len(set(far.answer)) > POINTS / 2
    assert set(table.between[table.distance == "near"]) == {1, 2, 3, 4}


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    whole = diagnose(recalling_model(recalls_what_it_sees, sees=NEAR_TOKENS), ASKED, tmp_path / "whole")
    model = recalling_model(recalls_what_it_sees, sees=NEAR_TOKENS)
    body, asked = model._body, []

    def stopping(net, batch, layout):
        asked.append(len(batch.offsets) - 1)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return body(net, batch, layout)

    model._body = stopping
    with pytest.raises(KeyboardInterrupt):
        diagnose(model, ASKED, tmp_path / "run", batch_tokens=4000)
    kept = read_run(tmp_path / "run").records
    assert len(kept) == sum(asked[:3])
    diagnose(model, ASKED, tmp_path / "run", batch_tokens=4000)
    assert sum(asked[4:]) - sampled_again(whole) == len(read_run(whole).records) - len(kept)
    assert_same_records(read_run(tmp_path / "run").records, read_run(whole).records)


def test_the_embedded_model_is_asked_whatever_the_batch(tmp_path):
    settings = with_parameters(
        replace(QUICK, probes=("recall",), questions=1), recall={"pairs": 8, "mask_counts": (2, 20)}
    )
    model = mw.open("tiny-llada", device="cpu")
    runs = [read_run(diagnose(model, settings, tmp_path / str(size), batch_tokens=size)) for size in (200, 100_000)]
    assert_same_records(runs[0].records, runs[1].records)
    assert len(runs[0].records) == QUICK.parameters["recall"]["lists_per_point"] * 2 * (2 + 1)
    assert all(record["answer"] != "" and record["nll"] > 0 for record in runs[0].records)
