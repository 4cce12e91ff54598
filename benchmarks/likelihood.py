"""Row e: the likelihood of answers, at the accuracy of 128 samples."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import plain
from benchmarks.measure import Bench, Line, Timing, check_close, timed, tolerance
from benchmarks.shapes import make_model, random_ids
from maskwise.decoding.likelihood import log_likelihoods as score
from maskwise.models.model import Model

SAMPLES = 128
AT_ONCE = 32  # noised copies of one request in a plain pass
BARS = {1: 100.0, 4: 8.0, 128: 1.2}


@torch.no_grad()
def plain_samples(model: Model, prompt: list[int], answer: list[int], draws: torch.Generator) -> Tensor:
    """One request the way LLaDA's evaluation does it: SAMPLES noised copies, all logits, n / l times the masked sum."""
    n, device = len(answer), model.device
    clean = torch.tensor([*prompt, *answer], device=device)
    found = []
    for _ in range(SAMPLES // AT_ONCE):
        sizes = torch.randint(1, n + 1, (AT_ONCE, 1), generator=draws).to(device)
        hidden = torch.rand(AT_ONCE, n, generator=draws).to(device).argsort(1).argsort(1) < sizes
        ids = clean.repeat(AT_ONCE, 1)
        ids[:, len(prompt) :][hidden] = model.mask_id
        log_p = _log_p(model, ids)[:, len(prompt) :].gather(-1, clean[len(prompt) :].repeat(AT_ONCE, 1)[..., None])
        found.append((log_p[..., 0] * hidden).sum(1) * n / sizes[:, 0])
    return torch.cat(found).double().cpu()


@torch.no_grad()
def plain_chain(model: Model, prompt: list[int], answer: list[int]) -> float:
    """One token after the other, all logits each time."""
    assert model.mask_id is not None
    total = 0.0
    for place, token in enumerate(answer):
        shown = [*prompt, *answer[:place], *[model.mask_id] * (len(answer) - place)]
        total += _log_p(model, torch.tensor([shown], device=model.device))[0, len(prompt) + place, token].item()
    return total


def _log_p(model: Model, ids: Tensor) -> Tensor:
    """[B, L] -> [B, L, V], row i speaking of position i."""
    logits = plain.logits(model, ids).float()
    logits[..., model.mask_id] = -torch.inf
    if model.shift:
        logits = torch.cat([logits[:, :1], logits[:, :-1]], dim=1)
    return F.log_softmax(logits, dim=-1)


def likelihood(bench: Bench) -> Iterator[Line]:
    model = make_model(bench, "llada")
    if bench.full:
        model.compile_layers()
    for n, many in ((1, 64), (4, 16), (128, 4)) if bench.full else ((1, 3), (4, 2), (10, 1)):
        length = 100 if bench.full else 12
        requests = [(ids[:length], ids[length:]) for ids in random_ids([length + n] * many, model)]
        ours = score(model, requests, samples=SAMPLES)
        samples = plain_samples(model, *requests[0], torch.Generator().manual_seed(3))
        # Both estimate one bound: they may differ by rounding and by the samples' own spread, 5 standard errors of it.
        spread = 5 * 2**0.5 * float(samples.std()) / SAMPLES**0.5
        gap = abs(ours[0].log_likelihood - float(samples.mean()))
        assert gap < spread + tolerance(bench) * abs(float(samples.mean())), f"likelihood of {n} tokens: {gap} apart"
        fast = timed(bench.device, lambda asked=requests: score(model, asked, samples=SAMPLES))
        slow = timed(
            bench.device, lambda asked=requests[0]: plain_samples(model, *asked, torch.Generator().manual_seed(3))
        )
        case = f"{model.name}, answers of {n} tokens ({ours[0].method}), requests"
        yield _rates(bench, case, many, fast, slow, BARS.get(n))
    n = 20 if bench.full else 5
    requests = [(ids[:length], ids[length:]) for ids in random_ids([length + n] * 2, model)]
    ours = torch.tensor([found.log_likelihood for found in score(model, requests, method="chain")])
    check_close("chain rule", ours, torch.tensor([plain_chain(model, *asked) for asked in requests]), tolerance(bench))
    fast = timed(bench.device, lambda: score(model, requests, method="chain"))
    slow = timed(bench.device, lambda: plain_chain(model, *requests[0]))
    yield _rates(bench, f"{model.name}, chain rule over {n} tokens, requests", 2, fast, slow, None)


def _rates(bench: Bench, case: str, many: int, ours: Timing, one: Timing, bar: float | None) -> Line:
    """Requests a second: ours did `many`, plain one."""
    ratio = many / ours.seconds * one.seconds
    return Line(
        "e",
        case,
        "1/s",
        many / ours.seconds,
        1 / one.seconds,
        peak=ours.peak,
        plain_peak=one.peak,
        bar="" if bar is None else f"ratio >= {bar:g}",
        met=ratio >= bar if bench.full and bar is not None else None,
    )
