"""Decoding of sequences whose right tokens are known: how sure each prediction was, and whether it was right."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from maskwise.decoding.generate import Snapshot, decode
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, Written
from maskwise.probes.known_tokens import KnownPrompt
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt

LEVELS = (1.0, 0.75, 0.5, 0.25)  # shares still masked at which all masked positions are looked at
DIGITS = 5


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
        for lane, chance, is_right, is_held in zip(lanes, chances, right, was_held, strict=True):
            found = self.evidence[sequence[lane]]
            for prefix in [""] * is_held + ["all_"] * looked[lane]:
                found[f"{prefix}sure"].append(round(chance, DIGITS))
                found[f"{prefix}right"].append(int(is_right))

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
        text = model.tokenizer.decode(tokens).strip() if model.tokenizer is not None else ""
        sure, solved = sum(found["sure"]) / len(tokens), Written(text, all(found["right"]))
        answers.append(Answer(tokens[0], sure, 0.0, 0.0, dict(found), solved))
    return answers
