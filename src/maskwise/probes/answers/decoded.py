"""What probes see of a decoder: its commits, its answer after each step, its first token, its order, its puzzles.

Two measures of how close an order is to reading order, with s_1..s_n the places revealed in steps 1..n, one token per
step:

    Kendall's tau       (concordant - discordant) / all pairs of (place, step): 1 left to right, -1 right to left
    global AR-ness@1    share of steps that reveal the leftmost place still masked
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import scipy  # scipy.stats, which takes a second to import, is imported when it is first used
import torch
from torch import Tensor

from maskwise.decoding.checks import end_tokens, text_before_end
from maskwise.decoding.generate import Snapshot, decode, generate
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, Written, answers_to, ask
from maskwise.probes.checked import AskedSet
from maskwise.probes.known_tokens import KnownPrompt
from maskwise.support.randomness import torch_generator
from maskwise.tasks.checkable import is_right, parsed_answer
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import PuzzlePrompt

LEVELS = (1.0, 0.75, 0.5, 0.25)  # shares still masked at which all masked positions are looked at
COMMIT_DIGITS = 5
UNPARSABLE = -1


# Commits and looks


class CommitWatcher:
    """Called after each step of a batch. In place of a committed token the right one is written to the canvas, so that
    every prediction is judged in a right context: after an error the right tokens elsewhere are no longer a draw from
    what the visible ones leave possible, and exact posteriors would look overconfident.

    evidence: of each sequence, the commits, and as all_* every masked position at each of LEVELS."""

    def __init__(self, prompts: Sequence[KnownPrompt]) -> None:
        self.prompts = prompts
        self.evidence: list[dict[str, list[float]]] = [defaultdict(list) for _ in prompts]
        self.next_level = [0] * len(prompts)
        self.written: list[dict[int, int]] = [{} for _ in prompts]  # the token committed at each place of the sheet

    def __call__(self, snapshot: Snapshot) -> None:
        rows, places, sequence, held = snapshot.rows, snapshot.places, snapshot.sequences, snapshot.committed
        ids = [token for one in self.prompts for token in (*one.ids[: one.row], *one.right)]
        truth = torch.tensor([*ids, -1]).to(places.device)[places]
        looked = [self._is_level(*one) for one in zip(sequence, rows.open.sum(1).tolist(), strict=True)]
        kept = rows.open & (held | torch.tensor(looked, device=places.device)[:, None])
        for lane, place, token in zip(*held.nonzero().T.tolist(), rows.tokens[held].tolist(), strict=True):
            self.written[sequence[lane]][int(places[lane, place])] = token
        snapshot.sheet.ids[places[held]] = truth[held]
        chances, right = rows.log_p.exp()[kept].tolist(), (rows.tokens == truth)[kept].tolist()
        lanes, was_held = kept.nonzero()[:, 0].tolist(), held[kept].tolist()
        for lane, chance, fine, is_held in zip(lanes, chances, right, was_held, strict=True):
            found = self.evidence[sequence[lane]]
            for prefix in [""] * is_held + ["all_"] * looked[lane]:
                found[f"{prefix}sure"].append(round(chance, COMMIT_DIGITS))
                found[f"{prefix}right"].append(int(fine))

    def _is_level(self, number: int, left: int) -> bool:
        """Has the share still masked just reached another of LEVELS?"""
        reached = sum(left / len(self.prompts[number].right) <= level for level in LEVELS)
        if not left or reached <= self.next_level[number]:
            return False
        self.next_level[number] = reached
        return True


def watch_commits(model: Model, prompts: Sequence[Prompt], rule: str, seed: int) -> list[Answer]:
    """Greedy, one token per step unless the strategy is adaptive; the record is right where all commits are."""
    watcher = CommitWatcher([prompt for prompt in prompts if isinstance(prompt, KnownPrompt)])
    chance = [torch_generator("confidence", seed, rule, prompt.ids) for prompt in prompts]
    options = DecodingOptions(max_new_tokens=0, rule=rule)
    decode(model, [list(prompt.ids) for prompt in prompts], options, chance, watcher)
    answers = []
    for written, found in zip(watcher.written, watcher.evidence, strict=True):
        tokens = [token for _, token in sorted(written.items())]
        sure, solved = sum(found["sure"]) / len(tokens), Written(text_of(model, tokens), all(found["right"]))
        answers.append(Answer(tokens[0], sure, 0.0, 0.0, dict(found), solved))
    return answers


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


# The first token, the order and puzzles


class _Answered(Exception):
    """Leaves `generate` once every answer of a batch is committed: later steps cannot change it."""


def first_token(model: Model, prompts: Sequence[Prompt], steps: int, seed: int = 0, **options: Any) -> list[Answer]:
    """The masks that all prompts end in are the canvas. Confidence and likelihood are those of the committing step.

    A random order depends on the seed, the question, its masks and the number of steps, and on nothing else.
    """
    masks = prompts[0].masks
    assert all(prompt.masks == masks for prompt in prompts)
    chance = [torch_generator("steps", seed, steps, prompt.ids) for prompt in prompts]
    texts = [prompt.ids[: prompt.row] for prompt in prompts]
    found: dict[int, tuple[int, Tensor]] = {}

    def watch(snapshot: Snapshot) -> None:
        for number, (text, canvas) in enumerate(zip(texts, snapshot.canvases, strict=True)):
            if number not in found and canvas[len(text)] != model.mask_id:
                asked = snapshot.places == snapshot.sheet.starts[number] + len(text)
                found[number] = canvas[len(text)], snapshot.rows.logits[asked][0]
        if len(found) == len(texts):
            raise _Answered

    with suppress(_Answered):
        generate(model, texts, masks, min(steps, masks), generator=chance, on_step=watch, **options)
    written = [found[number] for number in range(len(prompts))]
    answers = answers_to(prompts, torch.stack([logits for _, logits in written]))
    return [replace(answer, token=token) for answer, (token, _) in zip(answers, written, strict=True)]


def kendall_tau(order: Sequence[int]) -> float:
    """order[i] is the step at which place i was revealed (`Generation.order`); ties count for neither side (tau-b)."""
    return float(scipy.stats.kendalltau(range(len(order)), order).statistic)


def global_arness(order: Sequence[int]) -> float:
    """The steps whose place lies left of all that are revealed later; those of one step from left to right."""
    places = sorted(range(len(order)), key=lambda place: (order[place], place))
    return sum(place == min(places[step:]) for step, place in enumerate(places)) / len(places)


def watch_order(model: Model, prompts: Sequence[Prompt], rule: str, seed: int) -> list[Answer]:
    """Greedy, one token per step; the record's answer is what one pass says of the first mask."""
    answers = ask(model, prompts)
    chance = [torch_generator("order", seed, rule, prompt.ids) for prompt in prompts]
    written = generate(model, [prompt.ids for prompt in prompts], 0, rule=rule, generator=chance)
    measured = [{"tau": kendall_tau(one.order), "global1": global_arness(one.order)} for one in written]
    rounded = [{name: round(value, DIGITS) for name, value in one.items()} for one in measured]
    return [replace(answer, evidence=own) for answer, own in zip(answers, rounded, strict=True)]


def solve(
    model: Model, prompts: Sequence[Prompt], rule: str, tokens: int, puzzles: Sequence[PuzzlePrompt], seed: int
) -> list[Answer]:
    """So many tokens per step."""
    by_ids = {asked.ids: asked.puzzle for asked in puzzles}
    chance = [torch_generator("puzzle", seed, rule, f"{tokens} a step", prompt.ids) for prompt in prompts]
    texts, steps = [prompt.ids for prompt in prompts], prompts[0].masks // tokens
    written = generate(model, texts, 0, steps=steps, rule=rule, temperature=1.0, generator=chance)
    answers = []
    for prompt, one in zip(prompts, written, strict=True):
        solved = Written(text_of(model, one.ids), by_ids[prompt.ids].solved_by(one.ids))
        answers.append(Answer(one.ids[0], 0.0, 0.0, 0.0, written=solved))
    return answers


def text_of(model: Model, ids: Sequence[int]) -> str:
    """Empty without a tokenizer."""
    return model.tokenizer.decode(ids).strip() if model.tokenizer is not None else ""
