"""Answers to checkable questions (`CheckedPrompt`): read in one pass, and decoded."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from maskwise.decoding.checks import end_tokens, text_before_end
from maskwise.decoding.generate import decode
from maskwise.decoding.likelihood import log_probabilities
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, Written, answers_to, pack
from maskwise.tasks.checkable import is_right

BLOCK, STRATEGY = 32, "threshold"  # Wu et al., arXiv 2505.22618: every token with probability .9 or more
LONGEST_TEXT = 4000  # characters of an answer that a record keeps


@torch.inference_mode()
def read(model: Model, prompts: Sequence[Any]) -> list[Answer]:
    """The first token of each answer; evidence: -log p of the answer, the sum over its tokens, all of one pass."""
    batch = pack(model, prompts)
    right = [prompt.question.answer_ids for prompt in prompts]
    owner = torch.tensor([number for number, ids in enumerate(right) for _ in ids])
    places = torch.tensor(
        [p.start + p.row + place for p, ids in zip(prompts, right, strict=True) for place, _ in enumerate(ids)]
    )
    hidden = model.hidden(batch)[model.locate(batch, owner.to(model.device), places.to(model.device))]
    targets = torch.tensor([token for ids in right for token in ids], device=model.device)
    log_p = log_probabilities(model, hidden, targets)[0].double().cpu()
    nats = torch.zeros(len(prompts), dtype=torch.float64).index_add(0, owner, -log_p).tolist()
    firsts = torch.cat([owner.new_ones(1), owner.diff()]).bool().to(model.device)
    answers = answers_to(prompts, model.head(hidden[firsts]))
    return [replace(answer, evidence={"nats": round(own, DIGITS)}) for answer, own in zip(answers, nats, strict=True)]


def write(model: Model, prompts: Sequence[Any], canvas: int, check: str) -> list[Answer]:
    """Greedy, the same for every model; a block diffusion model decodes its own blocks, an autoregressive one token by
    token. Evidence: tokens before the end token, whether nothing stands before it, and whether there is none."""
    ends = end_tokens(model)
    masked: dict[str, Any] = {} if model.causal else {"block": model.block or BLOCK, "rule": STRATEGY}
    options = DecodingOptions(max_new_tokens=canvas, early_stop=bool(ends), **masked)
    made = decode(model, [list(prompt.question.ids) for prompt in prompts], options)
    answers = []
    for prompt, one in zip(prompts, made, strict=True):
        length = next((place for place, token in enumerate(one.ids) if token in ends), canvas)
        text = text_before_end(model, one.ids, ends)
        found = {"length": length, "empty": float(not text.strip()), "cut": float(length == canvas)}
        written = Written(text[:LONGEST_TEXT], is_right(text, prompt.question.answer, check))
        answers.append(Answer(one.ids[0], 0.0, 0.0, 0.0, found, written))
    return answers
