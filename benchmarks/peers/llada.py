"""LLaDA-8B by LLaDA's own code, Fast-dLLM's, dllm's and ours: decoding, likelihood, probe."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import peer_code
from benchmarks.decode import our_steps
from benchmarks.measure import difference, timed
from benchmarks.peers.harness import (
    AT_ONCE,
    Engine,
    Run,
    compare_logits,
    same_for_all,
    same_tokens,
    shape_of,
    sizes,
    time_decoding,
    time_ours,
)
from benchmarks.peers.report import Report
from benchmarks.probe import LONG, TOY_LONG, probe_units, prompts_of
from benchmarks.shapes import random_ids
from maskwise.decoding.likelihood import log_likelihoods
from maskwise.models.model import Model
from maskwise.probes.answers.plain import ask

UNEQUAL = [1000, 968, 1031, 985, 1017, 990, 1008, 1001]
SAMPLES = 128  # of a likelihood by LLaDA's own function


def padded(prompts: list[list[int]], fill: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Padded at the left, as LLaDA's code wants it; no mask where nothing is padded."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[*[fill] * (longest - len(ids)), *ids] for ids in prompts], device=device)
    seen = torch.tensor([[*[0] * (longest - len(ids)), *[1] * len(ids)] for ids in prompts], device=device)
    return ids, None if bool(seen.all()) else seen


def llada_engines(report: Report, model: Model, weights: dict[str, Tensor]) -> list[Engine]:
    """LLaDA's own code, Fast-dLLM's and dllm's; Fast-dLLM's takes one prompt at a time."""
    bench = report.bench
    _, new, block = sizes(bench)
    shape, mask = shape_of(model), model.mask_id
    own, _, own_modelling = peer_code.llada(report.peers)
    fast, fast_modelling = peer_code.fast_dllm(report.peers)
    plain_sampler, cached_sampler, cached_modelling, _ = peer_code.dllm(report.peers)
    end = (model.core.config.eos_token_id or 0) if bench.full else 1
    words = SimpleNamespace(mask_token_id=mask, bos_token_id=end, eos_token_id=end)
    own_net, fast_net, cached_net = (
        peer_code.llada_net(modelling, shape, weights)
        for modelling in (own_modelling, fast_modelling, cached_modelling)
    )
    for who, net in (("LLaDA", own_net), ("Fast-dLLM", fast_net), ("dllm", cached_net)):
        compare_logits(report, model, who, net)

    def by_llada(prompts: list[list[int]], n: int) -> Tensor:
        ids, seen = padded(prompts, end, bench.device)
        return own.generate(own_net, ids, seen, steps=new // n, gen_length=new, block_length=block, mask_id=mask)

    def by_fast(loop: Any) -> Run:
        return lambda prompts, n: loop(
            fast_net,
            torch.tensor(prompts, device=bench.device),
            steps=new // n,
            gen_length=new,
            block_length=block,
            mask_id=mask,
        )[0]

    def by_dllm(sampler: Any, **more: Any) -> Run:
        return lambda prompts, n: sampler.sample(
            prompts, steps=new // n, max_new_tokens=new, block_size=block, return_dict=False, **more
        )

    return [
        Engine("LLaDA", "none", own_net, by_llada),
        Engine("dllm", "none", own_net, by_dllm(plain_sampler.MDLMSampler(model=own_net, tokenizer=words))),
        Engine("Fast-dLLM", "prefix", fast_net, by_fast(fast.generate_with_prefix_cache)),
        Engine("Fast-dLLM", "dual", fast_net, by_fast(fast.generate_with_dual_cache)),
        *(
            Engine(
                "dllm",
                cache,
                cached_net,
                by_dllm(cached_sampler.FastdLLMLLaDASampler(model=cached_net, tokenizer=words), use_cache=cache),
            )
            for cache in ("prefix", "dual")
        ),
    ]


def all_of_llada(report: Report) -> None:
    bench = report.bench
    model, weights = same_for_all(bench)
    engines = llada_engines(report, model, weights)
    if bench.full:
        model.compile_layers()
    report.wait()
    likelihood(report, model, engines[0].net)
    probe(report, model, engines[0].net)
    for size in (1, 8) if bench.full else (1, 2):
        prompts = random_ids([sizes(bench)[0]] * size, model)
        for cache in ("none", "prefix", "dual"):
            at_onces = AT_ONCE if size == 1 or cache == "dual" else (4, 1)
            with report.attempt(f"ours, {cache}, batch {size}"):
                time_ours(report, model, prompts, cache, at_onces)
            for engine in (engine for engine in engines if engine.cache == cache):
                if engine.who != "Fast-dLLM" or size == 1:
                    with report.attempt(f"{engine.who}, {cache}, batch {size}"):
                        if not bench.full:
                            same_tokens(report, model, engine, prompts)
                        time_decoding(report, engine, prompts, at_onces)
    unequal = random_ids(UNEQUAL if bench.full else [20, 17], model)
    with report.attempt("unequal prompts"):
        for engine in engines[:2]:
            time_decoding(report, engine, unequal, (1,), ", prompts of unequal length")
        for cache in ("none", "dual"):
            time_ours(report, model, unequal, cache, (1,), ", prompts of unequal length")


def many_prompts(report: Report) -> None:
    """Ours at batch 32, to compare with dInfer's."""
    model, _ = same_for_all(report.bench)
    if report.bench.full:
        model.compile_layers()
    prompts = random_ids([sizes(report.bench)[0]] * 32, model)
    our_steps(report.bench, model, prompts[:1], *sizes(report.bench)[1:], "blocks", "dual", 1, 3)  # compiles
    report.wait()
    time_ours(report, model, prompts, "dual", (4, 1))


def likelihood(report: Report, model: Model, net: nn.Module) -> None:
    """128 samples of a request by LLaDA's own function, which takes one request; ours takes them together."""
    bench, (_, theirs, _) = report.bench, peer_code.llada(report.peers)
    length = 100 if bench.full else 12
    for n, many in ((1, 64), (4, 16), (128, 4)) if bench.full else ((1, 3), (4, 2)):
        requests = [(ids[:length], ids[length:]) for ids in random_ids([length + n] * many, model)]
        prompt, answer = (torch.tensor(part, device=bench.device) for part in requests[0])
        with report.attempt(f"likelihood of {n} tokens"):
            ours = timed(bench.device, lambda asked=requests: log_likelihoods(model, asked, samples=SAMPLES), repeats=2)  # type: ignore[misc]
            report.add(f"likelihood of {n} tokens", "maskwise", many / ours.seconds, "1/s")
            slow = timed(
                bench.device,
                lambda p=prompt, a=answer: theirs.get_log_likelihood(  # type: ignore[misc]
                    net, p, a, mc_num=SAMPLES, mask_id=model.mask_id
                ),
                repeats=2,
            )
            report.add(f"likelihood of {n} tokens", "LLaDA", 1 / slow.seconds, "1/s")
            value = theirs.get_log_likelihood(net, prompt, answer, mc_num=SAMPLES, mask_id=model.mask_id)
            report.add(f"log-likelihood of {n} tokens", "LLaDA", value, "nats")
            value = log_likelihoods(model, requests[:1], samples=SAMPLES)[0].log_likelihood
            report.add(f"log-likelihood of {n} tokens", "maskwise", value, "nats")


def probe(report: Report, model: Model, net: nn.Module) -> None:
    """-log p of 16 answers: by LLaDA's modelling file one prompt at a time, all logits, and by ours in a pass."""
    bench = report.bench
    prompts = prompts_of(probe_units(model, LONG if bench.full else TOY_LONG, 1, 4 if bench.full else 2))

    @torch.no_grad()
    def theirs() -> list[float]:
        found = []
        for prompt in prompts:
            row = net(torch.tensor([list(prompt.ids)], device=bench.device)).logits[0, prompt.row].float()
            row[model.mask_id] = -torch.inf
            found.append(-row.log_softmax(-1)[prompt.answer_id].item())
        return found

    with report.attempt("probe"):
        gap = difference(torch.tensor([answer.nll for answer in ask(model, prompts)]), torch.tensor(theirs()))
        report.add("probe: relative difference", "LLaDA", gap, "share")
        for who, work in (("maskwise", lambda: ask(model, prompts)), ("LLaDA", theirs)):
            report.add(f"probe, {len(prompts)} prompts", who, timed(bench.device, work).seconds, "s")
