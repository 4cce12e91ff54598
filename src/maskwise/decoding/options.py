"""The options of decoding: every name, default and description once. Importable without torch.

`mw.generate`, the command `maskwise generate` and lm-evaluation-harness take them from here. A new option costs its
field, its line in the signature of `mw.generate` (tests/decoding/test_options.py asks for it), and the code that acts
on it.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from textwrap import fill
from typing import Any

from maskwise.decoding.strategies import Strategy, find_strategy
from maskwise.diffusion.objectives.soft_mask import SoftMask
from maskwise.support.errors import UserError

CANVASES = ("fixed", "blocks", "growing", "window")
CACHES = ("none", "prefix", "dual")
_NUMBERS = (
    "max_new_tokens",
    "steps",
    "block",
    "temperature",
    "window",
    "refresh",
    "top_k",
    "top_p",
    "guidance",
    "edit",
)


def _about(
    help: str, masked_only: bool = False, short: str | None = None, at_least: int | None = None
) -> dict[str, Any]:
    """masked_only: has no meaning for an autoregressive model. short: a one-letter name on the command line.

    at_least: for the help; the checks below refuse less.
    """
    return {"help": help, "masked_only": masked_only, "short": short, "at_least": at_least}


@dataclass(frozen=True)
class DecodingOptions:
    """How text is generated. What can be checked without a model is checked when the value is made."""

    max_new_tokens: int = field(
        default=64,
        metadata=_about("Masks appended to the prompt: the length of the generation canvas.", short="n", at_least=0),
    )
    steps: int | None = field(
        default=None,
        metadata=_about("Steps in total, over all blocks; when left out, one token per step.", True, at_least=1),
    )
    block: int | None = field(
        default=None,
        metadata=_about(
            "Tokens per block, decoded block by block from left to right; when left out, one block.", True, at_least=1
        ),
    )
    rule: str | Strategy = field(
        default="low-confidence",
        metadata=_about("Unmasking strategy: which tokens a step commits (LLaDA: remasking, Dream: alg).", True),
    )
    canvas: str | None = field(
        default=None,
        metadata=_about(
            "Generation canvas, the masks shown to the model: fixed (default), blocks (default with a block), growing "
            "(none past the active block) or window (the nearest ones past it).",
            True,
        ),
    )
    cache: str = field(
        default="none",
        metadata=_about(
            "Key-value cache: none, prefix (left of the active block) or dual (right of it too); approximate, except "
            "for block diffusion models. Wu et al., Fast-dLLM, arXiv 2505.22618.",
            True,
        ),
    )
    temperature: float = field(default=0.0, metadata=_about("Sampling temperature; 0 is greedy.", at_least=0))
    parameters: Mapping[str, float] | None = field(
        default=None, hash=False, metadata=_about("Parameters of the unmasking strategy, such as tau=0.8.", True)
    )
    window: int | None = field(
        default=None,
        metadata=_about("Masks shown past the active block, for the canvas window; approximate.", True, at_least=0),
    )
    refresh: int | None = field(
        default=None,
        metadata=_about(
            "Steps between full forward passes, for a cache; when left out, one per block.", True, at_least=1
        ),
    )
    top_k: int | None = field(default=None, metadata=_about("Sample among the k likeliest tokens.", at_least=1))
    top_p: float | None = field(
        default=None,
        metadata=_about("Sample among the fewest tokens whose probabilities add up to this, over 0 and at most 1."),
    )
    guidance: float = field(
        default=0.0,
        metadata=_about(
            "Scale of classifier-free guidance; above 0 a step takes two forward passes.", True, at_least=0
        ),
    )
    forbid_end: bool = field(default=False, metadata=_about("Never generate the end token."))
    late_end: bool = field(
        default=False, metadata=_about("Commit end tokens only when nothing else is left in the block.", True)
    )
    early_stop: bool = field(
        default=False,
        metadata=_about("Stop a sequence at an end token with no mask before it; the rest becomes end tokens."),
    )
    end_ids: tuple[int, ...] | None = field(
        default=None, metadata=_about("Ids of the end tokens; when left out, the model's own.")
    )
    soft_mask: SoftMask | None = field(
        default=None,
        metadata=_about(
            "Soft masking: show open masks as mixtures of the tokens predicted for them. Hersche et al., arXiv "
            "2510.17206.",
            True,
        ),
    )
    edit: float | None = field(
        default=None,
        metadata=_about(
            "Token editing: replace a committed token of the active block where another has a probability above this; "
            "for adaptive strategies. LLaDA2.1 was trained for it (its code: 0.9, threshold 0.95); LLaDA2.2 also "
            "inserts and deletes (0, threshold 0.5).",
            True,
        ),
    )
    vote: str | None = field(
        default=None,
        metadata=_about(
            "Temporal self-consistency: the answer that most steps agree on, later ones weighing more, in place of the "
            "last step's; this regular expression finds it. Wang et al., arXiv 2508.09138.",
            True,
        ),
    )
    chat: bool | None = field(
        default=None,
        metadata=_about("Put text prompts through the tokenizer's chat template; when left out, where there is one."),
    )

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise UserError(f"{name} must be a number, not {value!r}")
        if isinstance(self.soft_mask, bool):
            object.__setattr__(self, "soft_mask", SoftMask() if self.soft_mask else None)
        if self.end_ids is not None:
            object.__setattr__(self, "end_ids", tuple(self.end_ids))
        self.strategy.complete(self.parameters)
        self._check_length()
        self._check_canvas()
        self._check_cache()
        self._check_sampling()
        self._check_strategy()

    @property
    def strategy(self) -> Strategy:
        return find_strategy(self.rule)

    @property
    def all_parameters(self) -> dict[str, float]:
        """The strategy's parameters, the given ones in place of the defaults."""
        return self.strategy.complete(self.parameters)

    @property
    def chosen_canvas(self) -> str:
        return self.canvas or ("fixed" if self.block is None else "blocks")

    @property
    def blocks(self) -> int:
        return 1 if self.block is None else -(-self.max_new_tokens // self.block)

    @property
    def approximate(self) -> bool:
        """Does a cache or a window change what the model sees?"""
        return self.cache != "none" or self.canvas == "window"

    def exact(self) -> "DecodingOptions":
        """The same decoding without a cache and with all masks shown."""
        canvas = "blocks" if self.canvas == "window" else self.canvas
        return replace(self, cache="none", refresh=None, window=None, canvas=canvas)

    def summary(self) -> dict[str, Any]:
        """Every option as a JSON value: the strategy by its name, with all its parameters."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return values | {
            "rule": self.strategy.name,
            "parameters": self.all_parameters,
            "canvas": self.chosen_canvas,
            "soft_mask": None if self.soft_mask is None else asdict(self.soft_mask),
            "end_ids": None if self.end_ids is None else list(self.end_ids),
        }

    def _check_length(self) -> None:
        if self.max_new_tokens < 0:
            raise UserError(f"max_new_tokens {self.max_new_tokens} leaves nothing to generate: give 1 or more")
        if self.block is not None and self.block < 1:
            raise UserError(f"block {self.block} holds no token: give 1 or more, or leave block out")

    def _check_canvas(self) -> None:
        if self.chosen_canvas not in CANVASES:
            raise UserError(f"unknown canvas {self.canvas!r}: choose one of {', '.join(CANVASES)}")
        if self.canvas == "fixed" and self.block is not None:
            raise UserError("canvas fixed has no blocks: leave block out, or choose blocks, growing or window")
        if self.chosen_canvas != "fixed" and self.block is None:
            raise UserError(f"canvas {self.canvas} needs a block, the number of tokens decoded at a time")
        if self.canvas == "window" and (self.window is None or self.window < 0):
            raise UserError("canvas window needs window, the number of masks shown past the active block")
        if self.canvas != "window" and self.window is not None:
            raise UserError(f"window is an option of the canvas window, not of {self.chosen_canvas}")

    def _check_cache(self) -> None:
        if self.cache not in CACHES:
            raise UserError(f"unknown cache {self.cache!r}: choose one of {', '.join(CACHES)}")
        if self.refresh is not None and (self.cache == "none" or self.refresh < 1):
            raise UserError("refresh, the steps between full passes, is 1 or more and needs a cache")

    def _check_sampling(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UserError(
                f"temperature {self.temperature} is not a number, 0 or more: 0 is greedy, 1 samples the model's own "
                "distribution"
            )
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k {self.top_k} keeps no token: give 1 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p} is outside 0..1")
        if not 0 <= self.guidance < float("inf"):
            raise UserError(f"guidance {self.guidance} is not a number, 0 or more: 0 is none")

    def _check_strategy(self) -> None:
        strategy = self.strategy
        if self.steps is not None and strategy.adaptive:
            raise UserError(f"strategy {strategy.name} decides itself how many tokens a step commits: leave steps out")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"steps {self.steps} leave no time to fill anything in: give 1 or more, or leave steps out")
        if self.edit is not None and not 0 <= self.edit <= 1:
            raise UserError(f"edit {self.edit} is outside 0..1: give the probability above which a token is replaced")
        if self.edit is not None and not strategy.adaptive:
            raise UserError(
                f"edit goes with a strategy that decides itself how many tokens a step commits, such as threshold, not "
                f"with {strategy.name}"
            )
        if self.vote is not None:
            try:
                re.compile(self.vote)
            except (re.error, OverflowError, RecursionError) as problem:
                raise UserError(f"vote: the pattern {self.vote!r} does not compile: {problem}") from None
        if self.late_end and strategy.time_function is not None:
            raise UserError(f"late_end needs a strategy that ranks tokens; {strategy.name} draws for each at random")


OPTION_NAMES = tuple(option.name for option in fields(DecodingOptions))


def describe_options() -> str:
    """The options and what they do, for a docstring."""
    return "\n".join(
        fill(f"{option.name}: {option.metadata['help']}", 116, initial_indent="    ", subsequent_indent="        ")
        for option in fields(DecodingOptions)
    )
