"""What is shown is escaped, whoever wrote it."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest
from msgspec import structs

from maskwise.records.sample import SampledPrompt
from maskwise.studio.probing import ContextQuestion, Side
from maskwise.studio.tracing import Cell, Trace
from maskwise.studio.views import probed_view, problem_view, studio_style, trace_view
from maskwise.support.errors import UserError
from maskwise.support.typed import convert
from maskwise.tasks.prompts import Prompt

HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(1)</script>"
SHOWN = convert({
    "probe": "studio", "task": HOSTILE, "point": 0, "condition": {"masks": 3}, "answer": HOSTILE, "correct": True,
    "tokens": [HOSTILE, "the", "<|mask|>"], "row": 2, "top": [[HOSTILE, 0.75], ["b", 0.0]], "probability": 0.75,
    "attribution": [0.5, 1.0, 0.0],
}, SampledPrompt)  # fmt: skip
ASKED = ContextQuestion(HOSTILE, HOSTILE, HOSTILE)
FOUND = Side(HOSTILE, ASKED, Prompt((5, 6, 1), 2, 5, 3), SHOWN, 3)
TRACE = Trace(
    HOSTILE,
    HOSTILE,
    2,
    (
        (Cell("", 0, None, True), Cell("", 0, None, True), Cell("", 0, None, False)),
        (Cell(HOSTILE, 1, 0.9, True), Cell("", 0, None, True), Cell("", 0, None, False)),
        (Cell(HOSTILE, 1, 0.9, True), Cell("b", 2, 0.1, True), Cell("c", 2, 0.4, True)),
    ),
)


class Reader(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize(
    "page",
    [
        probed_view([FOUND, Side(HOSTILE, ASKED)]),
        trace_view(TRACE, 2),
        problem_view(UserError(HOSTILE)),
    ],
)
def test_hostile_text_stays_text(page):
    read = Reader(page)
    assert not {"img", "script"} & set(read.tags) and not [name for name, _ in read.attributes if name.startswith("on")]
    assert HOSTILE in read.text + "".join(value or "" for _, value in read.attributes)


def test_the_answer_and_its_probability_are_shown():
    output = re.sub(r"\s+", " ", Reader(probed_view([FOUND])).text)
    assert "with 75.0 %" in output and "Right." in output and "begins with" not in output
    waiting = dataclasses.replace(FOUND, shown=SHOWN | {"attribution": None})
    assert "being computed" in probed_view([waiting]) and "being computed" not in output


def test_a_question_that_is_still_being_asked_is_shown():
    shown = Reader(probed_view([Side("one", ContextQuestion("", f"The sky is {HOSTILE}"))])).text
    assert "being opened" in shown and f"The sky is {HOSTILE}" in shown and "Probability" not in shown


def test_the_curves_of_both_models_are_drawn_and_the_present_number_of_masks_is_marked():
    one = dataclasses.replace(FOUND, label="one", curve=((0, 0.75), (200, 0.5)))
    shown = structs.replace(SHOWN, probability=0.25)
    two = dataclasses.replace(FOUND, label="two", shown=shown, curve=((0, 0.25),))
    read = Reader(probed_view([one, two]))
    assert [value.strip() for name, value in read.attributes if name == "points"] == ["0,25.0 200,50.0", "0,75.0"]
    styles = [value for name, value in read.attributes if name == "style"]
    assert styles[:2] == ["left: 1.0%; bottom: 75.0%", "left: 1.0%; bottom: 25.0%"]  # 2 of 200 masks
    assert "one: 75.0 % with 2" in read.text and "two: 25.0 % with 2" in read.text
    assert "Probability of the right answer" not in probed_view([FOUND])


def test_a_frame_counts_its_passes_and_marks_each_token_with_its_step_and_confidence():
    first, last = (Reader(trace_view(TRACE, step)) for step in (1, 9))
    assert "1 of 2 forward passes, 1 of 3 tokens" in first.text
    assert first.text.count("░") == 2 and first.text.count("·") == 2  # one of each in the legend
    assert "2 of 2 forward passes, 3 of 3 tokens" in last.text
    assert [value for name, value in last.attributes if name == "title"] == [
        "step 1, 90.0 %",
        "step 2, 10.0 %",
        "step 2, 40.0 %",
    ]
    styles = [value for name, value in last.attributes if name == "style"]
    assert styles[:2] == ["--age: 0%; --sure: 90%", "--age: 100%; --sure: 10%"]


def test_every_class_of_the_views_has_a_style():
    css = studio_style()
    for page in (probed_view([dataclasses.replace(FOUND, curve=((0, 0.5),))]), trace_view(TRACE, 1)):
        classes = {name for key, value in Reader(page).attributes if key == "class" for name in value.split()}
        assert {name for name in classes if f".{name}" not in css} <= {"of-1", "from-end"}
    assert "--curve-0:" in css and "\nbody {" not in css  # the report's rules for a whole page are left out


def test_a_question_whose_right_answer_stays_below_guessing_shows_no_loss():
    asked = dataclasses.replace(ASKED, answer="B")
    low, high = ((0, 0.01), (200, 0.01)), ((0, 0.9), (200, 0.01))
    sentence = "this question cannot show a loss"
    assert sentence in probed_view([dataclasses.replace(FOUND, asked=asked, curve=low)])
    assert sentence not in probed_view([dataclasses.replace(FOUND, asked=asked, curve=high)])
    assert sentence not in probed_view([dataclasses.replace(FOUND, curve=low)])  # typed: guessing is not known
