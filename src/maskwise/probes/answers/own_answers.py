"""Answers to checkable questions: read in one pass, and decoded."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from maskwise.decoding.checks import end_tokens, text_before_end
from maskwise.decoding.generate import decode
from maskwise.decoding.likelihood import log_probabilities
from maskwise.decoding.options import DecodingOptions
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, Written, answer_rows, answers_to, pack
from maskwise.probes.checked import CheckedPrompt
from maskwise.tasks.checkable import is_right
from maskwise.tasks.prompts import Prompt

BLOCK, STRATEGY = 32, "threshold"  # Wu et al., arXiv 2505.22618: every token with probability .9 or more
LONGEST_TEXT = 4000  # characters of an answer that a record keeps


@torch.inference_mode()
def read(model: Model, prompts: Sequence[Prompt]) -> list[Answer]:
    """The first token of each answer; evidence: -log p of the answer, the sum over its tokens, all of one pass."""
    right = [prompt.question.answer_ids for prompt in prompts if isinstance(prompt, CheckedPrompt)]
    owner = torch.tensor([number for number, ids in enumerate(right) for _ in ids])
    places = torch.cat([torch.arange(len(ids)) for ids in right])
    batch, starts = pack(model, prompts), answer_rows(model, prompts)[owner]
    hidden = model.hidden(batch)[model.locate(batch, owner.to(model.device), starts + places.to(model.device))]
    targets = torch.tensor([token for ids in right for token in ids], device=model.device)
    log_p = log_probabilities(model, hidden, targets)[0].double().cpu()
    nats = torch.zeros(len(prompts), dtype=torch.float64).index_add(0, owner, -log_p).tolist()
    answers = answers_to(prompts, model.head(hidden[places == 0]))
    return [replace(answer, evidence={"nats": round(own, DIGITS)}) for answer, own in zip(answers, nats, strict=True)]


def write(model: Model, prompts: Sequence[Prompt], canvas: int, check: str) -> list[Answer]:
    """Greedy, the same for every model; a block diffusion model decodes its own blocks, an autoregressive one token by
    token. Evidence: tokens before the end token, whether nothing stands before it, and whether there is none."""
    asked = [prompt.question for prompt in prompts if isinstance(prompt, CheckedPrompt)]
    ends = end_tokens(model)
    options = DecodingOptions(max_new_tokens=canvas, early_stop=bool(ends))
    if not model.causal:
        options = replace(options, block=model.block or BLOCK, rule=STRATEGY)
    answers = []
    for question, one in zip(asked, decode(model, [list(one.ids) for one in asked], options), strict=True):
        length = next((place for place, token in enumerate(one.ids) if token in ends), canvas)
        text = text_before_end(model, one.ids, ends)
        found = {"length": length, "empty": float(not text.strip()), "cut": float(length == canvas)}
        written = Written(text[:LONGEST_TEXT], is_right(text, question.answer, check))
        answers.append(Answer(one.ids[0], 0.0, 0.0, 0.0, found, written))
    return answers
