"""How likely a given answer is, by three estimators that are not the same number.

A masked model has no cheap exact likelihood. Of an answer of n tokens a set M is masked and read at once; M's size l is
uniform in 1..n and M uniform among the sets of that size. Then

    bound        E[ n/l * sum over i in M of log p(a_i | prompt, the answer without M) ] <= log p(answer)
    monte-carlo  an unbiased estimate of that bound (LLaDA's): `samples` draws of M, l stratified over them
    exact        the bound itself: all 2^n - 1 sets M, each with its weight 1 / (|M| binomial(n, |M|))
    chain        another quantity: the sum over j of log p(a_j | prompt, a_1..a_j-1, the rest masked), n passes

"exact" is the exact value of what monte-carlo estimates, not the exact likelihood. A one-token answer has one M and one
forward pass, and all three agree. For an autoregressive model the chain rule is the likelihood, in one pass. For a
block diffusion model, whose tokens see no later block, the log-likelihood is the sum over its blocks, each estimated so
given those before it.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import comb, isnan
from typing import Any

import torch
from torch import Tensor

from maskwise.decoding.checks import end_tokens
from maskwise.decoding.prompt_ids import text_ids
from maskwise.decoding.sampling import log_confidence
from maskwise.models.batch import Batch
from maskwise.models.finite import refuse_nonfinite_rows, rows_are_finite
from maskwise.models.model import TOKENS_A_PASS, Model
from maskwise.support.errors import UserError, UserNotice
from maskwise.support.files import is_writable
from maskwise.support.randomness import torch_generator

METHODS = ("auto", "monte-carlo", "exact", "chain")
LONGEST_EXACT = 12  # 4095 passes
LOGITS_AT_ONCE = 2**26  # 256 MiB of float32


@dataclass(frozen=True)
class Likelihood:
    """The log-likelihood (nats) of one answer, and how it was found."""

    log_likelihood: float
    tokens: int
    method: str
    forwards: int  # forward passes
    masks: int  # masks after the answer
    greedy: bool | None  # is the answer what greedy decoding gives? known without more passes if one token, or AR
    visible: int | None = None  # of a block diffusion model: how many of the masks its last token is predicted from


@dataclass(frozen=True)
class _Part:
    """Some tokens of a request's answer, given all before them."""

    request: int
    prompt: list[int]
    answer: list[int]
    masks: int  # after them


@dataclass(frozen=True)
class _Layout:
    """One request laid out: N views of prompt + answer + appended masks, which differ in the answer tokens masked."""

    number: int
    ids: Tensor  # [N, L] int64
    asked: Tensor  # [N, n] bool, the answer tokens to read
    weights: Tensor  # [N] float64
    start: int  # where the answer begins
    answer: Tensor  # [n] int64


LayoutPart = tuple[_Layout, int, int]  # a layout's views from first to last + 1


def encode_pair(model: Model, prompt: str | Sequence[int], answer: str | Sequence[int]) -> tuple[list[int], list[int]]:
    """Token ids of a prompt and its answer. Text is tokenised as a whole and cut where the prompt's own tokens end.

    White space at the end of a prompt goes to the answer, for most tokenizers join it to the word after it. An answer
    without a prompt is put after the start token.
    """
    if not isinstance(prompt, str) or not isinstance(answer, str):
        if isinstance(prompt, str) or isinstance(answer, str):
            raise UserError("give prompt and answer both as text or both as token ids")
        return [int(token) for token in prompt], [int(token) for token in answer]
    if model.tokenizer is None:
        raise UserError(f"{model.name or model.kind} has no tokenizer: give token ids")
    if not is_writable(prompt + answer):
        raise UserError("a prompt or answer is not UTF-8 text, or holds half a surrogate pair: write it as UTF-8")
    stripped = prompt.rstrip()
    if not stripped:
        return encode_text(model, prompt + answer)
    whole, before = text_ids(model, prompt + answer), text_ids(model, stripped)
    shared = 0
    while shared < min(len(before), len(whole)) and before[shared] == whole[shared]:
        shared += 1
    return whole[:shared], whole[shared:]


def encode_text(model: Model, text: str) -> tuple[list[int], list[int]]:
    """The token a text starts from (the start token, else an end token, where there is one), and the text's own."""
    first = model.tokenizer.bos_token_id
    start = list(end_tokens(model)[:1]) if first is None else [first]
    ids = list(model.tokenizer(text, add_special_tokens=False)["input_ids"])
    return start, ids[1:] if start and ids[:1] == start else ids


@torch.no_grad()
def log_likelihoods(
    model: Model,
    requests: Sequence[tuple[str | Sequence[int], str | Sequence[int]]],
    method: str = "auto",
    samples: int = 128,
    masks: int = 0,
    seed: int = 0,
    on_pass: Callable[[int, int], Any] | None = None,
) -> list[Likelihood]:
    """The log-likelihoods of answers, given as (prompt, answer) pairs, batched across them.

    method: auto is exact where that takes no more passes than `samples`, else monte-carlo; chain if no other applies.
    masks: the number of masks after the answer. on_pass(done, total), in requests, is called after each forward pass.
    seed: the draws of a request depend on it and on the request's own tokens only, so that other requests do not
        matter, and equal requests get equal scores.
    """
    if method not in METHODS:
        raise UserError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    if samples < 1 or masks < 0:
        raise UserError(f"{samples} samples and {masks} masks: samples are 1 or more, masks 0 or more")
    if model.causal and (method not in ("auto", "chain") or masks):
        raise UserError(f"{model.name or model.kind} is autoregressive: it has no masks, and only the chain rule")
    if not model.causal and model.mask_id is None:
        raise UserError(f"{model.name or model.kind} has no mask token: open a masked diffusion model or pass mask_id")
    pairs = [encode_pair(model, prompt, answer) for prompt, answer in requests]
    for number, (prompt_ids, answer_ids) in enumerate(pairs):
        _check_pair(model, prompt_ids, answer_ids, masks, f"request {number + 1}")
    parts = [part for number, pair in enumerate(pairs) for part in _parts(number, *pair, masks, model.block)]
    methods = [_method(model, method, len(part.answer), samples) for part in parts]
    # Laid out one after the other as the passes take them in: all views of all requests would fill the memory.
    layouts = (
        _lay_out(model, number, part.prompt, part.answer, chosen, samples, part.masks, seed)
        for number, (part, chosen) in enumerate(zip(parts, methods, strict=True))
    )

    def after_pass(done: int) -> None:
        if on_pass is not None:
            on_pass(done * len(pairs) // max(len(parts), 1), len(pairs))

    found = _read_all(model, layouts, len(parts), after_pass)
    for part, (total, _, _) in zip(parts, found, strict=True):
        if isnan(total):
            refuse_nonfinite_rows(model, [*part.prompt, *part.answer], f"request {part.request + 1}")
    likelihoods = []
    for number, own in groupby(zip(parts, methods, found, strict=True), key=lambda one: one[0].request):
        _, chosen, read = zip(*own, strict=True)
        totals, views, likeliest = zip(*read, strict=True)
        n = len(pairs[number][1])
        known = likeliest[0] if model.causal or n == 1 else None
        least_exact = max(chosen, key=METHODS[::-1].index)  # of the blocks
        # The last token of the answer sees the most of the masks after it.
        end = len(pairs[number][0]) + n
        visible = None if model.block is None else max(0, model.seen_by(end - 1, end + masks) - end)
        likelihoods.append(Likelihood(sum(totals), n, least_exact, sum(views), masks, known, visible))
    _warn_of_hidden_masks(model, likelihoods, masks)
    return likelihoods


def _warn_of_hidden_masks(model: Model, found: Sequence[Likelihood], masks: int) -> None:
    seen = [one.visible for one in found if one.visible is not None]
    if not seen or min(seen) == masks:
        return
    visible = str(max(seen)) if min(seen) == max(seen) else f"{min(seen)} to {max(seen)}"
    warnings.warn(
        f"visible masks after an answer: {visible} of {masks}; a token sees none after its block of {model.block}",
        UserNotice,
        stacklevel=4,
    )


def _parts(request: int, prompt: list[int], answer: list[int], masks: int, block: int | None) -> list[_Part]:
    """The answer as a whole, or the blocks of a model that sees none after a token's own."""
    ends = [len(answer)]
    if block is not None:
        ends = [*range(block - len(prompt) % block, len(answer), block), len(answer)]
    starts = [0, *ends[:-1]]
    return [
        _Part(request, [*prompt, *answer[:start]], answer[start:end], masks if end == len(answer) else 0)
        for start, end in zip(starts, ends, strict=True)
    ]


def _method(model: Model, method: str, n: int, samples: int) -> str:
    """The estimator for an answer of n tokens."""
    if model.causal:
        return "chain"
    if method == "auto":
        return "exact" if 2**n - 1 <= samples else "monte-carlo"
    if method == "exact" and n > LONGEST_EXACT:
        raise UserError(f"exact enumeration of {n} tokens takes 2^{n} - 1 passes: use monte-carlo or chain")
    return method


def _check_pair(model: Model, prompt: list[int], answer: list[int], masks: int, what: str) -> None:
    if not answer:
        raise UserError(f"{what} has an answer of no tokens: give at least one")
    if model.mask_id is not None and model.mask_id in answer:
        raise UserError(f"{what}: the answer contains the mask token, which the model never predicts; delete it")
    if model.causal and not prompt:
        raise UserError(f"{what} has no prompt: an autoregressive model needs at least one token before the answer")
    model.check_sequence([*prompt, *answer], what)
    if (longest := model.window - len(prompt) - len(answer)) < masks:
        raise UserError(
            f"{what} leaves room for {longest} masks in the context length of {model.name or model.kind}, "
            f"{model.window} tokens: lower --masks {masks}"
        )


def _lay_out(
    model: Model, number: int, prompt: list[int], answer: list[int], method: str, samples: int, masks: int, seed: int
) -> _Layout:
    n = len(answer)
    weights = torch.ones(n if method == "chain" and not model.causal else 1)
    hidden = torch.zeros(1, n, dtype=torch.bool)
    if model.causal:
        asked = ~hidden
    elif method == "chain":
        hidden, asked = torch.ones(n, n, dtype=torch.bool).triu(), torch.eye(n, dtype=torch.bool)
    elif method == "exact":
        hidden, weights = every_subset(n)
        asked = hidden
    else:
        hidden, weights = sampled_subsets(n, samples, torch_generator("likelihood", seed, prompt, answer))
        asked = hidden
    mask = model.mask_id or 0
    ids = torch.tensor([*prompt, *answer, *[mask] * masks]).repeat(len(asked), 1)
    ids[:, len(prompt) : len(prompt) + n].masked_fill_(hidden, mask)
    return _Layout(number, ids, asked, weights.double(), len(prompt), torch.tensor(answer))


def every_subset(n: int) -> tuple[Tensor, Tensor]:
    """All non-empty sets of n tokens [2^n - 1, n] and the weight of each, 1 / (size * binomial(n, size))."""
    numbers = torch.arange(1, 2**n)
    members = (numbers[:, None] >> torch.arange(n)) & 1
    weight = torch.tensor([0.0, *(1 / (size * comb(n, size)) for size in range(1, n + 1))], dtype=torch.float64)
    return members.bool(), weight[members.sum(dim=1)]


def sampled_subsets(n: int, samples: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sets drawn for the Monte Carlo estimate, each set once, with its share of the weight n / size / samples.
    The sizes step evenly round 1..n from a random start: each is uniform, and together they cover the range."""
    start = torch.randint(n, (), generator=chance, device=chance.device).cpu()
    sizes = (start + torch.arange(samples) * n // samples) % n + 1
    order = torch.rand(samples, n, generator=chance, device=chance.device).cpu().argsort(dim=1)
    drawn = order.argsort(dim=1) < sizes[:, None]
    sets, which = drawn.unique(dim=0, return_inverse=True)
    weights = torch.zeros(len(sets), dtype=torch.float64).index_add(0, which, n / sizes.double() / samples)
    return sets, weights


def _read_all(
    model: Model, layouts: Iterator[_Layout], count: int, after_pass: Callable[[int], None]
) -> list[tuple[float, int, bool]]:
    """(weighted sum of log-probabilities, views, were all answer tokens the likeliest) of each layout."""
    read, weights, owner, views = [], [], [], [0] * count
    for parts in _passes(layouts):
        read.append(_read(model, parts))
        for layout, first, last in parts:
            asked = layout.asked[first:last]
            weights.append(layout.weights[first:last, None].expand(asked.shape)[asked])
            owner.append(torch.full((len(weights[-1]),), layout.number))
            views[layout.number] += last - first
        after_pass(parts[-1][0].number + 1)
    if not read:
        return []
    # Only now is anything read back from the device.
    log_p, likeliest = (torch.cat(columns).double().cpu() for columns in zip(*read, strict=True))
    owners = torch.cat(owner)
    totals = torch.zeros(count, dtype=torch.float64).index_add(0, owners, torch.cat(weights) * log_p)
    missed = torch.zeros(count, dtype=torch.float64).index_add(0, owners, 1 - likeliest)
    return list(zip(totals.tolist(), views, (missed == 0).tolist(), strict=True))


def _passes(layouts: Iterator[_Layout]) -> Iterator[list[LayoutPart]]:
    """Packs the views of the layouts into passes of a bounded number of tokens."""
    parts: list[LayoutPart] = []
    room = TOKENS_A_PASS
    for layout in layouts:
        views, length = layout.ids.shape
        first = 0
        while first < views:
            if room < length and parts:
                yield parts
                parts, room = [], TOKENS_A_PASS
            last = min(views, first + max(1, room // length))
            parts.append((layout, first, last))
            room -= (last - first) * length
            first = last
    if parts:
        yield parts


def _read(model: Model, parts: list[LayoutPart]) -> tuple[Tensor, Tensor]:
    """One forward pass: log-probability of every asked answer token, and whether it was the likeliest one.
    The log-probability is NaN where logits are not finite."""
    device = model.device
    lengths = torch.tensor([0, *(q.ids.shape[1] for q, first, last in parts for _ in range(first, last))])
    batch = Batch(
        ids=torch.cat([q.ids[first:last].flatten() for q, first, last in parts]).to(device),
        embeds=None,
        offsets=lengths.cumsum(0).to(torch.int32).to(device),
        starts=torch.zeros(len(lengths) - 1, dtype=torch.int64, device=device),
        longest=int(lengths.max()),
    )
    sequence, position, target, seen = [], [], [], 0
    for layout, first, last in parts:
        view, place = layout.asked[first:last].nonzero(as_tuple=True)
        sequence.append(view + seen)
        position.append(place + layout.start)
        target.append(layout.answer[place])
        seen += last - first
    rows = model.locate(batch, torch.cat(sequence).to(device), torch.cat(position).to(device))
    return log_probabilities(model, model.hidden(batch)[rows], torch.cat(target).to(device))


def log_probabilities(model: Model, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """hidden [n, d], targets [n] -> [n] log-probabilities, [n] is the target the argmax."""
    at_once = max(1, LOGITS_AT_ONCE // model.vocab)
    log_p, hit = [], []
    for rows, wanted in zip(hidden.split(at_once), targets.split(at_once), strict=True):
        logits = model.head(rows)
        likeliest = logits.argmax(dim=-1)
        log_p.append(log_confidence(logits, wanted).where(rows_are_finite(logits, likeliest), torch.nan))
        hit.append(likeliest == wanted)
    return torch.cat(log_p), torch.cat(hit)
