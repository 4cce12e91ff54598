"""The recall probe on models made so that the answer is known, and on the shipped tokenizer's prompts."""

from dataclasses import replace

import pytest

import maskwise as mw
from helpers.known import SMALL, with_parameters
from helpers.recalling import (
    no_value,
    pair_before,
    recalling_model,
    recalls_what_it_sees,
)
from helpers.records import record as plain_record
from helpers.same_records import assert_same_records, sampled_again
from maskwise.probes.recall_scores import ERRORS, NO_VALUE, recall_locality
from maskwise.probes.summary import summarise
from maskwise.records.folder import read_run
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.words.sentences import opening
from maskwise.report.words.terminal import print_summary
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL, QUICK
from maskwise.scoring.scores import NO_SKILL, null_score

PAIRS, POINTS = 16, 24
ASKED = with_parameters(
    replace(SMALL, probes=("recall",), points=POINTS),
    recall={"pairs": PAIRS, "distances": ("near", "middle", "far"), "mask_counts": (2, 5), "filler_counts": (3,)},
)
NEAR_TOKENS = 90  # holds the pairs that count as near, and none of the other half of the list


def recalled(folder, reply, settings=ASKED, **model):
    return summarise(read_run(diagnose(recalling_model(reply, **model), settings, folder)))


def by_condition(summary, **fixed):
    return {
        tuple(value for name, value in entry["condition"].items() if name not in fixed): entry
        for entry in summary["probes"]["recall"]
        if fixed.items() <= entry["condition"].items()
    }


def test_every_preset_asks_it():
    assert all("recall" in preset.probes for preset in (DEFAULT, FULL)) and "recall" not in QUICK.probes
    assert QUICK.parameters["recall"]["pairs"] == 30 and DEFAULT.parameters["recall"]["pairs"] == 60
    assert QUICK.parameters["recall"]["mask_counts"] == (2,)


def test_seeing_only_what_is_near_is_full_recall_locality(tmp_path):
    summary = recalled(tmp_path, recalls_what_it_sees, sees=NEAR_TOKENS)
    score = summary["scores"]["recall_locality"]
    assert score["value"] == pytest.approx(1, abs=1.5 / PAIRS) and 0.7 < score["low"] <= 1 <= score["high"]
    for question in ("right", "left"):
        entries = by_condition(summary, question=question)
        assert {entry["accuracy"] for (distance, *_), entry in entries.items() if distance == "near"} == {1.0}
        assert max(entry["accuracy"] for (distance, *_), entry in entries.items() if distance != "near") < 0.2
    far = by_condition(summary, question="right", distance="far", fillers=0)[2,]
    assert far["paired"]["baseline"] == {"question": "right", "distance": "near", "masks": 2, "fillers": 0}
    assert far["paired"]["difference"] < -0.8 and far["between"] == PAIRS - 1 and far["chance"] == 1 / PAIRS
    # sure of another pair's value: all that is lost is content (a logit of 50 against 0 where it is wrong)
    nats = summary["scores"]["recall_nats"]
    assert nats["value"] == nats["choice"]["value"] > 40 and nats["allowed"]["value"] == pytest.approx(0, abs=1e-6)
    shares = {kind: found["share"] for kind, found in far["errors"].items()}
    assert far["accuracy"] + sum(shares.values()) == pytest.approx(1) and shares[NO_VALUE] == 0
    assert shares["more than 5 pairs away"] > 0.4  # its guesses are spread over the list


def test_reading_everything_is_no_recall_locality(tmp_path):
    summary = recalled(tmp_path, recalls_what_it_sees)
    assert summary["scores"]["recall_locality"]["value"] == 0
    entries = summary["probes"]["recall"]
    assert len(entries) == 3 * (2 + 1 + 1) and {entry["accuracy"] for entry in entries} == {1.0}
    assert {entry["n"] for entry in entries} == {POINTS}
    assert all(entry["nll"] == pytest.approx(0, abs=1e-6) for entry in entries)
    assert all(found["share"] == 0 for entry in entries for found in entry["errors"].values())
    assert summary["scores"]["recall_nats"]["value"] == pytest.approx(0, abs=1e-6)


def test_the_score_counts_the_question_last_alone():
    right = {("right", "near"): 10, ("right", "far"): 5, ("left", "near"): 6, ("left", "far"): 0}
    records = [
        plain_record(
            task="pairs",
            point=point,
            correct=point < count,
            evidence={"pairs": 10},
            condition={"question": question, "distance": distance, "masks": 2, "fillers": 0},
        )
        for (question, distance), count in right.items()
        for point in range(10)
    ]
    assert recall_locality(records)["value"] == pytest.approx((1 - 0.5) / (1 - 0.1))
    last = [record for record in records if record["condition"]["question"] == "right"]
    assert recall_locality(last) == recall_locality(records)
    assert recall_locality([record for record in records if record not in last])["value"] is None
    assert recall_locality([record for record in last if record["condition"]["distance"] == "far"])["value"] is None


def test_the_value_of_the_pair_before_is_counted_separately(tmp_path):
    summary = recalled(tmp_path, pair_before)
    assert summary["scores"]["recall_locality"] == null_score(NO_SKILL)
    for entry in summary["probes"]["recall"]:
        first_pair = entry["condition"]["distance"] == "far" and entry["condition"]["question"] == "right"
        shares = {kind: found["share"] for kind, found in entry["errors"].items()}
        output = "the pair after" if first_pair else "the pair before"
        assert shares == {kind: float(kind == output) for kind in (*ERRORS, NO_VALUE)}
        assert entry["errors"][output]["share_low"] < 1 == entry["errors"][output]["share_high"]


def test_words_of_no_pair_are_distinguished_from_other_values(tmp_path):
    summary = recalled(tmp_path, no_value)
    assert {entry["errors"][NO_VALUE]["share"] for entry in summary["probes"]["recall"]} == {1.0}
    record = read_run(tmp_path).records[0]
    assert record["evidence"]["offset"] is None and record["evidence"]["pairs"] == PAIRS


def test_an_autoregressive_model_is_asked_last_and_without_masks(tmp_path):
    summary = recalled(tmp_path, recalls_what_it_sees, sees=NEAR_TOKENS, causal=True)
    conditions = [entry["condition"] for entry in summary["probes"]["recall"]]
    assert [(c["question"], c["masks"], c["fillers"]) for c in conditions] == [("right", 0, 0)] * 3
    assert summary["scores"]["recall_locality"]["value"] == pytest.approx(1, abs=1.5 / PAIRS)
    assert summary["scores"]["mask_tax"]["value"] is None


def test_a_point_has_one_list_under_all_its_conditions_and_every_point_another(tmp_path):
    records = read_run(diagnose(recalling_model(recalls_what_it_sees), ASKED, tmp_path)).records
    far = {
        (r["point"], r["condition"]["masks"]): r["answer"]
        for r in records
        if r["condition"]["distance"] == "far" and r["condition"]["question"] == "right"
    }
    assert all(far[point, 2] == far[point, 5] for point in range(POINTS))
    assert len({far[point, 2] for point in range(POINTS)}) > POINTS / 2
    near = [r["evidence"]["between"] for r in records if r["condition"]["distance"] == "near"]
    assert set(near) == {1, 2, 3, 4}


@pytest.mark.slow
def test_terminal_page_and_opening_tell_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = diagnose(recalling_model(recalls_what_it_sees, sees=NEAR_TOKENS), ASKED, tmp_path / "run")
    (reading,) = read_all([folder])
    print_summary(reading)
    printed = capsys.readouterr().out
    assert "Recall locality" in printed and "guessing 6.2 %" in printed.replace("\xa0", " ") and "2+3" in printed
    (sentence,) = [found for found in opening(reading) if found.topic == "Recall"]
    assert sentence.claim == "It recalls near pairs better than distant ones."
    assert "100\xa0% of the near pairs are recalled" in sentence.evidence and "15 pairs away" in sentence.evidence
    assert sentence.evidence.endswith("Of its errors there, 100\xa0% are the value of another pair.")
    page = write_page([reading], tmp_path / "page").read_text()
    assert "Does it recall a pair wherever it stands?" in page and "Whose value does it give instead?" in page
    assert "question first" in page and "3 fillers" in page


def test_no_skill_names_its_own_guessing(tmp_path):
    folder = diagnose(recalling_model(pair_before), ASKED, tmp_path / "run")
    (sentence,) = [found for found in opening(read_all([folder])[0]) if found.topic == "Recall"]
    assert sentence.evidence.endswith("guessing gives 6.2\xa0%, so there is no skill to lose.")


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
        replace(QUICK, probes=("recall",), points=1), recall={"pairs": 8, "mask_counts": (2, 20)}
    )
    model = mw.open("tiny-llada", device="cpu")
    runs = [read_run(diagnose(model, settings, tmp_path / str(size), batch_tokens=size)) for size in (200, 100_000)]
    assert_same_records(runs[0].records, runs[1].records)
    assert len(runs[0].records) == QUICK.parameters["recall"]["lists_per_point"] * 2 * (2 + 1)
    assert all(record["answer"] != "" and record["nll"] > 0 for record in runs[0].records)
