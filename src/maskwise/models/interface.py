"""The model interface: hidden states of a ragged batch, and logits of chosen rows.

A caller names the position that is predicted. `ModelInterface.locate` alone decides which hidden state the prediction
is read from: its own for LLaDA, the one before for Dream and autoregressive models.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from maskwise.kernels.gate import HALF
from maskwise.models.attention.layouts import layout_of
from maskwise.models.attention.ragged import KeyValues, Layout, Reach, RowGroup, Watch, asking_rows, grouped_parts
from maskwise.models.batch import Batch, Mixture
from maskwise.models.families import MASKED_DIFFUSION, WRAPPED, Family
from maskwise.models.families.layers import MayWait
from maskwise.models.forward import float_product
from maskwise.models.peft_access import embed_ids, execution_devices, stored_weight, without_adapter
from maskwise.support.errors import UserError

Body = Callable[[PreTrainedModel, Batch, Layout], Tensor]


class ModelLock:
    """Re-entrant lock: decoding mutates the model, so threads wait. A copy of the model has a lock of its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *problem: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModelLock":
        return ModelLock()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return ModelLock, ()


class ModelInterface(nn.Module):
    """A network with the calls of the model interface; `Model` (model.py), which `mw.open` returns, is built on it."""

    def __init__(
        self,
        net: nn.Module,
        body: Body,
        *,
        window: int,
        shift: bool,
        causal: bool = False,
        mask_id: int | None = None,
        tokenizer: Any = None,
        head: Callable[[Tensor], Tensor] | None = None,
        name: str = "",
        trained_window: int | None = None,
        family: Family = WRAPPED,
        block: int | None = None,
    ) -> None:
        super().__init__()
        self.net = net
        self.family, self.name, self.tokenizer = family, name, tokenizer
        self.window, self.shift, self.causal, self.mask_id = window, shift, causal, mask_id
        self.trained_window = trained_window
        self.block = block  # size of the blocks after which tokens see nothing; None: as `causal` says
        self._body = body
        self._own_head = head
        self.weights: str | None = None  # fp8, where the layers' maps were quantised (quantise.py)
        self.recordings: Any = None  # kept here by decoding: CUDA graphs of its passes, and their caches
        self.lock = ModelLock()  # held during a forward pass, and during a whole decoding

    def _apply(self, *arguments: Any, **named: Any) -> "ModelInterface":
        """Moves or casts the weights, and drops the CUDA graphs captured with them."""
        self.recordings = None
        return super()._apply(*arguments, **named)

    # What the model is

    @property
    def kind(self) -> str:
        """The name of its family."""
        return self.family.name

    @property
    def attention_readable(self) -> bool:
        """True if attention weights can be read."""
        return self.family.attention_readable

    @property
    def recordable(self) -> bool:
        """True if passes like the last one can be captured as CUDA graphs: no module waits for the device."""
        waits = (module.waits for module in self.core.modules() if isinstance(module, MayWait))
        return not self.spread and self.family.cuda_graphs and not any(waits)

    @property
    def spread(self) -> bool:
        """True if layers are on several devices: such models are not captured, compiled or packed."""
        return len(set(getattr(self.core, "hf_device_map", {}).values())) > 1

    @property
    def core(self) -> PreTrainedModel:
        """The transformers model, without PEFT around it."""
        return without_adapter(self.net)

    @property
    def device(self) -> torch.device:
        return stored_weight(self.core.get_input_embeddings()).device

    @property
    def dtype(self) -> torch.dtype:
        return stored_weight(self.core.get_input_embeddings()).dtype

    @property
    def dtype_name(self) -> str:
        """For example "bfloat16"."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def head_weight(self) -> Tensor:
        """[V, d]. If an adapter trains the mask's row, this holds the base model's: the mask has no logit."""
        return stored_weight(self.core.get_output_embeddings())

    @property
    def _head_bias(self) -> Tensor | None:
        outer = getattr(self.core, "lm_head", None)  # ESM adds its bias after the output embeddings
        bias = getattr(self.core.get_output_embeddings(), "bias", None)
        return getattr(outer, "bias", None) if bias is None else bias

    @property
    def has_own_head(self) -> bool:
        """True if its logits are computed by a function that the user passed to `wrap`."""
        return self._own_head is not None

    @property
    def vocab(self) -> int:
        return self.head_weight.shape[0]

    # Hidden states

    def hidden(self, batch: Batch, cache: KeyValues | None = None) -> Tensor:
        """Final hidden states after the last norm, [T, d]."""
        if batch.mixture is not None:
            batch = self._mixed(batch, batch.mixture)
        with self.lock:
            return self._body(self.core, batch, self._layout(batch, cache))

    def _mixed(self, batch: Batch, mixture: Mixture) -> Batch:
        """The batch as embeddings, with the mixtures in their places; gradients flow to every token's embedding."""
        assert batch.ids is not None
        embeds = self.embed(batch.ids)
        sums = (mixture.shares[..., None] * self.embed(mixture.tokens).float()).sum(dim=-2)
        embeds = embeds.index_copy(0, mixture.places, sums.to(embeds.dtype))
        return replace(batch, embeds=embeds, mixture=None)

    @torch.no_grad()
    def hidden_of_groups(self, batch: Batch, groups: Sequence[RowGroup]) -> Tensor:
        """`hidden` with attention restricted to the keys of each row's group, in every layer. [T, d]"""
        if self.causal or self.block is not None or not self.attention_readable:
            raise UserError(f"attention can be cut in {MASKED_DIFFUSION} only: open a checkpoint of theirs")
        if sum(len(group.rows) for group in groups) != batch.tokens:
            raise ValueError("every row of the batch must be in exactly one group")
        flash = self._has_ragged_kernels(batch)
        whole = batch.offsets, batch.offsets, batch.longest, batch.longest
        layout = Layout(*whole, causal=False, flash=flash, parts=grouped_parts(groups, flash))
        with self.lock, torch.compiler.set_stance("force_eager"):  # or layers are compiled for every number of parts
            return self._body(self.core, batch, layout)

    def embed(self, ids: Tensor) -> Tensor:
        """Input embeddings, [n] -> [n, d]; a batch takes them instead of ids."""
        return embed_ids(self.core, ids)

    def new_cache(self, lengths: Sequence[int]) -> KeyValues:
        """An empty store of keys and values for S canvases of these lengths."""
        if self.causal or not self.family.canvas_cache:
            raise UserError(f"{self.name or self.kind} takes no canvas cache: use cache='none'")
        config, total = self.core.config, sum(lengths)
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (2, config.num_hidden_layers, total, config.num_key_value_heads, head_dim)
        keys, values = torch.zeros(shape, dtype=self.dtype, device=self.device)
        offsets = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        layers = list(zip(keys, values, strict=True))
        if self.spread:  # each store on the device of its layer, which writes into it
            places = execution_devices(self.core)
            layers = [(k.to(place), v.to(place)) for (k, v), place in zip(layers, places, strict=True)]
        return KeyValues(offsets.to(self.device), max(lengths), total, layers)

    def _layout(self, batch: Batch, cache: KeyValues | None, watched: bool = False) -> Layout:
        own_attention = self.causal or not self.family.native
        if batch.block is not None and (own_attention or cache is not None):
            raise UserError(f"attention over blocks is for {MASKED_DIFFUSION}: {self.name} is none of them")
        block = self.block if batch.block is None else batch.block
        return layout_of(batch, cache, block, self.causal, self._has_ragged_kernels(batch), watched)

    def _has_ragged_kernels(self, batch: Batch) -> bool:
        """Not where a caller has turned flash attention off, as torch's `sdpa_kernel(SDPBackend.MATH)` does."""
        return batch.offsets.is_cuda and self.dtype in HALF and torch.backends.cuda.flash_sdp_enabled()

    # Which hidden state predicts which position

    def locate(self, batch: Batch, sequence: Tensor, position: Tensor) -> Tensor:
        """Flat rows of `hidden` from which the predictions of (sequence[i], position[i]) are read. [n], [n] -> [n].
        Or of any shapes that broadcast."""
        source = (position - 1).clamp(min=0) if self.shift else position
        return (batch.offsets[:-1] - batch.starts)[sequence] + source

    @property
    def reach(self) -> Reach:
        """The keys that a row may see in any batch: all, those up to its block, or those up to itself."""
        return Reach(1 if self.causal else self.block)

    def seen_by(self, row: int, length: int) -> int:
        """The number of the first `length` positions that the prediction of position `row`, a mask, depends on."""
        return self.reach.end(self.first_row(row), length)

    def first_row(self, start: int) -> int:
        """The first position a span must contain for the predictions from `start` on to be readable."""
        return max(start - 1, 0) if self.shift else start

    def first_computed(self, start: int) -> int:
        """The first position to compute if tokens from `start` on have changed and earlier keys and values are cached.
        That is the start of its block, or the row that predicts `start`, if that is earlier."""
        first = self.first_row(start)
        return first if self.block is None else min(first, start // self.block * self.block)

    def flat_rows(self, batch: Batch, rows: Sequence[Sequence[int]]) -> Tensor:
        """`locate` for host lists, one list of positions a sequence, checked."""
        if len(rows) != len(batch.offsets) - 1:
            raise UserError(f"{len(batch.offsets) - 1} sequences but {len(rows)} lists of rows: give one list each")
        lengths, starts = batch.offsets.diff().tolist(), batch.starts.tolist()
        for length, start, asked in zip(lengths, starts, rows, strict=True):
            self._check_rows(start, start + length, asked)
        return self.locate_all(batch, [torch.tensor(asked, dtype=torch.int64) for asked in rows])

    def locate_all(self, batch: Batch, rows: Sequence[Tensor]) -> Tensor:
        """`locate` for one tensor of positions a sequence, on the host, without waiting for the device."""
        # A list, because torch spreads the repeating of few numbers over all cores, which takes milliseconds.
        owner = [number for number, asked in enumerate(rows) for _ in range(len(asked))]
        sequence, device = torch.tensor(owner, dtype=torch.int64), batch.offsets.device
        return self.locate(batch, sequence.to(device), torch.cat(list(rows)).to(device))

    def _check_rows(self, start: int, stop: int, asked: Sequence[int]) -> None:
        last = stop if self.shift else stop - 1
        for row in asked:
            if self.causal and row == 0:
                raise UserError("row 0 of a causal model has nothing before it: ask for rows from 1 on")
            if not start <= row <= last or (row == start > 0 and self.shift):
                raise UserError(f"row {row} is outside {start}..{last}: a sequence of {stop} tokens has no such row")

    # Logits

    def head(self, rows: Tensor) -> Tensor:
        """Float32 logits of hidden rows, the mask token's at minus infinity. [n, d] -> [n, V]."""
        if self._own_head is not None:
            logits = self._own_head(rows).float()
        else:
            logits = float_product(rows, self.head_weight)
            logits = logits if self._head_bias is None else logits + self._head_bias.float()
        if self.mask_id is None:
            return logits
        if logits.requires_grad:
            forbidden = torch.full((1,), self.mask_id, device=logits.device)  # filled there: no copy from the host
            return logits.index_fill(1, forbidden, float("-inf"))
        logits.select(1, self.mask_id).fill_(float("-inf"))
        return logits

    def forward(self, batch: Batch, index: Tensor, loss: Callable[[Tensor, Tensor], Any] | None = None) -> Any:
        """Everything trained runs in here, so that DDP, FSDP2 and checkpointing see it.

        index [n] (from `locate` or `flat_rows`) picks hidden rows; without a loss their logits come back, with one the
        value of loss(rows [n, d], head_weight [V, d]).
        """
        if loss is not None and self._own_head is not None:
            more = "its head is more than a product, so no fused loss fits it: train it elsewhere"
            raise UserError(f"{self.name}: {more}")
        rows = self.hidden(batch)[index]
        return self.head(rows) if loss is None else loss(*self._as_product(rows))

    def _as_product(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [n, d] and output weight [V, d] whose product are the logits; a bias is a further column of both."""
        weight, bias = self.head_weight, self._head_bias
        if bias is None:
            return rows, weight
        more = 8 - weight.shape[1] % 8  # a width that the kernels read in whole words
        ones, zeros = rows.new_zeros(len(rows), more), weight.new_zeros(len(weight), more - 1)
        ones[:, 0] = 1
        return torch.cat([rows, ones], dim=1), torch.cat([weight, bias[:, None].to(weight.dtype), zeros], dim=1)

    # Attention weights, and hidden states of a few rows

    @torch.no_grad()
    def attention(self, batch: Batch, rows: Sequence[Sequence[int]]) -> list[Tensor]:
        """Attention weights of the rows that predict these positions, one float32 [n, heads, longest] per layer."""
        return self.hidden_and_attention(batch, self.flat_rows(batch, rows))[1]

    def asked_rows(self, batch: Batch, index: Tensor, watch: Watch | None = None) -> Tensor:
        """Rows index [S] of `hidden`, one per sequence in their order; the last layer computes only these if the class
        supports it. watch: records their attention weights. -> [S, d]"""
        if batch.mixture is not None:
            batch = self._mixed(batch, batch.mixture)
        layout = replace(self._layout(batch, None, watched=watch is not None), watch=watch)
        if getattr(getattr(self.core, "model", None), "takes_last_rows", False):
            layout = asking_rows(layout, index)
        with self.lock:
            hidden = self._body(self.core, batch, layout)
        return hidden[index] if layout.last is None else hidden

    def asked_rows_and_attention(self, batch: Batch, index: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`asked_rows`, and their attention weights from the same pass, [S, heads, longest] per layer.
        Gradients flow through the hidden states alone."""
        return self._watched(index, lambda watch: self.asked_rows(batch, index, watch))

    def hidden_and_attention(self, batch: Batch, index: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`hidden`, and from the same forward pass the attention weights of the rows index [n] (`flat_rows`).
        Gradients flow through the hidden states alone."""

        def hidden(watch: Watch) -> Tensor:
            return self._body(self.core, batch, replace(self._layout(batch, None, watched=True), watch=watch))

        return self._watched(index, hidden)

    def _watched(self, index: Tensor, run: Callable[[Watch], Tensor]) -> tuple[Tensor, list[Tensor]]:
        """What `run` gives, and the attention of the rows index in each layer."""
        if not self.attention_readable:
            raise UserError(
                f"attention weights of a {self.family.title} cannot be read: open a LLaDA, Dream or AR model"
            )
        watch = Watch(index)
        with self.lock, torch.compiler.set_stance("force_eager"):  # a compiled layer cannot hand out what it saw
            found = run(watch)
        return found, [weights.to(self.device) for weights in watch.seen]
