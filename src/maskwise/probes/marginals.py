"""Do distant masks become alike? A prompt and many masks in one pass, and what is predicted at each distance.

By the distance d from the last visible token (d = 1 is the mask beside it), for the prediction p_d:

    entropy and the top token's probability; -log p of the true token
    tv_next      TV(p_d, p_d+1) = 1/2 sum |p_d - p_d+1|: 0 where neighbours are predicted alike
    tv_unigram   TV(p_d, frequencies of the text's tokens)
    common       probability of the end token and the 50 most frequent tokens together
    mode_common  1 where the most probable token is one of these, else 0

once with masks to the end of the canvas, once with the text going on after them (a visible suffix).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from maskwise.models.base import Batch, Model
from maskwise.probes.records import Condition, Key, still_to_ask
from maskwise.probes.runner import DIGITS, Answer, answers_of
from maskwise.probes.variants import Item
from maskwise.tasks.prompts import Prompt

PROBE, TASK = "marginals", "text"
MOST_FREQUENT = 50


@dataclass(frozen=True)
class Gap:
    """A piece of text with a gap: `before` tokens are visible, `masks` are hidden, `after` follow."""

    before: int = 64
    masks: int = 64
    after: int = 32

    @property
    def length(self) -> int:
        return self.before + self.masks + self.after


def cut_text(tokenizer: Any, text: str, length: int, count: int) -> list[tuple[int, ...]]:
    """Up to `count` pieces of `length` tokens, spread evenly over the text."""
    ids = _text_ids(tokenizer, text)
    room = len(ids) - length
    if room < 0:
        return []
    few = min(count, len(ids) // length)
    starts = [n * room // max(1, few - 1) for n in range(few)]
    return [tuple(ids[start : start + length]) for start in starts]


def text_frequencies(tokenizer: Any, text: str, vocabulary: int) -> Tensor:
    """The share of each token among those of the text, [V]."""
    ids = torch.tensor(_text_ids(tokenizer, text))
    return torch.bincount(ids, minlength=vocabulary).float() / len(ids)


def _text_ids(tokenizer: Any, text: str) -> list[int]:
    """Tokens of the text as running prose: how a file breaks its lines is not the model's matter."""
    return tokenizer(" ".join(text.split()), add_special_tokens=False)["input_ids"]


def conditions(distances: Sequence[int], gap: Gap) -> list[Condition]:
    return [
        {"suffix": suffix, "distance": d} for suffix in ("none", "visible") for d in distances if d <= gap.masks
    ]  # fmt: skip


def gap_items(
    mask_id: int,
    tokenizer: Any,
    pieces: Sequence[tuple[int, ...]],
    gap: Gap,
    distances: Sequence[int],
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    for key, point, condition in still_to_ask(PROBE, TASK, points, conditions(distances, gap), done):
        piece, row = pieces[point], gap.before + int(condition["distance"]) - 1
        end = piece[gap.before + gap.masks :] if condition["suffix"] == "visible" else ()
        ids = (*piece[: gap.before], *[mask_id] * gap.masks, *end)
        yield Item(key, condition, Prompt(ids, row, piece[row], gap.masks), tokenizer.decode([piece[row]]))


def common_tokens(frequencies: Tensor, end_id: int | None) -> Tensor:
    """The end token and the most frequent ones, [n]."""
    found = set(frequencies.topk(min(MOST_FREQUENT, len(frequencies))).indices.tolist())
    return torch.tensor(sorted(found | ({end_id} if end_id is not None else set())))


@torch.inference_mode()
def compare_rows(model: Model, prompts: Sequence[Prompt], frequencies: Tensor, common: Tensor) -> list[Answer]:
    """Each different canvas is read once, at the rows asked and the rows after them."""
    canvases = list(dict.fromkeys(prompt.ids for prompt in prompts))
    number = {ids: place for place, ids in enumerate(canvases)}
    batch = Batch.pack(canvases, model.device)
    hidden = model.hidden(batch)
    frequencies, common = frequencies.to(model.device), common.to(model.device)

    def logits_at(rows: list[int]) -> Tensor:
        sequence = torch.tensor([number[prompt.ids] for prompt in prompts], device=model.device)
        return model.head(hidden[model.locate(batch, sequence, torch.tensor(rows, device=model.device))])

    here = logits_at([prompt.row for prompt in prompts])
    has_next = [prompt.row + 1 < len(prompt.ids) and prompt.ids[prompt.row + 1] == model.mask_id for prompt in prompts]
    there = logits_at([prompt.row + follows for prompt, follows in zip(prompts, has_next, strict=True)])
    p, beside = here.softmax(dim=-1), there.softmax(dim=-1)
    measured = torch.stack([
        (p - beside).abs().sum(dim=-1) / 2, (p - frequencies).abs().sum(dim=-1) / 2, p[:, common].sum(dim=-1),
        torch.isin(p.argmax(dim=-1), common).float(),
    ], dim=1).tolist()  # fmt: skip
    wanted = torch.tensor([prompt.answer_id for prompt in prompts], device=model.device)
    answers = answers_of(here, wanted)
    return [
        replace(answer, evidence=_evidence(line, follows))
        for answer, line, follows in zip(answers, measured, has_next, strict=True)
    ]


def _evidence(line: list[float], follows: bool) -> dict[str, float]:
    """The last mask has no neighbour to be like."""
    names = ("tv_next", "tv_unigram", "common", "mode_common")
    return {name: round(value, DIGITS) for name, value in zip(names, line, strict=True) if follows or name != "tv_next"}
