"""DiffusionGemma through the model interface against transformers' own class, with random weights.

    python -m benchmarks.random_canvas        # on a CPU: a small shape; on CUDA: the shape of the 26B checkpoint

Each row compares log-probabilities at the first canvas position of four prompts, averaged over the draws of the noise:
our batch, and the class's own batch, against the class on each prompt alone. On a CPU a row compares the class in bf16
with itself in float32: what rounding alone does to random routers.
"""

import copy
import math
import time
from typing import Any

import torch
from torch import Tensor
from transformers.models.diffusion_gemma import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

import maskwise as mw
from maskwise.models.families import NOISE_DRAWS
from maskwise.models.families.diffusion_gemma import noise
from maskwise.models.families.shapes import DIFFUSION_GEMMA_26B
from maskwise.models.model import Model

PROMPTS, CANVAS = 4, 16
LAYERS = (["sliding_attention"] * 5 + ["full_attention"]) * 2
SMALL_TEXT = {
    "vocab_size": 2048,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 12,
    "head_dim": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "global_head_dim": 16,
    "num_experts": 64,
    "top_k_experts": 8,
    "moe_intermediate_size": 16,
    "sliding_window": 16,
    "layer_types": LAYERS,
    "max_position_embeddings": 2048,
}
SMALL_VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "position_embedding_size": 16,
}
SMALL = {"text_config": SMALL_TEXT, "vision_config": SMALL_VISION}


def make_net(shape: dict[str, Any], dtype: torch.dtype, device: str) -> DiffusionGemmaForBlockDiffusion:
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with torch.device(device):
        net = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**shape)).eval()
    torch.set_default_dtype(torch.float32)
    if shape is SMALL:  # its initialisation is so small that all predictions are alike
        for parameter in net.parameters():
            parameter.data.normal_(std=0.2 if parameter.dim() > 1 else 0.5).copy_(parameter.data.bfloat16())
    return net


@torch.no_grad()
def own(model: Model, prompts: list[list[int]]) -> Tensor:
    """Of transformers' class, with these prompts in one batch: [S, V]."""
    given = torch.tensor(prompts, device=model.device)
    found = []
    for draw in range(NOISE_DRAWS):
        canvases = torch.stack([noise(prompt, CANVAS, model.vocab, NOISE_DRAWS)[draw] for prompt in prompts])
        logits = model.net(input_ids=given, decoder_input_ids=canvases.to(model.device)).logits  # type: ignore[operator]
        found.append(logits[:, 0].float().log_softmax(-1).cpu())
    return torch.stack(found).logsumexp(0) - math.log(NOISE_DRAWS)


def distance(ours: Tensor, theirs: Tensor) -> str:
    same = int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    return f"{float((ours - theirs).abs().max()):.2g} nats, {same} of {len(ours)} top tokens"


def compare(model: Model, prompts: list[list[int]]) -> Tensor:
    """Prints the rows of one model; returns what the class says of each prompt alone."""
    sequences = [[*prompt, *[model.mask_id] * CANVAS] for prompt in prompts]
    rows = [[len(prompt)] for prompt in prompts]
    model.predict(sequences, rows)
    start = time.perf_counter()
    ours = torch.cat(model.predict(sequences, rows)).log_softmax(-1)
    seconds = time.perf_counter() - start
    alone = torch.cat([own(model, [prompt]) for prompt in prompts])
    cuda = model.device.type == "cuda"
    peak = f" | peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if cuda else ""
    print(f"{model.dtype} | our batch | {distance(ours, alone)} | {seconds:.3f} s a pass{peak}", flush=True)
    print(f"{model.dtype} | the class's batch | {distance(own(model, prompts), alone)}", flush=True)
    return alone


def main() -> None:
    cuda = torch.cuda.is_available()
    shape, device, length = (DIFFUSION_GEMMA_26B, "cuda", 500) if cuda else (SMALL, "cpu", 40)
    chance = torch.Generator().manual_seed(0)
    prompts = [torch.randint(5, 2000, (length,), generator=chance).tolist() for _ in range(PROMPTS)]
    if not cuda:
        net = make_net(shape, torch.float32, device)
        exact = compare(mw.wrap(net), prompts)
        rounded = compare(mw.wrap(copy.deepcopy(net).bfloat16()), prompts)
        print(f"class in bf16 against float32 | {distance(rounded, exact)}")
        return
    compare(mw.wrap(make_net(shape, torch.bfloat16, device)), prompts)  # float32 does not fit while the class is built


if __name__ == "__main__":
    main()
