"""A model that cannot do the task does not look healthy, nor does a task that is too easy: page, card, terminal."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.known import SMALL, distracted, known_model, shipped_tokenizer, truth
from helpers.report_runs import DIFFUSION, mask_probes, position_probes, write_run
from helpers.tiny import tiny_dream, tiny_llada
from maskwise.probes.library.mask_count import advice
from maskwise.report.figures.panels import caption_of, how_to_read, panels
from maskwise.report.pages.notebook import first_screen
from maskwise.report.pages.page import build
from maskwise.report.pages.redraw import redraw
from maskwise.report.pages.registry import run_table
from maskwise.report.readings import Reading, read_all
from maskwise.report.sections import sections_for
from maskwise.report.words.card import card_of_run
from maskwise.report.words.effects import effects_of, headings
from maskwise.report.words.finding import finding
from maskwise.report.words.printed_summary import print_summary
from maskwise.report.words.tiles import tiles, tiles_of
from maskwise.runs.diagnose import diagnose

NONE, THIRD, ALL = [0] * 4, [3, 4, 3, 3], [10] * 4
SKILLED, HURT = [8, 9, 7, 8], [5, 6, 4, 5]
OTHER = DIFFUSION | {"name": "lab/other"}
NOT_ABLE = "0 of 40 right, guessing gives 33\u00a0%: not shown to be able to do the task, so nothing can be lost."
HEALTHY = ("Nothing was detected", "nothing detected", "at most 7.2", "No effect of appended masks")


def read(folder: Path, two: list[int], hundred: list[int], model: dict = DIFFUSION, **settings: int) -> Reading:
    """A hundred masks are enough for advice: more than a block."""
    asked = position_probes(two, two) + mask_probes(two, hundred)
    return read_all([write_run(folder / "run", asked, model, **settings)])[0]


def test_a_model_that_is_never_right_is_not_called_healthy_anywhere(tmp_path: Path, capsys) -> None:
    reading = read(tmp_path, NONE, NONE)
    print_summary(reading)
    page, _ = build([reading])
    first = finding([reading])
    card = card_of_run(reading)
    for output in (page, card, first_screen(reading), first.sentence, " ".join(capsys.readouterr().out.split())):
        assert NOT_ABLE.replace("\u00a0", " ") in output.replace("\u00a0", " ")
        assert not [words for words in HEALTHY if words in output]
    assert first.panel is None and not first.numbers  # no level line, no "at most"
    assert "--chat" in first.sentence and "--words" in first.sentence and "nats" in first.sentence
    assert advice(reading.run.records) is None
    assert {effect.heading for effect in effects_of(reading)} == {
        "Not shown to be able to do the task: 0 of 40 right, guessing gives 33\u00a0%"
    }
    assert run_table([reading]).rows[0][0].below.startswith("not shown to be able")


def test_no_level_line_is_drawn_without_skill_or_room_for_a_loss(tmp_path: Path) -> None:
    """Points stay; the text does not call a level line what one would hope for."""
    for name, few, many, joined in (("a", NONE, NONE, False), ("b", ALL, ALL, False), ("c", SKILLED, SKILLED, True)):
        reading = read(tmp_path / name, few, many)
        section = next(section for probe, section in sections_for([reading]) if probe == "mask-count")
        drawn = panels(section, [reading])
        assert [curve.joined for curve in drawn[0].curves] == [joined]
        assert ("A level line is what one would hope for" in how_to_read(section, drawn)) == joined
        assert ("no line joins" in how_to_read(section, drawn)) != joined
        assert caption_of(section, drawn).startswith("Line: " if joined else "Point: ")
        assert ("band" in caption_of(section, drawn)) == joined


def test_what_to_try_is_a_paragraph_of_its_own_and_no_option_is_broken(tmp_path: Path) -> None:
    page, _ = build([read(tmp_path, NONE, NONE)])
    headline = page.partition('<p class="headline">')[2].partition("</p>")[0]
    assert headline.endswith("so nothing can be lost.")
    assert "What to do</h3><p>More questions will not help." in page and '<span class="word">--chat</span>' in page


def test_a_model_has_one_colour_also_where_another_has_no_curve(tmp_path: Path) -> None:
    readings = [read(tmp_path / "a", NONE, NONE, OTHER), read(tmp_path / "b", SKILLED, HURT)]
    first = finding(readings, compared=True)
    assert [curve.style for curve in first.panel.curves] == [1] == [number.curve for number in first.numbers]
    assert first.headline.startswith(f"other: {NOT_ABLE}") and first.steps.startswith("other: more questions will not")


def test_a_heading_names_the_model_that_can_do_the_task(tmp_path: Path) -> None:
    readings = [read(tmp_path / "a", NONE, NONE, OTHER), read(tmp_path / "b", SKILLED, SKILLED)]
    stated = headings(sections_for(readings), readings)
    assert any(heading.startswith("tiny-llada: ") for heading in stated)
    assert not any("1 comparisons" in heading for heading in stated)


@pytest.mark.slow
def test_json_has_the_sentence_and_the_numbers_behind_it(tmp_path: Path) -> None:
    read(tmp_path, NONE, NONE)
    (summary,) = redraw([tmp_path / "run"]).summary["runs"]
    assert NOT_ABLE in summary["finding"]
    assert summary["skill"]["skill"] == "unskilled" and summary["skill"]["p"] == 1
    assert (summary["skill"]["n"], summary["skill"]["right"]) == (40, 0)


def test_a_small_run_is_advised_to_ask_more(tmp_path: Path) -> None:
    """13 of 40 is what guessing gives, but a model with 45 % is not excluded."""
    sentence = finding([read(tmp_path, THIRD, THIRD)]).sentence
    assert "13 of 40 right" in sentence and "ask more (--questions)" in sentence and "--chat" not in sentence


def test_no_score_of_accuracy_has_a_value_without_skill(tmp_path: Path) -> None:
    """17 of 40 is 9 points above guessing, which chance alone gives (p = .14): a score of it looks like a finding."""
    reading = read(tmp_path, [4, 5, 4, 4], [4, 5, 4, 4])
    assert reading.summary.scores["mask_tax"].value is not None
    output = {tile.name: tile for tile in tiles(reading)}
    assert output["Mask tax"].value == "–" and "17 of 40 right" in output["Mask tax"].interval
    assert "| Mask tax |" not in card_of_run(reading)


def test_questions_that_are_too_easy_are_not_a_sign_of_health(tmp_path: Path) -> None:
    reading = read(tmp_path, ALL, ALL)
    first = finding([reading])
    assert first.sentence.startswith(
        "tiny-llada: 40 of 40 right at the baseline and no loss detected: too easy to show"
    )
    assert "--relevant" in first.sentence and first.panel is None and not first.numbers
    assert advice(reading.run.records) is None
    assert "too easy to show a loss" in card_of_run(reading)
    shown = {tile.name: tile for tile in tiles(reading)}
    for name in ("Mask tax", "Degradation"):  # a tax of 0 % would look like health
        assert shown[name].value == "–" and shown[name].interval.startswith("too easy to show a loss: 40 of 40 right")
    assert "| Mask tax |" not in card_of_run(reading) and "| 0\u00a0%" not in card_of_run(reading)
    assert "too easy to show a loss" in [cell.below for cell in run_table([reading]).rows[0]]


@pytest.mark.parametrize("compared", [True, False])
def test_a_model_that_tuning_destroyed_is_not_called_cured(tmp_path: Path, compared: bool) -> None:
    """From 30 points lost to none, because nothing is right any more."""
    before, after = read(tmp_path / "a", SKILLED, HURT), read(tmp_path / "b", NONE, NONE, OTHER)
    first = finding([before, after], compared=compared)
    assert first.sentence.startswith(f"other: {NOT_ABLE}")
    assert not [words for words in ("than tiny-llada", "from tiny-llada to other") if words in first.sentence]
    assert [curve.name for curve in first.panel.curves] == ["tiny-llada"]
    assert not [number for number in first.numbers if "other" in number.what]


def test_nothing_is_compared_with_a_first_model_without_skill(tmp_path: Path) -> None:
    readings = [read(tmp_path / "a", NONE, NONE, OTHER), read(tmp_path / "b", SKILLED, HURT)]
    headline = finding(readings, compared=True).headline
    assert (
        headline.startswith(f"other: {NOT_ABLE}") and "than other" not in headline and "to tiny-llada" not in headline
    )


def test_questions_that_another_model_loses_on_are_not_too_easy(tmp_path: Path) -> None:
    """What tuning recovers is still stated, though the tuned model has nothing to report."""
    before, after = read(tmp_path / "a", ALL, HURT), read(tmp_path / "b", ALL, ALL, OTHER)
    sentence = finding([before, after], compared=True).sentence
    assert "other loses 50.0\u00a0points less than tiny-llada" in sentence and "too easy" not in sentence
    assert "too easy" in finding([after, read(tmp_path / "c", ALL, ALL)], compared=True).sentence
    (tax,) = [tile for tile in tiles_of([before, after])[1] if tile.name == "Mask tax"]
    assert tax.value == "0\u00a0%" and "too easy" not in tax.interval


def test_a_loss_on_other_questions_does_not_make_these_harder(tmp_path: Path) -> None:
    easy = read(tmp_path / "a", ALL, ALL, distractors=0)
    for name, distractors, too_easy in (("b", 0, False), ("c", 12, True)):
        hurt = read(tmp_path / name, ALL, HURT, OTHER, distractors=distractors)
        table = run_table([easy, hurt])
        cell = dict(zip([column.key for column in table.columns], table.rows[0], strict=True))["mask_tax"]
        assert (cell.text, cell.below == "too easy to show a loss") == ("–" if too_easy else "0\u00a0%", too_easy)
        assert ("too easy" in finding([easy, hurt]).sentence) is too_easy


def right(questions: list, asked: int, text: str) -> str:
    return truth()[questions[asked][0]]


@pytest.mark.parametrize(
    ("make", "skill"),
    [
        (lambda: tiny_llada(tokenizer=shipped_tokenizer(), vocab=2048, window=2048, mask_token_id=1), "unskilled"),
        (lambda: tiny_dream(tokenizer=shipped_tokenizer(), vocab=2048, window=2048, mask_token_id=1), "unskilled"),
        (lambda: known_model(right), "saturated"),
        (lambda: known_model(distracted), "skilled"),
    ],
    ids=["random LLaDA", "random Dream", "always right", "distracted"],
)
def test_models_of_known_skill_are_distinguished(tmp_path: Path, make, skill: str) -> None:
    folder = diagnose(make(), replace(SMALL, probes=("mask-count",)), tmp_path)
    (reading,) = read_all([folder])
    assert reading.summary.skill.skill == skill
    assert (finding([reading]).panel is None) == (skill != "skilled")


def test_probes_without_a_score_print_where_their_measures_are_and_whether_answers_are_too_few(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [("filler", {"filler": ".", "fillers": 0}, 1, [8])])
    print_summary(read_all([folder])[0], tables=False)
    enough = capsys.readouterr().out
    assert "filler: no score; the measures are in the report (--verbose prints them here)" in " ".join(enough.split())
    assert "interval" not in enough and "too few" not in enough
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:2]))
    print_summary(read_all([folder])[0], tables=False)
    assert "at most 2 answers per condition: too few" in " ".join(capsys.readouterr().out.split())
