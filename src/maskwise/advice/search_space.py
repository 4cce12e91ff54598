"""The settings that are searched, as options of `generate`, and how each is written for its user. Imports no torch."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from maskwise.decoding.options import CACHES, CANVASES, DecodingOptions
from maskwise.decoding.strategies import STRATEGIES, find_strategy, parse_parameters
from maskwise.support.errors import UserError, flag
from maskwise.support.nearest import did_you_mean
from maskwise.support.terminal import counted

DEFAULT = DecodingOptions()


@dataclass(frozen=True)
class SearchSpace:
    """What is searched. Strategies are written like `threshold:tau=0.8`, caches like `dual:refresh=8`.

    Strategies that commit a given number of tokens are tried with each of `steps`; adaptive ones decide themselves.
    """

    max_new_tokens: int = 128  # twice what `generate` writes: an answer with its reasoning
    canvases: tuple[str, ...] = CANVASES
    blocks: tuple[int, ...] = (8, 32)
    rules: tuple[str, ...] = ("low-confidence", "threshold:tau=0.9", "threshold:tau=0.7", "entropy-bound:gamma=0.1")
    steps: tuple[int, ...] | None = None  # None: a token per step, two and four
    caches: tuple[str, ...] = ("none", "prefix", "dual", "dual:refresh=8")
    end_ids: tuple[int, ...] = ()  # tokens that end an answer: a text stops at the first of them

    @property
    def all_steps(self) -> tuple[int, ...]:
        new = self.max_new_tokens
        return self.steps or tuple(new // share for share in (1, 2, 4) if new % share == 0)

    @property
    def variants(self) -> int:
        """With how many caches a setting with blocks is tried, in addition to none."""
        return sum(cache != "none" for cache in self.caches)

    def cached_variants(self, setting: "Setting") -> list["Setting"]:
        """The same with each cache; without blocks one holds the prompt alone and is refreshed once: it is left out."""
        if setting.options.block is None:
            return []
        return [
            Setting(replace(setting.options, cache=cache, refresh=refresh))
            for cache, refresh in map(_cache, self.caches)
            if cache != "none"
        ]

    def not_tried(self) -> list[str]:
        rules = {_rule(rule)[0] for rule in self.rules}
        left = [
            ("strategies", [one.name for one in STRATEGIES if one.name not in rules]),
            ("canvases", [one for one in CANVASES if one not in self.canvases]),
            ("caches", [one for one in CACHES if one not in {_cache(cache)[0] for cache in self.caches}]),
        ]
        found = [f"{what} {', '.join(names)}" for what, names in left if names]
        whole = [str(block) for block in self.blocks if block >= self.max_new_tokens]
        wrong = [str(block) for block in self.blocks if not _fits(self, block) and str(block) not in whole]
        found += [f"blocks {', '.join(whole)}, which hold all {self.max_new_tokens} tokens at once"] if whole else []
        found += [f"blocks {', '.join(wrong)}, which do not divide {self.max_new_tokens} tokens"] if wrong else []
        found += [f"canvases of other sizes than {self.max_new_tokens} tokens", "caches without blocks"]
        return [
            *found,
            "sampling (all settings are greedy), guidance, soft masks, rules for end tokens, tuning the model",
        ]


@dataclass(frozen=True)
class Setting:
    options: DecodingOptions

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from the defaults, and the number of new tokens."""
        return {
            option.name: getattr(self.options, option.name)
            for option in fields(self.options)
            if option.name == "max_new_tokens" or getattr(self.options, option.name) != option.default
        }

    @property
    def passes(self) -> int:
        """Forward passes per question: of an adaptive strategy the most it can take."""
        return self.options.steps or self.options.max_new_tokens

    @property
    def name(self) -> str:
        options = self.options
        layout = [f"{options.chosen_canvas} canvas"]
        layout += [f"block {options.block}"] if options.block else []
        layout += [f"window {options.window}"] if options.window is not None else []
        parameters = [f"{name} {value:g}" for name, value in (options.parameters or {}).items()]
        pace = [" ".join([options.strategy.name, *parameters])]
        pace += [] if options.strategy.adaptive else [counted(self.passes, "step")]
        cache = [] if options.cache == "none" else [f"{options.cache} cache"]
        cache += [f"refresh {options.refresh}"] if options.refresh else []
        return ", ".join([*layout, *pace, *cache])

    def command(self, model: str, adapter: str | None = None) -> str:
        """As a command line, with the prompts in a file."""
        words = ["maskwise", "generate", model, "--file", "prompts.jsonl"]
        words += ["--adapter", adapter] if adapter else []
        for name, value in self.given.items():
            if name == "parameters":
                words += [part for one, number in value.items() for part in ("--parameter", f"{one}={number:g}")]
            elif name == "end_ids":
                words += [part for one in value for part in ("--end-id", str(one))]
            else:
                words += [flag(name), *([] if value is True else [str(value)])]
        return shlex.join(words)

    def python(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"mw.generate(model, prompts, {given})"

    def lm_eval(self, model: str, adapter: str | None = None) -> str:
        """As arguments of lm-evaluation-harness, whose tasks say themselves where a text ends."""
        elsewhere = ("parameters", "end_ids", "early_stop")
        given = {name: value for name, value in self.given.items() if name not in elsewhere}
        given |= self.options.parameters or {}
        words = [f"pretrained={model}", *([f"adapter={adapter}"] if adapter else [])]
        return shlex.join(
            ["--model", "maskwise", "--model_args", ",".join([*words, *(f"{k}={v}" for k, v in given.items())])]
        )


def settings_in(space: SearchSpace) -> list[Setting]:
    """Every setting without a cache; the first is the reference: all masks shown, one block, the most steps."""
    check_space(space)
    reachable = [
        options for layout in _layouts(space) for rule in space.rules for options in _paces(space, layout, rule)
    ]
    found = list(dict.fromkeys(_distinct(options) for options in reachable))
    if len(found) < 2:
        raise UserError("fewer than two settings fit together: allow more canvases, blocks, strategies or steps")
    return [Setting(options) for options in found]


def within_blocks(space: SearchSpace, seen: int) -> SearchSpace:
    """The space as a model searches it that sees nothing after its block of so many tokens.

    Only the canvas of blocks is left: its own first, then those of the space that divide it. What is shorter than one
    block has no layout to choose.
    """
    blocks = (seen, *(block for block in space.blocks if block != seen and seen % block == 0))
    canvases = ("blocks",) if _fits(space, seen) else ("fixed", "blocks")
    return replace(space, canvases=canvases, blocks=blocks)


def check_space(space: SearchSpace) -> None:
    if space.max_new_tokens < 1:
        raise UserError(f"max_new_tokens {space.max_new_tokens} leaves nothing to generate: give 1 or more")
    for canvas in space.canvases:
        if canvas not in CANVASES:
            raise UserError(f"unknown canvas {canvas!r}{did_you_mean(canvas, CANVASES)}")
    for rule in space.rules:
        name, parameters = _rule(rule)
        find_strategy(name).complete(parameters)
    for cache in space.caches:
        name, refresh = _cache(cache)
        DecodingOptions(block=space.max_new_tokens, cache=name, refresh=refresh)
    for what, numbers in (("blocks", space.blocks), ("steps", space.all_steps)):
        if any(number < 1 for number in numbers):
            raise UserError(f"{what} {', '.join(map(str, numbers))}: give whole numbers of 1 or more")


def _layouts(space: SearchSpace) -> list[dict[str, Any]]:
    """Options of the canvas; the fixed one first."""
    blocks = [block for block in space.blocks if _fits(space, block)]
    found: list[dict[str, Any]] = [{}] if "fixed" in space.canvases else []
    for canvas in ("blocks", "growing", "window"):
        if canvas in space.canvases:
            shown = [{"window": 2 * block} if canvas == "window" else {} for block in blocks]
            found += [{"canvas": canvas, "block": block} | more for block, more in zip(blocks, shown, strict=True)]
    return found


def _fits(space: SearchSpace, block: int) -> bool:
    return block < space.max_new_tokens and space.max_new_tokens % block == 0


def _paces(space: SearchSpace, layout: Mapping[str, Any], rule: str) -> list[DecodingOptions]:
    """The layout under a strategy, with each number of steps that its blocks can share."""
    name, parameters = _rule(rule)
    options = DecodingOptions(
        space.max_new_tokens,
        rule=name,
        parameters=parameters or None,
        early_stop=bool(space.end_ids),
        end_ids=space.end_ids or None,
        **layout,
    )
    if options.strategy.adaptive:
        return [options]
    steps = sorted({n for n in space.all_steps if n % options.blocks == 0 and n <= space.max_new_tokens}, reverse=True)
    return [replace(options, steps=None if count == space.max_new_tokens else count) for count in steps]


def _distinct(options: DecodingOptions) -> DecodingOptions:
    """Where a block is filled in one step, the strategy has nothing to choose: one stands for all."""
    return replace(options, rule=DEFAULT.rule, parameters=None) if options.steps == options.blocks else options


def _rule(written: str) -> tuple[str, dict[str, float]]:
    """`threshold:tau=0.8` -> ("threshold", {"tau": 0.8})"""
    name, _, parameters = written.partition(":")
    return name, parse_parameters(parameters.split(":")) if parameters else {}


def _cache(written: str) -> tuple[str, int | None]:
    """`dual:refresh=8` -> ("dual", 8)"""
    name, _, rest = written.partition(":")
    if not rest:
        return name, None
    what, _, number = rest.partition("=")
    if what != "refresh" or not number.isdecimal():
        raise UserError(f"{written!r} is no cache: write it like dual or dual:refresh=8")
    return name, int(number)


def as_words(listed: str | Sequence[Any] | None) -> tuple[str, ...] | None:
    """`a,b` or a list as a tuple of texts."""
    if listed is None:
        return None
    parts = listed.split(",") if isinstance(listed, str) else listed
    return tuple(str(part).strip() for part in parts)
