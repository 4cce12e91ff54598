"""Below the curves: prompts with their answers, accuracies task by task, records that can be filtered."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from helpers.page_reader import Reader, read
from helpers.report_runs import DIFFUSION, mask_probes, write_run
from maskwise.records.folder import read_run
from maskwise.records.sample import write_sample
from maskwise.report.pages.drill import MOST_ROWS, in_turn, records_table, small_multiples
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.sections import sections_for
from maskwise.support.errors import UserError

HOSTILE = "</div><script>alert(1)</script>{{ 7*7 }}\u202e<img src=x onerror=y>"
ASKED = mask_probes([8, 9, 7, 8], [5, 6, 4, 5])[:2]
PROMPT = {
    "probe": "mask-count",
    "task": HOSTILE,
    "point": 3,
    "condition": {"masks": 100, HOSTILE: HOSTILE},
    "answer": "A",
    "correct": False,
    "tokens": [HOSTILE, "Answer", ":[", *["<mask>"] * 100],
    "row": 3,
    "top": [["B", 0.75], [HOSTILE, 0.2], ["A", 0.0001]],
    "probability": 0.0001,
}


def page_of(tmp_path: Path, *prompts: dict) -> str:
    folder = write_run(tmp_path / "run", ASKED)
    write_sample(folder, list(prompts))
    return write_page(read_all([folder]), tmp_path / "page").read_text(encoding="utf-8")


def test_a_prompt_is_shown_with_its_answers_and_stays_text(tmp_path: Path) -> None:
    page = page_of(tmp_path, PROMPT)
    words = Reader(page).words  # every tag that was opened is closed
    assert "Prompts and answers (1)" in words
    assert "Wrong. The right answer is A , to which it gives < 0.1 %." in words
    assert "B 75.0 %" in words and "A (the right one) < 0.1 %" in words
    assert re.search(r"<mark[^>]*>&lt;mask&gt;</mark><b>&lt;mask&gt; × 99</b>", page)  # the answer's, and the others
    assert not re.search("<script|<img", page) and "&lt;script&gt;alert(1)" in page and "{{ 7*7 }}" in page


def test_an_autoregressive_prompt_ends_in_the_answer_s_place(tmp_path: Path) -> None:
    page = page_of(tmp_path, PROMPT | {"tokens": ["Answer", ":["], "row": 2})
    assert re.search(r":\[(</i>)?<mark[^>]*>the answer</mark></div>", page)


def test_an_answer_of_many_tokens_has_a_dash_for_the_confidence_that_it_has_not(tmp_path: Path) -> None:
    (reading,) = read_all([write_run(tmp_path / "run", ASKED)])
    one, other = reading.run.records[:2]
    run = replace(reading.run, records=[msgspec.structs.replace(one, confidence=0.0, nll=0.0), other])
    rows = records_table([replace(reading, run=run)]).rows
    assert rows[0][-1][-2:] == ("–", "–") and "–" not in rows[1][-1][-2:]


@pytest.mark.parametrize(("confidence", "nll", "shown"), [(1.0, 0.0, "0.00"), (0.0, 9.5, "9.50"), (0.4, 0.92, "0.92")])
def test_a_likelihood_is_shown_unless_it_is_a_placeholder(tmp_path: Path, confidence, nll, shown) -> None:
    (reading,) = read_all([write_run(tmp_path / "run", ASKED)])
    record = msgspec.structs.replace(reading.run.records[0], confidence=confidence, nll=nll)
    (row,) = records_table([replace(reading, run=replace(reading.run, records=[record]))]).rows
    assert row[-1][-1] == shown


def test_attribution_colours_the_tokens(tmp_path: Path) -> None:
    page = page_of(tmp_path, PROMPT | {"tokens": ["near", "far", "<mask>"], "row": 2, "attribution": [1.0, 0.26, 0.0]})
    assert '<i class="w" style="--w: 50%">near</i><i class="w" style="--w: 12%">far</i><mark' in page
    assert "norm of the answer's gradient" in Reader(page).words


def test_two_models_are_named_at_their_prompts(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, ASKED, DIFFUSION | {"name": name}) for name in ("before", "after")]
    for folder in folders:
        write_sample(folder, [PROMPT])
    words = read(write_page(read_all(folders), tmp_path / "page")).words
    assert "before · masks 100" in words and "after · masks 100" in words and "Prompts and answers (2)" in words


def test_each_task_has_its_own_drawing(tmp_path: Path) -> None:
    """Task 0 falls from 8 of 10 to 5 of 10: in the drawing from the left edge to the right."""
    reading = read_all([write_run(tmp_path / "run", ASKED)])[0]
    (section,) = [section for probe, section in sections_for([reading]) if probe == "mask-count"]
    found = small_multiples("mask-count", section, reading)
    assert [one.task for one in found] == [f"task-{number}" for number in range(4)]
    assert found[0].words == "80\u00a0% at 2 masks, 50\u00a0% at 100 masks"
    ((style, ((left, high), (right, low))),) = found[0].curves
    assert style == 0 and left == pytest.approx(5) and right == pytest.approx(115)
    assert high == pytest.approx(51 - 0.8 * 46, abs=0.1) and low == pytest.approx(51 - 0.5 * 46, abs=0.1)


def test_records_are_a_table_without_script_and_filtered_by_their_kind(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    reader = Reader(page)
    rows = [attrs["class"] for tag, attrs in reader.tags if tag == "tr" and "of-" in (attrs.get("class") or "")]
    assert rows.count("right of-0") == 32 + 20 and rows.count("wrong of-0") == 8 + 20
    assert "80 of 80 records" in reader.words and "<script" not in page
    assert "#records:has(#wrong-answers:checked) tr.right" in page and 'id="filter-0"' in page
    names = [attrs.get("name") for tag, attrs in reader.tags if tag == "input"]
    assert names == ["answers"] * 3 + ["probes"] * 2


def test_the_table_is_bounded_and_takes_every_condition(tmp_path: Path) -> None:
    records = read_run(write_run(tmp_path / "run", ASKED)).records
    many = [record | {"point": point} for record in records for point in range(50)]
    rare = records[0] | {"condition": {"masks": 7}}
    found = in_turn([*many, rare], MOST_ROWS)
    assert len(found) == MOST_ROWS and found[-1] == rare
    counts = [sum(record["condition"] == {"masks": masks} for record in found) for masks in (2, 100)]
    assert abs(counts[0] - counts[1]) <= 1


def test_a_sample_that_is_none_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ASKED)
    (folder / "sample.json").write_text("[1]")
    with pytest.raises(UserError, match="prompt 1: it: expected object, got int"):
        write_page(read_all([folder]), tmp_path / "page")
    assert not (tmp_path / "page").exists()
