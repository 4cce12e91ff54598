"""Names that LLaDA's, Dream's and transformers' `generate` give to our options. Imports no torch.

A name is taken where it means the same, and our name is recorded; otherwise one line says what to give instead.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from maskwise.decoding.options import OPTION_NAMES, DecodingOptions
from maskwise.decoding.strategies import STRATEGIES, Strategy, find_strategy, strategy_named_by
from maskwise.support.errors import UserError, flag
from maskwise.support.nearest import nearest


@dataclass(frozen=True)
class KnownName:
    """An argument of another `generate`. option: the option of ours that it sets, empty where it sets none."""

    name: str
    source: str  # whose name it is
    type: type
    option: str = ""
    values: Mapping[str, str] = field(default_factory=dict)  # their value -> ours, where those are names too
    note: str = ""  # for the documentation: what is done with it where it sets no option

    @property
    def flag(self) -> str:
        return flag(self.name)


_REMASKING = {"low_confidence": "low-confidence", "random": "random"}
_ALG = {alg: f"dream-{alg.replace('_', '-')}" for alg in ("origin", "maskgit_plus", "topk_margin", "entropy")}
KNOWN_NAMES = (
    KnownName("gen_length", "LLaDA", int, "max_new_tokens"),
    KnownName("block_length", "LLaDA", int, "block"),
    KnownName("remasking", "LLaDA", str, "rule", _REMASKING),
    KnownName("cfg_scale", "LLaDA", float, "guidance"),
    KnownName("alg", "Dream", str, "rule", _ALG),
    KnownName("alg_temp", "Dream", float, "parameters", note="a parameter of the strategies that alg names"),
    KnownName("mask_id", "LLaDA", int, note="taken if it is the model's own; for another one open it with mw.wrap"),
    KnownName("do_sample", "transformers", bool, note="taken if it agrees with temperature: 0 is greedy"),
    KnownName("max_length", "transformers", int, note="refused, because it counts the prompt: give max_new_tokens"),
)
_BY_NAME = {known.name: known for known in KNOWN_NAMES}
_DEFAULT = DecodingOptions()


def is_known(name: str) -> bool:
    return name in _BY_NAME


def chosen_options(options: dict[str, Any], named: Mapping[str, Any]) -> DecodingOptions:
    """The options by our names, with the strategy's parameters in place."""
    options = with_our_names(options, {name: value for name, value in named.items() if is_known(name)})
    parameters = {name: value for name, value in named.items() if not is_known(name)}
    _refuse_unknown(parameters, options["rule"])
    if parameters:
        options["parameters"] = {**(options["parameters"] or {}), **parameters}
    options["rule"] = strategy_named_by(options["parameters"], options["rule"])
    return DecodingOptions(**options)


def listed_options(settings: str | Sequence[Mapping[str, Any]], new: int) -> list[DecodingOptions]:
    """Settings as options of `generate`: a list, or a text such as `steps=6 canvas=growing,block=8`. new: the number of
    new tokens of those that do not say it."""
    written = [dict(part.partition("=")[::2] for part in one.split(",")) for one in str(settings).split()]
    usual = {name: getattr(_DEFAULT, name) for name in OPTION_NAMES} | {"max_new_tokens": new}
    found = []
    for given in written if isinstance(settings, str) else settings:
        one = {name.replace("-", "_"): _plain(value) for name, value in given.items()}
        own = usual | {name: value for name, value in one.items() if name in usual}
        found.append(chosen_options(own, {name: value for name, value in one.items() if name not in usual}))
    return found


def _plain(value: Any) -> Any:
    """`0.9` -> 0.9; other texts stay."""
    with suppress(ValueError):
        return json.loads(value) if isinstance(value, str) else value
    return value


def _refuse_unknown(named: Mapping[str, Any], rule: str | Strategy) -> None:
    """Names that are neither an option nor a parameter of a strategy."""
    chosen = find_strategy(rule)
    having = [chosen] if chosen.parameters else STRATEGIES
    known = list(dict.fromkeys(name for one in having for parameter in one.parameters for name in parameter.names))
    for name in named:
        if name not in known:
            whose = f"the strategy {chosen.name} has" if chosen.parameters else "the strategies have"
            meant = nearest(name, [*OPTION_NAMES, *known])
            hint = f"did you mean {meant}? " if meant else ""
            raise UserError(
                f"generate has no {name!r}: {hint}Parameters that {whose}: {', '.join(known)}; options: "
                f"{', '.join(OPTION_NAMES)}"
            )


def with_our_names(options: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The options with those given by other names put in their places; None is what was left out."""
    found = dict(options)
    given = {name: value for name, value in named.items() if value is not None}
    for name, value in given.items():
        known = _BY_NAME[name]
        if known.option and name != "alg_temp":
            if found[known.option] != getattr(_DEFAULT, known.option):
                raise UserError(f"{known.flag} is {flag(known.option)} here: give one of them")
            found[known.option] = _value(known, value)
    if "max_length" in given:
        raise UserError("--max-length counts the prompt's tokens too: give --max-new-tokens, the new ones alone")
    if "do_sample" in given and bool(given["do_sample"]) != (found["temperature"] > 0):
        meant = "needs a --temperature above 0" if given["do_sample"] else "is --temperature 0, which is greedy"
        raise UserError(f"--do-sample {given['do_sample']} {meant}: give the temperature alone")
    if "alg_temp" in given:
        if found["rule"] not in _ALG.values():
            raise UserError(f"--alg-temp is of Dream's strategies: give --alg too, one of {', '.join(_ALG)}")
        found["parameters"] = {**(found["parameters"] or {}), "alg_temp": given["alg_temp"]}
    return found


def refuse_other_mask(mask_id: int | None, own: int | None, model: str) -> None:
    """A mask id that is not the model's own would leave the masks unfilled."""
    if mask_id is not None and mask_id != own:
        raise UserError(f"--mask-id {mask_id} is not the mask of {model}, which is {own}: leave it out")


def _value(known: KnownName, value: Any) -> Any:
    if not known.values:
        return value
    if value not in known.values:
        raise UserError(
            f"{known.flag} {value} is none of {known.source}'s: {', '.join(known.values)}; --rule names all strategies"
        )
    return known.values[value]
