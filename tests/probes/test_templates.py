"""templates: an answerer whose effect depends on the wording in a known way is found out, and a steady one is not."""

import functools
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from helpers.known import SMALL, TASK_NAMES, diagnosed, reader_model, truth, with_parameters
from maskwise.cli import app
from maskwise.probes.library import templates as probe
from maskwise.probes.library.templates import ACCURACY, DISTANCE, MASKS
from maskwise.runs.settings import chosen_settings, with_templates
from maskwise.support.errors import UserError
from maskwise.support.randomness import seed_of
from maskwise.tasks.episodes import LETTERS, draw
from maskwise.tasks.rewordings import BUILT_IN, SAME
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

SETTINGS = with_parameters(
    replace(SMALL, probes=("templates",), questions=3),
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


def table_of(model, folder):
    return diagnosed(model, SETTINGS, folder).table("templates")


def estimates_of(table):
    return {one.name: one for one in probe.metrics(table, {})}


def test_an_effect_under_all_wordings_survives_and_no_template_changes_it(tmp_path):
    found = estimates_of(table_of(answerer(("Options", "Choices", "Items")), tmp_path))
    new, accuracy = found[f"{MASKS}, under a new template"], found[f"{ACCURACY}, under a new template"]
    assert (new.value, new.n, accuracy.value, found[probe.ABLE].value) == (-1.0, 6, 1.0, len(SAME))
    assert (new.low, new.why) == (None, "the same under every template")
    assert found[f"{DISTANCE}, under a new template"].value == 0  # contrast is answered by A, wherever the example is


def test_an_effect_under_one_wording_alone_does_not_survive_and_is_named(tmp_path):
    table = table_of(answerer(("Choices",)), tmp_path)
    found = estimates_of(table)
    new = found[f"{MASKS}, under a new template"]
    assert next(iter(found.values())) == new and new.side == 0 and new.value == pytest.approx(-1 / len(SAME))
    means = np.array([-1.0] + [0.0] * (len(SAME) - 1))  # one template loses all, the others nothing
    half = stats.t.ppf(0.975, len(SAME) - 1) * means.std(ddof=1) * np.sqrt(1 + 1 / len(SAME))
    assert (new.low, new.high) == pytest.approx((means.mean() - half, means.mean() + half))
    drawn = probe.by_template(table, {})
    assert set(drawn.template[(drawn.effect == MASKS) & (drawn.value == -1)]) == {"choices"}
    assert set(drawn.series) == {"a new template", "templates it can answer", "another task"}
    assert "--templates FILE" in probe.advice(list(found.values()))


def test_the_interval_of_a_new_template_holds_it():
    draws, held, tries = np.random.default_rng(0), 0, 400
    for _ in range(tries):
        of_template, of_question = draws.normal(-0.2, 0.1, 10), draws.normal(0, 0.3, (24, 1))
        values = pd.DataFrame(of_template + of_question + draws.normal(0, 0.2, (24, 10)))
        found = probe.over(MASKS, values[range(9)])
        held += found.low <= values[9].mean() <= found.high
    assert held / tries == pytest.approx(0.95, abs=0.03)


def reader_of(*wordings):
    """Right under these wordings; elsewhere always A, whatever is asked."""

    def reply(text: str) -> str:
        letter = right_letter(text)
        return letter if letter is not None and any(word in text for word in wordings) else "A"

    return reader_model(reply)


@pytest.mark.parametrize(("wordings", "able"), [(("Choices",), 1), (("Choices", "Items"), 2), ((), 0)])
def test_what_is_said_is_about_the_templates_that_the_model_can_answer(tmp_path, wordings, able):
    table = table_of(reader_of(*wordings), tmp_path)
    found = estimates_of(table)
    assert probe.answerable(table) == ["choices", "items"][:able] and found[probe.ABLE].value == able
    assert found[probe.ABLE].n == len(SAME)
    said = probe.advice(list(found.values()))
    if able == 0:
        assert found[f"{MASKS}, under a new template"].value is None and said.startswith("diagnose under wordings")
    elif able == 1:
        assert list(found) == [f"{effect}: choices" for effect in (MASKS, DISTANCE, ACCURACY)] + [probe.ABLE]
        one = found[f"{ACCURACY}: choices"]
        assert (one.value, one.n) == (1.0, 6) and one.low < 1 and said.startswith("word your prompts as")
    else:
        assert found[f"{ACCURACY}, under a new template"].value == 1.0
    series = probe.by_template(table, {}).set_index("template").series
    assert {name for name, one in series.items() if one == "templates it can answer"} == {*probe.answerable(table)}


def test_a_run_without_the_check_is_over_all_templates(tmp_path):
    """Such as a run of an earlier version."""
    table = table_of(reader_of("Choices"), tmp_path)
    assert probe.answerable(table[table.questions != "skill"]) == sorted(one.name for one in SAME)


def test_a_guesser_is_seldom_called_able_under_any_template():
    """Nine of 16 right is 5 % alone; under one of nine templates it shows nothing."""
    rows = [
        of_template(name, kind, masks) | {"point": point, "correct": float(point < right)}
        for name, right in [("lucky", 9)] + [(f"other {n}", 5) for n in range(8)]
        for kind, masks in [("skill", 2), ("mask-count", 2), ("mask-count", 200)]
        for point in range(16)
    ]
    assert probe.answerable(pd.DataFrame(rows)) == []
    assert probe.answerable(pd.DataFrame(rows[:16])) == ["lucky"]  # alone it is tested at 5 %


def test_a_letter_is_no_word_though_the_word_begins_with_it():
    """A tokenizer may cut Croatia into C and roatia: the answer C was counted as the first token of the word."""
    asked = of_template("word", "mask-count", 2) | {"answer_found": "word", "correct": 1.0}
    table = pd.DataFrame([asked | {"point": n, "predicted": said} for n, said in enumerate(["C", "lamp"])])
    assert probe.effects(table, "word")[ACCURACY]["word"].tolist() == [0, 1]


def of_template(name, kind, masks):
    asked = {"questions": kind, "template": name, "answer_found": "letter", "examples": "mixed", "masks": masks}
    return {"task": "t", "predicted": "A"} | asked


def test_templates_that_change_the_task_are_apart(tmp_path):
    drawn = probe.by_template(table_of(answerer(()), tmp_path), {})
    apart = drawn[drawn.series == "another task"]
    assert set(apart.template) == {"word", "word, no letters"}
    # A letter is no word, though a word in capitals may begin with it.
    assert (apart.value[apart.effect == ACCURACY] < 0.5).all()
    assert (drawn.value[(drawn.effect == ACCURACY) & (drawn.series != "another task")] == 1).all()


def test_a_file_of_templates_takes_the_place_of_ours_and_needs_the_probe(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text('- {name: a, text: "{A}, {B}, {C}\\n[{letter}]"}\n- {name: b, text: "{A} {B} {C}\\n({letter})"}\n')
    chosen = with_templates(chosen_settings(probes="templates"), file)
    assert [name for name, _ in chosen.parameters["templates"]["templates"]] == ["a", "b"]
    assert len(probe.PROBE.parameters["templates"]) == len(BUILT_IN)
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
