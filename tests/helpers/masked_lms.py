"""Random small masked language models of transformers, with a tokenizer that writes [CLS] and [SEP]."""

import torch
import transformers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from maskwise.models.checkpoints.locations import locate_checkpoint

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
MORE = {
    "Bert": {},
    "Roberta": {},
    "ModernBert": {"local_attention": 8, "cls_token_id": 3, "sep_token_id": 4, "bos_token_id": 3, "eos_token_id": 4},
    "Albert": {"embedding_size": 16},
    "Electra": {"embedding_size": 16},
    "Esm": {"pad_token_id": 0, "mask_token_id": 1, "position_embedding_type": "rotary", "token_dropout": True},
}


def framing_tokenizer() -> PreTrainedTokenizerFast:
    """tiny-llada's tokenizer, which puts [CLS] before every text and [SEP] after it."""
    file = locate_checkpoint("tiny-llada")[0] / "tokenizer.json"
    file = file if file.exists() else next(file.parent.parent.rglob("tokenizer.json"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(file), mask_token="<|mask|>", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    ends = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def masked_lm_net(name: str, positions: int = 512, seed: int = 0) -> PreTrainedModel:
    """BertForMaskedLM and the like. All weights are drawn, biases too, so that nothing is zero by initialisation."""
    config_class = getattr(transformers, f"{name}Config")
    vocab = len(framing_tokenizer())
    config = config_class(
        **({"pad_token_id": 0} | SHAPE | MORE[name]), vocab_size=vocab, max_position_embeddings=positions
    )
    net = getattr(transformers, f"{name}ForMaskedLM")(config).eval()
    draw = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=draw) * (0.2 if parameter.dim() > 1 else 0.5))
    return net


def save_masked_lm(folder, name: str, positions: int = 512):
    masked_lm_net(name, positions).save_pretrained(folder)
    framing_tokenizer().save_pretrained(folder)
    return folder
