"""A run as a value: tables, estimates, figures, page, notebook, and the questions made again from the tables."""

import pytest
from matplotlib.figure import Figure

import maskwise as mw
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


def test_the_prompt_of_a_row_is_what_the_model_was_asked(model, run):
    """Asked again, the model is as sure as before; read from the folder, the text is the same."""
    again = mw.read_run(run.folder)
    assert again == run and again.sources.tokenizer is None
    assert run.tables.keys() == set(ASKED)
    for probe in ASKED:
        for _, row in run.table(probe).sample(3, random_state=0).iterrows():
            ids = asked_ids(run.manifest, row, model.tokenizer)
            assert run.prompt(row) == again.prompt(row) == model.tokenizer.decode(ids)
            answer = ask(model, [Prompt(ids, ids.index(model.mask_id), 0, row.masks_seen)])[0]
            assert answer.confidence == pytest.approx(row.confidence, abs=1e-4), row


@pytest.mark.slow
def test_the_questions_of_every_probe_are_made_again_from_what_a_manifest_says(model):
    """As a record names them, after the settings went through JSON, with the tokenizer instead of the model."""
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, SETTINGS.filler))
    setup = Setup(model, asker, SETTINGS, load_words(), load_text(), {}, [])
    manifest = decode(to_json(new_manifest(setup, None)), Manifest)
    for probe in PROBES:
        if probe.name not in SETTINGS.probes or "blocks" in probe.needs:  # those: probes/test_block_models.py
            continue
        unit = plan(setup, [probe])[-1]
        item = list(unit.items([unit.points[-1]], set()))[-1]
        name, task, point, _ = item.key
        row = {"probe": name, "task": task, "point": point, **item.condition}
        assert asked_ids(manifest, row, model.tokenizer) == item.prompt.ids, probe.name


def test_a_row_of_another_run_or_of_other_words_is_refused(run, model, tmp_path):
    row = run.table("mask-count").iloc[0]
    with pytest.raises(mw.UserError, match="asked no such question"):
        run.prompt({**row, "task": "no-task"})
    words = load_words() | {"animal": [f"beast{n}" for n in range(60)]}
    settings = chosen_settings("quick", "mask-count", questions=1)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, settings.filler))
    manifest = new_manifest(Setup(model, asker, settings, words, load_text(), {}, []), None)
    row = {"probe": "mask-count", "task": "animal-smallest", "point": 0, "masks": 2, "relevant": 1}
    known = mw.Run(tmp_path, manifest, run.answers, Sources(model.tokenizer, WordSource(words)))
    assert "beast" in known.prompt(row)
    with pytest.raises(mw.UserError, match=r"other word lists.*mw\.diagnose"):
        mw.Run(tmp_path, manifest, run.answers).prompt(row)


def test_tables_and_estimates_are_those_of_the_records(run):
    assert sum(map(len, run.tables.values())) == len(run.records)
    table = run.table("mask-count")
    right = [record.correct for record in run.records if record.probe == "mask-count"]
    assert table.correct.tolist() == right and {"masks", "relevant", "nll", "point", "task"} <= set(table)
    found = run.estimates().set_index(["probe", "name"])
    few = table[table.masks == 2].groupby("task", observed=True).correct.mean().mean()
    assert found.loc[("mask-count", "accuracy with 2 masks"), "value"] == pytest.approx(few)
    assert len(found) == sum(map(len, run.measured.values())) and found.index.is_unique
    with pytest.raises(mw.UserError, match="did you mean mask-count"):
        run.table("mask-cont")


def test_every_figure_of_the_page_can_be_drawn(run):
    assert run.figures[0] == "lead" and {name.partition(":")[0] for name in run.figures[1:]} == set(ASKED)
    for name in run.figures:
        figure = run.plot(name)
        assert isinstance(figure, Figure) and any(axis.lines for axis in figure.axes), name
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows, without pyplot
    with pytest.raises(mw.UserError, match=r"no figure 'mask-cont': did you mean mask-count\?"):
        run.plot("mask-cont")


def test_known_records_have_known_estimates_a_page_and_a_first_screen(tmp_path):
    """90 % near and 60 % far, 80 % with two masks and 50 % with a hundred."""
    run = mw.read_run(write_run(tmp_path / "<b>run</b>"))
    found = run.estimates().set_index(["probe", "name"]).value
    assert found["mask-count", "mask tax"] == pytest.approx((0.8 - 0.5) / (0.8 - 1 / 3))
    assert found["location", "locality"] == pytest.approx((0.9 - 0.6) / (0.9 - 1 / 3))
    assert repr(run).endswith(f"lab/tiny-llada, {len(run.records)} records)")
    assert "30.0 points" in run.finding and str(run).splitlines()[0].startswith("tiny-llada: ")
    shown = run._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "&lt;svg" in shown and "<svg" not in shown
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
