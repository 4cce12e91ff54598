"""DiffusionGemma, through transformers' own class: a canvas of random tokens instead of masks.

It has no mask token. Its encoder reads the prompt, its decoder a canvas whose open positions hold tokens drawn
uniformly from the vocabulary. Here the mask id is one beyond the vocabulary, and the forward pass replaces each mask:
- the prompt ends before the first mask and the canvas begins there, so k masks at the end of a prompt are a canvas of
  k positions; the decoder sees the whole canvas and the prompt's keys and values;
- the random tokens of a sequence depend on the seed, its prompt and the position in the canvas, not on the canvas size;
- predictions are averaged over `draws` of them: `hidden` is [T, draws * d], and the head returns the logarithm of the
  mean probability. With one draw it returns the logits of transformers' class.

No self-conditioning logits are passed, as in the first denoising step of transformers' sampler. Rows of the prompt hold
the encoder's hidden states, which predict nothing here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from maskwise.models.attention.ragged import Layout
from maskwise.models.batch import Batch
from maskwise.models.families import NOISE_DRAWS
from maskwise.models.forward import float_product
from maskwise.models.peft_access import stored_weight
from maskwise.support.errors import UserError
from maskwise.support.randomness import torch_generator


def noise(prompt: Sequence[int], canvas: int, vocab: int, draws: int, seed: int = 0) -> Tensor:
    """Random tokens of the canvas after this prompt, [draws, canvas]; a larger canvas begins with the same tokens."""
    chance = torch_generator("canvas noise", seed, prompt)
    return torch.randint(vocab, (canvas, draws), generator=chance).t()


@dataclass(frozen=True)
class CanvasBody:
    """Hidden states of a ragged batch: one pass of the encoder, and one of the decoder per draw of the noise."""

    mask_id: int  # the number of tokens in the vocabulary
    draws: int = NOISE_DRAWS
    seed: int = 0

    def __call__(self, net: PreTrainedModel, batch: Batch, layout: Layout) -> Tensor:
        if batch.embeds is not None or batch.ids is None:
            raise UserError(f"{type(net).__name__} takes token ids only: nothing can be attributed to embeddings")
        if batch.moved is not None or batch.starts.any():
            raise UserError(f"{type(net).__name__} reads whole sequences: positions cannot be moved")
        sequences = [part.tolist() for part in batch.ids.cpu().split(batch.offsets.diff().tolist())]
        starts = [ids.index(self.mask_id) if self.mask_id in ids else len(ids) for ids in sequences]
        if min(starts) == 0:
            raise UserError(f"{type(net).__name__} needs a prompt before its canvas: give at least one token")
        prompts = [ids[:start] for ids, start in zip(sequences, starts, strict=True)]
        canvases = [ids[start:] for ids, start in zip(sequences, starts, strict=True)]
        encoded, decoded = self._passes(net, prompts, canvases, batch.offsets.device)
        rows = [
            torch.cat([encoded[number, encoded.shape[1] - start :], decoded[number, : len(canvas)]])
            for number, (start, canvas) in enumerate(zip(starts, canvases, strict=True))
        ]
        return torch.cat(rows)

    def _passes(
        self, net: PreTrainedModel, prompts: Sequence[list[int]], canvases: Sequence[list[int]], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Hidden states of left-padded prompts [S, P, draws * d] and of right-padded canvases [S, K, draws * d]."""
        width, size = max(map(len, prompts)), max(map(len, canvases))
        # Left-padded, because layers with a sliding window keep the last tokens of the prompt.
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)[:, None]
        sizes = torch.tensor([len(canvas) for canvas in canvases], device=device)[:, None]
        place = torch.arange(width, device=device) - (width - lengths)  # [S, P], below 0 in the padding
        encoder, decoder = net.model.encoder, net.model.decoder  # type: ignore[union-attr]
        out = encoder(input_ids=ids, attention_mask=place >= 0, position_ids=place.clamp(min=0))
        encoded = out.last_hidden_state.repeat(1, 1, self.draws)
        if size == 0:
            return encoded, encoded[:, :0]
        seen = torch.cat([place >= 0, torch.arange(size, device=device) < sizes], dim=1)
        decoded = [
            decoder(
                decoder_input_ids=drawn.to(device),
                past_key_values=out.past_key_values,
                decoder_attention_mask=seen,
                decoder_position_ids=lengths + torch.arange(size, device=device),
            ).last_hidden_state
            for drawn in self._noised(prompts, canvases, size)
        ]
        return encoded, torch.cat(decoded, dim=-1)

    def _noised(self, prompts: Sequence[list[int]], canvases: Sequence[list[int]], size: int) -> Tensor:
        """The canvases with random tokens in place of masks, [draws, S, K]."""
        shown = torch.zeros(self.draws, len(prompts), size, dtype=torch.int64)
        for number, (prompt, canvas) in enumerate(zip(prompts, canvases, strict=True)):
            given = torch.tensor(canvas, dtype=torch.int64)
            random = noise(prompt, len(canvas), self.mask_id, self.draws, self.seed)
            shown[:, number, : len(canvas)] = torch.where(given == self.mask_id, random, given)
        return shown


@dataclass(frozen=True)
class CanvasHead:
    """Rows [n, draws * d] -> logits [n, V]: log of the mean probability over the draws, or one draw's own logits."""

    net: PreTrainedModel
    draws: int = NOISE_DRAWS

    def __call__(self, rows: Tensor) -> Tensor:
        cap: float = self.net.final_logit_softcapping  # type: ignore[assignment]
        parts = rows.unflatten(1, (self.draws, -1)).unbind(1)
        weight = stored_weight(self.net.get_output_embeddings())
        logits = [cap * torch.tanh(float_product(part, weight) / cap) for part in parts]
        if self.draws == 1:
            return logits[0]
        return torch.stack([F.log_softmax(one, dim=-1) for one in logits]).logsumexp(0) - math.log(self.draws)
