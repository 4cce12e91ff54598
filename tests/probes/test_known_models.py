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
from maskwise.probes.library import filler, mask_count
from maskwise.probes.library.filler import END
from maskwise.probes.probe import Asker, Setup
from maskwise.probes.summary import summarise
from maskwise.records.folder import read_run
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


def test_copying_the_nearest_rule_is_full_locality(tmp_path):
    summary = summary_of(nearest_rule, tmp_path)
    score = summary["scores"]["locality"]
    assert score["value"] == pytest.approx(1) and 0 < score["low"] < 1 < score["high"]
    assert accuracies(summary, "location") == pytest.approx({(0,): CHANCE, (2,): CHANCE, (4,): 1})
    sides = {side: accuracies(summary, "question-position", question=side) for side in ("right", "middle", "left")}
    assert sides["right"] == pytest.approx({(0,): CHANCE, (2,): CHANCE, (4,): 1})
    assert sides["middle"] == pytest.approx({(0,): CHANCE, (2,): 1, (4,): CHANCE})
    assert sides["left"] == pytest.approx({(0,): 1, (2,): CHANCE, (4,): CHANCE})
    far = next(entry for entry in summary["probes"]["location"] if entry["condition"]["location"] == 0)
    assert far["paired"]["baseline"] == {"location": 4, "relevant": 2}
    assert far["paired"]["difference"] == pytest.approx(-2 / 3)
    # All 8 points that changed (of 12) changed for the worse.
    assert far["paired"]["low"] < -2 / 3 < far["paired"]["high"] < 0 and far["paired"]["differed"] == 8
    assert far["paired"]["nll"]["difference"] == pytest.approx(50 * 2 / 3, rel=1e-3)  # its certainty is 50 nats


@pytest.mark.slow
def test_weighing_all_examples_alike_is_no_locality(tmp_path):
    summary = summary_of(uniform, tmp_path, replace(SMALL, points=30))
    locality = summary["scores"]["locality"]
    assert (locality["value"], locality["differed"], locality["n"]) == (0, 0, 60)
    right = accuracies(summary, "location")[0,]
    share = none_seen(60)  # of the points may answer otherwise: all right near and all wrong far, at worst
    assert locality["high"] == pytest.approx(share / ((1 - share) * right + share - CHANCE), rel=1e-6)
    assert summary["scores"]["mask_tax"]["value"] == summary["scores"]["degradation"]["value"] == 0
    assert len(set(accuracies(summary, "question-position").values())) == 1
    for entry in summary["probes"]["location"]:
        if "paired" in entry:
            assert entry["paired"]["high"] == -entry["paired"]["low"] == pytest.approx(none_seen(60))


def test_an_answer_that_depends_on_the_masks_is_distraction(tmp_path):
    summary = summary_of(distracted, tmp_path, CORE_PROBES)
    assert accuracies(summary, "mask-count") == pytest.approx({(1,): 1, (2,): 1, (5,): 1, (20,): CHANCE})
    assert summary["scores"]["mask_tax"]["value"] == pytest.approx(1 / 2)  # none lost at 5 masks, all at 20
    assert summary["scores"]["degradation"]["value"] == pytest.approx(2 / 3)
    assert summary["scores"]["locality"]["value"] == 0
    assert set(accuracies(summary, "filler", filler=".").values()) == {1.0}
    assert set(accuracies(summary, "location-masks", masks=2).values()) == {1.0}
    assert accuracies(summary, "location-masks", masks=20) == pytest.approx(dict.fromkeys([(0,), (2,), (4,)], CHANCE))
    shorter, longer = (
        {e["masks"] for e in summary["probes"]["context-length"] if e["condition"]["distractors"] == d} for d in (0, 4)
    )
    assert max(longer) > 2 * max(shorter) > 2 * min(shorter) == 4
    assert accuracies(summary, "context-length", masks="2 masks") == {(0,): 1, (4,): 1}
    assert accuracies(summary, "context-length", masks="20% masks") == pytest.approx({(0,): CHANCE, (4,): CHANCE})


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
    assert all(probe in notes for probe in ("question-position", "mask-count", "filler", "location-masks"))
    assert {record["masks"] for record in run.records} == {0}
    assert {record["condition"].get("masks") for record in run.records} == {None, "no masks"}
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
