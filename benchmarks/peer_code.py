"""Other software's own code, imported from a folder of checkouts, as it lies there, on the packages installed here.

A package's `__init__` is not run: it would import all that the package can do. What a file imports and does not need
for the work timed here (parallel ranks, training metrics, pipelines' base classes) is given a stand-in. Of what
transformers 5 took away, the few names that the files ask for are put back.
"""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers.cache_utils
import transformers.modeling_rope_utils
import transformers.modeling_utils
import transformers.pytorch_utils
import transformers.utils
import transformers.utils.import_utils
from torch import Tensor, nn


def load(folder: Path, package: str, module: str, packages: tuple[str, ...] = ()) -> ModuleType:
    """`package.module` of the checkout whose folder for `package` is given; `packages` are those inside it."""
    for name in (package, *(f"{package}.{inner}" for inner in packages)):
        if name not in sys.modules:
            stand_in(name).__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
    return importlib.import_module(f"{package}.{module}")


def stand_in(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = made
    return made


def unused(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("a stand-in that nothing timed here should call")


def put_back() -> None:
    """Names of transformers 4 which the files import or read."""
    stand_in("einops", rearrange=unused)
    stand_in("vllm").__path__ = []
    stand_in(
        "vllm.distributed", get_tensor_model_parallel_rank=lambda: 0, get_tensor_model_parallel_world_size=lambda: 1
    )
    stand_in("transformers.models.layoutlmv2.modeling_layoutlmv2", relative_position_bucket=unused)
    for module, name, value in (
        (transformers.cache_utils, "SlidingWindowCache", object),
        (transformers.utils, "LossKwargs", dict),
        (transformers.pytorch_utils, "is_torch_greater_or_equal_than_1_13", True),
        (transformers.pytorch_utils, "ALL_LAYERNORM_LAYERS", []),
        (transformers.utils.import_utils, "is_torch_fx_available", lambda: False),
    ):
        if not hasattr(module, name):
            setattr(module, name, value)
    # It says that it will go, which cuts a compiled graph in two.
    transformers.PretrainedConfig.use_return_dict = True  # type: ignore[assignment, method-assign]
    transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS.setdefault("default", default_rope)


def default_rope(config: Any, device: torch.device | None = None, seq_len: int | None = None) -> tuple[Tensor, float]:
    size = int((config.head_dim or config.hidden_size // config.num_attention_heads) * config.partial_rotary_factor)
    return 1.0 / config.rope_theta ** (torch.arange(0, size, 2, device=device).float() / size), 1.0


def llada_net(modelling: ModuleType, shape: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Module:
    """A LLaDA of any of the copies of its modelling file, on the very memory of our weights."""
    config_class = next(value for name, value in vars(modelling).items() if name.endswith("LLaDAConfig"))
    config = config_class(
        **shape, embedding_size=shape["vocab_size"], activation_type="silu", block_type="llama", layer_norm_type="rms",
        rms_norm_eps=1e-5, rope=True, rope_theta=500000.0, alibi=False, include_bias=False, include_qkv_bias=False,
        weight_tying=False, attention_dropout=0.0, residual_dropout=0.0, embedding_dropout=0.0, flash_attention=False,
        attention_layer_norm=False, scale_logits=False, input_emb_norm=False, bias_for_layer_norm=False,
        layer_norm_with_affine=True, block_group_size=1, multi_query_attention=None, rope_full_precision=True,
    )  # fmt: skip
    config.use_cache = False  # transformers 5 keeps it elsewhere
    inner = modelling.create_model_config_from_pretrained_config(config)
    inner.init_device = "meta"  # their class would draw eight billion numbers on the host
    body = next(value for name, value in vars(modelling).items() if name.endswith("LLaDAModel"))
    head = next(value for name, value in vars(modelling).items() if name.endswith("LLaDAModelLM"))
    head.all_tied_weights_keys = {}
    net = head(config, model=body(inner, init_params=False))
    net.load_state_dict(dict(weights), assign=True)
    return net.eval()


def llada(folder: Path) -> tuple[ModuleType, ModuleType, ModuleType]:
    """LLaDA's own generate.py and get_log_likelihood.py; its modelling file, which dllm carries."""
    modelling = load(
        folder / "dllm" / "dllm",
        "dllm",
        "pipelines.llada.models.modeling_llada",
        ("pipelines", "pipelines.llada", "pipelines.llada.models"),
    )
    return (
        load(folder / "LLaDA", "llada_own", "generate"),
        load(folder / "LLaDA", "llada_own", "get_log_likelihood"),
        modelling,
    )


def fast_dllm(folder: Path) -> tuple[ModuleType, ModuleType]:
    """generate.py and the modelling file it needs; that file's package is called `model`."""
    modelling = load(folder / "Fast-dLLM" / "llada" / "model", "model", "modeling_llada")
    return load(folder / "Fast-dLLM" / "llada", "fast_dllm", "generate"), modelling


def dllm(folder: Path) -> tuple[ModuleType, ModuleType, ModuleType, ModuleType]:
    """The samplers without and with caches, the modelling file of the second, and the trainer."""
    root = folder / "dllm" / "dllm"
    inner = ("core", "core.samplers", "core.trainers", "pipelines", "pipelines.llada", "pipelines.llada.models",
             "pipelines.fastdllm", "pipelines.fastdllm.llada", "pipelines.fastdllm.llada.models", "utils")  # fmt: skip
    plain = load(root, "dllm", "core.samplers.mdlm", inner)
    stand_in("dllm.utils.configs", TrainingArguments=dataclass(type("TrainingArguments", (), {})))
    stand_in("dllm.utils.data", prepend_bos=unused)
    stand_in("dllm.core.trainers.utils", NLLMetric=unused, PPLMetric=unused, OnEvaluateMetricsCallback=unused)
    return (
        plain,
        load(root, "dllm", "pipelines.fastdllm.llada.sampler"),
        load(root, "dllm", "pipelines.fastdllm.llada.models.modeling_llada"),
        load(root, "dllm", "core.trainers.mdlm"),
    )


def dinfer(folder: Path) -> tuple[ModuleType, ModuleType, ModuleType, ModuleType]:
    """The loop, the choice of tokens, caches and blocks, and the modelling file of LLaDA."""
    root = folder / "dInfer" / "python" / "dinfer"
    loop = load(root, "dinfer", "decoding.generate_uniform", ("decoding", "model"))
    return (
        loop,
        load(root, "dinfer", "decoding.parallel_strategy"),
        load(root, "dinfer", "decoding.utils"),
        load(root, "dinfer", "model.modeling_llada"),
    )
