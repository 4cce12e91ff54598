"""The answer after each step of a decoding: every mask filled with its likeliest token, and the text parsed."""

from collections.abc import Sequence

from torch import Tensor

from maskwise.decoding.checks import end_tokens, text_before_end
from maskwise.decoding.generate import Snapshot, decode
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, Written
from maskwise.probes.checked import AskedSet
from maskwise.support.randomness import torch_generator
from maskwise.tasks.checkable import is_right, parsed_answer
from maskwise.tasks.prompts import Prompt

UNPARSABLE = -1


def watch_looks(
    model: Model, prompts: Sequence[Prompt], asked: AskedSet, rule: str, steps: int, canvas: int, seed: int
) -> list[Answer]:
    """Greedy. Evidence: "answers", the class of the answer after each step (-1: unparsable), numbered as they come;
    "right": the class of the right answer, -1 where no step gave it."""
    truth = {one.ids: one.answer for one in asked.questions}
    questions = [tuple(prompt.ids[: prompt.row]) for prompt in prompts]
    looks: list[list[Tensor]] = [[] for _ in questions]

    def look(snapshot: Snapshot) -> None:
        for number, canvas in snapshot.completions().items():
            looks[number].append(canvas[len(questions[number]) :])

    chance = [torch_generator("trajectory", seed, rule, steps, ids) for ids in questions]
    options = DecodingOptions(max_new_tokens=canvas, steps=steps, rule=rule)
    decode(model, [list(ids) for ids in questions], options, chance, look)
    ends, answers = set(end_tokens(model)), []
    for ids, seen in zip(questions, looks, strict=True):
        new = [one.tolist() for one in seen]
        texts = [text_before_end(model, tokens, ends) for tokens in new]
        given = [parsed_answer(text, asked.check) for text in texts]
        fine = [is_right(text, truth[ids], asked.check) for text in texts]
        classes = {answer: place for place, answer in enumerate(dict.fromkeys(a for a in given if a is not None))}
        right = next((answer for answer, good in zip(given, fine, strict=True) if good), None)
        evidence = {
            "answers": [UNPARSABLE if answer is None else classes[answer] for answer in given],
            "right": UNPARSABLE if right is None else classes[right],
        }
        answers.append(Answer(new[-1][0], 0.0, 0.0, 0.0, evidence, Written(texts[-1][:1000], fine[-1])))
    return answers
