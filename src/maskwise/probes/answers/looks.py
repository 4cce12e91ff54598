"""The answer after each step of a decoding: every mask filled with its likeliest token, and the text parsed."""

from collections.abc import Sequence

import torch
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


class Looks:
    """Keeps the completion of every sequence after every step; called as `on_step`.

    changed: of each sequence, the committed tokens that a later step masked or replaced.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], mask_id: int) -> None:
        self.prompts, self.mask_id = prompts, mask_id
        self.looks: list[list[Tensor]] = [[] for _ in prompts]
        self.before: Tensor | None = None
        self.changed = [0] * len(prompts)

    def __call__(self, snapshot: Snapshot) -> None:
        for number, canvas in snapshot.completions().items():
            self.looks[number].append(canvas)
        now = snapshot.sheet.ids.clone()
        if self.before is not None:
            other = ((self.before != self.mask_id) & (self.before != now)).int()
            spans = zip(snapshot.sheet.starts, snapshot.sheet.lengths, strict=True)
            sums = torch.stack([other[start : start + length].sum() for start, length in spans]).tolist()
            self.changed = [count + more for count, more in zip(self.changed, sums, strict=True)]
        self.before = now

    def new_tokens(self, number: int) -> list[list[int]]:
        """After each look, the tokens of one sequence at the positions that were masked at first."""
        prompt = self.prompts[number]
        inside = [place for place, token in enumerate(prompt) if token == self.mask_id]
        canvases = [look.tolist() for look in self.looks[number]]
        return [[*(canvas[place] for place in inside), *canvas[len(prompt) :]] for canvas in canvases]


def watch_looks(
    model: Model, prompts: Sequence[Prompt], asked: AskedSet, rule: str, steps: int, canvas: int, seed: int
) -> list[Answer]:
    """Greedy. Evidence: "answers", the class of the answer after each step (-1: unparsable), numbered as they come;
    "right": the class of the right answer, -1 where no step gave it; "changed": committed tokens that changed
    later."""
    assert model.mask_id is not None
    truth = {one.ids: one.answer for one in asked.questions}
    questions = [tuple(prompt.ids[: prompt.row]) for prompt in prompts]
    looks = Looks([list(ids) for ids in questions], model.mask_id)
    chance = [torch_generator("trajectory", seed, rule, steps, ids) for ids in questions]
    options = DecodingOptions(max_new_tokens=canvas, steps=steps, rule=rule)
    decode(model, [list(ids) for ids in questions], options, chance, looks)
    ends, answers = set(end_tokens(model)), []
    for number, ids in enumerate(questions):
        new = looks.new_tokens(number)
        texts = [text_before_end(model, tokens, ends) for tokens in new]
        given = [parsed_answer(text, asked.check) for text in texts]
        fine = [is_right(text, truth[ids], asked.check) for text in texts]
        classes = {answer: place for place, answer in enumerate(dict.fromkeys(a for a in given if a is not None))}
        right = next((answer for answer, good in zip(given, fine, strict=True) if good), None)
        evidence = {
            "answers": [UNPARSABLE if answer is None else classes[answer] for answer in given],
            "right": UNPARSABLE if right is None else classes[right],
            "changed": looks.changed[number],
        }
        answers.append(Answer(new[-1][0], 0.0, 0.0, 0.0, evidence, Written(texts[-1][:1000], fine[-1])))
    return answers
