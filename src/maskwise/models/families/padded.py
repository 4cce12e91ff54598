"""Other models, through padded calls of their own forward: masked language models (BERT, ESM, ...), wrapped networks.

The forward pass, not the tokenizer, adds a masked language model's special tokens, [CLS] text [SEP], and removes them.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers.processors import Sequence
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from maskwise.models.attention.ragged import Layout, grid_places
from maskwise.models.batch import Batch
from maskwise.models.peft_access import embed_ids
from maskwise.support.errors import UserError


def is_masked_lm(architecture: str) -> bool:
    """True for the classes behind AutoModelForMaskedLM; encoder-decoder models are not among them."""
    return architecture in MODEL_FOR_MASKED_LM_MAPPING_NAMES.values() and not architecture.endswith("Generation")


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens around a sequence, and what the tokenizer had before it stopped writing them."""

    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    post_processor: Any = None
    eos_token: str | None = None

    def __len__(self) -> int:
        return len(self.start) + len(self.end)


def take_frame(tokenizer: Any) -> None:
    """Stops the tokenizer from writing special tokens (`frame_of`): a prompt's [SEP] belongs after its masks."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError("its tokenizer is written in Python: save it as tokenizer.json, which gives character offsets")
    ids = tokenizer("")["input_ids"]
    starts = 1 if ids and ids[0] in (tokenizer.cls_token_id, tokenizer.bos_token_id) else 0
    start, end = tuple(ids[:starts]), tuple(ids[starts:])
    tokenizer.frame = SpecialTokens(start, end, backend.post_processor, tokenizer.eos_token)
    backend.post_processor = Sequence([])
    if tokenizer.eos_token is None:
        tokenizer.eos_token = tokenizer.sep_token


def frame_of(tokenizer: Any) -> SpecialTokens:
    return getattr(tokenizer, "frame", None) or SpecialTokens()


def as_published(tokenizer: Any) -> Any:
    """The tokenizer with its special tokens, as it is saved."""
    if getattr(tokenizer, "frame", None) is None:
        return tokenizer
    published = deepcopy(tokenizer)
    published.backend_tokenizer.post_processor = tokenizer.frame.post_processor or Sequence([])
    published.eos_token = tokenizer.frame.eos_token
    return published


def context_length(net: PreTrainedModel, tokenizer: Any) -> int:
    """The context length: the positions less the special tokens and RoBERTa's offset."""
    positions = getattr(net.config, "max_position_embeddings", None) or 2**31
    offset = 0
    for module in net.modules():  # RoBERTa counts positions from its padding token's number on
        if isinstance(module, nn.Embedding) and module.num_embeddings == positions and module.padding_idx is not None:
            offset = module.padding_idx + 1
    return positions - offset - len(frame_of(tokenizer))


@dataclass(frozen=True)
class PaddedBody:
    """Hidden states of a ragged batch, [T, d]. A sequence that begins with the start token already is taken as it is.
    own_head: the user's head maps the body's last hidden states."""

    frame: SpecialTokens = SpecialTokens()
    own_head: bool = False

    def __call__(self, net: PreTrainedModel, batch: Batch, layout: Layout) -> Tensor:
        name, start, lengths = type(net).__name__, self.frame.start, batch.offsets.diff().long()
        if batch.starts.any():
            raise UserError(f"{name} counts positions from the start of a sequence: they cannot be moved")
        framed = torch.ones_like(lengths, dtype=torch.bool)
        if batch.ids is not None and start:
            framed = batch.ids[batch.offsets[:-1].long()] != start[0]
        width, total = batch.longest + len(self.frame), lengths + framed * len(self.frame)
        ids = lengths.new_full((len(lengths), width), getattr(net.config, "pad_token_id", None) or 0)
        ids[framed, : len(start)] = lengths.new_tensor(start)
        for place, token in enumerate(self.frame.end, start=len(start)):
            ids[framed, (lengths + place)[framed]] = token
        places = grid_places(batch.offsets, width, batch.tokens) + (framed * len(start))[batch.owner]
        if batch.embeds is None:
            assert batch.ids is not None
            given = {"input_ids": ids.flatten().index_copy(0, places, batch.ids).view_as(ids)}
        elif getattr(net.config, "token_dropout", False):
            raise UserError(f"{name} rescales its embeddings by the share of masks in the ids: it takes ids alone")
        else:
            table = embed_ids(net, ids.flatten())
            embeds = table.index_copy(0, places, batch.embeds.to(table.dtype))
            given = {"inputs_embeds": embeds.unflatten(0, ids.shape)}
        given["attention_mask"] = (torch.arange(width, device=ids.device) < total[:, None]).long()
        hidden = net.base_model(**given).last_hidden_state if self.own_head else _before_head(net, given)
        return hidden.flatten(0, 1)[places]


class _HeadReached(Exception):
    """Carries the input of the output embeddings out of the forward pass: no logits are computed."""


def _before_head(net: PreTrainedModel, given: dict[str, Tensor]) -> Tensor:
    """The input of the output embeddings in the class's own forward pass, [S, L, d]."""

    def stop(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise _HeadReached(inputs[0])

    hook = net.get_output_embeddings().register_forward_pre_hook(stop)
    try:
        net(**given)
    except _HeadReached as reached:
        return reached.args[0]
    finally:
        hook.remove()
    raise UserError(f"{type(net).__name__} computes its logits without its output embeddings: pass head=")
