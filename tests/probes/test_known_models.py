"""Each probe, on models made so that its answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.known import (
    CORE_PROBES,
    SMALL,
    accuracies,
    confused_by_length,
    diagnosed,
    distracted,
    known_model,
    measured,
    nearest_rule,
    shipped_tokenizer,
    uniform,
)
from helpers.tiny import tiny_ar, tiny_dream
from maskwise.probes import PROBES
from maskwise.probes.library import filler, mask_count
from maskwise.probes.library.filler import END
from maskwise.probes.setup import Asker, Setup
from maskwise.runs.diagnose import diagnose, plan
from maskwise.scoring.intervals import none_seen
from maskwise.scoring.scores import NO_SKILL
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import filler_id
from maskwise.tasks.words import load_words

MASK_LOSS = "change of accuracy with 20 masks instead of 2"
FAR = "change of accuracy with the examples far instead of near"


def located(run):
    return run.table("location").groupby(["question", "masks", "location"]).correct.mean(), measured(run, "location")


def test_copying_the_nearest_rule_is_full_locality(tmp_path):
    right, found = located(diagnosed(known_model(nearest_rule), SMALL, tmp_path))
    score = found["locality"]
    assert score.value == pytest.approx(1) and 0 < score.low < 1 < score.high
    for question, nearest in (("right", 4), ("middle", 2), ("left", 0)):
        assert right[question, 0].to_dict() == pytest.approx({at: 1 if at == nearest else CHANCE for at in (0, 2, 4)})
    far = found[FAR]
    assert far.value == pytest.approx(-2 / 3) and far.low < -2 / 3 < far.high < 0 and far.n == 12
    # Its certainty is 50 nats; 8 of 12 points changed, all for the worse.
    assert found["nats lost to distance"].value == pytest.approx(50 * 2 / 3, rel=1e-3)
    assert far.verdict == "holds"
    near = [one for name, one in found.items() if name.startswith("question ")]
    assert [one.value for one in near] == pytest.approx([2 / 3] * 3)


@pytest.mark.slow
def test_weighing_all_examples_alike_is_no_locality(tmp_path):
    run = diagnosed(known_model(uniform), replace(SMALL, questions=30), tmp_path)
    masks, (right, found) = measured(run, "mask-count"), located(run)
    assert (found["locality"].value, found["locality"].n) == (0, 60)
    share = none_seen(60)  # of the points may answer otherwise: all right near and all wrong far, at worst
    near = right["right", 0, 0]
    assert found["locality"].high == pytest.approx(share / ((1 - share) * near + share - CHANCE), rel=1e-6)
    assert masks["mask tax"].value == masks["degradation over 1, 2, 5, 20 masks"].value == 0
    assert right.nunique() == 1
    assert found[FAR].high == -found[FAR].low == pytest.approx(none_seen(60))


def test_an_answer_that_depends_on_the_masks_is_distraction(tmp_path):
    run = diagnosed(known_model(distracted), CORE_PROBES, tmp_path)
    masks, (right, found) = measured(run, "mask-count"), located(run)
    assert accuracies(run, "mask-count", "masks") == pytest.approx({1: 1, 2: 1, 5: 1, 20: CHANCE})
    change = masks[MASK_LOSS]
    assert change.value == pytest.approx(CHANCE - 1) and change.high < 0
    assert list(masks)[:3] == [MASK_LOSS, "accuracy with 2 masks", "accuracy with 20 masks"]
    assert masks["mask tax"].value == pytest.approx(1 / 2)  # none lost at 5 masks, all at 20
    assert masks["degradation over 1, 2, 5, 20 masks"].value == pytest.approx(2 / 3)
    assert masks["nats lost to masks"].value == pytest.approx(50 * 2 / 3 / 2, rel=1e-3)  # of its certainty, at 20 alone
    assert found["locality"].value == 0
    assert set(accuracies(run, "filler", "fillers").values()) == {1.0}
    assert set(right["right", 2]) == {1.0}
    assert right["right", 20].to_dict() == pytest.approx(dict.fromkeys((0, 2, 4), CHANCE))
    lost = found[f"{MASK_LOSS}, mean over places"]
    assert lost.value == pytest.approx(CHANCE - 1) and lost.verdict == "holds"
    assert found[f"{MASK_LOSS}, near less far"].value == 0
    table = run.table("context-length")
    seen = table.groupby("distractors").masks_seen.agg(["min", "max"])
    assert seen["max"][4] > 2 * seen["max"][0] > 2 * seen["min"][0] == 4
    right = table.groupby(["masks", "distractors"]).correct.mean()
    assert right["2 masks"].to_dict() == {0: 1, 4: 1}
    assert right["20% masks"].to_dict() == pytest.approx({0: CHANCE, 4: CHANCE})


def test_the_advice_follows_the_change(tmp_path):
    settings = replace(SMALL, probes=("mask-count",))
    for reply, named in ((distracted, True), (uniform, False)):
        found = diagnosed(known_model(reply), settings, tmp_path / reply.__name__).screen.advice
        assert any("mitigations" in command for command, _ in found) == named


def test_the_curve_of_masks_is_paired_with_two_masks(tmp_path):
    """Figure, page and JSON show this table."""
    run = diagnosed(known_model(distracted), replace(SMALL, probes=("mask-count",)), tmp_path)
    drawn = mask_count.by_masks(run.table("mask-count"), {}).set_index(["measure", "masks"])
    assert drawn.value["correct"].to_dict() == pytest.approx({1: 1, 2: 1, 5: 1, 20: CHANCE})
    assert drawn.change["correct"].to_dict() == pytest.approx({1: 0, 2: np.nan, 5: 0, 20: CHANCE - 1}, nan_ok=True)
    assert drawn.change["nll"][20] == pytest.approx(50 * 2 / 3, rel=1e-3)
    assert set(drawn.n) == {12}
    for end in ("", "_low", "_high"):
        one = measured(run, "mask-count")[MASK_LOSS].row[end.strip("_") or "value"]
        assert drawn[f"change{end}"]["correct", 20] == one


def test_fillers_tell_length_from_masks(tmp_path):
    run = diagnosed(known_model(confused_by_length), replace(SMALL, probes=("mask-count", "filler")), tmp_path)
    assert accuracies(run, "mask-count", "masks")[20] == pytest.approx(CHANCE)
    assert accuracies(run, "filler", "fillers") == pytest.approx({0: 1, 5: 1, 20: CHANCE})
    found = measured(run, "filler")
    assert found["change of accuracy with 20 full stops after the closed answer"].value == pytest.approx(CHANCE - 1)
    assert found["accuracy with 0 full stops after the closed answer"].value == 1


def test_fillers_after_two_masks_differ_from_masks_in_nothing_else(tmp_path):
    settings = replace(SMALL, probes=("mask-count", "filler")).changed(
        "filler", filler_counts=(), after_two_masks=(".", END), mask_counts=(2, 20)
    )
    run = diagnosed(known_model(confused_by_length), settings, tmp_path / "length")
    for kind in (".", END):
        assert accuracies(run, "filler", "fillers", filler=kind, format="B") == pytest.approx({0: 1, 18: CHANCE})
    drawn = filler.by_fillers(run.table("filler"), {}).set_index(["filler", "fillers"])
    assert drawn.change[END, 18] == pytest.approx(CHANCE - 1) and drawn.tokens[END, 18] == 20
    found = measured(run, "filler")["change of accuracy with 18 full stops after two masks"]
    assert found.value == measured(run, "mask-count")[MASK_LOSS].value
    run = diagnosed(known_model(distracted), settings, tmp_path / "masks")
    assert set(run.table("filler").correct) == {1.0} and set(run.table("filler").masks_seen) == {2}
    assert accuracies(run, "mask-count", "masks")[20] == pytest.approx(CHANCE)
    assert measured(run, "filler")["change of accuracy with 18 end tokens after two masks"].value == 0


def test_the_prompt_of_two_masks_and_fillers_is_that_of_masks_with_other_tokens():
    model = known_model(distracted)
    settings = replace(SMALL, probes=("mask-count", "filler")).changed(
        "filler", after_two_masks=(".",), mask_counts=(20,)
    )
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, "."))
    setup = Setup(model, asker, settings, load_words(), "", {}, [])
    items = [item for unit in plan(setup, [mask_count.PROBE, filler.PROBE]) for item in unit.items([0], set())]
    (masks,) = {i.prompt.ids for i in items if i.condition.get("masks") == 20 and i.key[1] == "verb-largest"}
    (stops,) = {i.prompt.ids for i in items if i.condition.get("format") == "B" and i.key[1] == "verb-largest"}
    assert len(masks) == len(stops) and masks[:-18] == stops[:-18]
    assert set(masks[-20:]) == {model.mask_id} and set(stops[-18:]) == {asker.filler_id}


def test_a_guessing_model_has_no_scores(tmp_path):
    run = diagnosed(known_model(lambda questions, asked, text: "B"), SMALL, tmp_path)
    masks, places = measured(run, "mask-count"), measured(run, "location")
    for one in (places["locality"], masks["mask tax"]):
        assert (one.value, one.low, one.high, one.why) == (None, None, None, NO_SKILL)
    assert masks[MASK_LOSS].value == masks["nats lost to masks"].value == places["nats lost to distance"].value == 0
    table = run.table("location").groupby(["question", "location"])[["correct", "confidence", "entropy"]].mean()
    assert table.to_numpy() == pytest.approx(np.tile([CHANCE, 1, 0], (9, 1)))


def test_an_autoregressive_model_runs_what_makes_sense_and_says_what_does_not(tmp_path):
    model = tiny_ar(tokenizer=shipped_tokenizer(), vocab=2048, window=2048)
    run = diagnosed(model, CORE_PROBES, tmp_path)
    assert [*run.tables] == list(run.manifest.settings.probes) == ["location", "context-length", "natural-text"]
    notes = " ".join(run.manifest.notes)
    assert all(probe in notes for probe in ("mask-count", "filler", "so the question is always last"))
    assert {*run.tables["location"].masks} == {0} and {*run.tables["context-length"].masks} == {"no masks"}
    assert all({*table.masks_seen} == {0} for table in run.tables.values())
    assert [*run.measured] == [*run.tables]
    with pytest.raises(UserError, match="mask-count does not apply"):
        diagnose(model, replace(SMALL, probes=("mask-count",)), tmp_path / "other")


def test_estimates_and_tables_have_the_promised_columns(tmp_path):
    model = tiny_dream(tokenizer=shipped_tokenizer(), vocab=2048, window=2048, mask_token_id=1)
    run = diagnosed(model, CORE_PROBES, tmp_path)
    assert [*run.tables] == [*run.measured] == list(CORE_PROBES.probes)
    found = run.estimates()
    assert [*found.columns[:8]] == ["probe", "name", "value", "low", "high", "n", "unit", "against"]
    assert set(found.probe) == set(CORE_PROBES.probes)
    assert not found.duplicated(["probe", "name"]).any()
    inside = found.dropna(subset=["low", "high"])
    assert (inside.low <= inside.value + 1e-9).all() and (inside.value <= inside.high + 1e-9).all()
    columns = {"task", "point", "masks_seen", "predicted", "answer", "correct", "confidence", "entropy", "nll"}
    for probe in (one for one in PROBES if one.name in run.tables):
        table = run.table(probe.name)
        assert columns | probe.condition.keys() - {"shots", "extra"} <= {*table.columns}
        assert table.nll.notna().all() and table.nll_choice.notna().all() == (probe.name != "natural-text")
        for figure in probe.figures:
            drawn = figure.data(table, run.tables)
            assert drawn.empty or {figure.x, "value", "low", "high", "n"} <= {*drawn.columns}
