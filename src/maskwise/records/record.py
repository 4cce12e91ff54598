"""The record of one test point under one condition, and the fields that a probe's records hold."""

import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import UNSET, UnsetType

from maskwise.support.typed import Count, Share, Typed

Condition = dict[str, int | float | str]
Evidence = dict[str, Any]  # numbers, texts, null and lists of numbers
Key = tuple[str, str, int, str]
FieldTypes = Mapping[str, Any]  # {field: its type}; with UnsetType among its types it may be missing


class Record(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked and answered (fields: docs/fields.md).

    confidence, entropy and nll are left out where the answers come without probabilities. nll_allowed and nll_choice
    are those of a question with a list of answers: nll is their sum.
    """

    model: str
    probe: str
    task: str
    point: Count
    condition: dict[str, Any]
    masks: Count
    predicted: str
    answer: str
    correct: bool
    confidence: Share | None = None
    entropy: float | None = None
    nll: float | None = None
    offset: Count | None = None
    visible: Count | None = None
    nll_allowed: float | None = None
    nll_choice: float | None = None
    evidence: Evidence = msgspec.field(default_factory=dict)


class ProbeFields(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the structs that say what `condition` and `evidence` hold in a probe's records."""


class RecordFields(NamedTuple):
    """The two structs of a probe; None where its records are not checked."""

    condition: type[ProbeFields] | None = None
    evidence: type[ProbeFields] | None = None


def struct_of(types: FieldTypes, closed: bool = False) -> type[ProbeFields]:
    """The struct of a mapping of fields; a name may have spaces, as {"extra masks": Count}.

    closed: other fields are refused, else left out, as what earlier versions measured."""
    names = {name.replace(" ", "_"): name for name in types}
    listed = [(own, types[name], *[UNSET] * (UnsetType in get_args(types[name]))) for own, name in names.items()]
    options: Any = {"rename": names, "frozen": True, "kw_only": True, "forbid_unknown_fields": closed}
    fields: Any = msgspec.defstruct("Fields", listed, bases=(ProbeFields,), **options)
    return fields


def make_key(probe: str, task: str, point: int, condition: Condition) -> Key:
    """The key that identifies a record in a run."""
    return probe, task, point, condition_text(condition)


def condition_text(condition: Condition) -> str:
    """A condition as one string, the same for equal conditions."""
    return _sorted_json(tuple(condition.items()))


@functools.cache  # a million records share a few dozen conditions
def _sorted_json(items: tuple[tuple[str, int | float | str], ...]) -> str:
    return json.dumps(dict(items), sort_keys=True)


def key_of(record: Record) -> Key:
    return make_key(record.probe, record.task, record.point, record.condition)


def condition_order(condition: Condition) -> tuple[Any, ...]:
    """A sort key that goes by the first entry, then the next, and puts 2 before 10 and numbers before words."""
    return tuple((name, isinstance(value, str), value) for name, value in condition.items())
