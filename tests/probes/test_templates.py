"""templates: an answerer whose effect depends on the wording in a known way is found out, and a steady one is not."""

import functools
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from helpers.known import SMALL, TASK_NAMES, reader_model, truth, with_parameters
from maskwise.cli import app
from maskwise.probes.library.templates import PROBE, in_words, survives
from maskwise.records.folder import read_run
from maskwise.report.readings import read_all
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import chosen_settings, with_templates
from maskwise.scoring.template_effects import templates_summary
from maskwise.support.errors import UserError
from maskwise.support.randomness import seed_of
from maskwise.tasks.episodes import LETTERS, draw
from maskwise.tasks.rewordings import BUILT_IN, SAME
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

SETTINGS = with_parameters(
    replace(SMALL, probes=("templates",), points=3),
    templates={"tasks": 2, "points": 3, "mask_counts": (2, 20), "among": 1, "contrast_tasks": 1,
               "contrast_questions": 2},
)  # fmt: skip
MASK = "<|mask|>"
WORD = re.compile(r"[a-z]+(?:[ -][a-z]+)*", re.IGNORECASE)
LABELS = {"Options", "Choices", "Items", "Answer", "Reply", "Solution", *LETTERS}


@functools.cache
def letters() -> dict[str, str]:
    """Of the questions that are scored, and of those that decide which templates the model can answer."""
    others = [draw(task, load_words(), 0, 0, 400, seed_of("skill", 0)) for task in TASKS if task.name in TASK_NAMES]
    return truth() | {one.asked.removeprefix("Options: "): one.letter for drawn in others for one in drawn.tests}


def right_letter(text: str) -> str | None:
    """The letter of the last question by its words, whatever the template; None for a question of contrast."""
    last = text.split("\n\n")[-1]
    words = [word for word in WORD.findall(last.split(MASK)[0]) if word not in LABELS]
    return letters().get(", ".join(f"({letter}) {word}" for letter, word in zip(LETTERS, words, strict=False)))


def answerer(distracted_by):
    """Right with few masks; wrong with many under the wordings that `distracted_by` names. Contrast: always A."""

    def reply(text: str) -> str:
        letter = right_letter(text)
        if letter is None:
            return "A"
        wrong = text.count(MASK) > 5 and any(word in text for word in distracted_by)
        return LETTERS[(LETTERS.index(letter) + wrong) % 3]

    return reader_model(reply)


def found_in(model, folder):
    return templates_summary(read_run(diagnose(model, SETTINGS, folder)).records)


def test_an_effect_under_all_wordings_survives_and_no_template_changes_it(tmp_path):
    found = found_in(answerer(("Options", "Choices", "Items")), tmp_path)
    masks = found.spread["masks"]
    assert (masks.mean, masks.sd, masks.templates, masks.questions) == (1.0, 0.0, len(SAME), 6)
    assert found.spread["accuracy"].mean == 1.0


def test_an_effect_under_one_wording_alone_does_not_survive_and_is_named(tmp_path):
    folder = diagnose(answerer(("Choices",)), SETTINGS, tmp_path / "run")
    found = templates_summary(read_run(folder).records)
    masks = found.spread["masks"]
    assert masks.mean == pytest.approx(1 / len(SAME))
    assert masks.sd == pytest.approx(1 / len(SAME) ** 0.5)  # one template at 1, the others at 0: 1 / T with T - 1
    assert masks.new_low < 0 < masks.new_high and not survives(masks)
    assert {one.template for one in found.effects if one.effect == "masks" and one.value == 1} == {"choices"}
    readings = read_all([folder])
    lines = in_words(readings[0])
    assert lines[0] == "the model can answer all 9 templates"
    assert "which includes 0: rewording alone may remove it" in lines[1]
    assert any(line.startswith("another task, 'word'") for line in lines)
    assert lines[-1].startswith("what to do: ") and "--templates FILE" in lines[-1]
    assert {point.series for point in PROBE.sections[0].points(readings[0])} == {
        "a new template", "templates it can answer", "another task",
    }  # fmt: skip


def reader_of(*wordings):
    """Right under these wordings; elsewhere always A, whatever is asked."""

    def reply(text: str) -> str:
        letter = right_letter(text)
        return letter if letter is not None and any(word in text for word in wordings) else "A"

    return reader_model(reply)


@pytest.mark.parametrize(("wordings", "able"), [(("Choices",), 1), (("Choices", "Items"), 2), ((), 0)])
def test_the_section_leads_with_the_templates_that_the_model_can_answer(tmp_path, wordings, able):
    (reading,) = read_all([diagnose(reader_of(*wordings), SETTINGS, tmp_path)])
    found = reading.summary.extras["templates"]
    assert found.answerable == ["choices", "items"][:able]
    drawn = {(point.entry.condition["template"], point.series) for point in PROBE.sections[0].points(reading)
             if point.entry.condition["effect"] != "accuracy"}  # fmt: skip
    assert {name for name, series in drawn if series != "a new template"} == set(found.answerable)
    assert bool(found.able) == (able > 1)
    assert not any(entry.condition["questions"] == "skill" for entry in reading.entries("templates"))
    first, *lines = in_words(reading)
    if able == 0:
        assert first.startswith("the model is not shown to answer any of 9 templates")
        assert lines[-1].endswith("--templates FILE")
    elif able == 1:
        assert first.startswith(
            "it can answer only 1 of 9 wordings ('choices') and there appended masks cost 0.0 points ("
        )
        assert "6 of 6 other questions are right under it" in first
        assert first.endswith("; no variance over templates is known")
        assert lines[0].startswith("under 'choices', in points: accuracy with 2 masks 100.0 (")
        assert not any("whisker" in line for line in (*lines, PROBE.sections[0].how_to_read, PROBE.sections[0].caption))
        assert lines[-1].startswith("what to do: word your prompts as 'choices' does")
    else:
        assert first.startswith("the model can answer 2 of 9 templates; under the others, dots, label last")
        assert any("point with a whisker is the mean" in line for line in lines)
        assert found.able["accuracy"].mean == 1.0 and found.able["accuracy"].templates == 2


def test_a_run_without_the_check_is_over_all_templates(tmp_path):
    """Such as a run of an earlier version."""
    records = read_run(diagnose(reader_of("Choices"), SETTINGS, tmp_path)).records
    found = templates_summary([one for one in records if one.condition["questions"] != "skill"])
    assert found.answerable == found.same_task and found.able == found.spread


def test_a_guesser_is_seldom_called_able_under_any_template():
    """Nine of 16 right is 5 % alone; under one of nine templates it shows nothing."""
    asked = [("skill", 2), ("mask-count", 2), ("mask-count", 200)]
    records = [
        SimpleNamespace(task="t", point=point, correct=point < right, condition=of_template(name, kind, masks))
        for name, right in [("lucky", 9)] + [(f"other {n}", 5) for n in range(8)]
        for kind, masks in asked
        for point in range(16)
    ]
    found = templates_summary(records)
    assert len(found.skills) == 9 and found.answerable == []


def test_a_letter_is_no_word_though_the_word_begins_with_it():
    """A tokenizer may cut Croatia into C and roatia: the answer C was counted as the first token of the word."""

    def record(point, predicted, answer):
        condition = of_template("word", "mask-count", 2) | {"answer": "word"}
        return SimpleNamespace(
            task="t", point=point, correct=True, predicted=predicted, answer=answer, condition=condition
        )

    (found,) = templates_summary([record(0, "C", "Croatia"), record(1, "lamp", "lamp")]).effects
    assert (found.effect, found.value, found.changes_task) == ("accuracy", 0.5, True)


def of_template(name, kind, masks):
    return {"questions": kind, "template": name, "answer": "letter", "examples": "mixed", "masks": masks}


def test_templates_that_change_the_task_are_reported_apart(tmp_path):
    found = found_in(answerer(()), tmp_path)
    apart = [one for one in found.effects if one.changes_task]
    assert {one.template for one in apart} == {"word", "word, no letters"}
    # A letter is no word, though a word in capitals may begin with it.
    assert all(one.value < 0.5 for one in apart if one.effect == "accuracy")
    assert found.spread["accuracy"].mean == 1.0 and found.spread["accuracy"].templates == len(SAME)


def test_the_distance_of_an_answerer_that_ignores_the_example_is_zero(tmp_path):
    found = found_in(answerer(()), tmp_path)
    assert (found.spread["distance"].mean, found.spread["distance"].sd) == (0.0, 0.0)


def test_a_file_of_templates_takes_the_place_of_ours_and_needs_the_probe(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text('- {name: a, text: "{A}, {B}, {C}\\n[{letter}]"}\n- {name: b, text: "{A} {B} {C}\\n({letter})"}\n')
    chosen = with_templates(chosen_settings(probes="templates"), file)
    assert [name for name, _ in chosen.parameters["templates"]["templates"]] == ["a", "b"]
    assert len(PROBE.parameters["templates"]) == len(BUILT_IN)
    with pytest.raises(UserError, match="no probe of this run rewords questions: add templates with"):
        with_templates(chosen_settings(probes="mask-count"), file)


@pytest.mark.parametrize(("content", "message"), [("- {name: a}", "text"), (None, "cannot read")])
def test_a_wrong_file_is_one_line_before_a_model_is_opened(tmp_path, content, message):
    file = tmp_path / "own.yaml"
    if content is not None:
        file.write_text(content)
    found = CliRunner().invoke(app, ["diagnose", "--probes", "templates", "--templates", str(file)])
    assert found.exit_code == 2 and len(found.stderr.strip().splitlines()) == 1
    assert message in found.stderr.lower() and str(file) in found.stderr
