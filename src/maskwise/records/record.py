"""The record of one test point under one condition, and the fields that a probe's records hold."""

import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from maskwise.support.typed import Count, Share, Typed

Condition = dict[str, int | float | str]
Evidence = dict[str, Any]  # numbers, texts, null and lists of numbers
Key = tuple[str, str, int, str]
FieldTypes = Mapping[str, Any]  # {field: its type}; with UnsetType among its types it may be missing


class Record(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked and answered.

    confidence, entropy and nll are left out where the answers come without probabilities. nll_allowed and nll_choice
    are those of a question with a list of answers: nll is their sum.
    """

    model: Annotated[str, Meta(description="the model's name, as in the manifest")]
    probe: Annotated[str, Meta(description="the probe that asked")]
    task: Annotated[str, Meta(description="the task, list or passage that was asked")]
    point: Annotated[Count, Meta(description="the number of the test point within its task, equal in all conditions")]
    condition: Annotated[dict[str, Any], Meta(description="what the probe varies, such as masks, location or relevant")]
    masks: Annotated[Count, Meta(description="masks that the model saw, the answer's own included")]
    predicted: Annotated[str, Meta(description="the most probable token of the vocabulary, or the one decoded")]
    answer: Annotated[str, Meta(description="the right answer")]
    correct: Annotated[bool, Meta(description="is predicted the answer?")]
    confidence: Annotated[Share | None, Meta(description="probability of predicted")] = None
    entropy: Annotated[float | None, Meta(description="of the prediction, in nats")] = None
    nll: Annotated[float | None, Meta(description="-log P(the answer's first token), in nats")] = None
    offset: Annotated[Count | None, Meta(description="block diffusion: the answer's place in its block")] = None
    visible: Annotated[Count | None, Meta(description="block diffusion: masks that the answer sees")] = None
    nll_allowed: Annotated[float | None, Meta(description="-log P(one of the listed answers): the format")] = None
    nll_choice: Annotated[float | None, Meta(description="-log P(the right one of them): the content")] = None
    evidence: Annotated[Evidence, Meta(description="further measurements of the probe")] = msgspec.field(
        default_factory=dict
    )


class ProbeFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the structs that say what `condition` and `evidence` hold in a probe's records."""


class RecordFields(NamedTuple):
    """The two structs of a probe; None where its records are not checked."""

    condition: type[ProbeFields] | None = None
    evidence: type[ProbeFields] | None = None


def struct_of(types: FieldTypes, base: type[ProbeFields] = ProbeFields) -> type[ProbeFields]:
    """The struct of a mapping of fields; a name may have spaces, as {"extra masks": Count}."""
    names = {name.replace(" ", "_"): name for name in types}
    listed = [(own, types[name], *[UNSET] * (UnsetType in get_args(types[name]))) for own, name in names.items()]
    fields: Any = msgspec.defstruct("Fields", listed, bases=(base,), rename=names, frozen=True, kw_only=True)
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
