"""A model as the planning of a run needs it: its configuration and tokenizer, without weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from maskwise.models.checkpoints.catalog import Checkpoint, describe_checkpoint
from maskwise.models.checkpoints.configuration import read_family
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.families import FAMILIES, WRAPPED, Family
from maskwise.models.tokenizers.tokenizer import load_tokenizer
from maskwise.records.manifest import ModelDescription


@dataclass(frozen=True)
class DescribedModel:
    """What probes read of a model when they plan their questions."""

    name: str
    kind: str
    parameters: int
    window: int
    mask_id: int | None
    shift: bool
    causal: bool
    block: int | None
    tokenizer: Any
    weights: str | None = None

    @property
    def vocab(self) -> int:
        return len(self.tokenizer)

    @property
    def family(self) -> Family:
        return next((family for family in FAMILIES if family.name == self.kind), WRAPPED)

    @property
    def attention_readable(self) -> bool:
        return self.family.attention_readable or self.family.name != self.kind  # a family from outside may have it

    def check_sequence(self, sequence: Sequence[int], what: str) -> None:
        """Token ids are compared with the embeddings once the model is opened."""


def describe_model(name: str) -> DescribedModel:
    """The model of this name, by its configuration and tokenizer."""
    return described_as(describe_checkpoint(name), tokenizer_of(name))


def described_as(found: Checkpoint | ModelDescription, tokenizer: Any) -> DescribedModel:
    named, sizes = (found.name, found.kind), (found.parameters or 0, found.window or 0)
    causal, block = bool(found.causal), found.block or None
    return DescribedModel(*named, *sizes, found.mask_id, found.shift, causal, block, tokenizer)


def tokenizer_of(name: str) -> Any:
    """The tokenizer of the model of this name, without its weights."""
    folder = locate_checkpoint(name)[0]
    return load_tokenizer(folder, read_family(folder))
