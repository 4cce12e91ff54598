"""Decoding of sequences whose right tokens are known: how sure each prediction was, and whether it was right."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from maskwise.decoding.generate import Snapshot, decode
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, Written
from maskwise.probes.known_tokens import KnownPrompt
from maskwise.records.record import Evidence
from maskwise.scoring.reliability import TEMPERATURES
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt

LEVELS = (1.0, 0.75, 0.5, 0.25)  # shares still masked at which all masked positions are looked at
ROWS_AT_A_TIME = 64  # rows of the vocabulary that are divided by a temperature together
DIGITS = 5


@dataclass
class Seen:
    """Measurements of one sequence: commits, and all masked positions at each of LEVELS; a value per prediction."""

    sure: list[float] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    nll: list[float] = field(default_factory=lambda: [0.0] * len(TEMPERATURES))

    def add(self, sure: float, right: bool, share: float, nll: Sequence[float]) -> None:
        self.sure.append(round(sure, DIGITS))
        self.right.append(int(right))
        self.share.append(share)
        self.nll = [before + here for before, here in zip(self.nll, nll, strict=True)]

    def evidence(self, prefix: str = "") -> Evidence:
        found = vars(self) | {"nll": [round(value, DIGITS) for value in self.nll]}
        return {prefix + name: values for name, values in found.items()}


class CommitWatcher:
    """Called after each step of a batch. In place of a committed token the right one is written to the canvas, so that
    every prediction is judged in a right context: after an error the right tokens elsewhere are no longer a draw from
    what the visible ones leave possible, and exact posteriors would look overconfident."""

    def __init__(self, prompts: Sequence[KnownPrompt]) -> None:
        self.prompts = prompts
        self.commits, self.masked = [Seen() for _ in prompts], [Seen() for _ in prompts]
        self.next_level = [0] * len(prompts)
        self.written: list[dict[int, int]] = [{} for _ in prompts]  # the token committed at each place of the sheet

    def __call__(self, snapshot: Snapshot) -> None:
        rows, places = snapshot.rows, snapshot.places
        truth = torch.tensor([token for one in self.prompts for token in _ids(one)] + [-1]).to(places.device)[places]
        sequence = snapshot.sequences
        left = rows.open.sum(1).tolist()
        levels = [self._level(number, count) for number, count in zip(sequence, left, strict=True)]
        looked = torch.tensor([level is not None for level in levels], device=places.device)
        held = snapshot.committed
        kept = rows.open & (held | looked[:, None])
        nll = iter(_nll_at_temperatures(rows.logits[kept], truth[kept]).tolist())
        chances, right = rows.log_p.exp()[kept].tolist(), (rows.tokens == truth)[kept].tolist()
        written = held.nonzero()[:, 0].tolist(), places[held].tolist(), rows.tokens[held].tolist()
        for lane, place, token in zip(*written, strict=True):
            self.written[sequence[lane]][place] = token
        snapshot.sheet.ids[places[held]] = truth[held]
        lanes, was_held = kept.nonzero()[:, 0].tolist(), held[kept].tolist()
        for lane, chance, is_right, is_held in zip(lanes, chances, right, was_held, strict=True):
            number, losses, level = sequence[lane], next(nll), levels[lane]
            if is_held:
                share = left[lane] / len(self.prompts[number].known.asked)  # type: ignore[union-attr]
                self.commits[number].add(chance, is_right, round(share, DIGITS), losses)
            if level is not None:
                self.masked[number].add(chance, is_right, level, losses)

    def _level(self, number: int, left: int) -> float | None:
        """The smallest of LEVELS that the share still masked has just reached."""
        known = self.prompts[number].known
        assert known is not None
        reached = [place for place, level in enumerate(LEVELS) if left / len(known.asked) <= level]
        if not left or not reached or reached[-1] < self.next_level[number]:
            return None
        self.next_level[number] = reached[-1] + 1
        return LEVELS[reached[-1]]


def _ids(prompt: KnownPrompt) -> tuple[int, ...]:
    assert prompt.known is not None
    return prompt.known.ids


def _nll_at_temperatures(logits: Tensor, truth: Tensor) -> Tensor:
    """-log softmax(logits / T)[truth] at each of TEMPERATURES. [n, V], [n] -> [n, 17]"""
    found = []
    for part, right in zip(logits.split(ROWS_AT_A_TIME), truth.split(ROWS_AT_A_TIME), strict=True):
        scores = [(part / t).log_softmax(-1).gather(1, right[:, None])[:, 0] for t in TEMPERATURES]
        found.append(-torch.stack(scores, 1))
    # A token of probability 0 has an infinite loss at every temperature: the largest that float32 holds stands for it.
    return torch.cat(found).clamp(max=1e4) if found else torch.zeros(0, len(TEMPERATURES))


def watch_commits(model: Model, prompts: Sequence[Prompt], rule: str, seed: int) -> list[Answer]:
    """Greedy, one token per step unless the strategy is adaptive; the record is right where all commits are."""
    known = [prompt for prompt in prompts if isinstance(prompt, KnownPrompt)]
    watcher = CommitWatcher(known)
    chance = [torch_generator("confidence", seed, rule, prompt.ids) for prompt in prompts]
    options = DecodingOptions(max_new_tokens=0, rule=rule)
    decode(model, [list(prompt.ids) for prompt in prompts], options, chance, watcher)
    answers = []
    for number in range(len(known)):
        tokens = [token for _, token in sorted(watcher.written[number].items())]
        commits, masked = watcher.commits[number], watcher.masked[number]
        evidence = commits.evidence() | masked.evidence("all_")
        text = model.tokenizer.decode(tokens).strip() if model.tokenizer is not None else ""
        solved = Written(text, all(commits.right))
        answers.append(Answer(tokens[0], sum(commits.sure) / len(commits.sure), 0.0, 0.0, evidence, solved))
    return answers
