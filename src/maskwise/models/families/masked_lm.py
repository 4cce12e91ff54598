"""Masked language models of transformers (BERT, RoBERTa, ModernBERT, ALBERT, ...), through their own classes.

They differ from diffusion models in three ways, which are handled here:
- their inputs have special tokens around them, [CLS] text [SEP]: the forward pass adds them, not the tokenizer;
- positions may be offset (RoBERTa), and learned positions limit the length: `context_length`;
- their head transforms the hidden states before the output embeddings: `hidden` is what the output embeddings receive.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from maskwise.models.attention.ragged import Layout, Watch, grid_places
from maskwise.models.batch import Batch, owners
from maskwise.models.peft_access import embed_ids
from maskwise.support.errors import UserError


def is_masked_lm(architecture: str) -> bool:
    """True for the classes behind AutoModelForMaskedLM; encoder-decoder models are not among them."""
    return architecture in MODEL_FOR_MASKED_LM_MAPPING_NAMES.values() and not architecture.endswith("Generation")


# Special tokens around a sequence


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens before and after a sequence, and what the tokenizer had before it stopped writing them."""

    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    post_processor: Any = None
    eos_token: str | None = None

    def __len__(self) -> int:
        return len(self.start) + len(self.end)


def take_frame(tokenizer: Any) -> None:
    """Stops the tokenizer from writing special tokens around a text; `frame_of` returns them.

    A prompt is followed by masks, so its [SEP] belongs after those. [SEP] also becomes the end-of-text token where the
    tokenizer has none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError("its tokenizer is written in Python: save it as tokenizer.json, which gives character offsets")
    ids = tokenizer("")["input_ids"]
    starts = 1 if ids and ids[0] in (tokenizer.cls_token_id, tokenizer.bos_token_id) else 0
    tokenizer.frame = SpecialTokens(
        tuple(ids[:starts]), tuple(ids[starts:]), backend.post_processor, tokenizer.eos_token
    )
    _set_post_processor(backend, None)
    if tokenizer.eos_token is None:
        tokenizer.eos_token = tokenizer.sep_token


def _set_post_processor(backend: Any, processor: Any) -> None:
    from tokenizers.processors import Sequence

    backend.post_processor = Sequence([]) if processor is None else processor


def frame_of(tokenizer: Any) -> SpecialTokens:
    return getattr(tokenizer, "frame", None) or SpecialTokens()


@contextmanager
def as_published(tokenizer: Any) -> Iterator[None]:
    """The tokenizer with its special tokens, as it is saved."""
    frame = getattr(tokenizer, "frame", None)
    if frame is None:
        yield
        return
    eos_token = tokenizer.eos_token
    _set_post_processor(tokenizer.backend_tokenizer, frame.post_processor)
    tokenizer.eos_token = frame.eos_token
    try:
        yield
    finally:
        _set_post_processor(tokenizer.backend_tokenizer, None)
        tokenizer.eos_token = eos_token


def context_length(net: PreTrainedModel, tokenizer: Any) -> int:
    """The context length: the positions less the special tokens and RoBERTa's offset."""
    positions = getattr(net.config, "max_position_embeddings", None) or 2**31
    offset = 0
    for module in net.modules():  # RoBERTa counts positions from its padding token's number on
        if isinstance(module, nn.Embedding) and module.num_embeddings == positions and module.padding_idx is not None:
            offset = module.padding_idx + 1
    return positions - offset - len(frame_of(tokenizer))


# The forward pass


class _HeadReached(Exception):
    """Carries the input of the output embeddings out of the forward pass."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


def hidden_before_head(net: PreTrainedModel, **given: Tensor) -> Tensor:
    """The input of the output embeddings in the class's own forward pass, [S, L, d]; no logits are computed."""
    output = net.get_output_embeddings()
    if output is None:
        raise UserError(f"{type(net).__name__} has no output embeddings, so its logits cannot be read row by row")

    def stop(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise _HeadReached(inputs[0])

    hook = output.register_forward_pre_hook(stop)
    try:
        net(**given)
    except _HeadReached as reached:
        return reached.hidden
    finally:
        hook.remove()
    raise UserError(f"{type(net).__name__} computes its logits without its output embeddings: it cannot be read")


@dataclass(frozen=True)
class MaskedLMBody:
    """Hidden states of a ragged batch by a padded call of the class's own forward, special tokens added and removed.
    A sequence that begins with the start token already is taken as it is."""

    frame: SpecialTokens
    padding: int

    @staticmethod
    def of(config: PreTrainedConfig, tokenizer: Any) -> "MaskedLMBody":
        return MaskedLMBody(frame_of(tokenizer), config.pad_token_id or 0)

    def __call__(self, net: PreTrainedModel, batch: Batch, layout: Layout) -> Tensor:
        if batch.moved is not None or batch.starts.any():
            raise UserError(f"{type(net).__name__} counts positions from the start of a sequence: they cannot be moved")
        shift = self._shift(batch)
        grid = self._grid(net, batch, shift)
        width = grid["attention_mask"].shape[1]
        places = grid_places(batch.offsets, width, batch.tokens) + shift[batch.owner]
        if layout.watch is not None:
            layout.watch.seen.extend(_attention(net, grid, layout.watch, batch, shift))
        return hidden_before_head(net, **grid).flatten(0, 1)[places]

    def _shift(self, batch: Batch) -> Tensor:
        """[S] how many special tokens are added before each sequence."""
        added = torch.full_like(batch.starts, len(self.frame.start))
        if batch.ids is None or not self.frame.start:
            return added
        first = batch.ids[batch.offsets[:-1].long()]
        return added.masked_fill(first == self.frame.start[0], 0)

    def _grid(self, net: PreTrainedModel, batch: Batch, shift: Tensor) -> dict[str, Tensor]:
        """Right-padded ids or embeddings [S, L(, d)] with the special tokens, and the attention mask [S, L]."""
        sequences, width = len(batch.offsets) - 1, batch.longest + len(self.frame)
        lengths = batch.offsets.diff().long()
        framed = shift > 0 if self.frame.start else torch.ones_like(shift, dtype=torch.bool)
        ids = torch.full((sequences, width), self.padding, dtype=torch.int64, device=lengths.device)
        for place, token in enumerate(self.frame.start):
            ids[framed, place] = token
        for place, token in enumerate(self.frame.end):
            ids[framed, (lengths + shift + place)[framed]] = token
        total = lengths + framed * len(self.frame)
        seen = (torch.arange(width, device=lengths.device) < total[:, None]).long()
        places = grid_places(batch.offsets, width, batch.tokens) + shift[batch.owner]
        if batch.embeds is None:
            assert batch.ids is not None
            flat = ids.flatten().index_copy(0, places, batch.ids)
            return {"input_ids": flat.view(sequences, width), "attention_mask": seen}
        if getattr(net.config, "token_dropout", False):
            raise UserError(
                f"{type(net).__name__} rescales its embeddings by the share of masks, found in token ids only: "
                "it cannot be given embeddings, so nothing can be attributed to them"
            )
        table = embed_ids(net, ids.flatten())
        embeds = table.index_copy(0, places, batch.embeds.to(table.dtype))
        return {"inputs_embeds": embeds.view(sequences, width, -1), "attention_mask": seen}


@torch.no_grad()
def _attention(
    net: PreTrainedModel, grid: dict[str, Tensor], watch: Watch, batch: Batch, shift: Tensor
) -> list[Tensor]:
    """Attention weights of the watched rows over the tokens of their sequence, [n, heads, longest] per layer.
    The weights of the special tokens around the sequence are left out, so a row sums to less than 1."""
    chosen = net.config._attn_implementation
    net.set_attn_implementation("eager")  # the one that returns its weights
    try:
        layers = net.base_model(**grid, output_attentions=True).attentions
    finally:
        net.set_attn_implementation(chosen)
    if not layers or layers[0] is None:
        raise UserError(f"{type(net).__name__} does not return its attention weights")
    owner = owners(batch.offsets, batch.tokens)[watch.queries]
    row = watch.queries - batch.offsets[:-1].long()[owner] + shift[owner]
    key = torch.arange(batch.longest, device=row.device) + shift[owner][:, None]  # [n, longest]
    exists = torch.arange(batch.longest, device=row.device) < batch.offsets.diff()[owner][:, None]
    width = grid["attention_mask"].shape[1]
    picked = (weights[owner, :, row].float() for weights in layers)  # [n, heads, width] each
    index = key.clamp(max=width - 1)[:, None, :]
    return [weights.gather(2, index.expand(-1, weights.shape[1], -1)) * exists[:, None, :] for weights in picked]
