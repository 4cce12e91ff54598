"""Score cards: every setting in one file, refused in one line if wrong, and run next to the published score."""

import json

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.experiments.reproduction import affordable, compared, reproduction_of, share_of, varied
from maskwise.experiments.score_cards import CARDS, SETTINGS, card_questions, read_card, variations
from maskwise.support.errors import UserError
from maskwise.tasks.checkable import GSM8K, LAST_NUMBER, is_right

CARD = """
model: tiny-llada
task: embedded
shots: 1
template: "Options: (A) {A}, (B) {B}, (C) {C}\\nAnswer:[{letter}]."
canvas: 2
block: null
steps: 2
strategy: low-confidence
temperature: 0.0
dtype: float32
batch: 4
questions: 6
published: {score: 90, source: ours, questions: 6}
vary: {canvas: [8], steps: [1]}
"""


def written(tmp_path, text=CARD):
    file = tmp_path / "card.yaml"
    file.write_text(text)
    return str(file)


def test_a_card_of_an_embedded_model_runs_and_is_printed_next_to_the_published_score(tmp_path):
    ran = CliRunner().invoke(app, ["reproduce", written(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.stderr
    found = msgspec.json.decode(ran.stdout, type=OUTPUTS["reproduce"])
    assert found.settings == {
        "shots": 1, "template": "Options: (A) {A}, (B) {B}, (C) {C}\nAnswer:[{letter}].", "canvas": 2, "block": None,
        "steps": 2, "strategy": "low-confidence", "temperature": 0.0, "dtype": "float32", "batch": 4,
    }  # fmt: skip
    assert (found.published.value, found.measured.questions, found.source) == (90.0, 6, "ours")
    assert found.measured.low <= found.measured.value <= found.measured.high
    assert found.agrees == (found.difference.low <= 0 <= found.difference.high)
    assert {(one.setting, one.value) for one in found.variations} == {("canvas", 8), ("steps", 1)}
    assert "the published 90.0 %" in found.sentence
    shown = CliRunner().invoke(app, ["reproduce", written(tmp_path)])
    assert "published   90.0 %" in shown.stdout and found.sentence in shown.stdout
    assert "one setting changed at a time" in shown.stdout


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("shots: 1\n", "", "missing required field `shots`"),
        ("shots: 1\n", "shots: 1\nstep: 3\n", "unknown field `step`"),
        ("shots: 1\n", "shots: many\n", "expected `int`, got `str` - at `$.shots`"),
        ("shots: 1\n", "shots: -1\n", "expected `int` >= 0"),
        ("dtype: float32", "dtype: float8", "invalid enum value 'float8'"),
        ("task: embedded", "task: gsm9k", "invalid enum value 'gsm9k'"),
        ("strategy: low-confidence", "strategy: low-confidenze", "low-confidence"),
        ("steps: 2\nstrategy: low-confidence", "steps: 2\nstrategy: threshold", "leave steps out"),
        ("{A}, (B)", "{D}, (B)", "unknown field {D}"),
        ("steps: [1]", "tempo: [1]", "vary has no setting 'tempo'"),
        ("steps: [1]", "steps: [fast]", "vary steps: expected"),
        ("score: 90", "score: 190", "expected `float` <= 100"),
        ("task: embedded", "task: [", "card.yaml"),
    ],
)
def test_what_is_wrong_with_a_card_is_one_line(tmp_path, before, after, message):
    ran = CliRunner().invoke(app, ["reproduce", written(tmp_path, CARD.replace(before, after))])
    assert ran.exit_code == 2
    (line,) = ran.stderr.strip().splitlines()
    assert message in line


def test_a_card_that_is_not_there_and_data_that_is_missing_are_one_line(tmp_path):
    with pytest.raises(UserError, match="there is no card tiny-lada: did you mean tiny-llada"):
        read_card("tiny-lada")
    with pytest.raises(UserError, match="task gsm8k needs its questions: give data PATH"):
        card_questions(read_card("llada-8b-base-gsm8k"), None)


def test_the_published_cards_hold_every_setting_and_say_that_they_were_not_run():
    names = {file.stem for file in CARDS.glob("*.yaml")}
    assert names == {"tiny-llada", "llada-8b-base-gsm8k", "dream-7b-instruct-gsm8k"}
    for name in names - {"tiny-llada"}:
        card = read_card(name)
        assert card.note == "not run here" and card.task == GSM8K and "arXiv" in card.published.source
        assert len(variations(card)) >= 7 and set(dict(variations(card))) <= set(SETTINGS)


def test_gsm8k_prompts_have_the_examples_of_the_training_file_in_the_words_of_the_card(tmp_path):
    rows = [{"question": f"What is {n} + 1?", "answer": f"It is {n + 1}.\n#### {n + 1}"} for n in range(8)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "What is 8 + 1?", "answer": "#### 9"}) + "\n")
    questions, check = card_questions(read_card("llada-8b-base-gsm8k"), tmp_path)
    (one,) = questions
    assert check == LAST_NUMBER and is_right("so it is 9", one.label, check)
    assert one.asked.startswith("Question: What is 0 + 1?\nAnswer: It is 1.\n#### 1\n\nQuestion: What is 1 + 1?")
    assert one.asked.endswith("#### 5\n\nQuestion: What is 8 + 1?\nAnswer:")
    (bare,), _ = card_questions(read_card("dream-7b-instruct-gsm8k"), tmp_path / "test.jsonl")
    assert bare.asked == "Q: What is 8 + 1?\nA:"


def test_the_budget_decides_how_many_questions_a_variation_is_asked(tmp_path):
    card = read_card(written(tmp_path))
    asked = [("steps", 1), ("canvas", 4)]  # half and twice the cost of the card's own run
    assert affordable(card, asked, 100, taken=10.0, budget=100.0) == 100
    assert affordable(card, asked, 100, taken=10.0, budget=12.5) == 50
    assert affordable(card, asked, 100, taken=10.0, budget=0.1) is None


def test_differences_are_paired_and_a_score_agrees_where_the_interval_includes_zero():
    before, after = np.array([True] * 30 + [False] * 10), np.array([True] * 10 + [False] * 30)
    found = varied("steps", 1, before, after, comparisons=4)
    assert (found.difference, found.score) == (-50.0, 25.0) and found.high < 0
    alone = varied("steps", 1, before, after, comparisons=1)
    assert found.low < alone.low and alone.high < found.high  # intervals that hold together are wider
    near, far = (
        compared(share_of(70.0, 100), share_of(72.0, 1319)),
        compared(share_of(70.0, 1000), share_of(90.0, 1000)),
    )
    assert near.low < 0 < near.high and far.high < 0
    exact = compared(share_of(70.0, 100), share_of(72.0, None))
    assert near.low < exact.low < exact.high < near.high


def test_the_single_setting_that_moves_the_score_most_is_named_where_one_is_known_to(tmp_path):
    card, right = read_card(written(tmp_path)), np.array([True] * 36 + [False] * 4)

    def changed(setting, value, wrong):
        return varied(setting, value, right, right & (np.arange(40) >= wrong), comparisons=3)

    tried = [changed("shots", 5, 1), changed("steps", 1, 30), changed("canvas", 64, 15)]
    found = reproduction_of(card, right, tried, [], 1.0)
    assert found.moves_most == "steps" and "steps = 1 moves it most: −75.0 points" in found.sentence
    assert [one.setting for one in found.variations] == ["steps", "canvas", "shots"]
    level = reproduction_of(card, right, tried[:1], ["canvas"], 1.0)
    assert level.moves_most is None and "No single setting of the 1 tried is known to move it" in level.sentence
