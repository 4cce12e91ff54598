"""LLaDA-8B decoded by dInfer."""

import time
from typing import Any

import torch
from torch import Tensor

from benchmarks import peer_code
from benchmarks.decode import our_steps
from benchmarks.peers.harness import (
    AT_ONCE,
    Engine,
    between_passes,
    compare_logits,
    same_for_all,
    same_tokens,
    shape_of,
    sizes,
    time_decoding,
    time_ours,
)
from benchmarks.peers.report import Report
from benchmarks.shapes import random_ids
from maskwise.models.model import Model


def dinfer_engine(report: Report, model: Model, cache: str, net: Any) -> Engine:
    """Its loop and caches; its choice by a threshold becomes one by a count, compiled as its own is."""
    _, new, block = sizes(report.bench)
    loop, choice, caches, _ = peer_code.dinfer(report.peers)

    def best(logits: Tensor, active: Tensor, tokens: Tensor, at_once: int) -> Tensor:
        guess = logits.argmax(-1)
        sure = logits.float().softmax(-1).gather(-1, guess[..., None])[..., 0].masked_fill(~active, -torch.inf)
        chosen = torch.zeros_like(active).scatter(1, sure.topk(at_once).indices, True) & active
        return torch.where(chosen, guess, tokens)

    best = torch.compile(best, dynamic=True) if report.bench.full else best

    class Count(choice.ParallelDecoder):  # type: ignore[misc, name-defined]
        eos_id, at_once = -1, 1

        def decode(self, logits: Tensor, start: int, end: int, x: Any, iter_threshold: Any = None) -> None:
            tokens = x[:, start:end]
            x[:, start:end] = best(logits, tokens == self.mask_id, tokens, self.at_once)

    decoder = Count(0.0, mask_id=model.mask_id)
    engine = loop.BlockWiseDiffusionLLM(
        net,
        decoder,
        caches.BlockIteratorFactory(start_block_align=True),
        early_stop=False,
        cache_factory=caches.KVCacheFactory(cache),
    )

    def run(prompts: list[list[int]], n: int) -> Tensor:
        decoder.at_once = n
        return engine.generate(torch.tensor(prompts, device=report.bench.device), gen_length=new, block_length=block)

    return Engine("dInfer", cache, net, run, block=0, recorded=True)


def dinfer(report: Report, size: int) -> None:
    """Compiled as its benchmark does, but for fixed shapes: with dynamic ones that takes five times as long. It is then
    compiled anew for every place of a block, so the first block is timed, which costs what any other does."""
    bench = report.bench
    model, weights = same_for_all(bench)
    net = peer_code.llada_net(peer_code.dinfer(report.peers)[-1], shape_of(model), weights)
    compare_logits(report, model, "dInfer", net)
    prompts = random_ids([sizes(bench)[0]] * size, model)
    if bench.full:
        net.forward = torch.compile(net.forward, mode="reduce-overhead", fullgraph=False, dynamic=False)  # type: ignore[method-assign]
    else:
        for cache in ("prefix", "dual"):
            same_tokens(report, model, dinfer_engine(report, model, cache, net), prompts)
    engine = dinfer_engine(report, model, "dual", net)
    began = time.perf_counter()
    between_passes(bench, net, lambda: engine.run(prompts, 4), 0, 2)
    report.add("to compile", "dInfer", time.perf_counter() - began, "s", batch=size)
    at_onces = AT_ONCE if size < 32 else (4, 1)
    if bench.full:
        _, new, block = sizes(bench)
        model.compile_layers()
        our_steps(bench, model, prompts, new, block, "blocks", "dual", block, block + 2)
    report.wait()
    time_decoding(report, engine, prompts, at_onces)
    time_ours(report, model, prompts, "dual", at_onces, ", next to dInfer")
