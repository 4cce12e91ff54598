"""Each probe, on models made so that its answer is known."""

from dataclasses import replace

import pytest

from helpers.known import (
    CORE_PROBES,
    SMALL,
    confused_by_length,
    distracted,
    known_model,
    nearest_rule,
    shipped_tokenizer,
    uniform,
)
from helpers.tiny import tiny_ar, tiny_dream
from maskwise.probes.examples import unlabelled
from maskwise.probes.library import filler, location, mask_count
from maskwise.probes.library.filler import END
from maskwise.probes.probe import estimates
from maskwise.probes.probe import Asker, Setup
from maskwise.probes.summary import summarise
from maskwise.records.folder import read_run, tables_of
from maskwise.runs.diagnose import diagnose, plan
from maskwise.scoring.intervals import none_seen
from maskwise.scoring.scores import NO_SKILL, null_score
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import filler_id
from maskwise.tasks.words import load_words


def summary_of(reply, folder, settings=SMALL):
    return summarise(read_run(diagnose(known_model(reply), settings, folder)))


def accuracies(summary, probe, **fixed):
    """{the rest of the condition: accuracy} of the entries whose condition holds these values."""
    return {
        tuple(value for name, value in unlabelled(entry["condition"]).items() if name not in fixed): entry["accuracy"]
        for entry in summary["probes"][probe]
        if fixed.items() <= entry["condition"].items()
    }


def located(folder):
    """(accuracy by (question, masks, location), estimates by name) of the probe location."""
    tables = tables_of(read_run(folder), {"location"})
    right = tables["location"].groupby(["question", "masks", "location"]).correct.mean()
    return right, {one.name: one for one in estimates(location.PROBE, tables)}


def test_copying_the_nearest_rule_is_full_locality(tmp_path):
    right, found = located(diagnose(known_model(nearest_rule), SMALL, tmp_path))
    score = found["locality"]
    assert score.value == pytest.approx(1) and 0 < score.low < 1 < score.high
    for question, nearest in (("right", 4), ("middle", 2), ("left", 0)):
        assert right[question, 0].to_dict() == pytest.approx({at: 1 if at == nearest else CHANCE for at in (0, 2, 4)})
    far = found["change of accuracy with the examples far instead of near"]
    assert far.value == pytest.approx(-2 / 3) and far.low < -2 / 3 < far.high < 0 and far.n == 12
    # Its certainty is 50 nats; 8 of 12 points changed, all for the worse.
    assert found["nats lost to distance"].value == pytest.approx(50 * 2 / 3, rel=1e-3)
    assert found["fitted change from the nearest place to the farthest"].value == pytest.approx(-2 / 3)
    near = [one for name, one in found.items() if name.startswith("question ")]
    assert [one.value for one in near] == pytest.approx([2 / 3] * 3)


@pytest.mark.slow
def test_weighing_all_examples_alike_is_no_locality(tmp_path):
    folder = diagnose(known_model(uniform), replace(SMALL, questions=30), tmp_path)
    summary, (right, found) = summarise(read_run(folder)), located(folder)
    assert (found["locality"].value, found["locality"].n) == (0, 60)
    share = none_seen(60)  # of the points may answer otherwise: all right near and all wrong far, at worst
    near = right["right", 0, 0]
    assert found["locality"].high == pytest.approx(share / ((1 - share) * near + share - CHANCE), rel=1e-6)
    assert summary["scores"]["mask_tax"]["value"] == summary["scores"]["degradation"]["value"] == 0
    assert right.nunique() == 1
    change = found["change of accuracy with the examples far instead of near"]
    assert change.high == -change.low == pytest.approx(none_seen(60))


def test_an_answer_that_depends_on_the_masks_is_distraction(tmp_path):
    folder = diagnose(known_model(distracted), CORE_PROBES, tmp_path)
    summary, (right, found) = summarise(read_run(folder)), located(folder)
    assert accuracies(summary, "mask-count") == pytest.approx({(1,): 1, (2,): 1, (5,): 1, (20,): CHANCE})
    assert summary["scores"]["mask_tax"]["value"] == pytest.approx(1 / 2)  # none lost at 5 masks, all at 20
    assert summary["scores"]["degradation"]["value"] == pytest.approx(2 / 3)
    assert summary["scores"]["locality"]["value"] == 0
    assert set(accuracies(summary, "filler", filler=".").values()) == {1.0}
    assert set(right["right", 2]) == {1.0}
    assert right["right", 20].to_dict() == pytest.approx(dict.fromkeys((0, 2, 4), CHANCE))
    lost = found["change of accuracy with 20 masks instead of 2, mean over places"]
    assert lost.value == pytest.approx(CHANCE - 1) and lost.verdict == "holds"
    assert found["change of accuracy with 20 masks instead of 2, near less far"].value == 0
    table = tables_of(read_run(folder), {"context-length"})["context-length"]
    seen = table.groupby("distractors").masks_seen.agg(["min", "max"])
    assert seen["max"][4] > 2 * seen["max"][0] > 2 * seen["min"][0] == 4
    right = table.groupby(["masks", "distractors"]).correct.mean()
    assert right["2 masks"].to_dict() == {0: 1, 4: 1}
    assert right["20% masks"].to_dict() == pytest.approx({0: CHANCE, 4: CHANCE})


def test_fillers_tell_length_from_masks(tmp_path):
    summary = summary_of(confused_by_length, tmp_path, replace(SMALL, probes=("mask-count", "filler")))
    assert accuracies(summary, "mask-count")[20,] == pytest.approx(CHANCE)
    assert accuracies(summary, "filler", filler=".") == pytest.approx({(0,): 1, (5,): 1, (20,): CHANCE})


def test_fillers_after_two_masks_differ_from_masks_in_nothing_else(tmp_path):
    settings = replace(SMALL, probes=("mask-count", "filler")).changed(
        "filler", filler_counts=(), after_two_masks=(".", END), mask_counts=(2, 20)
    )
    summary = summary_of(confused_by_length, tmp_path / "length", settings)
    for kind in (".", END):
        assert accuracies(summary, "filler", filler=kind, format="B") == pytest.approx({(0,): 1, (18,): CHANCE})
    last = next(
        e for e in summary["probes"]["filler"] if (e["condition"]["filler"], e["condition"]["fillers"]) == (END, 18)
    )
    assert unlabelled(last["paired"]["baseline"]) == {"filler": END, "fillers": 0, "format": "B"}
    summary = summary_of(distracted, tmp_path / "masks", settings)
    assert {entry["accuracy"] for entry in summary["probes"]["filler"]} == {1.0}
    assert {entry["masks"] for entry in summary["probes"]["filler"]} == {2}
    assert accuracies(summary, "mask-count")[20,] == pytest.approx(CHANCE)


def test_the_prompt_of_two_masks_and_fillers_is_that_of_masks_with_other_tokens():
    model = known_model(distracted)
    settings = replace(SMALL, probes=("mask-count", "filler")).changed(
        "filler", after_two_masks=(".",), mask_counts=(20,)
    )
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, "."))
    setup = Setup(model, asker, settings, load_words(), "", {}, [])
    items = [item for unit in plan(setup, [mask_count.PROBE, filler.PROBE]) for item in unit.items([0], set())]
    (masks,) = {i.prompt.ids for i in items if i.condition.get("masks") == 20 and i.key[1] == "verb-largest"}
    (stops,) = {i.prompt.ids for i in items if "format" in i.condition and i.key[1] == "verb-largest"}
    assert len(masks) == len(stops) and masks[:-18] == stops[:-18]
    assert set(masks[-20:]) == {model.mask_id} and set(stops[-18:]) == {asker.filler_id}


def test_a_guessing_model_has_no_scores(tmp_path):
    summary = summary_of(lambda questions, asked, text: "B", tmp_path)
    for name in ("locality", "mask_tax", "degradation"):
        assert null_score(NO_SKILL).items() <= summary["scores"][name].items()
    assert summary["scores"]["mask_nats"]["value"] == summary["scores"]["distance_nats"]["value"] == 0
    for entry in summary["probes"]["location"]:
        assert (entry["accuracy"], entry["confidence"], entry["entropy"]) == pytest.approx((CHANCE, 1, 0))


def test_an_autoregressive_model_runs_what_makes_sense_and_says_what_does_not(tmp_path):
    model = tiny_ar(tokenizer=shipped_tokenizer(), vocab=2048, window=2048)
    run = read_run(diagnose(model, CORE_PROBES, tmp_path))
    assert run.manifest["settings"]["probes"] == ["location", "context-length", "natural-text"]
    notes = " ".join(run.manifest["notes"])
    assert all(probe in notes for probe in ("mask-count", "filler", "so the question is always last"))
    assert {record["masks"] for record in run.records} == {0}
    assert {record["condition"].get("masks") for record in run.records} == {None, 0, "no masks"}
    summary = summarise(run)
    assert summary["scores"]["mask_tax"]["value"] is None and set(summary["probes"]) == {
        "location",
        "context-length",
        "natural-text",
    }
    with pytest.raises(UserError, match="mask-count does not apply"):
        diagnose(model, replace(SMALL, probes=("mask-count",)), tmp_path / "other")


def test_the_summary_has_the_promised_shape(tmp_path):
    model = tiny_dream(tokenizer=shipped_tokenizer(), vocab=2048, window=2048, mask_token_id=1)
    summary = summarise(read_run(diagnose(model, CORE_PROBES, tmp_path)))
    assert list(summary) == ["model", "out", "settings", "skill", "scores", "probes", "claims", "power"]
    assert {"mask_tax", "locality", "degradation", "mask_nats", "distance_nats"} <= summary["scores"].keys()
    assert list(summary["probes"]) == list(CORE_PROBES.probes)
    for probe, entries in summary["probes"].items():
        for entry in entries:
            assert {"condition", "masks", "n", "accuracy", "low", "high", "confidence", "entropy"} <= entry.keys()
            assert entry["low"] <= entry["accuracy"] <= entry["high"]
            assert entry["n"] == {"natural-text": 4, "recall": 6}.get(probe, 12)
            assert "nll" in entry and ("nll_choice" in entry) == (probe not in ("natural-text", "recall"))
