"""`maskwise compare`: known runs give known reductions, paired intervals are narrower, models are asked when needed."""

import json
import re
import shutil

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model
from scipy import stats
from typer.testing import CliRunner

from helpers.outputs import problem_of_output
from helpers.page_reader import read
from helpers.records import record as plain_record
from helpers.report_runs import DIFFUSION, mask_probes, position_probes, write_run
from helpers.tiny import llada_net
from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.experiments.compare import compare, compare_runs
from maskwise.models.checkpoints.locations import ZOO
from maskwise.models.peft_access import linear_targets
from maskwise.report.words.comparison import change_in_words, rows_of, share_gone
from maskwise.report.words.finding import finding
from maskwise.report.words.tiles import tiles_of
from maskwise.scoring.changes import accuracy_change, mean_change, reduction
from maskwise.scoring.intervals import none_seen
from maskwise.scoring.scores import score
from maskwise.support.errors import UserError

TUNED = DIFFUSION | {"name": "lab/tiny-llada+ma"}
POSITION = position_probes([9, 10, 8, 9], [6, 7, 5, 6])
SEED = {"seed": 0}


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def step_probes(fast, slow):
    return [
        ("few-steps", {"steps": steps, "masks": masks}, masks, right)
        for steps, curve in ((2, fast), (4, slow))
        for masks, right in zip((2, 100), curve, strict=True)
    ]


@pytest.fixture
def folders(tmp_path):
    """Degradation (.8 - .5) / .8 before and (.8 - .7) / .8 after; in steps .375 and .25 before, .25 and .125 after."""
    level, low, middle, high = [8, 8, 8, 8], [5, 5, 5, 5], [6, 6, 6, 6], [7, 7, 7, 7]
    before = POSITION + mask_probes(level, low) + step_probes((level, low), (level, middle))
    after = POSITION + mask_probes(level, high) + step_probes((level, middle), (level, high))
    return [write_run(tmp_path / "before", before, **SEED), write_run(tmp_path / "after", after, TUNED, **SEED)]


def recalled(two, many):
    """Recall with 2 masks, which shows the price of tuning, with 200, and with fillers, which do not."""
    return [
        ("recall", {"question": "right", "distance": "near", "masks": masks, "fillers": fillers}, masks, right)
        for masks, fillers, right in ((2, 0, two), (200, 0, many), (2, 198, many))
    ]


@pytest.mark.slow
def test_labels_that_matplotlib_would_leave_out_are_drawn(tmp_path):
    names = ["_hidden", "__", "$x", "_child1"]
    asked = mask_probes([8] * 4, [5] * 4)[:2]
    folders = [write_run(tmp_path / str(n), asked, DIFFUSION | {"name": name}) for n, name in enumerate(names)]
    done = CliRunner().invoke(app, ["compare", *map(str, folders)])
    assert done.exit_code == 0, done.output
    (figure,) = (file.read_text() for file in tmp_path.glob("side-by-side-*/figures/confidence.svg"))
    for name in names:
        assert re.search(rf">\s?{re.escape(name)}<", figure), name


def test_known_runs_have_a_known_reduction(folders):
    result, _ = compare_runs(folders)
    rows = rows_of(result["models"], result["changes"])
    models = result["models"]
    assert list(models) == ["tiny-llada", "tiny-llada+ma"] and result["baseline"] == "tiny-llada"
    assert {"degradation", "mask_tax", "locality", "accuracy_k2", "nelbo", "confidence", "entropy"} <= models[
        "tiny-llada"
    ].keys()
    assert [m["degradation"] for m in models.values()] == pytest.approx([0.375, 0.125])
    assert [m["accuracy_k2"] for m in models.values()] == pytest.approx([0.8, 0.8])
    assert [m["few_steps_degradation"] for m in models.values()] == pytest.approx([0.3125, 0.1875])
    assert models["tiny-llada"]["confidence"] == 0.5 and models["tiny-llada"]["nelbo"] is None
    assert result["reduction"]["value"] == pytest.approx(2 / 3)
    assert result["reduction"]["low"] < 2 / 3 < result["reduction"]["high"]
    changes = result["changes"]["tiny-llada+ma"]
    assert changes["few_steps_reduction"]["value"] == pytest.approx(0.4)
    assert {steps: c["value"] for steps, c in changes["few_steps"].items()} == pytest.approx({"2": 1 / 3, "4": 0.5})
    assert all(c["low"] <= c["value"] <= c["high"] for c in changes["few_steps"].values())
    two = changes["accuracy_k2"]
    assert (two["value"], two["n"], two["differed"]) == (0, 40, 0)
    assert two["high"] == -two["low"] == pytest.approx(none_seen(40))  # 0 of 40 changed: never 0 to 0
    assert changes["accuracy_most_masks"]["value"] == pytest.approx(0.2)
    assert changes["multi_step_accuracy"]["value"] == pytest.approx(0.05)
    assert changes["nelbo"]["value"] is None
    assert [m["mask_loss"] for m in models.values()] == pytest.approx([0.3, 0.1])
    assert changes["mask_loss"]["value"] == pytest.approx(2 / 3)
    found_text = {row.name: row for row in rows}
    assert found_text["Degradation"].values == ("37.5\u00a0%", "12.5\u00a0%")
    assert found_text["Degradation"].changes[0].startswith("67\u00a0% less (")
    assert found_text["Degradation in 4 steps"].changes[0].startswith("50\u00a0% less (")
    assert found_text["Accuracy, 2 masks"].changes == ("0.0\u00a0points (−7.2 to +7.2; nothing changed)",)


def test_lowering_the_accuracy_with_two_masks_recovers_nothing(tmp_path):
    """Nothing is lost any more between 2 masks and the most, because both are low now."""
    runs = [
        write_run(tmp_path / "before", mask_probes([8] * 4, [5] * 4), **SEED),
        write_run(tmp_path / "after", mask_probes([5] * 4, [5] * 4), TUNED, **SEED),
    ]
    result, _ = compare_runs(runs)
    found = result["changes"]["tiny-llada+ma"]["mask_loss"]
    assert found["value"] == pytest.approx(0) and found["low"] < 0 < found["high"]
    assert found["ends"] == {"before": pytest.approx([0.8, 0.5]), "after": pytest.approx([0.5, 0.5])}
    assert result["recovered"] == found and next(iter(result.to_dict())) == "recovered"
    assert result["reduction"]["value"] == pytest.approx(1)
    rows = {row.name: row for row in rows_of(result["models"], result["changes"])}
    assert list(rows)[:2] == ["Accuracy, 2 masks", "Accuracy, 100 masks"]
    (lost,) = [row for name, row in rows.items() if name.startswith("Lost to")]
    assert lost.changes[0].startswith("0\u00a0% recovered (")


def with_nll(folder, nll):
    """The records with the negative log-likelihood that (masks, point) has, or without any where it is None."""
    kept = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    kept = [record | {"nll": nll(record["masks"], record["point"])} for record in kept]
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    return folder


def test_likelihoods_are_compared_at_both_ends(tmp_path):
    """With 2 masks tuning takes 0.5 nats from every point; with 100 masks 1 nat, and 0.2 more per further point."""
    runs = [
        with_nll(write_run(tmp_path / name, mask_probes([8] * 4, [many] * 4), model, **SEED), nll)
        for name, many, model, nll in (
            ("before", 5, DIFFUSION, lambda masks, point: 1 + masks / 50 + point / 10),
            ("after", 7, TUNED, lambda masks, point: 0.54 + point / 10 if masks == 2 else 2 - point / 10),
            ("silent", 7, TUNED | {"name": "silent"}, lambda masks, point: None),
        )
    ]
    result, readings = compare_runs(runs)
    before, after, silent = result.models.values()
    assert [before.nll_k2, before.nll_most_masks] == pytest.approx([1.04 + 0.45, 3 + 0.45])
    assert [after.nll_k2, after.nll_most_masks] == pytest.approx([0.54 + 0.45, 2 - 0.45])
    assert silent.nll_k2 is silent.nll_most_masks is None
    changes = result.changes["tiny-llada+ma"]
    assert changes.nll_k2.value == pytest.approx(-0.5)
    most = changes.nll_most_masks
    half = stats.t.ppf(0.975, 4 * 9) * np.std(0.2 * np.arange(10), ddof=1) / np.sqrt(40)  # paired, within four tasks
    assert (most.value, most.low, most.high) == pytest.approx((-1.9, -1.9 - half, -1.9 + half))
    assert result.changes["silent"].nll_most_masks.value is None
    rows = {row.name: row for row in rows_of(result.models, result.changes)}
    assert rows["NLL, 2 masks"].values == ("1.49", "0.99", "–")
    assert rows["NLL, 100 masks"].values == ("3.45", "1.55", "–")
    assert rows["NLL, 100 masks"].changes[0].startswith("−1.900 (−2.0") and rows["NLL, 100 masks"].changes[1] == "–"
    found_text = finding(readings[:2], compared=True).sentence.replace("\u00a0", " ")
    assert "As a mitigation it counts: with 100 masks accuracy rises, +20.0 points (" in found_text
    assert "likelihood rises, negative log-likelihood −1.90 nats (−2.0" in found_text
    assert "likelihoods were not measured" in finding([readings[0], readings[2]], compared=True).sentence


def test_the_price_of_a_cure_is_also_measured_on_recall(tmp_path):
    runs = [
        write_run(tmp_path / "before", recalled([8] * 4, [5] * 4), **SEED),
        write_run(tmp_path / "after", recalled([6] * 4, [7] * 4), TUNED, **SEED),
    ]
    result, _ = compare_runs(runs)
    assert [m["recall"] for m in result["models"].values()] == pytest.approx([0.8, 0.6])
    change = result["changes"]["tiny-llada+ma"]
    assert change["recall"]["value"] == pytest.approx(-0.2) and change["mask_loss"]["value"] is None


def records(correct, task="t"):
    """correct [points, conditions]"""
    return [
        plain_record(task=task, point=point, condition={"masks": masks}, correct=bool(right), nll=1.0)
        for point, row in enumerate(correct)
        for masks, right in zip((2, 100), row, strict=True)
    ]


def test_intervals_are_paired():
    """Both runs fail on the same points: their difference is known far better than either accuracy."""
    draws = np.random.default_rng(0)
    base = draws.random((400, 2)) < [0.9, 0.6]
    better = base.copy()
    better[::10, 1] = True
    change = accuracy_change(records(base), records(better), keep=lambda c: c["masks"] == 100)
    assert change["value"] == pytest.approx(better[:, 1].mean() - base[:, 1].mean())
    assert change["high"] - change["low"] < 0.05  # unpaired, it would be 0.14
    found = reduction(records(base), records(better))
    loss = [(a[:, 0].mean() - a[:, 1].mean()) / a[:, 0].mean() for a in (base, better)]
    assert found["value"] == pytest.approx(1 - loss[1] / loss[0])
    assert found["low"] < found["value"] < found["high"]


def test_a_measures_second_interval_speaks_for_other_tasks():
    """No change on average, but every task has one of its own: that of these tasks is far narrower."""
    draws = np.random.default_rng(0)
    shifts = draws.normal(size=16)
    level = np.ones((50, 2))
    before = [record for task in range(16) for record in records(level, str(task))]
    after = [record | {"nll": 1 + shifts[int(record["task"])] + draws.normal()} for record in before]
    found = mean_change(before, after, "nll")
    half = stats.t.ppf(0.975, 15) * shifts.std(ddof=1) / 4
    assert found["rules_low"] < 0 < found["rules_high"]
    assert found["rules_high"] - found["rules_low"] == pytest.approx(2 * half, rel=0.1)
    within = 1.96 * np.sqrt(0.5 / (16 * 50))  # a point's change is the mean of two of variance 1
    assert found["low"] < shifts.mean() < found["high"]
    assert found["high"] - found["low"] == pytest.approx(2 * within, rel=0.1)


def test_nothing_to_reduce_and_nothing_paired_is_null():
    level = np.ones((50, 2))
    assert reduction(records(level), records(level))["value"] is None
    assert reduction(records(level, "a"), records(level, "b"))["value"] is None
    guessing = np.tile([[1, 1], [0, 0], [0, 0]], (20, 1))
    falling = np.tile([[1, 1], [1, 0], [1, 0]], (20, 1))
    assert reduction(records(falling), records(guessing))["value"] is None  # flat, because it cannot do the task
    other = [record | {"answer": "B"} for record in records(level)]
    assert mean_change(records(level), other, "nll")["value"] is None
    worse = score(-0.2, -0.45, 0.05)
    assert change_in_words(worse, share_gone) == "20\u00a0% more (−5 to 45\u00a0%)"
    dearer = [record | {"nll": 1.5} for record in records(level)]
    found = mean_change(records(level), dearer, "nll")
    assert (found["value"], found["low"], found["high"]) == (0.5, None, None)  # no spread, so nothing bounds the unseen


@pytest.mark.slow
def test_the_command_prints_a_table_or_one_object_and_writes_the_page(folders, tmp_path):
    shown = run(*folders, "--out", tmp_path / "page")
    assert shown.exit_code == 0, shown.output
    assert "67\u00a0% less" in shown.stdout and shown.stdout.strip().endswith("report.html")
    page = read(tmp_path / "page" / "report.html")
    assert "Measured against tiny-llada" in page.words and "67 % less" in page.words.replace("\u00a0", " ")
    assert "How sure is it of its answers?" in page.words
    masks_alone = [
        write_run(tmp_path / name, mask_probes([8] * 4, [many] * 4)[:2], model, **SEED)
        for name, many, model in (("a", 5, DIFFUSION), ("b", 7, TUNED))
    ]
    result = run(*masks_alone, "--json")
    assert json.loads(result.stdout)["reduction"]["value"] == pytest.approx(2 / 3)


def test_several_models_are_each_measured_against_the_first(folders, tmp_path):
    third = write_run(tmp_path / "third", POSITION + mask_probes([8] * 4, [8] * 4), TUNED | {"name": "third"}, **SEED)
    result, readings = compare_runs([*folders, third])
    rows = rows_of(result["models"], result["changes"])
    assert result["changes"]["third"]["reduction"]["value"] == pytest.approx(1)
    assert result["reduction"] == result["changes"]["tiny-llada+ma"]["reduction"]
    assert len(readings) == 3 and {len(row.changes) for row in rows} == {2} and {len(row.values) for row in rows} == {3}


def test_runs_that_asked_other_questions_are_refused(folders, tmp_path):
    other = write_run(tmp_path / "other", model=TUNED, seed=1)
    with pytest.raises(UserError, match="asked different questions: seed is 0 in one and 1"):
        compare_runs([folders[0], other])
    with pytest.raises(UserError, match="same run folder"):
        compare_runs([folders[0], folders[0]])
    refused = run(folders[0], "no-such-model")
    assert refused.exit_code == 2 and "no model 'no-such-model'" in refused.stderr
    refused = run(folders[0])
    assert refused.exit_code == 2 and "at least two" in refused.stderr and not refused.stdout


@pytest.mark.slow
def test_models_and_adapters_are_asked_the_same(tmp_path, monkeypatch):
    from importlib import resources

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(resources.files("maskwise.models").joinpath("zoo/tokenizer")))
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    settings = {"vocab": len(tokenizer), "window": 1024, "mask_token_id": tokenizer.mask_token_id}
    llada_net(**settings).save_pretrained(base)
    tokenizer.save_pretrained(base)
    net = llada_net(**settings)
    adapted = get_peft_model(net, LoraConfig(r=2, target_modules=linear_targets(net)))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data.normal_()
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(adapter)
    monkeypatch.chdir(tmp_path)
    result = run(base, adapter, "--quick", "--questions", "1", "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert problem_of_output(found, OUTPUTS["compare"]) is None
    before, after = found["models"].values()
    assert before["nelbo"] != after["nelbo"] and len(found["models"]) == 2
    assert before["accuracy_k2"] is not None and set(before["few_steps"]) == {"2", "4"}


def test_an_unfinished_run_is_compared_in_what_both_were_asked(tmp_path):
    """One example was asked first; the other run has ten too, which must not be paired with it."""
    one = [("mask-count", {"masks": k, "relevant": 1}, k, right) for k, right in ((2, [6, 6]), (100, [5, 5]))]
    ten = [("mask-count", {"masks": k}, k, right) for k, right in ((2, [10, 10]), (100, [9, 9]))]
    folders = [write_run(tmp_path / "whole", one + ten, **SEED), write_run(tmp_path / "begun", one, TUNED, **SEED)]
    change = compare_runs(folders)[0]["changes"]["tiny-llada+ma"]
    assert change["accuracy_k2"]["value"] == change["accuracy_most_masks"]["value"] == 0


def test_what_a_block_model_was_not_asked_is_not_compared(tmp_path):
    """200 masks against 32 at most: means are over the shared counts, as the changes are, and values say which masks
    they are of."""

    def counts(*asked):
        return [("mask-count", {"masks": masks}, masks, [right] * 4) for masks, right in asked]

    before = write_run(tmp_path / "before", counts((2, 8), (20, 6), (200, 2)), **SEED)
    after = write_run(tmp_path / "after", counts((2, 8), (20, 4), (32, 4)), TUNED | {"block": 32}, **SEED)
    for folder in (before, after):  # confidence 0.5 with shared counts, 0.9 with the others
        kept = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
        for record in kept:
            record |= {"confidence": 0.9, "entropy": 0.75} if record["masks"] > 20 else {}
        (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    result, _ = compare_runs([before, after])
    models, change = list(result["models"].values()), result["changes"]["tiny-llada+ma"]
    assert [m["most_masks"] for m in models] == [200, 32]
    for name in ("confidence", "entropy"):
        assert [m[name] for m in models] == [{"confidence": 0.5, "entropy": 0.25}[name]] * 2
        assert change[name]["value"] == 0
    assert [m["degradation"] for m in models] == pytest.approx([0.25, 0.5])
    assert change["reduction"]["value"] == pytest.approx(1 - 0.5 / 0.25)
    assert [m["mask_tax"] for m in models] == pytest.approx([(0.8 - right) / (0.8 - 1 / 3) for right in (0.6, 0.4)])
    found_text = {row.name: row for row in rows_of(result["models"], result["changes"])}
    assert found_text["Accuracy, most masks"].values == ("20.0\u00a0% (200\u00a0masks)", "40.0\u00a0% (32\u00a0masks)")
    assert found_text["Lost to most masks"].values == (
        "60.0\u00a0points (200\u00a0masks)",
        "40.0\u00a0points (32\u00a0masks)",
    )
    assert found_text["Degradation"].meaning.endswith(", over 2, 20 masks")
    assert found_text["Accuracy, most masks"].changes == found_text["Lost to most masks"].changes == ("–",)


def test_a_model_with_too_few_counts_in_common_leaves_the_others_theirs(tmp_path):
    def counts(*asked):
        return [("mask-count", {"masks": masks}, masks, [right] * 4) for masks, right in asked]

    before = write_run(tmp_path / "before", counts((2, 8), (20, 6), (200, 2)), **SEED)
    after = write_run(tmp_path / "after", counts((2, 8), (20, 7), (200, 6)), TUNED, **SEED)
    short = write_run(tmp_path / "short", counts((2, 8), (4, 6)), TUNED | {"name": "short", "block": 4}, **SEED)
    result, _ = compare_runs([before, after, short])
    assert [m["degradation"] for m in result["models"].values()] == pytest.approx([0.75, 0.25, 0.25])
    assert [m["mask_counts"] for m in result["models"].values()] == [[2, 20, 200]] * 2 + [[2, 4]]
    assert result["reduction"]["value"] == pytest.approx(1 - 0.25 / 0.75)
    found_text = {row.name: row for row in rows_of(result["models"], result["changes"])}
    assert found_text["Degradation"].meaning.endswith(", each over its own mask counts")


def test_nothing_is_asked_before_every_model_and_folder_is_known_to_be_whole(tmp_path, monkeypatch):
    """The second checkpoint is cut short, the run folder is empty or of other questions: found at once."""
    monkeypatch.chdir(tmp_path)
    broken = shutil.copytree(ZOO / "tiny-llada", tmp_path / "broken")
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:-1000])
    empty = write_run(tmp_path / "empty", **SEED)
    (empty / "records.jsonl").write_text("")
    other = write_run(tmp_path / "other", seed=5)
    for second, problem in ((broken, "cut short"), (empty, "holds no records"), (other, "different questions: seed")):
        with pytest.raises(UserError, match=problem):
            compare("tiny-llada", second)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_what_a_model_without_skill_lost_is_not_in_the_table(tmp_path):
    """Its accuracy with 2 masks, and the change of it, are."""
    before = write_run(tmp_path / "before", mask_probes([8] * 4, [5] * 4), **SEED)
    after = write_run(tmp_path / "after", mask_probes([0] * 4, [0] * 4), TUNED, **SEED)
    result, _ = compare_runs([before, after])
    assert result.models["tiny-llada+ma"].skill.skill == "unskilled"
    rows = {row.name: row for row in rows_of(result.models, result.changes)}
    assert (rows["Lost to 100 masks"].values[1], rows["Lost to 100 masks"].changes) == ("–", ("–",))
    assert rows["Degradation"].values[1] == "–"
    assert rows["Accuracy, 2 masks"].changes[0].startswith("−80.0")
    printed = run(before, after)
    assert printed.exit_code == 0 and "not shown to be able to do the task" in printed.output
    assert "not shown to be able" in json.loads(run(before, after, "--json").stdout)["finding"]


def test_questions_that_are_too_easy_for_all_models_have_no_losses_in_the_table(tmp_path):
    easy = write_run(tmp_path / "easy", mask_probes([10] * 4, [10] * 4), **SEED)
    tuned = write_run(tmp_path / "tuned", mask_probes([10] * 4, [10] * 4), TUNED, **SEED)
    hurt = write_run(tmp_path / "hurt", mask_probes([10] * 4, [5] * 4), **SEED)
    lost = {
        first: next(row for row in rows_of(found.models, found.changes) if row.name == "Lost to 100 masks").values
        for first in (easy, hurt)
        for found in [compare_runs([first, tuned])[0]]
    }
    assert lost[easy] == ("–", "–") and "–" not in lost[hurt]


def test_the_table_and_the_tiles_agree_on_what_is_too_easy(tmp_path):
    """The second model has 38 of 40 right and loses one more, which is not significant: no model shows a loss."""
    easy = write_run(tmp_path / "easy", mask_probes([10] * 4, [10] * 4), **SEED)
    less = write_run(tmp_path / "less", mask_probes([10, 10, 9, 9], [10, 9, 9, 9]), TUNED, **SEED)
    result, readings = compare_runs([easy, less])
    assert [found.skill.skill for found in result.models.values()] == ["saturated", "skilled"]
    rows = {row.name: row for row in rows_of(result.models, result.changes)}
    shown = [{tile.name: tile.value for tile in own} for own in tiles_of(readings)]
    for name in ("Mask tax", "Degradation"):
        assert [own[name] == "–" for own in shown] == [value == "–" for value in rows[name].values] == [True, False]
    assert rows["Lost to 100 masks"].values[0] == "–" and rows["Lost to 100 masks"].changes == ("–",)
