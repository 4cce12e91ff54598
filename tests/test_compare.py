"""`compare`: known runs have known changes, paired intervals are narrower, models are asked when needed."""

import json
import shutil

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model
from scipy import stats
from typer.testing import CliRunner

import maskwise as mw
from helpers.page_reader import read
from helpers.report_runs import DIFFUSION, mask_probes, write_run
from helpers.tiny import llada_net
from maskwise.cli import app
from maskwise.compare import RISES, RISES_NOT, compare, compare_runs
from maskwise.models.checkpoints.locations import ZOO
from maskwise.models.peft_access import linear_targets
from maskwise.scoring.intervals import none_seen
from maskwise.scoring.verdicts import CANNOT_TELL, GAIN, LOSS, NONE
from maskwise.support.errors import UserError

TUNED = DIFFUSION | {"name": "lab/tiny-llada+ma"}
SEED = {"seed": 0}


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def written(folder, asked, model=TUNED, changed=lambda one: {}, **settings):
    """A run folder; `changed` gives the fields of a record that differ from the usual ones."""
    write_run(folder, asked, model, **SEED | settings)
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    (folder / "records.jsonl").write_text("".join(json.dumps(one | changed(one)) + "\n" for one in lines))
    return folder


def compared(*folders):
    found = compare_runs([mw.read_run(folder) for folder in folders])
    return found, {row.name: row for row in found.rows}


def masks(two, hundred):
    return mask_probes([two] * 4, [hundred] * 4)[:2]


def steps(fast, slow):
    return [
        ("steps", {"order": "random", "steps": count, "masks": k}, k, [right] * 4)
        for count, curve in ((2, fast), (4, slow))
        for k, right in zip((2, 100), curve, strict=True)
    ]


@pytest.fixture
def folders(tmp_path):
    """Degradation (.8 - .5) / .8 before and (.8 - .7) / .8 after; in steps .375 and .25 before, .25 and .125 after."""
    before = written(tmp_path / "before", masks(8, 5) + steps((8, 5), (8, 6)), DIFFUSION)
    return before, written(tmp_path / "after", masks(8, 7) + steps((8, 6), (8, 7)))


def test_known_runs_have_known_changes(folders):
    _, rows = compared(*folders)
    assert list(rows) == [
        "accuracy with 100 masks",
        "negative log-likelihood with 100 masks",
        "accuracy with 2 masks",
        "negative log-likelihood with 2 masks",
        "100 masks instead of 2; share recovered",
        "degradation over 2, 100 masks; reduction",
        "accuracy in 2, 4 steps",
        "degradation in 2 steps; reduction",
        "degradation in 4 steps; reduction",
    ]
    values = {name: [one.value for one in (*row.own, *row.changes)] for name, row in rows.items()}
    assert values["accuracy with 100 masks"] == pytest.approx([0.5, 0.7, 0.2])
    assert values["accuracy with 2 masks"] == pytest.approx([0.8, 0.8, 0])
    assert values["100 masks instead of 2; share recovered"] == pytest.approx([-0.3, -0.1, 2 / 3])
    assert values["degradation over 2, 100 masks; reduction"] == pytest.approx([0.375, 0.125, 2 / 3])
    assert values["accuracy in 2, 4 steps"] == pytest.approx([0.675, 0.725, 0.05])
    assert values["degradation in 2 steps; reduction"] == pytest.approx([0.375, 0.25, 1 / 3])
    assert values["degradation in 4 steps; reduction"] == pytest.approx([0.25, 0.125, 1 / 2])
    assert all(one.low <= one.value <= one.high for row in rows.values() for one in row.own if one.low is not None)
    unchanged = rows["accuracy with 2 masks"].changes[0]
    assert unchanged.n == 40 and unchanged.high == -unchanged.low == pytest.approx(none_seen(40))  # never 0 to 0
    assert str(rows["accuracy with 2 masks"].verdicts[0]) == NONE


def test_a_name_has_one_value_everywhere(folders):
    found, _ = compared(*folders)
    table = found.estimates()
    known = {
        (label, one.name): one for label, own in zip(table.model.unique(), found.runs, strict=True) for one in flat(own)
    }
    here = {(model, name): value for model, name, value in table[["model", "name", "value"]].itertuples(index=False)}
    shared = known.keys() & here.keys()
    assert {name for _, name in shared} >= {
        "accuracy with 2 masks",
        "degradation over 2, 100 masks",
        "degradation in 2 steps",
    }
    assert {key: known[key].value for key in shared} == pytest.approx({key: here[key] for key in shared})
    assert not table.duplicated(["model", "name"]).any()
    assert set(table[table["from"].notna()].model) == {"tiny-llada+ma"}


def flat(one):
    return [estimate for found in one.measured.values() for estimate in found]


def test_lowering_the_accuracy_with_two_masks_recovers_nothing(tmp_path):
    """Nothing is lost any more between 2 masks and the most, because both are low now."""
    _, rows = compared(written(tmp_path / "a", masks(8, 5), DIFFUSION), written(tmp_path / "b", masks(5, 5)))
    share = rows["100 masks instead of 2; share recovered"].changes[0]
    assert share.value == pytest.approx(0) and share.low < 0 < share.high
    assert rows["degradation over 2, 100 masks; reduction"].changes[0].value == pytest.approx(1)
    assert rows["accuracy with 2 masks"].verdicts[0].word == LOSS
    assert rows["accuracy with 100 masks"].verdicts[0].word == NONE


def test_a_gain_counts_only_where_likelihood_rises_too(tmp_path):
    """With 2 masks tuning takes 0.5 nats from every point; with 100 masks 1 nat, and 0.2 more per further point."""

    def before(one):
        return {"nll": 1 + one["masks"] / 50 + one["point"] / 10}

    def after(one):
        return {"nll": 0.54 + one["point"] / 10 if one["masks"] == 2 else 2 - one["point"] / 10}

    first = written(tmp_path / "before", masks(8, 5), DIFFUSION, before)
    found, rows = compared(
        first,
        written(tmp_path / "after", masks(8, 8), TUNED, after),
        written(tmp_path / "louder", masks(8, 8), TUNED | {"name": "louder"}, before),
    )
    few, most = (rows[f"negative log-likelihood with {count} masks"] for count in (2, 100))
    assert [one.value for one in few.own] == pytest.approx([1.49, 0.99, 1.49])
    assert [one.value for one in most.own] == pytest.approx([3.45, 1.55, 3.45])
    assert few.changes[0].value == pytest.approx(-0.5)
    half = stats.t.ppf(0.975, 4 * 9) * np.std(0.2 * np.arange(10), ddof=1) / np.sqrt(40)  # paired, within four tasks
    change = most.changes[0]
    assert (change.value, change.low, change.high) == pytest.approx((-1.9, -1.9 - half, -1.9 + half))
    lead = found.rows[0]
    assert [(one.word, one.why) for one in lead.verdicts] == [(GAIN, RISES), (GAIN, RISES_NOT)]
    assert [one["verdict"] for one in found.listed if one["name"] == lead.changes[0].name] == list(
        map(str, lead.verdicts)
    )


def test_intervals_are_paired(tmp_path):
    """Both runs fail on the same points: their difference is known far better than either accuracy."""
    draws = np.random.default_rng(0)
    right = draws.random((40, 10)) < 0.6
    better = right.copy()
    better[::10, :] = True

    def of(table):
        return lambda one: {
            "correct": bool(table[int(one["task"].removeprefix("task-")), one["point"]] | (one["masks"] == 2))
        }

    _, rows = compared(
        written(tmp_path / "before", mask_probes([10] * 40, [0] * 40)[:2], DIFFUSION, of(right)),
        written(tmp_path / "after", mask_probes([10] * 40, [0] * 40)[:2], TUNED, of(better)),
    )
    change, own = rows["accuracy with 100 masks"].changes[0], rows["accuracy with 100 masks"].own[0]
    assert change.value == pytest.approx(better.mean() - right.mean())
    assert change.high - change.low < 0.06 < own.high - own.low
    share = rows["100 masks instead of 2; share recovered"].changes[0]
    assert share.value == pytest.approx((better.mean() - right.mean()) / (1 - right.mean()))


def test_a_model_that_guesses_has_no_verdict_but_its_fall_is_a_loss(tmp_path):
    able, guessing = written(tmp_path / "able", masks(9, 9), DIFFUSION), written(tmp_path / "guessing", masks(3, 3))
    _, rows = compared(able, guessing)
    assert {rows[f"accuracy with {count} masks"].verdicts[0].word for count in (2, 100)} == {LOSS}
    _, rows = compared(guessing, written(tmp_path / "too", masks(3, 3), DIFFUSION))
    assert {rows[f"accuracy with {count} masks"].verdicts[0].word for count in (2, 100)} == {CANNOT_TELL}
    assert rows["100 masks instead of 2; share recovered"].changes[0].value is None
    assert not any(name.startswith("degradation") for name in rows)


def test_only_mask_counts_of_all_are_compared(tmp_path):
    """200 masks against 32 at most of a block model: 20 is the most that both were asked with."""

    def counts(*asked):
        return [("mask-count", {"masks": k}, k, [right] * 4) for k, right in asked]

    before = written(tmp_path / "before", counts((2, 8), (20, 6), (200, 2)), DIFFUSION)
    after = written(tmp_path / "after", counts((2, 8), (20, 4), (32, 4)), TUNED | {"block": 32})
    found, rows = compared(before, after)
    assert found.rows[0].name == "accuracy with 20 masks" and found.rows[0].changes[0].value == pytest.approx(-0.2)
    assert [one.value for one in rows["degradation over 2, 20 masks; reduction"].own] == pytest.approx([0.25, 0.5])
    assert rows["degradation over 2, 20 masks; reduction"].changes[0].value == pytest.approx(1 - 0.5 / 0.25)
    single = written(tmp_path / "single", counts((2, 6)), TUNED | {"name": "single"})
    assert list(compared(before, single)[1]) == ["accuracy with 2 masks", "negative log-likelihood with 2 masks"]


def test_near_and_far_are_compared_under_the_fewest_masks_and_price_is_prose(tmp_path):
    """A model without masks is asked with none, others with two."""

    def asked(masks, near, far):
        conditions = [({"examples": where, "masks": masks}, right) for where, right in (("near", near), ("far", far))]
        contrast = [("contrast", condition, masks, [right] * 4) for condition, right in conditions]
        return [*contrast, ("nelbo", {"draws": 8}, 0, [10])]

    def told(nats, answer="A"):
        return lambda one: {"nll": nats + one["point"] / 10, "answer": answer} if one["probe"] == "nelbo" else {}

    before = written(tmp_path / "before", asked(2, 9, 9), DIFFUSION, told(3.0))
    _, rows = compared(before, written(tmp_path / "after", asked(0, 9, 3), TUNED, told(3.5)))
    assert rows["accuracy with the example far"].changes[0].value == pytest.approx(-2 / 3)  # of 3 whole questions each
    assert rows["accuracy with the example far"].verdicts[0].word == LOSS
    assert rows["accuracy with the example near"].changes[0].value == 0
    assert rows["NELBO per token of prose"].changes[0].value == pytest.approx(0.5)
    other = written(tmp_path / "other", asked(0, 9, 3), TUNED, told(3.5, "B"))  # another tokenizer hides other tokens
    assert "NELBO per token of prose" not in compared(before, other)[1]


def test_an_unfinished_run_is_compared_in_what_both_were_asked(tmp_path):
    """Ten relevant examples were asked first; one in the other run, which must not be paired with them."""
    one = [("mask-count", {"masks": k, "relevant": 1}, k, right) for k, right in ((2, [6, 6]), (100, [5, 5]))]
    ten = [("mask-count", {"masks": k, "relevant": 10}, k, right) for k, right in ((2, [10, 10]), (100, [9, 9]))]
    whole = written(tmp_path / "whole", one + ten, DIFFUSION)
    begun = written(tmp_path / "begun", one)
    assert {row.changes[0].value for row in compared(begun, whole)[0].rows[:2]} == {0}
    with pytest.raises(UserError, match="in all of these runs"):
        compared(whole, begun)


def test_runs_that_asked_other_questions_are_refused(folders, tmp_path):
    for name, value in (("seed", 1), ("chat", True), ("one_context", False), ("words", "others")):
        other = written(tmp_path / name, masks(8, 5), **{name: value})
        with pytest.raises(UserError, match=f"different questions: {name} is .* in one and {value}"):
            compared(folders[0], other)
    with pytest.raises(UserError, match="same run folder"):
        compared(folders[0], folders[0])
    with pytest.raises(UserError, match="at least two"):
        compare(folders[0])
    for names, problem in (((folders[0], "no-such-model"), "no model 'no-such-model'"), (folders[:1], "at least two")):
        refused = run(*names)
        assert refused.exit_code == 2 and problem in refused.stderr and not refused.stdout


def test_nothing_is_asked_before_every_model_and_folder_is_known_to_be_whole(tmp_path, monkeypatch):
    """The second checkpoint is cut short, the run folder is empty or of other questions: found at once."""
    monkeypatch.chdir(tmp_path)
    broken = shutil.copytree(ZOO / "tiny-llada", tmp_path / "broken")
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:-1000])
    other = written(tmp_path / "other", masks(8, 5), seed=5)
    for second, problem in ((broken, "cut short"), (other, "different questions: ")):
        with pytest.raises(UserError, match=problem):
            compare("tiny-llada", second)
    empty = written(tmp_path / "empty", masks(8, 5))
    (empty / "records.jsonl").write_text("")
    with pytest.raises(UserError, match="holds no records"):
        compare(written(tmp_path / "full", masks(8, 5)), empty)
    assert not (tmp_path / "runs").exists()


def test_the_command_prints_a_line_for_each_measure_and_writes_the_page(folders, tmp_path):
    shown = run(*folders, "--out", tmp_path / "page")
    assert shown.exit_code == 0, shown.output
    rows = compared(*folders)[0].rows
    assert all(
        any(row.name in line and row.changes[0].short in line for line in shown.stdout.splitlines()) for row in rows
    )
    page = read(tmp_path / "page" / "report.html").words
    assert all(row.name in page for row in rows) and "66.7 %" in page
    found = json.loads(run(*folders, "--json").stdout)
    assert found["finding"] == compared(*folders)[0].finding and len(found["estimates"]) == 3 * len(rows)


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
    arguments = ("--quick", "--questions", 1, "--relevant", 2, "--distractors", 6, "--words", "unfamiliar-1")
    result = run(base, adapter, *arguments, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    names = [one["name"] for one in json.loads(result.stdout)["estimates"] if "from" not in one]
    assert {"accuracy with 2 masks", "accuracy with 200 masks", "accuracy in 2, 4, 6 steps"} <= set(names)
    assert {"accuracy with the example near", "NELBO per token of prose"} <= set(names)
    for folder in (tmp_path / "runs").glob("*-quick-*"):
        asked = mw.read_run(folder).manifest.settings
        assert (asked.relevant, asked.distractors, asked.questions) == ([2], 6, 1)
        assert asked.tasks[0] != "animal-smallest"
