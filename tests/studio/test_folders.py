"""Run folders as the studio lists, shows and compares them."""

import pytest

from helpers.report_runs import mask_probes, write_run
from maskwise.studio.folders import found_runs, listed_runs, page_of, run_rows
from maskwise.support.errors import UserError


@pytest.fixture
def root(tmp_path):
    write_run(tmp_path / "runs" / "one", mask_probes([8, 9, 7, 8], [5, 6, 4, 5])[:2])
    write_run(tmp_path / "runs" / "two", mask_probes([8, 9, 7, 8], [8, 9, 7, 8])[:2])
    write_run(tmp_path / "elsewhere", mask_probes([8, 9, 7, 8], [5, 6, 4, 5])[:2])
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "no-run").mkdir()
    return tmp_path / "runs"


def test_runs_are_found_links_and_other_folders_are_not(root):
    assert sorted(found_runs(root)) == ["one", "two"] and found_runs(root / "missing") == []


def test_the_list_has_models_and_dates_at_once_and_then_the_scores(root):
    (root / "broken").mkdir()
    (root / "broken" / "manifest.json").write_text("{")
    write_run(root / "damaged", mask_probes([8, 9], [5, 6])[:2])
    (root / "damaged" / "records.jsonl").write_text("[1]\n")
    at_once, *_, complete = listed_runs(root)
    headers, rows = run_rows(at_once)
    assert headers == ["Run", "Model", "Date", "Preset"]
    assert {row[0]: row[1] for row in rows} == {name: "lab/tiny-llada" for name in ("one", "two", "damaged")} | {
        "broken": "–"
    }
    headers, rows = run_rows(complete)
    of = {row[0]: dict(zip(headers, row, strict=True)) for row in rows}
    # Accuracy 80 % with two masks and 50 % with a hundred, where guessing gives a third: 9/14 of the skill is lost.
    tax = next(title for title in headers if title.startswith("Mask tax"))
    assert of["one"][tax] == pytest.approx(100 * 9 / 14, abs=0.1) and of["two"][tax] == 0
    assert of["broken"][tax] is of["damaged"][tax] is None and len(headers) <= 8


def test_the_list_names_a_model_that_was_not_shown_to_do_the_task(root):
    write_run(root / "random", mask_probes([0, 0, 0, 0], [0, 0, 0, 0])[:2])
    *_, complete = listed_runs(root)
    models = {run.name: run.model for run in complete}
    limit = "not shown to be able to do the task: 0 of 40 right, guessing gives 33\xa0%"
    assert models["one"] == "lab/tiny-llada" and models["random"] == f"lab/tiny-llada ({limit})"


@pytest.mark.slow
def test_one_run_is_shown_and_two_are_compared(root):
    assert "100 masks instead of 2" in page_of(root, "one")
    assert "Measured against" in page_of(root, "one", "two")


@pytest.mark.parametrize("name", ["../elsewhere", "link", "no-run", "/etc", ""])
def test_nothing_outside_the_list_is_opened(root, name):
    with pytest.raises(UserError):
        page_of(root, name)
