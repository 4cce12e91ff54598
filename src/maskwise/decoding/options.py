"""The options of decoding: every name, default and description once. Importable without torch.

`mw.generate`, the command `maskwise generate` and lm-evaluation-harness take them from here. A new option costs its
field, its line in the signature of `mw.generate` (tests/decoding/test_options.py asks for it), and the code that acts
on it.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from pathlib import Path
from textwrap import fill
from typing import Any

from maskwise.decoding.strategies import STRATEGIES, Strategy, find_strategy
from maskwise.diffusion.objectives.soft_mask import SoftMask
from maskwise.support.errors import UserError, flag

CANVASES = ("fixed", "blocks", "growing", "window")
CACHES = ("none", "prefix", "dual")
_NUMBERS = ["max_new_tokens", "steps", "block", "temperature", "window", "refresh", "top_k", "top_p"]
_NUMBERS += ["guidance", "edit"]


def _option(
    default: Any, help: str, masked_only: bool = False, at_least: int | None = None, short: str = "", **more: Any
) -> Any:
    """masked_only: has no meaning for an autoregressive model. at_least: for the help; the checks below refuse less.
    short: a one-letter name on the command line."""
    about = {"help": help, "masked_only": masked_only, "short": short or None, "at_least": at_least}
    return field(default=default, metadata=about, **more)


@dataclass(frozen=True)
class DecodingOptions:
    """How text is generated. What can be checked without a model is checked when the value is made."""

    max_new_tokens: int = _option(
        64, "Masks appended to the prompt: the length of the generation canvas.", short="n", at_least=0
    )
    steps: int | None = _option(
        None, "Steps in total, over all blocks; by default one token per step.", True, at_least=1
    )
    block: int | None = _option(
        None, "Tokens per block, decoded block by block from left to right; by default one block.", True, at_least=1
    )
    rule: str | Strategy = _option(  # noqa: RUF009
        "low-confidence", "Unmasking strategy: which tokens a step commits (LLaDA: remasking, Dream: alg).", True
    )
    canvas: str | None = _option(
        None,
        "Generation canvas, the masks shown to the model: fixed (default), blocks (default with a block), growing "
        "(none past the active block) or window (the nearest ones past it).",
        True,
    )
    cache: str = _option(
        "none",
        "Key-value cache: none, prefix (left of the active block) or dual (right of it too); approximate, except "
        "for block diffusion models. Wu et al., Fast-dLLM, arXiv 2505.22618.",
        True,
    )
    temperature: float = _option(0.0, "Sampling temperature; 0 is greedy.", at_least=0)
    parameters: Mapping[str, float] | None = _option(
        None, "Parameters of the unmasking strategy, such as tau=0.8.", True, hash=False
    )
    window: int | None = _option(
        None, "Masks shown past the active block, for the canvas window; approximate.", True, at_least=0
    )
    refresh: int | None = _option(
        None, "Steps between full forward passes, for a cache; by default one per block.", True, at_least=1
    )
    top_k: int | None = _option(None, "Sample among the k likeliest tokens.", at_least=1)
    top_p: float | None = _option(
        None, "Sample among the fewest tokens whose probabilities add up to this, over 0 and at most 1."
    )
    guidance: float = _option(
        0.0, "Scale of classifier-free guidance; above 0 a step takes two forward passes.", True, at_least=0
    )
    forbid_end: bool = _option(False, "Never generate the end token.")
    late_end: bool = _option(False, "Commit end tokens only when nothing else is left in the block.", True)
    early_stop: bool = _option(
        False, "Stop a sequence at an end token with no mask before it; the rest becomes end tokens."
    )
    end_ids: tuple[int, ...] | None = _option(None, "Ids of the end tokens; by default the model's own.")
    soft_mask: SoftMask | None = _option(  # noqa: RUF009
        None,
        "Soft masking: show open masks as mixtures of the tokens predicted for them. Hersche et al., arXiv 2510.17206.",
        True,
    )
    edit: float | None = _option(
        None,
        "Token editing, for adaptive strategies: replace a committed token of the active block if another one has "
        "a probability above this. Published values: LLaDA2.1: 0.9, with threshold=0.95.",
        True,
    )
    chat: bool | None = _option(
        None, "Put text prompts through the tokenizer's chat template; by default if it has one."
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
        self.strategy.complete(self.parameters, STRATEGIES)
        self._check_canvas()
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

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from the defaults, and the number of new tokens."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["end_ids"] = None if self.end_ids is None else list(self.end_ids)
        usual = {one.name: one.default for one in fields(self)} | {"max_new_tokens": None}
        return {name: value for name, value in values.items() if value != usual[name]}

    def command(self, model: str, adapter: str | Path | None = None) -> str:
        """As a command line, with the prompts in a file."""
        words = ["maskwise", "generate", model, "--file", "prompts.jsonl"]
        words += ["--adapter", str(adapter)] if adapter else []
        for name, value in self.given.items():
            if name == "parameters":
                words += [part for one, number in value.items() for part in ("--parameter", f"{one}={number:g}")]
            elif name == "end_ids":
                words += [part for one in value for part in ("--end-id", str(one))]
            else:
                words += [flag(name), *([] if value is True else [str(value)])]
        return shlex.join(words)

    def check_masks(self, inside: Sequence[int], own_grid: bool) -> None:
        """Refuses blocks and steps that do not fit the masks.
        inside: the number of masks inside each prompt. own_grid: blocks of any length share the steps."""
        new, block, steps, blocks = self.max_new_tokens, self.block, self.steps, 1 if own_grid else self.blocks
        if new == 0 and not (inside and all(inside)):
            raise UserError(f"max_new_tokens {new} leaves nothing to generate: give 1 or more, or a prompt with masks")
        if block is not None and new == 0:
            raise UserError("without new tokens there is nothing to cut into blocks: leave block out")
        if block is not None and new % block and not own_grid:
            raise UserError(f"block {block} does not divide max_new_tokens {new}: choose a block that does")
        if steps is None:
            return
        if steps % blocks:
            raise UserError(f"steps {steps} do not divide into {blocks} blocks: give a multiple of {blocks}")
        # The first block also holds the masks inside the prompt, so the later ones are the smallest.
        smallest = new // blocks + (min(inside, default=0) if blocks == 1 else 0)
        if self.strategy.count_function is not None and steps // blocks > smallest:
            raise UserError(f"{steps} steps for {smallest * blocks} masks: at most one step per mask")

    def _check_canvas(self) -> None:
        if self.max_new_tokens < 0:
            raise UserError(f"max_new_tokens {self.max_new_tokens} leaves nothing to generate: give 1 or more")
        if self.block is not None and self.block < 1:
            raise UserError(f"block {self.block} holds no token: give 1 or more, or leave block out")
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
            raise UserError(f"top_p {self.top_p} is out of range: it must be over 0 and at most 1")
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
        if self.late_end and strategy.time_function is not None:
            raise UserError(f"late_end needs a strategy that ranks tokens; {strategy.name} draws for each at random")


OPTION_NAMES = tuple(option.name for option in fields(DecodingOptions))


def describe_options() -> str:
    """The options and what they do, for a docstring."""
    return "\n".join(
        fill(f"{option.name}: {option.metadata['help']}", 116, initial_indent="    ", subsequent_indent="        ")
        for option in fields(DecodingOptions)
    )
