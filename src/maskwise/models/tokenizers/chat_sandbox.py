"""A sandbox for chat templates in which no single operation makes a long text.

A clock stops a template between two operations, and cannot stop one: `'%9999999999d' % 1` or `x|replace('a', y)` fill
the memory at once. So every operation that makes more than it is given is measured before it is done.
The environment is otherwise that of transformers (tags, filters, globals, white space), for turns of role and content.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

LONGEST = 20_000_000  # characters, or items, of anything that a template makes
# What gives back no more than it was given: filters of numbers and containers, methods of texts and containers.
HARMLESS = frozenset((
    "abs", "attr", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last", "length",
    "list", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "round", "select", "selectattr", "slice",
    "sort", "sum", "tojson", "unique", "capitalize", "casefold", "copy", "endswith", "find", "get", "index", "isalnum",
    "isalpha", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "keys", "lower",
    "lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper", "values", "raise_exception", "strftime",
    "_generation_support",
))  # fmt: skip
MAKERS = ("Namespace", "dict", "cycler", "joiner")  # their arguments become the parts of what they make


class TooLong(SecurityError):
    """A template that would make more than LONGEST characters."""


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Measures binary operations, calls, filters, joined texts and what is written."""

    intercepted_binops = frozenset(["+", "*", "%", "**"])

    def __init__(self) -> None:
        extensions = [_Generation, loopcontrols]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=_measured)
        self.filters["tojson"] = _tojson
        self.filters |= {name: _limited(name, one) for name, one in self.filters.items() if name not in HARMLESS}
        self.filters["format"] = _formatted
        self.filters["joined"] = lambda parts: _joined([str(_measured(part)) for part in parts])
        self.filters["measured"] = _measured
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = datetime.now().strftime
        self.globals.pop("lipsum", None)
        self.concat = _joined  # type: ignore[method-assign, assignment]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise TooLong("it computes powers")
        if operator == "%" and isinstance(left, str):
            _refuse_widths(left)
            _refuse_long(1000 * len(left) + _size(right))
        elif operator == "*":
            _refuse_long(_factor(left) * _factor(right))
        elif operator == "+":
            _refuse_long(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(function, "__name__", type(function).__name__)
        given = [*args, *kwargs.values()]
        if name in ("format", "format_map"):
            _refuse_widths(str(getattr(getattr(function, "__wrapped__", function), "__self__", "")))
        if name in MAKERS:
            _refuse_long(_size(given))
        elif name not in HARMLESS and not isinstance(function, Macro):
            _refuse_product([getattr(function, "__self__", None), *given])
        return super().call(context, function, *args, **kwargs)

    def compile_limited(self, source: str) -> Any:
        tree = self.parse(source)
        _Measured().visit(tree)
        return self.from_string(tree)


class _Generation(Extension):
    """transformers' tag around what the assistant says."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_generation_support"), [], [], body).set_lineno(line)

    def _generation_support(self, caller: Macro) -> Any:
        return caller()


class _Measured(NodeTransformer):
    """`a ~ b`, and lists, tuples and dictionaries that are written out, as filters, which measure them."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "joined", [], [], None, None, lineno=node.lineno)

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        if getattr(node, "ctx", "load") != "load":  # what a loop assigns to
            return node
        return nodes.Filter(node, "measured", [], [], None, None, lineno=node.lineno)

    visit_Tuple = visit_Dict = visit_List


def raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    _refuse_long(_size(value) * (1 + _factor(indent or 1)))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _formatted(value: Any, *args: Any, **kwargs: Any) -> str:
    """Jinja's filter `format`, which is the operator %."""
    _refuse_widths(str(value))
    _refuse_long(1000 * len(str(value)) + _size([*args, *kwargs.values()]))
    return str(value) % (kwargs or args)


def _refuse_widths(form: str) -> None:
    if re.search(r"[0-9]{4}|\*|:[^}]*{", form):  # a width, written or taken from an argument
        raise TooLong("it formats with a width beyond 999")


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def measured(*args: Any, **kwargs: Any) -> Any:
        _refuse_product([*(one for one in args if not isinstance(one, Environment | Context)), *kwargs.values()])
        return function(*args, **kwargs)

    passed = getattr(function, "jinja_pass_arg", None)  # whether it takes the environment or the context
    if passed is not None:
        measured.jinja_pass_arg = passed  # type: ignore[attr-defined]
    return measured


def _measured(value: Any) -> Any:
    """A value that is written as text, refused where the text would be long."""
    if not isinstance(value, str):
        _refuse_long(_size(value))
    return value


def _joined(parts: Iterable[str]) -> str:
    kept: list[str] = []
    length = 0
    for part in parts:
        length += len(part) + 1
        _refuse_long(length)
        kept.append(part)
    return "".join(kept)


def _refuse_product(values: Iterable[Any]) -> None:
    """Refuses a call that may repeat one value as often as another is long."""
    product = 1
    for value in values:
        product *= _factor(value)
        _refuse_long(product)


def _factor(value: Any) -> int:
    """How much longer a text may become by this value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return max(1, int(min(LONGEST + 1, abs(value))))  # in this order, in which NaN is not the smaller one
    return max(1, _size(value))


def _size(value: Any) -> int:
    """Characters of a value as text, about; a part that it holds twice is counted twice."""
    size, left = 0, [value]
    while left and size <= LONGEST:
        one = left.pop()
        if isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            left += one
        size += 2
    return size


def _refuse_long(size: int) -> None:
    if size > LONGEST:
        raise TooLong(f"it makes more than {LONGEST // 1_000_000} million characters")
