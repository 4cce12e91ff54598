"""The model families, described without weights. Imports neither torch nor transformers.

To add a family, write its classes in a file of its own and add one `Family` to FAMILIES. A family outside this package
is passed to `mw.open` the same way: mw.open(folder, families=(*FAMILIES, mine)).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from maskwise.models.families import shapes

NATIVE_BODY = "maskwise.models.forward:native_body"
MASKED_DIFFUSION = "LLaDA, iLLaDA, LLaDA-MoE and Dream models"  # whose attention is bidirectional; for messages


@dataclass(frozen=True)
class Published:
    """A checkpoint on the Hugging Face hub or in a Python package, so that it can be listed before it is there."""

    name: str
    parameters: int
    context_length: int
    settings: Mapping[str, Any] = field(default_factory=dict)  # of config.json, where not the class's defaults
    lora_targets: str | None = None  # where the family states none


@dataclass(frozen=True)
class Family:
    """One model family. Classes and functions are named by import path, "module:name", and imported when needed.

    shift and mask_id are defaults: `shift` and `mask_token_id` of a checkpoint's config.json come first. So does its
    context length, which is the configuration's `max_position_embeddings`, stored as `length_field`.
    """

    name: str  # Model.kind
    title: str  # as reports print it
    reference: str = ""  # authors, title, arXiv number
    architecture: str | None = None  # the class config.json names; None: no class of its own
    checked: str = ""  # what our class was compared with (docs/studies/model-parity.md)
    net_class: str | None = None
    config_class: str | None = None
    body: str = NATIVE_BODY  # the function that computes hidden states (forward.py)
    shift: bool = False  # the logits of position i come from hidden state i - 1
    causal: bool = False
    default_block: int | None = None  # of block diffusion: the block size where config.json has no `block_field`
    block_field: str = "block_size"
    experts: bool = False  # its layers have experts, of which each token goes through few
    mask_id: int | None = None  # used where neither config.json nor the tokenizer has one
    length_field: str = "max_position_embeddings"
    # (configured, trained): checkpoints that state the first context length were trained on the second, shorter one.
    trained_length: tuple[int, int] | None = None
    lora_targets: str | None = None  # a regular expression; None: the linear maps of the layers, found in the network
    layers_compile: bool = False  # torch.compile of the layers pays on long work
    cuda_graphs: bool = True  # passes can be recorded, unless a module says that it waits for the device
    attention_readable: bool = True
    framed: bool = False  # its inputs stand between special tokens, [CLS] text [SEP] (padded.py)
    canvas_cache: bool = True  # keys and values of a generation canvas can be kept between passes
    published: tuple[Published, ...] = ()

    @property
    def blockwise(self) -> bool:
        """True for block diffusion: a token sees no block after its own."""
        return self.default_block is not None

    @property
    def works(self) -> str:
        """The commands that work with its models, in a few words."""
        if self.causal:
            return "diagnose, generate, score, compare; convert turns Llama and Qwen2 into masked models"
        if self.blockwise:
            return "diagnose within blocks, generate, score, compare, advise, train; no tune"
        return "all commands" if self.canvas_cache else "all commands but verify, without canvas caches"

    @property
    def native(self) -> bool:
        """True if it has a class of its own, which config.json names."""
        return self.architecture is not None

    def trained_context_length(self, configured: int) -> int | None:
        """The context length of training, where it is shorter than the configured one."""
        if self.trained_length is None or self.trained_length[0] != configured:
            return None
        return self.trained_length[1]


def _ours(classes: str, **described: Any) -> Family:
    """A family of our own classes. classes: their module in this folder, the network's and the configuration's name."""
    module, net_class, config_class = classes.split()
    known: Any = {"architecture": net_class, "layers_compile": True, "net_class": f"{__name__}.{module}:{net_class}"}
    return Family(**(known | {"config_class": f"{__name__}.{module}:{config_class}"} | described))


LLADA = _ours(
    "llada LLaDAModelLM LLaDAConfig",
    name="llada",
    title="masked diffusion (LLaDA)",
    reference="Nie et al., Large Language Diffusion Models, arXiv 2502.09992",
    checked="all 291 weight names of LLaDA-8B; logits of the original code at a small shape: equal",
    mask_id=126336,
    length_field="max_sequence_length",
    lora_targets=shapes.LLADA_MAPS,
    published=(
        Published("GSAI-ML/LLaDA-8B-Base", 8015581184, 4096, {"mlp_hidden_size": 12288}),
        Published("GSAI-ML/LLaDA-8B-Instruct", 8015581184, 4096, {"mlp_hidden_size": 12288}),
        Published("GSAI-ML/LLaDA-1.5", 8015581184, 4096, {"mlp_hidden_size": 12288}),
    ),
)
ILLADA = _ours(
    "illada ILLaDAForCausalLM ILLaDAConfig",
    name="illada",
    title="masked diffusion (iLLaDA)",
    reference="Nie et al., Improved Large Language Diffusion Models, arXiv 2606.25331",
    checked="logits and weight names of the original code at a small shape: equal; no weight index at hand",
    mask_id=5,
    lora_targets=shapes.LLAMA_MAPS,
    published=(
        Published("GSAI-ML/iLLaDA-8B-Base", 7615025152, 8192),
        Published("GSAI-ML/iLLaDA-8B-Instruct", 7615025152, 8192),
    ),
)
DREAM = _ours(
    "dream DreamModel DreamConfig",
    name="dream",
    title="masked diffusion (Dream)",
    reference="Ye et al., Dream 7B: Diffusion Large Language Models, arXiv 2508.15487",
    checked="all 339 weight names of Dream-7B; logits of the original code at a small shape: equal",
    shift=True,
    mask_id=151666,
    trained_length=(131072, 2048),
    lora_targets=shapes.LLAMA_MAPS,
    published=tuple(Published(name, 7615616512, 131072, {"num_key_value_heads": 4}) for name in shapes.DREAMS_OF_7B),
)
LLADA_MOE = _ours(
    "llada_moe LLaDAMoEModelLM LLaDAMoEConfig",
    name="llada-moe",
    title="masked diffusion (LLaDA-MoE)",
    reference="Zhu et al., LLaDA-MoE: A Sparse MoE Diffusion Language Model, arXiv 2509.24389",
    checked="weight names of the original code; its logits at a small shape: within 7.8e-5; no weight index at hand",
    experts=True,
    mask_id=156895,
    lora_targets=shapes.ATTENTION_MAPS,  # experts are left out: hundreds of maps per layer, each seen by few tokens
    published=(
        Published("inclusionAI/LLaDA-MoE-7B-A1B-Base", 7356880896, 8192),
        Published("inclusionAI/LLaDA-MoE-7B-A1B-Instruct", 7356880896, 8192),
    ),
)
LLADA2 = _ours(
    "llada2 LLaDA2MoeModelLM LLaDA2Config",
    name="llada2",
    title="block diffusion (LLaDA2)",
    reference="Bie et al., LLaDA2.0: Scaling Up Diffusion Language Models to 100B, arXiv 2512.15745",
    default_block=32,
    checked="logits and weight names of the original code (2.0, 2.1) at a small shape: equal; no weight index at hand",
    experts=True,
    mask_id=156895,
    lora_targets=shapes.LLADA2_MAPS,
    published=(
        Published("inclusionAI/LLaDA2.0-mini", 16255638528, 32768),
        Published("inclusionAI/LLaDA2.0-mini-CAP", 16255638528, 32768),
        Published("inclusionAI/LLaDA2.1-mini", 16255638528, 32768),
        Published("inclusionAI/LLaDA2.0-flash", 102889697280, 32768, shapes.LLADA2_FLASH),
        Published("inclusionAI/LLaDA2.0-flash-CAP", 102889697280, 32768, shapes.LLADA2_FLASH),
        Published("inclusionAI/LLaDA2.1-flash", 102889697280, 32768, shapes.LLADA2_FLASH),
    ),
)
SDAR = _ours(
    "sdar SDARForCausalLM SDARConfig",
    name="sdar",
    title="block diffusion (SDAR)",
    reference="Cheng et al., SDAR: A Synergistic Diffusion-AutoRegression Paradigm, arXiv 2510.06303",
    default_block=4,
    checked="all 399 weight names of SDAR-4B and -8B; logits of the original code at a small shape: within 8.6e-6",
    mask_id=151669,
    lora_targets=shapes.LLAMA_MAPS,
    published=(
        Published("JetLM/SDAR-1.7B-Chat", 1720574976, 32768, shapes.SDAR_1_7B),
        Published("JetLM/SDAR-4B-Chat", 4411424256, 32768, shapes.SDAR_4B),
        Published("JetLM/SDAR-8B-Chat", 8190735360, 32768),
        Published("JetLM/SDAR-1.7B-Chat-b8", 1720574976, 32768, shapes.SDAR_1_7B | {"block_size": 8}),
        Published("JetLM/SDAR-1.7B-Chat-b64", 1720574976, 32768, shapes.SDAR_1_7B | {"block_size": 64}),
        Published("JetLM/SDAR-4B-Chat-b64", 4411424256, 32768, shapes.SDAR_4B | {"block_size": 64}),
        Published("JetLM/SDAR-8B-Chat-b64", 8190735360, 32768, {"block_size": 64}),
    ),
)
SDAR_MOE = _ours(
    "sdar SDARMoeForCausalLM SDARMoeConfig",
    name="sdar-moe",
    title="block diffusion (SDAR with experts)",
    reference=SDAR.reference,
    default_block=4,
    checked="logits and weight names of transformers' Qwen3-MoE over blocks: equal; neither code nor index at hand",
    experts=True,
    mask_id=151669,
    lora_targets=shapes.ATTENTION_MAPS,
    published=tuple(Published(f"JetLM/SDAR-30B-A3B-{one}", 30532122624, 32768) for one in ("Chat", "Sci", "Sci-Base")),
)
FAST_DLLM = _ours(
    "fast_dllm Fast_dLLM_QwenForCausalLM FastDLLMConfig",
    name="fast-dllm",
    title="block diffusion (Fast-dLLM v2)",
    reference="Wu et al., Fast-dLLM v2: Efficient Block-Diffusion LLM, arXiv 2509.26328",
    default_block=32,
    block_field="bd_size",
    checked="all 339 weight names of the 7B; logits of the original code at a small shape: equal",
    shift=True,
    mask_id=151665,
    lora_targets=shapes.LLAMA_MAPS,
    published=(
        Published("Efficient-Large-Model/Fast_dLLM_v2_1.5B", 1543714304, 32768, shapes.FAST_1_5B),
        Published("Efficient-Large-Model/Fast_dLLM_v2_7B", 7615616512, 32768, {"num_key_value_heads": 4}),
    ),
)
_auto_class = partial(  # families that transformers' Auto classes open
    Family,
    checked="logits of transformers' own class, at every opening",
    config_class="transformers:AutoConfig",
    canvas_cache=False,
)
_llama = partial(Published, lora_targets=shapes.LLAMA_MAPS)
AUTOREGRESSIVE = _auto_class(
    name="ar",
    title="autoregressive",
    net_class="transformers:AutoModelForCausalLM",
    body="maskwise.models.forward:causal_body",
    shift=True,
    causal=True,
    published=(
        _llama("meta-llama/Meta-Llama-3-8B", 8030261248, 8192, shapes.LLAMA3_8B),
        _llama("meta-llama/Meta-Llama-3-8B-Instruct", 8030261248, 8192, shapes.LLAMA3_8B),
        _llama("Qwen/Qwen2.5-7B", 7615616512, 131072, shapes.QWEN25_7B | {"max_position_embeddings": 131072}),
        _llama("Qwen/Qwen2.5-7B-Instruct", 7615616512, 32768, shapes.QWEN25_7B | {"max_position_embeddings": 32768}),
        _llama("smollm2", 134515008, 8192, shapes.SMOLLM2),
    ),
)
MASKED_LM = _auto_class(
    name="masked-lm",
    title="masked language model",
    net_class="transformers:AutoModelForMaskedLM",
    body="maskwise.models.families.padded:PaddedBody",
    framed=True,
    cuda_graphs=False,
    attention_readable=False,
    published=(
        Published("google-bert/bert-base-uncased", 109514298, 510, shapes.BERT_BASE, shapes.BERT_MAPS),
        Published("FacebookAI/roberta-base", 124697433, 510, shapes.ROBERTA_BASE, shapes.ROBERTA_MAPS),
        Published("answerdotai/ModernBERT-base", 149655232, 8190, shapes.MODERNBERT_BASE, shapes.MODERNBERT_MAPS),
    ),
)
WRAPPED = Family(  # any other transformers model, handed to `mw.wrap` by the user
    name="wrapped",
    title="wrapped transformers model",
    body="maskwise.models.families.padded:PaddedBody",
    cuda_graphs=False,  # an unknown model may wait for the device
    attention_readable=False,
    canvas_cache=False,
)

OUR_FAMILIES = (LLADA, ILLADA, DREAM, LLADA_MOE, LLADA2, SDAR, SDAR_MOE, FAST_DLLM)
FAMILIES = (*OUR_FAMILIES, AUTOREGRESSIVE, MASKED_LM, WRAPPED)
PUBLISHED = {known.name: family for family in FAMILIES for known in family.published}


def family_of_architecture(architecture: str, families: tuple[Family, ...] = FAMILIES) -> Family | None:
    """The family whose class config.json names, or None."""
    return next((family for family in families if family.architecture == architecture), None)


def family_of_class(net_class: type, families: tuple[Family, ...] = FAMILIES) -> Family | None:
    """The family of a network's class or of the nearest class it inherits from, or None."""
    by_path = {family.net_class: family for family in families}
    for base in net_class.__mro__:
        path = f"{base.__module__}:{base.__qualname__}"
        if path in by_path:
            return by_path[path]
    return None
