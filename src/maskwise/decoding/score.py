"""`score`: how likely given answers are. The estimators are in likelihood.py."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from maskwise.decoding.likelihood import Likelihood, log_likelihoods
from maskwise.decoding.prompt_files import ScoreRequest, read_requests
from maskwise.decoding.prompt_ids import chat_ids, has_chat_template
from maskwise.models.checkpoints.opening import opened_model
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import Records
from maskwise.tasks.columns import TextPair


def score(
    model: str | Path | Model,
    data: Records,
    method: str = "auto",
    samples: int = 128,
    masks: int = 0,
    seed: int = 0,
    *,
    dtype: str = "auto",
    device: str | torch.device | None = None,
    adapter: str | Path | None = None,
    check_weights: bool = True,
    weights: str | None = None,
    any_base: bool = False,
    device_map: str | None = None,
    on_pass: Callable[[int, int], None] | None = None,
) -> list[Likelihood]:
    """The log-likelihood (nats) of each answer after its prompt, with the estimator and the passes it took.

    Arguments:
        model: a name or an opened model.
        data: a .jsonl file, a list of dicts or a datasets.Dataset; each row has a prompt and an answer
            (or completion), a question and an answer, an instruction and an output, or messages.
        method: monte-carlo, exact or chain (another quantity); auto is exact where that takes no more than `samples`
            passes, else monte-carlo, and the chain rule for an autoregressive model.
        samples: draws of the Monte Carlo estimate. masks: masks after the answer. seed: draws the masked sets.
        dtype, device, adapter, check_weights, weights, any_base, device_map: as in `mw.open`; of a model
            given by name.
        on_pass: called with (answers done, answers in all) after each forward pass.

    Returns:
        One `Likelihood` per answer: log_likelihood, tokens, method, forwards, masks, greedy; of a block diffusion model
        also visible, how many of the masks are seen.

    >>> import maskwise as mw
    >>> [found] = mw.score("tiny-llada", [{"prompt": "Once upon a", "answer": " time"}])
    >>> found.log_likelihood < 0 and found.method
    'exact'
    """
    if on_pass is not None and not callable(on_pass):
        raise UserError("on_pass must be a function, which is called with two numbers after each forward pass")
    requests = read_requests(data)
    choices: Any = {"weights": weights, "any_base": any_base, "device_map": device_map}
    choices |= {"dtype": dtype, "device": device, "adapter": adapter, "check_weights": check_weights}
    return score_requests(opened_model(model, **choices), requests, method, samples, masks, seed, on_pass)


def score_requests(model: Model, requests: Sequence[ScoreRequest], *options: Any, **named: Any) -> list[Likelihood]:
    """options, named: those of `log_likelihoods`."""
    return log_likelihoods(model, [_encoded(model, request) for request in requests], *options, **named)


def _encoded(model: Model, request: ScoreRequest) -> tuple[str, str] | tuple[list[int], list[int]]:
    """A prompt and its answer unchanged; a question or a chat through the chat template, in token ids."""
    templated, content = has_chat_template(model), request.content
    if isinstance(content, TextPair) and not (content.is_question and templated):
        return content.plain_prompt, content.answer
    if not templated:
        raise UserError(f"{request.where}: the tokenizer has no chat template; write prompt and answer")
    prompt = chat_ids(model, content.turns[:-1], request.where)
    return prompt, list(model.tokenizer(request.answer, add_special_tokens=False)["input_ids"])


def likelihood_fields(likelihood: Likelihood) -> dict[str, Any]:
    """A likelihood as JSON, without what concerns block diffusion models alone."""
    return {name: value for name, value in asdict(likelihood).items() if name != "visible" or value is not None}


def score_lines(answers: Sequence[str], likelihoods: Sequence[Likelihood]) -> Iterator[str]:
    """The table that `maskwise score` prints; --json has the answers whole."""
    yield f"{'log-likelihood':>14}  {'tokens':>6}  {'estimator':11}  {'passes':>6}  {'masks':>5}  answer"
    for answer, one in zip(answers, likelihoods, strict=True):
        numbers = f"{one.log_likelihood:14.4f}  {one.tokens:6}  {one.method:11}  {one.forwards:6}  {one.masks:5}"
        shown = repr(answer)
        yield f"{numbers}  {shown if len(shown) <= 26 else shown[:25] + '…'}"
    total, tokens = sum(one.log_likelihood for one in likelihoods), sum(one.tokens for one in likelihoods)
    passes = sum(one.forwards for one in likelihoods)
    yield f"{total:14.4f}  {tokens:6}  {'total':11}  {passes:6}  {'':5}  {total / tokens:.4f} nats per token"
