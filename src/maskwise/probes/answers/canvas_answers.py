"""Answers written on a canvas of a given size and layout, and where their end tokens stand."""

from collections.abc import Collection, Sequence

from maskwise.decoding.checks import end_tokens
from maskwise.decoding.generate import Generation, decode
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, Written
from maskwise.probes.checked import AskedSet, CanvasLayout
from maskwise.tasks.checkable import is_right
from maskwise.tasks.prompts import Prompt

LONGEST_TEXT = 4000  # characters of an answer that a record keeps


def write(
    model: Model, prompts: Sequence[Prompt], layout: CanvasLayout, asked: AskedSet, tokens_per_step: int
) -> list[Answer]:
    """Greedy, the most confident first."""
    right = {one.ids: one.answer for one in asked.questions}
    options = DecodingOptions(
        max_new_tokens=layout.canvas,
        steps=layout.steps(tokens_per_step),
        block=layout.block or None,
        canvas="growing" if layout.grows else None,
    )
    questions = [prompt.ids[: prompt.row] for prompt in prompts]
    made = decode(model, [list(ids) for ids in questions], options)
    ends = set(end_tokens(model))
    answers = []
    for ids, one in zip(questions, made, strict=True):
        measured = end_evidence(one, ends)
        text = model.tokenizer.decode(one.ids[: int(measured["length"])], skip_special_tokens=True)
        measured |= {"empty": float(not text.strip()), "cut": 1.0 - measured["ended"]}
        answers.append(Answer(one.ids[0], 0.0, 0.0, 0.0, measured, text_checked(text, right[ids], asked.check)))
    return answers


def text_checked(text: str, right: str, check: str) -> Written:
    return Written(text[:LONGEST_TEXT], is_right(text, right, check))


def end_evidence(made: Generation, ends: Collection[int]) -> dict[str, float]:
    """The positions of end tokens, and the step at which the first was committed."""
    places = [place for place, token in enumerate(made.ids) if token in ends]
    found = {
        "length": places[0] if places else len(made.ids),
        "ended": float(bool(places)),
        "end_share": round(len(places) / len(made.ids), DIGITS),
    }
    if places:
        steps = max(made.order) + 1
        found["end_step"] = round(min(made.order[place] for place in places) / steps, DIGITS)
    return found
