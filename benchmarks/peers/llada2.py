"""LLaDA2-mini by diffusers' pipeline and ours."""

import torch
from torch import Tensor, nn

from benchmarks import peer_code
from benchmarks.measure import difference
from benchmarks.peers.harness import Engine, sizes, time_decoding, time_ours
from benchmarks.peers.report import Report
from benchmarks.shapes import make_model, random_ids
from maskwise.models.model import Model


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
    shape = {name: getattr(ours, name) for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "partial_rotary_factor", "moe_intermediate_size",
        "num_experts", "num_experts_per_tok", "num_shared_experts", "n_group", "topk_group", "routed_scaling_factor",
        "first_k_dense_replace", "rms_norm_eps")}  # fmt: skip
    config = configuration.LLaDA2MoeConfig(
        **shape, rope_theta=ours.rope_parameters["rope_theta"], use_qkv_bias=False, use_bias=False, use_qk_norm=True,
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
    report.add(
        "logits: relative difference",
        "LLaDA2 (dllm's copy)",
        difference(model.predict([ids], [list(range(len(ids)))])[0], theirs),
        "share",
    )


def diffusers_engine(report: Report, model: Model, net: nn.Module) -> Engine:
    pipeline, scheduling = peer_code.diffusers(report.peers)
    _, new, block = sizes(report.bench)
    pipe = pipeline.LLaDA2Pipeline(model=net, scheduler=scheduling.BlockRefinementScheduler(block_length=block))
    pipe._progress_bar_config = {"disable": True}

    def run(prompts: list[list[int]], n: int) -> Tensor:
        # A threshold above one commits by the schedule.
        return pipe(
            input_ids=torch.tensor(prompts, device=report.bench.device),
            gen_length=new,
            block_length=block,
            num_inference_steps=block // n,
            threshold=2.0,
            editing_threshold=None,
            sampling_method="greedy",
            eos_early_stop=False,
            mask_token_id=model.mask_id,
            output_type="seq",
        ).sequences

    return Engine("diffusers", "none", net, run)
