"""Types of the arguments and results of `generate`, shared by a model's methods and decoding. Imports no torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    from torch import Generator

Messages = Sequence[Mapping[str, str]]  # a chat: role and content of each turn, the user's last
PromptInput = str | Sequence[int] | Messages


@dataclass(frozen=True)
class Generation:
    """The generated tokens and text of one prompt."""

    ids: list[int]  # the new tokens only: those that were masks, from left to right
    text: str  # their text; the whole text where the prompt itself held masks; empty without a tokenizer
    forwards: int  # forward passes this sequence took part in; two per step with guidance
    order: list[int]  # the step of this sequence, from 0, at which each of `ids` was committed
    sequence: list[int]  # the whole canvas, prompt included


class Generations(list[Generation]):
    """The generations of one call, one per prompt, and how they were made.

    model: its name. settings: every option by name, as used. traces: one JSON object per prompt, as a file of `out`
    holds them. divergence: tokens, agreement and first, where it was measured, else None.
    """

    def __init__(
        self,
        generations: Iterable[Generation] = (),
        model: str = "",
        settings: dict[str, Any] | None = None,
        traces: list[dict[str, Any]] | None = None,
        divergence: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(generations)
        self.model, self.settings, self.traces, self.divergence = model, settings or {}, traces or [], divergence


# The keyword arguments of `generate`, for editors and type checkers; decoding/options.py says what the options do, and
# a test compares the two.


class NamedStrategy(Protocol):
    """An unmasking strategy: `maskwise.decoding.strategies.Strategy`."""

    @property
    def name(self) -> str: ...
    @property
    def adaptive(self) -> bool: ...


class SoftMasking(Protocol):
    """Settings of soft masking: `maskwise.decoding.options.SoftMask`."""

    @property
    def scale(self) -> float: ...
    @property
    def steepness(self) -> float: ...


class OtherNames(TypedDict, total=False):
    """Parameters of strategies, and the names that LLaDA's, Dream's and transformers' code give to our options."""

    tau: float
    threshold: float
    f: float
    factor: float
    gamma: float
    conf_threshold: float
    kl_threshold: float
    eps: float
    eta: float
    alg_temp: float | None
    gen_length: int | None
    block_length: int | None
    remasking: str | None
    cfg_scale: float | None
    alg: str | None
    mask_id: int | None
    do_sample: bool | None


class GenerateArguments(OtherNames, total=False):
    """The keyword arguments of `mw.generate` and `model.generate`."""

    max_new_tokens: int
    steps: int | None
    block: int | None
    rule: str | NamedStrategy
    canvas: str | None
    cache: str
    temperature: float
    generator: "Generator | Sequence[Generator] | None"
    parameters: Mapping[str, float] | None
    window: int | None
    refresh: int | None
    top_k: int | None
    top_p: float | None
    guidance: float
    forbid_end: bool
    late_end: bool
    early_stop: bool
    end_ids: Sequence[int] | None
    soft_mask: SoftMasking | bool | None
    edit: float | None
    chat: bool | None
    seed: int | None
    batch: int | None
    out: str | Path | None
    divergence: bool
    on_step: Callable[[Any], None] | None
