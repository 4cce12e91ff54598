"""Templates that ask the same question in other words: those of the package, and a user's own file.

A template is the text of a question with its answer. {A}, {B} and {C} stand for the options; {letter} is the letter of
the right one. With {word} in place of {letter} the right option itself is the answer, which is another task.

A file is a list of name and text, in YAML or JSON:

    - name: choices
      text: "Choices: (A) {A}, (B) {B}, (C) {C}\\nReply:[{letter}]."
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from maskwise.support.errors import UserError
from maskwise.support.yaml_files import read_yaml
from maskwise.tasks.episodes import LETTERS, Question, Worded
from maskwise.tasks.prompts import Encoded, lay_out, name_of, tokens_and_spans

LETTER, WORD = "{letter}", "{word}"
FIELD = re.compile(r"\{[^{}]*\}")
FEWEST = 2


class Rewording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    text: Annotated[str, Meta(min_length=1)]

    @property
    def changes_task(self) -> bool:
        """The answer is a word of the question, not a letter."""
        return WORD in self.text

    def of(self, question: Question) -> Worded:
        return self.answering(question, question.answer)

    def answering(self, question: Question, answer: int) -> Worded:
        """The question with one of its options as the answer. The line of the answer is the assistant's in a chat."""
        end = self.text.index(WORD if self.changes_task else LETTER)
        asked, _, before = _filled(self.text[:end], question).rpartition("\n")
        said = question.options[answer] if self.changes_task else LETTERS[answer]
        after = _filled(self.text[end:].split("}", 1)[1], question)
        return Worded(asked, f"{before}{said}{after}", len(before))


def _filled(text: str, question: Question) -> str:
    for letter, option in zip(LETTERS, question.options, strict=True):
        text = text.replace(f"{{{letter}}}", option)
    return text


# The same question: other words, separators, brackets, order of label and option. The first is that of every probe.
SAME = (
    Rewording(name="plain", text="Options: (A) {A}, (B) {B}, (C) {C}\nAnswer:[{letter}]."),
    Rewording(name="choices", text="Choices: (A) {A}, (B) {B}, (C) {C}\nReply:[{letter}]."),
    Rewording(name="items", text="Items: (A) {A}, (B) {B}, (C) {C}\nSolution:[{letter}]."),
    Rewording(name="semicolons", text="Options: (A) {A}; (B) {B}; (C) {C}\nAnswer:[{letter}]."),
    Rewording(name="lines", text="Options:\n(A) {A}\n(B) {B}\n(C) {C}\nAnswer:[{letter}]."),
    Rewording(name="square", text="Options: [A] {A}, [B] {B}, [C] {C}\nAnswer:[{letter}]."),
    Rewording(name="round", text="Options: (A) {A}, (B) {B}, (C) {C}\nAnswer:({letter})."),
    Rewording(name="dots", text="Options: A. {A}, B. {B}, C. {C}\nAnswer:[{letter}]."),
    Rewording(name="label last", text="Options: {A} (A), {B} (B), {C} (C)\nAnswer:[{letter}]."),
)
# Another task: the answer is the word itself.
OTHER_TASK = (
    Rewording(name="word", text="Options: (A) {A}, (B) {B}, (C) {C}\nAnswer:[{word}]."),
    Rewording(name="word, no letters", text="Options: {A}, {B}, {C}\nAnswer:[{word}]."),
)
BUILT_IN = (*SAME, *OTHER_TASK)


def read_rewordings(path: Path) -> tuple[Rewording, ...]:
    """A user's templates."""
    found = read_yaml(path, list[Rewording], "give a list of templates, each with name and text")
    names = [one.name for one in found]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UserError(f"{path}: two templates are called {repeated!r}: give each a name of its own")
    for one in found:
        check_question(f"{path}, template {one.name!r}", one)
    alike = [one for one in found if not one.changes_task]
    if len(alike) < FEWEST:
        raise UserError(f"{path} has {len(alike)} templates of the same task: give {FEWEST} or more, better 8")
    return tuple(found)


def check_question(where: str, one: Rewording) -> None:
    """Refuses a template that does not name each option and the answer once; `where` names its source."""
    fields, wanted = FIELD.findall(one.text), [f"{{{letter}}}" for letter in LETTERS]
    answers = [field for field in fields if field in (LETTER, WORD)]
    unknown = next((field for field in fields if field not in (*wanted, LETTER, WORD)), None)
    if unknown is not None:
        known = ", ".join((*wanted, LETTER, WORD))
        raise UserError(f"{where}: unknown field {unknown}; the fields of a question are {known}")
    if len(answers) != 1 or sorted(field for field in fields if field in wanted) != wanted:
        raise UserError(f"{where}: write {{A}}, {{B}} and {{C}} once each, and {LETTER} or {WORD} once")
    if fields[-1] != answers[0] or "\n" not in one.text[: one.text.index(answers[0])]:
        raise UserError(f"{where}: the answer comes after the options, on a line of its own")


def encode_reworded(
    tokenizer: Any, template: Rewording, examples: Sequence[Question], test: Question, chat: bool = False
) -> Encoded:
    """The examples and then the test question, all in the words of a template; the row is the answer's first token."""
    worded = [template.of(example) for example in examples]
    ids, row = _encoded(tokenizer, template, worded, template.of(test), chat)
    short = [_encoded(tokenizer, template, [], template.answering(test, place), False) for place in range(len(LETTERS))]
    allowed = tuple(ids[row] if place == test.answer else own[at] for place, (own, at) in enumerate(short))
    return Encoded(ids, row, allowed)


def _encoded(
    tokenizer: Any, template: Rewording, examples: Sequence[Worded], test: Worded, chat: bool
) -> tuple[tuple[int, ...], int]:
    text, _, answer_at = lay_out(tokenizer, examples, test, "right", chat)
    ids, spans = tokens_and_spans(tokenizer, text, add_special_tokens=not chat)
    row = next(place for place, (_, end) in enumerate(spans) if end > answer_at)
    start, end = spans[row]
    whole = template.changes_task or end == answer_at + 1
    if text[start:answer_at].strip() or not whole:
        raise UserError(
            f"in the tokenizer {name_of(tokenizer)} the answer of the template {template.name!r} is part of the token "
            f"{text[start:end]!r}, so it cannot be masked: put brackets around it"
        )
    return ids, row
