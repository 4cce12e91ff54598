"""How prompts are answered: one forward pass, logits of the answer rows only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from maskwise.models.batch import Batch
from maskwise.models.model import Model
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

    Where the prompt says which answers are allowed, nll is the sum of two parts: nll_allowed = -log p(an allowed
    answer), the format, and nll_choice = -log p(the true one | an allowed one), the content.

    `evidence` is what some probes measure besides; it goes into the record as it is. `written` takes the token's place
    where an answer is more than one token, each of its own step: confidence, entropy and nll are then not measured, 0
    in the record.
    """

    token: int
    confidence: float
    entropy: float
    nll: float
    evidence: dict[str, Any] | None = field(default=None, hash=False)
    written: Written | None = None
    nll_allowed: float | None = None
    nll_choice: float | None = None


@torch.inference_mode()
def ask(model: Model, prompts: Sequence[Prompt]) -> list[Answer]:
    """One forward pass; logits of the answer rows only, and one transfer to the host."""
    batch, which = pack_once(model, prompts)
    index = model.locate(batch, which, answer_rows(model, prompts))
    return answers_to(prompts, model.head(model.hidden(batch)[index]))


def pack_once(model: Model, prompts: Sequence[Prompt]) -> tuple[Batch, Tensor]:
    """The prompts without repeated texts, and [n] which of them each prompt is."""
    distinct = {(prompt.ids, prompt.start): prompt for prompt in prompts}
    place = {key: number for number, key in enumerate(distinct)}
    which = torch.tensor([place[prompt.ids, prompt.start] for prompt in prompts], device=model.device)
    return pack(model, list(distinct.values())), which


def pack(model: Model, prompts: Sequence[Prompt]) -> Batch:
    """The prompts as they are given to the model, each at the position at which it begins."""
    return Batch.spans([prompt.ids for prompt in prompts], [prompt.start for prompt in prompts], model.device)


def answer_rows(model: Model, prompts: Sequence[Prompt]) -> Tensor:
    """[n] the position of each prompt's answer, for `Model.locate`."""
    return torch.tensor([prompt.start + prompt.row for prompt in prompts], device=model.device)


def answers_to(prompts: Sequence[Prompt], logits: Tensor) -> list[Answer]:
    """The answers to prompts by the logits [n, V] of their answer rows."""
    wanted = torch.tensor([prompt.answer_id for prompt in prompts], device=logits.device)
    most = max(len(prompt.allowed) for prompt in prompts)
    if not most:
        return answers_of(logits, wanted)
    padded = [[*prompt.allowed, *[-1] * (most - len(prompt.allowed))] for prompt in prompts]
    return answers_of(logits, wanted, torch.tensor(padded, device=logits.device))


def answers_of(logits: Tensor, wanted: Tensor, allowed: Tensor | None = None) -> list[Answer]:
    """Logits [n, V] of the answer rows and the true tokens [n]: one transfer to the host.

    allowed [n, m] holds the tokens that would be an answer, filled up with -1; a row of -1 alone has no such list.
    """
    logp = logits.log_softmax(-1)
    best, token = logp.max(-1)
    entropy = torch.special.entr(logp.exp()).sum(-1)
    nll = -logp.gather(1, wanted[:, None])[:, 0]
    measured = [token.double(), best.exp().double(), entropy.double(), nll.double()]
    if allowed is None:
        return [Answer(int(token), *rest) for token, *rest in torch.stack(measured, 1).tolist()]
    any_allowed = logp.gather(1, allowed.clamp(min=0)).masked_fill(allowed < 0, -torch.inf).double().logsumexp(1)
    choice = (any_allowed + nll.double()).clamp(min=0)  # rounding may leave it a hair below
    measured += [-any_allowed, choice, (allowed >= 0).any(1).double()]
    return [
        Answer(int(token), sure, spread, lost, None, None, *((form, content) if listed else (None, None)))
        for token, sure, spread, lost, form, content, listed in torch.stack(measured, 1).tolist()
    ]
