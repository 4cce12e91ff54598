"""The published values and predictions of --paper: each is found by its name, and by the models and runs it is of."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import maskwise as mw
from helpers.tiny import llada_net
from maskwise.cli import app
from maskwise.probes import PROBES
from maskwise.probes.probe import measured
from maskwise.probes.published import published
from maskwise.probes.select_tasks import NAME as SELECT_TASKS
from maskwise.report.chart import minus
from maskwise.report.result import result_of
from maskwise.runs.asked import tokenizer_of
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import PAPER, with_words
from maskwise.tasks.rules import TASKS
from maskwise.tasks.word_sources import load_word_source

FIXED = yaml.safe_load((Path(mw.__file__).parent / "probes/published.yaml").read_text())
LLADA, DREAM = "llada-8b-base", "dream-v0-base-7b"
N = 1000  # questions


def told(conditions, **columns):
    """Conditions with their accuracy in thousandths."""
    rows = []
    for condition, right in conditions:
        own = pd.DataFrame({"task": "country-smallest", "point": np.arange(N), "correct": (np.arange(N) < right) * 1.0})
        rows.append(own.assign(masks_seen=condition.get("masks", 0), nll=1.0, relevant=10, **condition, **columns))
    return pd.concat(rows, ignore_index=True).astype({"task": "category"})


def shots(gains, changes):
    """A task for each: with 5 and 25 shots under 1 mask, with 25 under 200."""
    rows = []
    for task, (gain, change) in enumerate(zip(gains, changes, strict=True)):
        for (shown, extra), right in {(5, 1): 400, (25, 1): 400 + gain, (25, 200): 400 + gain + change}.items():
            point = np.arange(N)
            # every second thousandth is right first, so that both halves have the same accuracy
            own = pd.DataFrame({"task": f"t{task}", "point": point, "correct": (point // 2 * 2 < right) * 1.0})
            rows.append(own.assign(masks_seen=extra + 1, nll=1.0, shots=shown, extra=extra))
    return pd.concat(rows, ignore_index=True)


def told_tables(change, gains, changes):
    """A model of whose tables the paper's numbers are known."""
    masks = told([({"masks": k}, 900 + change.get(k, 0)) for k in (2, 20, 200)])
    counts = pd.concat([masks.astype({"task": object}), shots(gains, changes)], ignore_index=True)
    stops = told([({"fillers": n}, 900 + (n == 200) * change["stops"]) for n in (0, 200)], filler=".", format="A")
    steps = [({"steps": s, "masks": k}, 1000 - (k == 200) * change[f"steps {s}"]) for s in (2, 4, 6) for k in (2, 200)]
    norms = {"masks": 0.234, "near": 0.005, "all": 0.017}
    gradients = pd.DataFrame({"task": "country-smallest", "point": np.arange(N), "of": "masks", **norms})
    return {
        "mask-count": counts.astype({"task": "category"}),
        "filler": stops,
        "steps": told(steps, order="random"),
        "attribution": gradients.astype({"task": "category"}),
    }


def manifest(name, words="paper", preset="paper", chat=False, probes=PAPER.probes):
    tasks = [task.name for task in load_word_source(words).tasks]
    settings = SimpleNamespace(preset=preset, chat=chat, tasks=tasks, probes=list(probes))
    return SimpleNamespace(model=SimpleNamespace(name=name), settings=settings)


def names(section, kind):
    return {(probe, name) for probe, own in FIXED[section][kind].items() for name in own}


def test_each_of_the_ten_values_is_measured_by_the_estimate_of_its_name():
    gains, changes = (200, 100, 300, 0), (-50, -100, -20, -90)
    planted = {20: -60, 200: -230, "stops": -30, "steps 2": 197, "steps 4": 145, "steps 6": 124}
    found = measured(PROBES, told_tables(planted, gains, changes))
    wanted = {
        "change of accuracy with 200 masks instead of 2": -0.23,
        "change of accuracy with 20 masks instead of 2": -0.06,
        "correlation, over tasks, of the gain from shots and the change from masks": np.corrcoef(gains, changes)[0, 1],
        "change of accuracy with 200 full stops after the closed answer": -0.03,
        "degradation in 2 steps": 0.197,
        "degradation in 4 steps": 0.145,
        "degradation in 6 steps": 0.124,
        "gradient norm of masks": 0.234,
        "gradient norm of the nearest other tokens": 0.005,
        "gradient norm of all other tokens": 0.017,
    }
    assert {name for _, name in names("paper", "published")} == wanted.keys()
    told = {
        one.measured.name: one for model in (LLADA, DREAM) for one in published(manifest(f"org/{model}"), found)
    }  # not all values are stated of both
    assert {name: one.measured.value for name, one in told.items()} == pytest.approx(wanted)
    few, many = (told[f"change of accuracy with {k} masks instead of 2"] for k in (20, 200))
    assert (many.published, many.predicted) == (-0.23, [-0.33, -0.13])
    assert (few.published, few.predicted) == (-0.06, [-0.12, 0.0])
    assert told["degradation in 4 steps"].published == 0.145 and told["degradation in 4 steps"].predicted is None


@pytest.mark.parametrize(
    "name, chat, count",
    [
        ("GSAI-ML/LLaDA-8B-Base", False, 9),
        ("/models/LLaDA-8B-Instruct/", True, 9),
        ("Dream-org/Dream-v0-Base-7B", False, 5),
        ("weights\\dream-v0-instruct-7b", True, 5),
        ("inclusionAI/LLaDA-MoE-7B-A1B-Base", False, 3),
        ("GSAI-ML/LLaDA-8B-Base", True, 0),  # not the paper's prompt format
        ("GSAI-ML/LLaDA-8B-Instruct", False, 0),
        ("GSAI-ML/LLaDA-8B-Base+tuned", False, 0),
        ("GSAI-ML/LLaDA-8B-Base-4bit", False, 0),
        ("tiny-llada", False, 0),
    ],
)
def test_values_are_of_models_of_the_paper_in_its_prompt_format(name, chat, count):
    by_probe: dict = {}
    for probe, one in names("paper", "published"):
        by_probe.setdefault(probe, []).append(SimpleNamespace(name=one))
    assert len(list(published(manifest(name, chat=chat), by_probe))) == count
    assert not list(published(manifest(name, preset="full", chat=chat), by_probe))
    assert not list(published(manifest(name, "unfamiliar-1", chat=chat), by_probe))
    assert not list(published(manifest(name, chat=chat, probes=("mask-count", SELECT_TASKS)), by_probe))


def test_every_prediction_is_an_interval_around_the_published_value():
    kinds = [(words, kind) for words, own in FIXED.items() for kind in own if kind.startswith("predicted")]
    assert len(kinds) == 3
    for words, kind in kinds:
        for probe, own in FIXED[words][kind].items():
            for name, by_model in own.items():
                for model, (low, high) in by_model.items():
                    assert low < FIXED[words].get("published", {}).get(probe, {}).get(name, {}).get(model, high) <= high
                    assert low < high and probe in PAPER.probes


@pytest.fixture
def checkpoint(tmp_path):
    """A random network under a name of the paper."""
    folder = tmp_path / "LLaDA-8B-Base"
    llada_net(vocab=2048, window=4096, width=16, layers=1, mask_token_id=1).save_pretrained(folder)
    tokenizer_of("tiny-llada").save_pretrained(folder)
    return folder


def small_run(folder, words="paper", **settings):
    """In short prompts, three tasks."""
    source = load_word_source(words)
    own = with_words(replace(PAPER, distractors=2, questions=2, **settings), source)
    own = replace(own, tasks=own.tasks[:3]).changed("mask-count", mask_counts=(2, 20, 200), clouds=1)
    own = own.changed("filler", filler_counts=(0, 200)).changed("attribution", of=("masks",))
    own = own.changed("steps", masks=(2, 5), random=(2, 4, 6), confident=())
    model = mw.open(str(folder), device="cpu")
    out = folder.parent / f"run-{words}"
    return mw.read_run(diagnose(model, own, out, source.words, tasks=source.tasks))


@pytest.mark.slow
def test_a_run_of_a_model_of_the_paper_holds_its_values_and_predictions(checkpoint):
    run = small_run(checkpoint, probes=("mask-count", "filler", "steps", "attribution"))
    found = json.loads(json.dumps(result_of(run), default=dict))["estimates"]
    told = {(one["probe"], one["name"]): one for one in found}
    assert names("paper", "published") <= told.keys()
    stated = {key: one["published"] for key, one in told.items() if one.get("published") is not None}
    assert len(stated) == 9 and stated["steps", "degradation in 2 steps"] == 0.197
    assert told["mask-count", "change of accuracy with 200 masks instead of 2"]["predicted"] == [-0.33, -0.13]
    own = run.screen.stated["mask-count", "change of accuracy with 200 masks instead of 2"]
    assert own.published == -0.23 and str(own).startswith("published -23.0; predicted -33.0 to -13.0: ")
    assert str(own) in str(run) and minus(str(own)) in run.report(checkpoint.parent / "page").read_text()
    for words in ("unfamiliar-1", "unfamiliar-2"):
        found = result_of(small_run(checkpoint, words, probes=("mask-count", SELECT_TASKS)))["estimates"]
        predicted = {(one["probe"], one["name"]) for one in found if one.get("predicted")}
        assert predicted == names(words, "predicted with --select-tasks")


@pytest.mark.slow  # half a minute
def test_the_command_writes_them(checkpoint, tmp_path):
    asked = ["--device", "cpu", "--paper", "--probes", "mask-count,filler", "--questions", "2", "--out"]
    done = CliRunner().invoke(app, ["diagnose", str(checkpoint), *asked, str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "run" / "result.json").read_text())["estimates"]
    assert {one["published"] for one in found if one.get("published") is not None} == {-0.23, -0.15, -0.03}


def test_the_paper_is_asked_100_questions_a_task():
    assert (PAPER.questions, PAPER.relevant, PAPER.distractors, PAPER.held_out) == (100, (10,), 40, 0.0)
    assert PAPER.tasks == tuple(task.name for task in TASKS) and len(PAPER.tasks) == 16 and PAPER.one_context
    probes = {"location", "mask-count", "filler", "context-length", "attribution", "steps", "datasets", "points"}
    assert set(PAPER.probes) == probes  # the thirteen protocols, of which several are one probe
    assert PAPER.parameters["mask-count"]["shots"] == (5, 25) and PAPER.parameters["filler"]["after_two_masks"] == ()
    assert PAPER.parameters["attribution"]["of"] == ("examples", "masks")
    assert PAPER.parameters["location"]["places"] == ("right", "middle", "left")
    assert PAPER.parameters["location"]["mask_counts"] == (2, 50, 100, 200)
    assert PAPER.parameters["steps"]["random"] == (2, 4, 6, 40) and PAPER.parameters["steps"]["confident"] == (40,)
