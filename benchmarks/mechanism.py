"""Row i: the mechanism probe, attention to the extra tokens cut, against a dense [L, L] bias in every layer."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks import plain
from benchmarks.measure import Bench, Line, bound, check_close, forward_flops, line, timed, tolerance
from benchmarks.shapes import make_model
from maskwise.models.model import Model
from maskwise.probes.answers.changed_attention import ask_changed
from maskwise.probes.extra_tokens import ANSWER, BIASED, BOTH, ONE_POSITION, OTHERS, ChangedPrompt
from maskwise.probes.library.mechanism import changed_items
from maskwise.probes.paths import conditions
from maskwise.probes.probe import Asker
from maskwise.tasks.episodes import draw
from maskwise.tasks.prompts import filler_id
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

SIZE = (6, 40, 240)  # relevant examples, distractors, masks: 16 prompts of 1140 to 1380 tokens, as in row a
TOY_SIZE = (1, 1, 9)


def changed_prompts(model: Model, bench: Bench) -> list[ChangedPrompt]:
    """One test point under every condition but that of moved positions, which the reference does not know."""
    relevant, distractors, masks = SIZE if bench.full else TOY_SIZE
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, "."))
    episode = draw(TASKS[0], load_words(), relevant, distractors, 1)
    asked = [one for one in conditions((masks,)) if one.get("attention") != ONE_POSITION]
    found = [item.prompt for item in changed_items(asker, episode, asked)([0], set())]
    return [prompt for prompt in found if isinstance(prompt, ChangedPrompt)]


def dense_bias(model: Model, prompt: ChangedPrompt) -> Tensor:
    """[1, 1, L, L], as a mask that says for each row which keys it sees."""
    length = len(prompt.ids)
    rows = torch.arange(length, device=model.device)
    extra = torch.zeros(length, dtype=torch.bool, device=model.device)
    extra[list(prompt.extra)] = True
    answer = rows == prompt.row - int(model.shift)
    none = torch.zeros_like(extra)
    cut = {ANSWER: answer, OTHERS: ~answer & ~extra, BOTH: ~extra}.get(prompt.attention, none)
    bias = torch.zeros(length, length, device=model.device).masked_fill(cut[:, None] & extra, -torch.inf)
    if prompt.attention == BIASED:
        bias = bias - extra * math.log(len(prompt.extra))
    return bias[None, None]


@torch.no_grad()
def plain_answers(model: Model, prompts: list[ChangedPrompt]) -> list[float]:
    """-log p of the answers, one prompt at a time."""
    found = []
    for prompt in prompts:
        ids = torch.tensor([prompt.ids], device=model.device)
        row = plain.logits(model, ids, bias=dense_bias(model, prompt))[0, prompt.row - int(model.shift)].float()
        row[model.mask_id] = -torch.inf
        found.append(-row.log_softmax(-1)[prompt.answer_id].item())
    return found


def cut_attention(bench: Bench, kind: str) -> Iterator[Line]:
    model = make_model(bench, kind)
    prompts = changed_prompts(model, bench)
    ours = torch.tensor([answer.nll for answer in ask_changed(model, prompts)])
    check_close("answers", ours, torch.tensor(plain_answers(model, prompts)), tolerance(bench))
    flops = forward_flops(model, [len(prompt.ids) for prompt in prompts], len(prompts))
    together = timed(bench.device, lambda: ask_changed(model, prompts))
    one = timed(bench.device, lambda: plain_answers(model, prompts))
    yield line(
        bench, "i", f"{model.name}, {len(prompts)} prompts, against one at a time, dense mask", together, one, flops
    )
    yield bound(bench, "i", f"{model.name}, peak at {len(prompts)} prompts", "GiB", together.peak, 20.0)
