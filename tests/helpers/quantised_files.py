"""Checkpoints in the published 4-bit layouts of GPTQ and AWQ, written by hand, and the same numbers as plain weights.

Both hold a weight [out, in] transposed, in groups of GROUP inputs: (number - zero) * scale, eight numbers of 4 bits in
an int32. GPTQ (v1) packs the inputs in order, and its zeros less 1; AWQ (gemm) packs the outputs in the order of its
kernel, and its zeros as they are.
"""

import json

import torch
from safetensors.torch import load_file, save_file

GROUP = 32
IN_ORDER, KERNEL_ORDER = (0, 1, 2, 3, 4, 5, 6, 7), (0, 2, 4, 6, 1, 3, 5, 7)
CONFIGS = {
    "gptq": {"quant_method": "gptq", "checkpoint_format": "gptq", "sym": False, "desc_act": False},
    "awq": {"quant_method": "awq", "version": "gemm", "zero_point": True},
}


def packed(numbers, order):
    """[n, m] of 0 to 15 -> int32 [n, m / 8]: bits 4 k of an entry hold number order[k] of its eight."""
    eight = numbers.long().view(len(numbers), -1, 8)[..., list(order)]
    bits = (eight << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(bits >= 2**31, bits - 2**32, bits).int()


def rounded(weight):
    """[out, in] -> numbers [in, out] and zeros [groups, out] of 0 to 15, scales [groups, out] in float16."""
    groups = weight.float().T.reshape(-1, GROUP, len(weight))
    low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-6).half()
    zeros = (-low / scales.float()).round().clamp(0, 15)
    numbers = (groups / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15)
    return numbers.reshape(-1, len(weight)), zeros, scales


def restored(numbers, zeros, scales):
    """-> [out, in] in float32, what the numbers stand for."""
    groups = numbers.view(-1, GROUP, numbers.shape[1])
    return ((groups - zeros[:, None]) * scales.float()[:, None]).reshape(numbers.shape).T.contiguous()


def tensors_of(method, numbers, zeros, scales):
    """The tensors that stand for a weight, by the ends of their names."""
    if method == "awq":
        return {"qweight": packed(numbers, KERNEL_ORDER), "qzeros": packed(zeros, KERNEL_ORDER), "scales": scales}
    # No number is below 0: a zero of 0 is stored as 15, and the sum of both wraps around.
    stored = {"qweight": packed(numbers.T, IN_ORDER).T.contiguous(), "qzeros": packed((zeros - 1) % 16, IN_ORDER)}
    return stored | {"scales": scales, "g_idx": torch.arange(len(numbers), dtype=torch.int32) // GROUP}


def quantise(source, method, folder, whole):
    """Writes the checkpoint `source` in 4 bits to `folder`, and what these stand for in float32 to `whole`.

    Quantised are the maps within the layers, as the packages do.
    """
    few, many = {}, {}
    for name, weight in load_file(source / "model.safetensors").items():
        if weight.dim() == 2 and (".layers." in name or ".blocks." in name):
            found = rounded(weight)
            many[name] = restored(*found)
            few |= {f"{name.removesuffix('weight')}{end}": one for end, one in tensors_of(method, *found).items()}
        else:
            few[name] = many[name] = weight.float()
    config = json.loads((source / "config.json").read_text()) | {"dtype": "float32"}
    bits = {"quantization_config": CONFIGS[method] | {"bits": 4, "group_size": GROUP}}
    for target, tensors, more in ((folder, few, bits), (whole, many, {})):
        target.mkdir(parents=True)
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
        (target / "config.json").write_text(json.dumps(config | more))
