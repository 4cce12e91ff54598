"""The NELBO of passages by the absorbing process, or an autoregressive model's own negative log-likelihood.

The noise depends on the tokens and the seed alone, so two models with one tokenizer meet the same. An answer's nll is
the estimate in nats per token; its token is about the first token that was hidden, confidence and entropy are means
over all hidden tokens.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from maskwise.diffusion import Noised, nelbo
from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt

ROWS_PER_CHUNK = 1024  # rows whose logits exist at a time


def noised(ids: Sequence[int], mask_id: int | None, draws: int, seed: int) -> list[Noised]:
    """The draws of a passage that hide anything; for an autoregressive model one that asks for every token but the
    first."""
    clean = torch.tensor(ids)
    if mask_id is None:
        rows = torch.arange(1, len(ids))
        return [Noised(clean, rows, clean[rows], torch.ones(len(rows)))]
    chance = torch_generator("nelbo", seed, ids)
    return [draw for _ in range(draws) if len((draw := nelbo(clean, mask_id, chance)).rows)]


def first_hidden(draws: Sequence[Noised]) -> int:
    return int(draws[0].rows[0]) if draws else 0


@torch.inference_mode()
def score(model: Model, prompts: Sequence[Prompt], draws: int, seed: int) -> list[Answer]:
    """One forward pass over all draws of all passages; logits of the hidden rows only, a chunk at a time."""
    noise = [noised(prompt.ids, model.mask_id, draws, seed) for prompt in prompts]
    views = [view for listed in noise for view in listed]
    owner = [number for number, listed in enumerate(noise) for _ in listed]
    batch = Batch.pack([view.ids for view in views], model.device)
    index = model.locate_all(batch, [view.rows for view in views])
    targets = torch.cat([view.targets for view in views]).to(model.device)
    hidden = model.hidden(batch)
    chunks = []  # [rows, 4]: negative log-likelihood, confidence, entropy, greedy token
    for start in range(0, len(index), ROWS_PER_CHUNK):
        part = slice(start, start + ROWS_PER_CHUNK)
        logp = model.head(hidden[index[part]]).log_softmax(-1)
        best, token = logp.max(-1)
        nll = -logp.gather(1, targets[part, None])[:, 0]
        entropy = torch.special.entr(logp.exp()).sum(-1)
        chunks.append(torch.stack([nll, best.exp(), entropy, token.float()], 1))
    table = torch.cat(chunks).double().cpu()
    weights = torch.cat([view.weights for view in views]).double()
    passage = torch.repeat_interleave(torch.tensor(owner), torch.tensor([len(view.rows) for view in views]))
    return [
        _answer(prompt, table[passage == number], weights[passage == number], None if model.mask_id is None else draws)
        for number, prompt in enumerate(prompts)
    ]


def _answer(prompt: Prompt, table: Tensor, weights: Tensor, draws: int | None) -> Answer:
    if len(table) == 0:  # no draw hid anything, so none cost anything
        return Answer(prompt.ids[prompt.row], 1.0, 0.0, 0.0)
    nll, confidence, entropy, token = table.unbind(1)
    shares = len(prompt.ids) - 1 if draws is None else len(prompt.ids) * draws
    bound = float((weights * nll).sum()) / shares
    return Answer(int(token[0]), float(confidence.mean()), float(entropy.mean()), bound)
