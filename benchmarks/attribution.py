"""Row b: the gradient of the answers with respect to the input embeddings, and nothing else."""

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks import plain
from benchmarks.measure import Bench, Line, bound, check_close, forward_flops, line, timed
from benchmarks.probe import LONG, TOY_LONG, probe_units, prompts_of
from benchmarks.shapes import make_model
from maskwise.models.model import Model
from maskwise.probes.answers.gradients import embedding_gradients, own_rows
from maskwise.probes.answers.plain import Answer
from maskwise.tasks.prompts import Prompt


def plain_norms(model: Model, prompts: list[Prompt], tokens: list[int]) -> Tensor:
    """One prompt at a time, all logits, `backward` into everything that has weights. -> [T]"""
    found = []
    for prompt, token in zip(prompts, tokens, strict=True):
        ids = torch.tensor([prompt.ids], device=model.device)
        embeds = model.embed(ids).detach().requires_grad_()
        plain.logits(model, ids, embeds=embeds)[0, max(prompt.row - int(model.shift), 0), token].backward()
        assert embeds.grad is not None
        norms = embeds.grad[0].float().norm(dim=-1)
        norms[list(own_rows(model, prompt))] = 0
        found.append(norms / norms.max())
        model.zero_grad(set_to_none=True)
    return torch.cat(found)


def check_again(
    prompts: list[Prompt], answers: list[Answer], norms: Tensor, new_answers: list[Answer], new_norms: Tensor
) -> None:
    """Where a near tie fell otherwise, another token's gradient was taken: those prompts have nothing to compare."""
    same = [old.token == new.token for old, new in zip(answers, new_answers, strict=True)]
    assert sum(same) > len(same) / 2, f"only {sum(same)} of {len(same)} answers are the same"
    kept = torch.tensor([agrees for prompt, agrees in zip(prompts, same, strict=True) for _ in prompt.ids])
    check_close("compiled attribution", new_norms[kept.to(norms.device)], norms[kept.to(norms.device)], 0.15)


def attribution(bench: Bench) -> Iterator[Line]:
    model = make_model(bench, "llada")
    prompts = prompts_of(probe_units(model, LONG if bench.full else TOY_LONG, 1, 2))
    answers, (norms, _) = embedding_gradients(model, prompts)
    tokens = [answer.token for answer in answers]  # near ties may fall otherwise in the reference
    check_close("attribution", norms, plain_norms(model, prompts, tokens), 0.15 if bench.full else 1e-3)
    reference = timed(bench.device, lambda: plain_norms(model, prompts, tokens))
    # The backward pass to the inputs costs what the forward pass does.
    flops = 2 * forward_flops(model, [len(prompt.ids) for prompt in prompts], len(prompts))
    ours = timed(bench.device, lambda: embedding_gradients(model, prompts))
    gradients = sum(weight.grad is not None for weight in model.parameters())
    yield bound(bench, "b", f"{model.name}, weights with a gradient", "weights", float(gradients), 0)
    if bench.full:
        yield line(bench, "b", f"{model.name}, layers not compiled", ours, reference, flops)
        model.compile_layers()
        again, (new_norms, _) = embedding_gradients(model, prompts)
        check_again(prompts, answers, norms, again, new_norms)
        ours = timed(bench.device, lambda: embedding_gradients(model, prompts))
    compared = line(bench, "b", f"{model.name}, {len(prompts)} prompts", ours, reference, flops)
    yield compared
    yield bound(bench, "b", f"{model.name}, share of the ceiling", "MFU", compared.mfu, 0.65, least=True)
