"""A run as a value: scores, table, figures, page, notebook, and the questions made again from the records."""

import json
import random
import sys

import pytest
from matplotlib.figure import Figure

import maskwise as mw
from helpers.records import record as plain_record
from helpers.report_runs import write_run
from maskwise.probes import PROBES
from maskwise.probes.answers.plain import ask
from maskwise.probes.setup import Asker, Setup
from maskwise.probes.text import load_text
from maskwise.records.manifest import Manifest
from maskwise.runs.asked import asked_ids
from maskwise.runs.diagnose import new_manifest, plan
from maskwise.runs.run import Sources
from maskwise.runs.settings import chosen_settings
from maskwise.support.files import to_json
from maskwise.support.typed import decode
from maskwise.tasks.prompts import Prompt, filler_id
from maskwise.tasks.word_sources import WordSource
from maskwise.tasks.words import load_words

NEED_DATA = {"datasets"}

ASKED = ["mask-count", "natural-text"]
SETTINGS = chosen_settings(
    "quick", [probe.name for probe in PROBES if probe.name not in NEED_DATA], questions=2, seed=3
)


@pytest.fixture(scope="module")
def model():
    return mw.open("tiny-llada", device="cpu")


@pytest.fixture(scope="module")
def run(model, tmp_path_factory) -> mw.Run:
    return mw.diagnose(model, ASKED, preset="quick", questions=1, seed=3, out=tmp_path_factory.mktemp("run") / "run")


def test_the_prompt_of_a_record_is_what_the_model_was_asked(model, run):
    """Asked again, the model is as sure as before; read from the folder, the text is the same."""
    again = mw.read_run(run.folder)
    assert again == run and again.sources.tokenizer is None
    assert {record["probe"] for record in run.records} == set(ASKED)
    for probe in ASKED:
        records = [record for record in run.records if record["probe"] == probe]
        for record in random.Random(0).sample(records, 3):
            ids = asked_ids(run.manifest, record, model.tokenizer)
            assert run.prompt(record) == again.prompt(record) == model.tokenizer.decode(ids)
            answer = ask(model, [Prompt(ids, ids.index(model.mask_id), 0, record["masks"])])[0]
            assert answer.confidence == pytest.approx(record["confidence"], abs=1e-4), record


@pytest.mark.slow
def test_the_questions_of_every_probe_are_made_again_from_what_a_manifest_says(model):
    """As a record names them, after the settings went through JSON, with the tokenizer instead of the model."""
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, SETTINGS.filler))
    setup = Setup(model, asker, SETTINGS, load_words(), load_text(), {}, [])
    manifest = decode(to_json(new_manifest(setup, None)), Manifest)
    for probe in PROBES:
        if probe.name not in SETTINGS.probes or probe.only_blocks:  # those: probes/test_block_models.py
            continue
        unit = plan(setup, [probe])[-1]
        item = list(unit.items([unit.points[-1]], set()))[-1]
        name, task, point, _ = item.key
        record = plain_record(probe=name, task=task, point=point, condition=item.condition)
        assert asked_ids(manifest, record, model.tokenizer) == item.prompt.ids, probe.name


def test_a_record_of_another_run_or_of_other_words_is_refused(run, model, tmp_path):
    with pytest.raises(mw.UserError, match="asked no such question"):
        run.prompt(run.records[0] | {"task": "no-task"})
    words = load_words() | {"animal": [f"beast{n}" for n in range(60)]}
    settings = chosen_settings("quick", "mask-count", questions=1)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, settings.filler))
    manifest = new_manifest(Setup(model, asker, settings, words, load_text(), {}, []), None)
    record = run.records[0] | {"task": "animal-smallest", "condition": {"masks": 2, "relevant": 1}}
    known = mw.Run(tmp_path, manifest, [record], Sources(model.tokenizer, WordSource(words)))
    assert "beast" in known.prompt(record)
    with pytest.raises(mw.UserError, match=r"other word lists.*mw\.diagnose"):
        mw.Run(tmp_path, manifest, [record]).prompt(record)


def test_a_table_has_a_row_per_record(run, monkeypatch):
    frame = run.frame()
    assert len(frame) == len(run.records) and {"condition.masks", "correct", "probe"} <= set(frame.columns)
    of_masks = frame[frame.probe == "mask-count"]
    assert of_masks.correct.mean() == pytest.approx(
        sum(r["correct"] for r in run.records if r["probe"] == "mask-count") / len(of_masks)
    )
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    with pytest.raises(mw.UserError, match=r"pandas is not installed: pip install '.\[frame\]' in a clone"):
        run.frame()


def test_every_figure_of_the_page_can_be_drawn(run):
    assert set(run.figures) <= set(ASKED)
    for name in run.figures:
        figure = run.plot(name)
        assert isinstance(figure, Figure) and any(axis.lines for axis in figure.axes), name
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows, without pyplot
    with pytest.raises(mw.UserError, match=r"no figure 'mask-cont': did you mean mask-count\? There are "):
        run.plot("mask-cont")


def test_known_records_have_known_scores_a_page_and_a_first_screen(tmp_path):
    """90 % near and 60 % far, 80 % with two masks and 50 % with a hundred."""
    run = mw.read_run(write_run(tmp_path / "<b>run</b>"))
    assert (
        run.scores["mask_tax"]["value"] == pytest.approx((0.8 - 0.5) / (0.8 - 1 / 3))
        and run.scores["mask_tax"]["low"] > 0
    )
    assert repr(run).endswith(f"lab/tiny-llada, {len(run.records)} records)")
    shown = run._repr_html_()
    assert "data:image/svg+xml;base64," in shown and "<h3>tiny-llada</h3>" in shown and "95\u00a0% interval" in shown
    page = run.report()
    assert page == run.folder / "report.html" and page.read_text().startswith("<!doctype html>")


def test_presets_and_probes_are_checked_before_a_model_is_opened():
    with pytest.raises(mw.UserError, match=r"unknown probe 'mask-cont': did you mean mask-count\?"):
        mw.diagnose("no such model", "location, mask-cont")
    with pytest.raises(mw.UserError, match="unknown preset 'quik': did you mean quick"):
        mw.diagnose("no such model", preset="quik")
    with pytest.raises(mw.UserError, match="leave relevant"):
        mw.diagnose("no such model", preset="paper", relevant=3)


def test_an_open_model_keeps_its_dtype_and_device(model):
    with pytest.raises(mw.UserError, match="open already"):
        mw.diagnose(model, "mask-count", preset="quick", dtype="bfloat16")


def test_scores_are_typed_and_dictionaries_for_one_more_version(run):
    score = run.scores["mask_tax"]
    assert score.value == score["value"] == score.get("value") and score.low == score["low"] and score.get("x") is None
    written = json.loads(json.dumps(run.scores))
    assert written == run.scores == json.loads(json.dumps(run.summary))["scores"]
    with pytest.raises(AttributeError):
        _ = score.no_such_field
    record = run.records[0]
    assert record.task == record["task"] and "evidence" not in record and dict(record)["point"] == record.point
    typed = run.reading.summary.scores["mask_tax"]  # a struct, as the report reads it
    assert typed.value == typed["value"] == typed.get("value") and {**typed} == score
