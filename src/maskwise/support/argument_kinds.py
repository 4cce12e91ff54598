"""Type checks of the library's public arguments, before anything is opened."""

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

from maskwise.support.errors import UserError
from maskwise.support.nearest import nearest

P = ParamSpec("P")
R = TypeVar("R")

KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("True or False", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, Integral) and not isinstance(value, bool)),
    float: ("a number", lambda value: isinstance(value, Real) and not isinstance(value, bool)),
    str: ("a text", lambda value: isinstance(value, str)),
    Path: ("a path", lambda value: isinstance(value, Path)),
    Sequence[str]: ("a list of texts", lambda value: _is_list(value) and all(isinstance(one, str) for one in value)),
    Sequence[int]: ("a list of whole numbers", lambda value: _is_list(value) and all(map(KINDS[int][1], value))),
    Mapping[str, float]: ("a dictionary of numbers by name", lambda value: _are_numbers(value)),
    types.NoneType: ("None", lambda value: value is None),
}


# Names of transformers, PEFT and LLaDA's code for arguments of ours.
ELSEWHERE = {"torch_dtype": "dtype", "load_in_4bit": 'weights="fp8"', "load_in_8bit": 'weights="fp8"'}
ELSEWHERE |= {"input_ids": "prompts, a list of texts or of lists of token ids, without attention_mask"}
ELSEWHERE |= {"pretrained": "name", "model_name": "name", "output_dir": "out", "num_samples": "points"}


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(one is None or KINDS[float][1](one) for one in value.values())


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Refuses arguments of other kinds than annotated, and seeds below 0. Annotations beyond KINDS are not checked."""
    signature = inspect.signature(function)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    single = {name: one for name, one in signature.parameters.items() if one.kind not in several}
    unpacked = signature.parameters.keys() - single.keys()
    kinds = {name: _kinds(one.annotation) for name, one in single.items()}

    @functools.wraps(function)
    def checked(*given: P.args, **named: P.kwargs) -> R:
        try:
            bound = signature.bind(*given, **named).arguments
        except TypeError as problem:
            raise TypeError(f"{function.__name__}() {problem}{_meant(named, single)}") from None
        for name, value in bound.items():
            if name in ("model", "models", "name"):
                several = name == "models" and _is_list(value)
                _refuse_no_model(value if several else [value], function.__name__ if name in unpacked else "")
            allowed = kinds.get(name)
            if allowed and not any(KINDS[kind][1](value) for kind in allowed):
                words = " or ".join(KINDS[kind][0] for kind in allowed)
                remedy = f": write cuda:{value}" if name == "device" and isinstance(value, int) else ""
                raise UserError(f"{name} must be {words}, not {_shown(value)}{remedy}")
            if name in ("rule", "preset") and (
                value is None or (isinstance(value, Sequence) and not isinstance(value, str))
            ):
                raise UserError(f"{name} must be a text, not {_shown(value)}: leave it out for the default")
            if name == "judge" and not (value is None or isinstance(value, str | Path) or hasattr(value, "mask_id")):
                raise UserError(f"judge must be a model or its name, not {_shown(value)}")
            if name == "seed" and value is not None and value < 0:
                raise UserError(f"seed must be 0 or more, not {value}")
        return function(*given, **named)

    return checked


def _meant(named: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What a name that is no argument may stand for."""
    for name in (one for one in named if one not in known):
        other = ELSEWHERE.get(name, "")
        if meant := other if re.split("[=,]", other)[0] in known else nearest(name, known):
            return f": did you mean {meant}?"
    return ""


def _refuse_no_model(given: Sequence[Any], function: str) -> None:
    """function: its name, where it takes models one by one, each as an argument."""
    for one in given:
        if function and isinstance(one, list | tuple):
            raise UserError(f"{function} takes each model as an argument of its own, like {function}(A, B), not a list")
        if hasattr(one, "named_parameters") and not hasattr(one, "mask_id"):
            kind = type(one).__name__
            raise UserError(f"the model is a network of the class {kind}: give it to mw.wrap, with its tokenizer")
        if one is None or isinstance(one, list | tuple):
            raise UserError(f"a model is one name, folder or opened model, not {_shown(one)}: give one at a time")


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The kinds of an annotation; empty where one of them is not known here."""
    parts = get_args(annotation) if get_origin(annotation) in (types.UnionType, Union) else (annotation,)
    return parts if all(part in KINDS for part in parts) else ()


def _shown(value: Any) -> str:
    """A short value as it is, a long one as its type."""
    text = repr(value)
    return text if len(text) <= 40 else f"a value of the type {type(value).__name__}"
