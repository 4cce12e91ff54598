"""How prompts are answered: one forward pass, logits of the answer rows only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from maskwise.models.base import Batch, Model
from maskwise.tasks.prompts import Prompt

DIGITS = 6  # of what is recorded


@dataclass(frozen=True)
class Written:
    """An answer of several tokens: its text, and whether it is one of the right ones."""

    text: str
    right: bool


@dataclass(frozen=True)
class Answer:
    """The greedy token, its probability, the entropy over the vocabulary (nats), and -log p of the true answer.

    `evidence` is what some probes measure besides; it goes into the record as it is. `written` takes the token's place
    where an answer is more than one token.
    """

    token: int
    confidence: float
    entropy: float
    nll: float
    evidence: dict[str, Any] | None = field(default=None, hash=False)
    written: Written | None = None


@torch.inference_mode()
def ask(model: Model, prompts: Sequence[Prompt]) -> list[Answer]:
    """One forward pass; logits of the answer rows only, and one transfer to the host.

    Prompts that differ only in the answer that counts are one sequence.
    """
    sequences = {ids: place for place, ids in enumerate(dict.fromkeys(prompt.ids for prompt in prompts))}
    batch = Batch.pack(list(sequences), model.device)
    which = torch.tensor([sequences[prompt.ids] for prompt in prompts], device=model.device)
    rows = torch.tensor([prompt.row for prompt in prompts], device=model.device)
    wanted = torch.tensor([prompt.answer_id for prompt in prompts], device=model.device)
    index = model.locate(batch, which, rows)
    return answers_of(model.head(model.hidden(batch)[index]), wanted)


def answers_of(logits: Tensor, wanted: Tensor) -> list[Answer]:
    """Logits [n, V] of the answer rows and the true tokens [n]: one transfer to the host."""
    logp = logits.log_softmax(-1)
    best, token = logp.max(-1)
    entropy = torch.special.entr(logp.exp()).sum(-1)
    nll = -logp.gather(1, wanted[:, None])[:, 0]
    table = torch.stack([token.double(), best.exp().double(), entropy.double(), nll.double()], 1).tolist()
    return [Answer(int(token), *measures) for token, *measures in table]
