"""Models that return conditional probabilities worked out by hand, behind the real model interface."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from maskwise.models.model import Model
from maskwise.toy import COUNTS, MASK


def oracle(marginals: Callable[[list[int]], Tensor], vocabulary: int, mask_id: int) -> Model:
    """A model whose softmax at every position of a sequence is marginals(sequence) [n, vocabulary]."""

    def body(net, batch, layout):
        bounds = batch.offsets.tolist()
        return torch.cat([marginals(batch.ids[start:end].tolist()) for start, end in pairwise(bounds)]).float()

    net = nn.Module()
    net.embedding = nn.Embedding(vocabulary, 1)
    net.config = PretrainedConfig(eos_token_id=None)
    net.get_input_embeddings = lambda: net.embedding
    net.get_output_embeddings = lambda: net.embedding
    return Model(net, body, window=512, shift=False, mask_id=mask_id, name="oracle", head=lambda rows: rows.log())


def perfect_toy() -> Model:
    """Predicts what the toy experiment's hundred rows themselves say; anything alike where none agrees."""

    def marginals(sequence):
        rows = [row for row in COUNTS if all(s in (MASK, token) for s, token in zip(sequence, row, strict=True))]
        if not rows:
            return torch.full((len(sequence), MASK + 1), 1 / (MASK + 1), dtype=torch.float64)
        counts = torch.tensor([COUNTS[row] for row in rows], dtype=torch.float64)
        return torch.einsum(
            "r,rnv->nv", counts / counts.sum(), nn.functional.one_hot(torch.tensor(rows), MASK + 1).double()
        )

    return oracle(marginals, MASK + 1, MASK)
