"""The type of training objectives: paper, noise, loss, and the settings of each.

To add an objective, write its functions and an `Objective` value in a module of your own, and pass the value as
`objective=` to `mw.train`. In the package, that file goes into objectives/, and one line of objectives/__init__.py
makes it known by name. Values are listed without torch, which the functions import when they are called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from maskwise.diffusion.noised import Noised

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from maskwise.diffusion.training_call import Call
    from maskwise.models.model import Model


class ObjectiveSettings(Protocol):
    """The settings of a run that objectives read (`maskwise.training.training_settings.TrainSettings` has them)."""

    @property
    def schedule(self) -> str: ...
    @property
    def weighted(self) -> bool: ...
    @property
    def block(self) -> int | None: ...
    @property
    def soft_share(self) -> float: ...
    @property
    def parameters(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Noising:
    """The mask, generator and settings for noising a document."""

    mask_id: int
    generator: "Generator"  # every random draw comes from it
    settings: ObjectiveSettings
    model_block: int | None = None  # tokens of a block of a block diffusion model


@dataclass(frozen=True)
class MicroBatch:
    """The noised documents of one process's micro-batch, and what their loss is computed with."""

    model: "Model"
    call_model: Callable[..., Any]  # the model, or the DDP or FSDP2 wrapper around it
    examples: Sequence[Noised]
    count: int  # rows of documents: the loss is a mean over them
    chances: "Tensor"  # [len(examples)] a uniform random number for each document
    settings: ObjectiveSettings


def cross_entropy(batch: MicroBatch) -> "Call":
    """The weighted cross-entropy at the noised rows."""
    from maskwise.diffusion.training_call import nelbo_call

    return nelbo_call(batch.model, batch.examples, batch.count)


@dataclass(frozen=True)
class Objective:
    """A training objective of masked diffusion on documents.

    noise(ids, places, noising): one noised draw of a document ids [n]; places [p] are the positions that may be
    noised, None means all of them. loss(micro_batch): the arguments of the training call of the model, whose loss is
    a scalar.
    """

    name: str
    title: str  # what is drawn, in one line
    noise: "Callable[[Tensor, Tensor | None, Noising], Noised]"
    loss: "Callable[[MicroBatch], Call]" = cross_entropy
    paper: str = ""  # authors, title, arXiv number; empty where no paper introduces it
    takes: tuple[str, ...] = ()  # of the settings schedule, block and soft_share, the ones it reads
    parameters: Mapping[str, float] = field(default_factory=dict)  # numbers of its own, with their defaults
    block_models: bool = False  # whether block diffusion models can be trained with it

    def __str__(self) -> str:
        return self.name
