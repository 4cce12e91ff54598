"""Words for models without a mask token: their masks are canvas positions that hold random tokens."""

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from maskwise.models.families import FAMILIES
from maskwise.probes.section import MASKS_AT_THE_END, Section
from maskwise.report.readings import Reading

T = TypeVar("T")
# Not about this model, or not words.
_LEFT_ALONE = ("paper", "published", "prompts", "folder", "label", "facts", "of", "id", "probe", "notes", "commands")
_SINGULAR = re.compile(r"\b(M|m)ask\b(?![-_ ]?(?:tax|token|count))")


def in_words_of(readings: Sequence[Reading], value: T) -> T:
    """A value that holds texts, in canvas words where all of these models have no mask token."""
    kinds = {family.name for family in FAMILIES if family.noised}
    return in_canvas_words(value) if all(reading.manifest.model.kind in kinds for reading in readings) else value


def axes_in_words_of(readings: Sequence[Reading], sections: list[tuple[str, Section]]) -> list[tuple[str, Section]]:
    return [(probe, replace(one, x_label=in_words_of(readings, one.x_label))) for probe, one in sections]


def in_canvas_words(value: Any) -> Any:
    """Texts, and what holds texts, with canvas positions in place of masks."""
    if isinstance(value, str):
        text = value.replace(MASKS_AT_THE_END, "Canvas size (k)").replace("Appended masks", "A larger canvas")
        text = text.replace("masks", "canvas positions").replace("Masks", "Canvas positions")
        return type(value)(_SINGULAR.sub(lambda found: f"{'C' if found[1] == 'M' else 'c'}anvas position", text))
    if isinstance(value, dict):
        return {key: one if key in _LEFT_ALONE else in_canvas_words(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(in_canvas_words, value))
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.name not in _LEFT_ALONE]
        return replace(value, **{name: in_canvas_words(getattr(value, name)) for name in names})
    return value
