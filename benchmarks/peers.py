"""The same work done by other software's own code and by ours, in one run.

    python -m benchmarks.peers --peers FOLDER --out FILE       # the published shapes on CUDA, toys on CPU

FOLDER holds checkouts named LLaDA, Fast-dLLM, dllm, dInfer and diffusers; docs/results.md says which commits. Their
code is run as it lies there (benchmarks/peer_code.py says on what stand-ins), on the same random weights as ours, so
take only checkouts that you trust.

Random weights are never sure, so every engine is told how many tokens a step commits. Each part has a process of its
own and compiles while others do; they measure one after the other.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from benchmarks import peer_code
from benchmarks.decode import BLOCK, NEW, Enough, our_steps
from benchmarks.likelihood import SAMPLES
from benchmarks.measure import GIB, Bench, difference, synchronize, timed
from benchmarks.probe import LONG, TOY_LONG, probe_units, prompts_of
from benchmarks.shapes import LLADA, make_model, random_ids
from benchmarks.step import adapted, half, trained
from benchmarks.training_step import ROWS, TOY_ROWS, noised_rows, our_loss
from maskwise.decoding.generate import generate
from maskwise.decoding.likelihood import log_likelihoods
from maskwise.models.base import Model
from maskwise.probes.answers.plain import ask

AT_ONCE = (4, 2, 1)  # tokens a step commits
UNEQUAL = [1000, 968, 1031, 985, 1017, 990, 1008, 1001]
Run = Callable[[list[list[int]], int], Any]  # prompts, tokens a step -> canvases, or whatever the engine returns


@dataclass(frozen=True)
class Engine:
    """A way to decode: the module whose passes are counted, and what runs it."""

    who: str
    cache: str
    net: nn.Module
    run: Run
    block: int = 1  # which is timed
    recorded: bool = False  # what is new costs it far more than what comes again


class Report:
    """Figures as they come, printed and appended to a file."""

    def __init__(self, bench: Bench, peers: Path, out: Path, turns: bool) -> None:
        self.bench, self.peers, self.out, self.turns = bench, peers, out, turns

    def add(self, work: str, who: str, value: float, unit: str, **more: Any) -> None:
        entry = {"work": work, "who": who, "value": value, "unit": unit, **more}
        if self.bench.full:
            entry["peak"] = round(torch.cuda.max_memory_allocated() / GIB, 1)
            torch.cuda.reset_peak_memory_stats()
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        print(entry, flush=True)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """What fails is said and the rest goes on: it is others' code, on other versions than it was made for."""
        try:
            yield
        except Exception as error:
            traceback.print_exc(limit=-4)
            self.add("failed", what, 0.0, f"{type(error).__name__}: {str(error)[:200]}")
            torch.cuda.empty_cache()

    def wait(self) -> None:
        """Until the parts before this one are over: the card is then this one's alone."""
        torch.cuda.empty_cache()
        if self.turns:
            sys.stdin.readline()


def sizes(bench: Bench) -> tuple[int, int, int]:
    """Tokens of a prompt (whole blocks, as dInfer likes them), new tokens, tokens of a block."""
    return (31 * BLOCK, NEW, BLOCK) if bench.full else (24, 24, 8)


def shape_of(model: Model) -> dict[str, Any]:
    return {name: getattr(model.core.config, name) for name in LLADA}


def same_for_all(bench: Bench, toy_layers: int = 2) -> tuple[Model, dict[str, Tensor]]:
    """Our LLaDA and its weights; the mask is never its own best guess, which only some engines exclude."""
    model = make_model(bench, "llada", toy_layers)
    with torch.no_grad():
        model.head_weight[model.mask_id] = 0.0
    return model, dict(model.core.state_dict())


def padded(prompts: list[list[int]], fill: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Padded at the left, as LLaDA's code wants it; no mask where nothing is padded."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[*[fill] * (longest - len(ids)), *ids] for ids in prompts], device=device)
    seen = torch.tensor([[*[0] * (longest - len(ids)), *[1] * len(ids)] for ids in prompts], device=device)
    return ids, None if bool(seen.all()) else seen


def between_passes(bench: Bench, net: nn.Module, run: Callable[[], Any], first: int, last: int) -> float:
    """Seconds from the beginning of pass `first` to that of pass `last`, where the run is stopped."""
    passes, marks = 0, []

    def look(*_: Any) -> None:
        nonlocal passes
        if passes in (first, last):
            synchronize(bench.device)
            marks.append(time.perf_counter())
        passes += 1
        if len(marks) == 2:
            raise Enough

    hook = net.register_forward_pre_hook(look)
    try:
        with suppress(Enough):
            run()
    finally:
        hook.remove()
    assert len(marks) == 2, f"only {passes} passes"
    return marks[1] - marks[0]


def window(bench: Bench, cache: str, at_once: int, batch: int, block: int = 1) -> tuple[int, int]:
    """Which steps are timed: a block with the pass that fills its cache; without a cache all cost the same."""
    steps = sizes(bench)[2] // at_once
    if cache == "none":
        return 1, 1 + (min(steps, 4) if batch > 1 else steps)
    return block * steps, (block + 1) * steps


def time_decoding(
    report: Report, engine: Engine, prompts: list[list[int]], at_onces: tuple[int, ...], note: str = ""
) -> None:
    bench, taken = report.bench, {}
    order = [number for number in at_onces for _ in range(2)] if engine.recorded else [at_onces[0], *at_onces]
    for at_once in order:  # the last of each counts
        first, last = window(bench, engine.cache, at_once, len(prompts), engine.block)
        run = partial(engine.run, prompts, at_once)
        taken[at_once] = between_passes(bench, engine.net, run, first, last) / (last - first)
    for at_once in at_onces:
        report.add("step" + note, engine.who, taken[at_once], "s", batch=len(prompts), cache=engine.cache,
                   at_once=at_once)  # fmt: skip


def time_ours(
    report: Report, model: Model, prompts: list[list[int]], cache: str, at_onces: tuple[int, ...], note: str = ""
) -> None:
    bench, batch = report.bench, len(prompts)
    _, new, block = sizes(bench)
    for number, at_once in enumerate((at_onces[0], *at_onces)):
        first, last = window(bench, cache, at_once, batch)
        taken, _ = our_steps(bench, model, prompts, new, block, "blocks", cache, first, last, at_once)
        if number:
            report.add(
                "step" + note, "maskwise", taken / (last - first), "s", batch=batch, cache=cache, at_once=at_once
            )


def same_tokens(report: Report, model: Model, engine: Engine, prompts: list[list[int]]) -> None:
    """Of toys in float32 even the order of near ties is the same; what differs is said."""
    _, new, block = sizes(report.bench)
    for at_once in AT_ONCE:
        ours = [made.sequence for made in generate(model, prompts, new, new // at_once, block, cache=engine.cache)]
        theirs = engine.run(prompts, at_once)
        pairs = [(a, b) for one, other in zip(ours, theirs.tolist(), strict=True)
                 for a, b in zip(one[-new:], other[-new:], strict=True)]  # fmt: skip
        same = sum(a == b for a, b in pairs) / len(pairs)
        report.add(
            "tokens the same", engine.who, same, "share", cache=engine.cache, at_once=at_once, batch=len(prompts)
        )


@torch.no_grad()
def compare_logits(report: Report, model: Model, who: str, net: Callable[..., Any], **more: Any) -> None:
    """Their logits and ours of one canvas, the mask's own left out."""
    length, new, _ = sizes(report.bench)
    canvas = random_ids([length], model)[0] + [model.mask_id or 0] * new
    theirs = net(torch.tensor([canvas], device=report.bench.device), **more).logits[0].float()
    theirs[:, model.mask_id] = -torch.inf
    ours = model.predict([canvas], [list(range(len(canvas)))])[0]
    report.add("logits: relative difference", who, difference(ours, theirs), "share")


# ---- LLaDA-8B: decoding, likelihood, probe ----


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
    own_net, fast_net, cached_net = (peer_code.llada_net(modelling, shape, weights)
                                     for modelling in (own_modelling, fast_modelling, cached_modelling))  # fmt: skip
    for who, net in (("LLaDA", own_net), ("Fast-dLLM", fast_net), ("dllm", cached_net)):
        compare_logits(report, model, who, net)

    def by_llada(prompts: list[list[int]], n: int) -> Tensor:
        ids, seen = padded(prompts, end, bench.device)
        return own.generate(own_net, ids, seen, steps=new // n, gen_length=new, block_length=block, mask_id=mask)

    def by_fast(loop: Any) -> Run:
        return lambda prompts, n: loop(
            fast_net, torch.tensor(prompts, device=bench.device), steps=new // n, gen_length=new, block_length=block,
            mask_id=mask,
        )[0]  # fmt: skip

    def by_dllm(sampler: Any, **more: Any) -> Run:
        return lambda prompts, n: sampler.sample(
            prompts, steps=new // n, max_new_tokens=new, block_size=block, return_dict=False, **more
        )

    return [
        Engine("LLaDA", "none", own_net, by_llada),
        Engine("dllm", "none", own_net, by_dllm(plain_sampler.MDLMSampler(model=own_net, tokenizer=words))),
        Engine("Fast-dLLM", "prefix", fast_net, by_fast(fast.generate_with_prefix_cache)),
        Engine("Fast-dLLM", "dual", fast_net, by_fast(fast.generate_with_dual_cache)),
        *(Engine("dllm", cache, cached_net, by_dllm(
            cached_sampler.FastdLLMLLaDASampler(model=cached_net, tokenizer=words), use_cache=cache))
          for cache in ("prefix", "dual")),
    ]  # fmt: skip


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
    """Ours at batch 32, to stand beside dInfer's."""
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
            slow = timed(bench.device, lambda p=prompt, a=answer: theirs.get_log_likelihood(  # type: ignore[misc]
                net, p, a, mc_num=SAMPLES, mask_id=model.mask_id), repeats=2)  # fmt: skip
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


# ---- a LoRA step ----


def lora(report: Report) -> None:
    """Masked diffusion loss, adapter of rank 64, AdamW: dllm's trainer's loss on LLaDA's modelling file, and ours."""
    bench = report.bench
    model = adapted(bench, "llada")
    net = with_our_adapter(report, model)
    compare_logits(report, model.eval(), "dllm, with an adapter", net.eval())
    for one in (model, net):
        one.train()
    count, length = ROWS["lora"] if bench.full else TOY_ROWS
    examples = noised_rows(model, count, length)
    if bench.full:
        model.compile_layers()
    our_step = stepping(lambda: our_loss(bench, model, examples), trained(model))
    our_step()
    report.wait()
    report.add("LoRA step", "maskwise", timed(bench.device, our_step, warm=2).seconds, "s")
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    their_step = stepping(dllm_loss(report, model, net, length, count), weights)
    report.add("LoRA step", "dllm", timed(bench.device, their_step, warm=2).seconds, "s")


def stepping(loss: Callable[[], Tensor], weights: Sequence[Tensor]) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(weights, lr=0.0)  # all its work, and the weights stay as they are

    def step() -> None:
        loss().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def with_our_adapter(report: Report, model: Model) -> nn.Module:
    """LLaDA's modelling file under PEFT with the same maps adapted, by the same numbers."""
    _, _, modelling = peer_code.llada(report.peers)
    every = model.net.state_dict()
    base = {name.removeprefix("base_model.model.").replace(".base_layer", ""): value for name, value in every.items()
            if "lora_" not in name}  # fmt: skip
    told: Any = model.net.peft_config["default"]  # type: ignore[index, union-attr]
    net = peer_code.llada_net(modelling, shape_of(model), base).requires_grad_(False)
    adapter = LoraConfig(r=told.r, lora_alpha=told.lora_alpha, lora_dropout=0.0, target_modules=told.target_modules)
    net = get_peft_model(net, adapter)  # type: ignore[arg-type]
    net.load_state_dict({name: value for name, value in every.items() if "lora_" in name}, strict=False)
    return net


def dllm_loss(report: Report, model: Model, net: nn.Module, length: int, count: int) -> Callable[[], Tensor]:
    """Its trainer's loss without the trainer: schedule, weights and norm are its defaults."""
    *_, module = peer_code.dllm(report.peers)
    trainer = object.__new__(module.MDLMTrainer)
    trainer.__dict__.update(
        time_epsilon=1e-3, scheduler=module.LinearAlphaScheduler(), loss_weight_type="scheduler",
        loss_norm_type="token", right_shift_logits=False, meter=SimpleNamespace(update=lambda **_: None),
        processing_class=SimpleNamespace(padding_side="right", mask_token_id=model.mask_id),
    )  # fmt: skip
    ids = torch.tensor(random_ids([length] * count, model), device=report.bench.device)

    def loss() -> Tensor:
        with half(report.bench):
            return trainer.compute_loss(net, {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)})

    return loss


# ---- dInfer ----


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
        net, decoder, caches.BlockIteratorFactory(start_block_align=True), early_stop=False,
        cache_factory=caches.KVCacheFactory(cache),
    )  # fmt: skip

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
    report.wait()
    time_decoding(report, engine, prompts, AT_ONCE if size < 32 else (4, 1))


# ---- LLaDA2: diffusers' pipeline ----


def llada2(report: Report) -> None:
    """diffusers' pipeline on LLaDA2's modelling file (a copy that dllm carries), which has no cache there; and ours."""
    bench = report.bench
    report.wait()
    model = make_model(bench, "llada2")
    net = llada2_net(report, model)
    with report.attempt("LLaDA2's logits"):
        compare_llada2(report, model, net)
    engine = diffusers_engine(report, model, net)
    prompts = random_ids([32 * sizes(bench)[2]] * (8 if bench.full else 2), model)
    for size in (1, len(prompts)):
        for cache in ("none", "dual"):
            with report.attempt(f"ours, LLaDA2, {cache}"):
                time_ours(report, model, prompts[:size], cache, (4, 1), ", LLaDA2-mini")
        with report.attempt(f"diffusers, batch {size}"):
            time_decoding(report, engine, prompts[:size], (4, 1), ", LLaDA2-mini")


def llada2_net(report: Report, model: Model) -> nn.Module:
    modelling, configuration = peer_code.dllm_llada2(report.peers)
    ours = model.core.config
    told = {name: getattr(ours, name) for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "partial_rotary_factor", "moe_intermediate_size",
        "num_experts", "num_experts_per_tok", "num_shared_experts", "n_group", "topk_group", "routed_scaling_factor",
        "first_k_dense_replace", "rms_norm_eps")}  # fmt: skip
    config = configuration.LLaDA2MoeConfig(
        **told, rope_theta=ours.rope_parameters["rope_theta"], use_qkv_bias=False, use_bias=False, use_qk_norm=True,
        embedding_dropout=0.0, attention_dropout=0.0, output_dropout=0.0, use_cache=False, pad_token_id=None,
        score_function="sigmoid", moe_router_enable_expert_bias=True, router_dtype="fp32", norm_topk_prob=True,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    modelling.LLaDA2MoeModelLM._tied_weights_keys = None
    with torch.device("meta"):
        net = modelling.LLaDA2MoeModelLM(config)
    net.load_state_dict(dict(model.core.state_dict()), assign=True)
    net.model.rotary_emb = modelling.LLaDA2MoeRotaryEmbedding(config=config).to(report.bench.device)
    return net.eval()


@torch.no_grad()
def compare_llada2(report: Report, model: Model, net: nn.Module) -> None:
    """Over blocks, by a mask that the pipeline does not pass."""
    block = model.core.config.block_size
    (ids,) = random_ids([4 * block], model)
    place = torch.arange(len(ids), device=report.bench.device) // block
    hidden = (place[:, None] < place)[None, None]
    bias = torch.zeros(hidden.shape, device=hidden.device, dtype=model.dtype).masked_fill(
        hidden, torch.finfo(model.dtype).min
    )
    theirs = net(torch.tensor([ids], device=hidden.device), attention_mask=bias).logits[0].float()
    theirs[:, model.mask_id] = -torch.inf
    report.add("logits: relative difference", "LLaDA2 (dllm's copy)",
               difference(model.predict([ids], [list(range(len(ids)))])[0], theirs), "share")  # fmt: skip


def diffusers_engine(report: Report, model: Model, net: nn.Module) -> Engine:
    pipeline, scheduling = peer_code.diffusers(report.peers)
    _, new, block = sizes(report.bench)
    pipe = pipeline.LLaDA2Pipeline(model=net, scheduler=scheduling.BlockRefinementScheduler(block_length=block))
    pipe._progress_bar_config = {"disable": True}

    def run(prompts: list[list[int]], n: int) -> Tensor:
        # A threshold above one commits by the schedule.
        return pipe(
            input_ids=torch.tensor(prompts, device=report.bench.device), gen_length=new, block_length=block,
            num_inference_steps=block // n, threshold=2.0, editing_threshold=None, sampling_method="greedy",
            eos_early_stop=False, mask_token_id=model.mask_id, output_type="seq",
        ).sequences  # fmt: skip

    return Engine("diffusers", "none", net, run)


PARTS: dict[str, Callable[[Report], None]] = {
    "llada": all_of_llada,
    "dinfer-1": partial(dinfer, size=1),
    "dinfer-8": partial(dinfer, size=8),
    "lora": lora,
    "llada2": llada2,
    "llada-32": many_prompts,
    "dinfer-32": partial(dinfer, size=32),
}


def main() -> int:
    options = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__.splitlines()[0])
    options.add_argument("--peers", type=Path, required=True, help="the folder of checkouts")
    options.add_argument("--out", type=Path, required=True, help="figures, a JSON object a line")
    options.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}, separated by commas")
    options.add_argument("--limit", type=float, default=900.0, help="seconds after which what is there is shown")
    options.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    parts = given.parts.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        options.error(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    if given.turns:
        cuda = torch.cuda.is_available()
        report = Report(Bench(torch.device("cuda" if cuda else "cpu"), cuda, 1.0), given.peers, given.out, turns=True)
        peer_code.put_back()
        with report.attempt(f"part {parts[0]}"):
            PARTS[parts[0]](report)
        return 0
    given.out.unlink(missing_ok=True)
    apart(parts, given)
    show([json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines()])
    return 0


def apart(parts: list[str], given: argparse.Namespace) -> None:
    """All start at once, as compiling is most of it; each is told when its turn has come to measure."""
    deadline = time.monotonic() + given.limit
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers",
        "--peers",
        given.peers,
        "--out",
        given.out,
        "--turns",
        "--parts",
    ]
    few = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "4"}
    at_once = torch.cuda.is_available()
    waiting = [subprocess.Popen([*command, part], stdin=subprocess.PIPE, env=few) for part in parts if at_once]
    for number, part in enumerate(parts):
        process = waiting[number] if at_once else subprocess.Popen([*command, part], stdin=subprocess.PIPE, env=few)
        print(f"{part}, {given.limit - deadline + time.monotonic():.0f} s", flush=True)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(b"go\n", timeout=max(deadline - time.monotonic(), 0.1))
        process.kill()


def show(found: list[dict[str, Any]]) -> None:
    """A row for each kind of work, a column for each engine; steps in milliseconds."""
    names = list(dict.fromkeys(entry["who"] for entry in found if entry["work"] != "failed"))
    rows: dict[str, dict[str, str]] = {}
    for entry in (entry for entry in found if entry["work"] != "failed"):
        details = [f"{name.replace('at_once', 'tokens')} {entry[name]}" for name in ("batch", "cache", "at_once")
                   if name in entry]  # fmt: skip
        seconds = entry["unit"] == "s"
        value = f"{entry['value'] * 1e3:.4g}" if seconds else f"{entry['value']:.4g}"
        row = ", ".join([entry["work"], *details, "ms" if seconds else entry["unit"]])
        rows.setdefault(row, {})[entry["who"]] = value
    for row, cells in rows.items():
        print(f"{row}: " + ", ".join(f"{name} {cells[name]}" for name in names if name in cells))
    for entry in found:
        if entry["work"] == "failed":
            print(f"failed: {entry['who']}: {entry['unit']}")


if __name__ == "__main__":
    sys.exit(main())
