"""Templates that reword a question: the text, the answer's token, and what is wrong with a user's file."""

import json

import pytest

from helpers.known import shipped_tokenizer
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import Question, render
from maskwise.tasks.prompts import encode_question
from maskwise.tasks.rewordings import BUILT_IN, OTHER_TASK, SAME, encode_reworded, read_rewordings

EXAMPLE = Question(("otter", "knit", "teal"), 0, True)
TEST = Question(("argue", "badger", "plum"), 1, True)
GOOD = "Choices: {A} / {B} / {C}\nReply:[{letter}]"


def test_the_first_template_is_the_text_of_every_other_probe():
    worded = SAME[0].of(TEST)
    assert f"{worded.asked}\n{worded.answered}\n\n" == render(TEST)
    found = encode_reworded(shipped_tokenizer(), SAME[0], [EXAMPLE], TEST)
    assert found == encode_question(shipped_tokenizer(), [EXAMPLE], TEST)


@pytest.mark.parametrize("template", BUILT_IN, ids=lambda one: one.name)
def test_the_masked_token_begins_the_answer_and_the_options_stay_visible(template):
    tokenizer = shipped_tokenizer()
    found = encode_reworded(tokenizer, template, [EXAMPLE], TEST)
    said = "badger" if template.changes_task else "B"
    assert said.startswith(tokenizer.decode([found.ids[found.row]]))
    before, after = tokenizer.decode(found.ids[: found.row]), tokenizer.decode(found.ids)
    assert before.endswith(("[", "(")) and after.startswith(before + said)
    assert all(before.count(option) == 1 for option in (*TEST.options, *EXAMPLE.options[1:]))
    assert found.allowed[TEST.answer] == found.ids[found.row] and len(set(found.allowed)) == 3


def test_at_least_eight_templates_mean_the_same_and_differ():
    texts = {one.of(TEST).asked + one.of(TEST).answered for one in SAME}
    assert len(SAME) == len(texts) >= 8
    assert all(one.changes_task for one in OTHER_TASK) and not any(one.changes_task for one in SAME)


def test_a_users_templates_are_read_from_yaml_or_json(tmp_path):
    listed = [{"name": "one", "text": GOOD}, {"name": "two", "text": "{A}, {B}, {C}?\n= {letter}"}]
    as_json, as_yaml = tmp_path / "own.json", tmp_path / "own.yaml"
    as_json.write_text(json.dumps(listed))
    as_yaml.write_text('- name: one\n  text: "Choices: {A} / {B} / {C}\\nReply:[{letter}]"\n- {name: two, text: "'
                       '{A}, {B}, {C}?\\n= {letter}"}\n')  # fmt: skip
    assert read_rewordings(as_json) == read_rewordings(as_yaml)
    spaced = read_rewordings(as_json)[1]
    tokenizer = shipped_tokenizer()
    found = encode_reworded(tokenizer, spaced, [], TEST)
    assert tokenizer.decode([found.ids[found.row]]).strip() == "B"  # a space may be part of the answer's token


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "has 0 templates of the same task: give 2 or more"),
        ("- {name: a}", "text"),
        ("- {name: a, text: b, note: c}", "unknown field `note`"),
        ("- {name: a, text: 3}", "expected `str`, got `int`"),
        ("{", "give a list of templates"),
        ('- {name: a, text: "{A} {B}\\n[{letter}]"}', "write {A}, {B} and {C} once each"),
        ('- {name: a, text: "{A} {B} {C} {D}\\n[{letter}]"}', "unknown field {D}"),
        ('- {name: a, text: "[{letter}]\\n{A} {B} {C}"}', "the answer comes after the options"),
        ('- {name: a, text: "{A} {B} {C} [{letter}]"}', "on a line of its own"),
        (
            f"- {{name: a, text: {json.dumps(GOOD)}}}\n- {{name: a, text: {json.dumps(GOOD)}}}",
            "two templates are called 'a'",
        ),
        (f"- {{name: a, text: {json.dumps(GOOD)}}}", "has 1 templates of the same task"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, content, message):
    file = tmp_path / "own.yaml"
    file.write_text(content)
    with pytest.raises(UserError) as caught:
        read_rewordings(file)
    assert message in str(caught.value) and str(file) in str(caught.value) and "\n" not in str(caught.value)
