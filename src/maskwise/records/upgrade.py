"""Folders of earlier versions under today's names: probes that became one, and the number of relevant examples."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, structs

from maskwise.records.manifest import Manifest
from maskwise.records.record import Condition
from maskwise.support.errors import UserError
from maskwise.support.removed import REMOVED
from maskwise.support.typed import decode

OLD = "maskwise at commit cc8a75cd reads it"
PAPER_RELEVANT = 10  # conditions of these probes left it out until format 2
FEW_SHOT = {"location", "mask-count", "filler", "context-length", "steps", "block-offset", "select-tasks"}

# {earlier probe: (today's, entries that tell its conditions apart in there, its parameters as today's)}
EARLIER: dict[str, tuple[str, Condition, Callable[..., dict[str, Any]]]] = {
    "attribution": ("attribution", {"of": "examples"}, lambda **own: {"of": ["examples"], **own}),
    "mask-attribution": ("attribution", {"of": "masks"}, lambda **own: {**own, "of": ["masks"]}),
    "attention": ("attribution", {"of": "attention"}, lambda **own: {**own, "of": ["attention"]}),
    "filler": ("filler", {"format": "A"}, dict),
    "hotpotqa": ("datasets", {}, dict),
    "labelled-text": ("datasets", {}, dict),
    "unmasking": ("steps", {"steps": 40}, lambda steps=40, **own: {**own, "random": [steps], "confident": [steps]}),
    "few-steps": ("steps", {"order": "random"}, lambda steps=(), **own: {**own, "random": steps, "confident": []}),
    "location": (
        "location",
        {"question": "right", "masks": 0},
        lambda **own: {"places": ["right"], "mask_counts": [], **own},
    ),
    "question-position": ("location", {"masks": 0}, lambda **own: {"mask_counts": [], **own}),
    "location-masks": ("location", {"question": "right"}, lambda **own: {"places": ["right"], **own}),
    "points": ("points", {"question": "right", "examples": 100, "share": 0.0}, dict),
    "shots-masks": ("mask-count", {}, lambda masks=(), **own: {**own, "mask_counts": [], "extra": masks}),
}
MERGED = {name: today for name, (today, _, _) in EARLIER.items() if name != today}
RENAMED = {"shots-masks": {"extra masks": "extra"}}  # entries of conditions


def upgrade(probe: str, condition: Condition, relevant: list[int] | int | None = None) -> tuple[str, Condition]:
    """Today's probe and condition; what is today's stays as it is. relevant: of the settings, one number in 0.1."""
    names = RENAMED.get(probe, {})
    probe, added, _ = EARLIER.get(probe, (probe, {}, dict))
    condition = {names.get(name, name): value for name, value in condition.items()}
    condition = condition if added.keys() <= condition.keys() else {**added, **condition}
    if probe in FEW_SHOT and not {"relevant", "shots"} & condition.keys():
        condition["relevant"] = relevant if isinstance(relevant, int) else PAPER_RELEVANT
    return probe, condition


def with_todays_names(manifest: bytes) -> bytes:
    """A manifest as JSON: what was called points is called questions."""
    content = decode(manifest, dict[str, Any])
    settings = content.get("settings")
    if isinstance(settings, dict) and "points" in settings:
        settings["questions"] = settings.pop("points")
    return msgspec.json.encode(content)


def upgraded(folder: Path, manifest: Manifest) -> Manifest:
    """The manifest with today's probes and their parameters, and a note on those removed since, which stay in its list:
    their answers are skipped. A probe that several became asks what any of them asked: its lists hold all of theirs."""
    if manifest.model.kind == "served":
        raise UserError(f"{folder} is a run of --endpoint, removed in 0.3; {OLD}")
    probes = list(dict.fromkeys(MERGED.get(name, name) for name in manifest.settings.probes))
    removed = ", ".join(name for name in probes if name in REMOVED["probe"])
    if removed and all(name in REMOVED["probe"] for name in probes):
        raise UserError(f"{folder} holds nothing but answers of probes removed in 0.3 ({removed}); {OLD}")
    parameters: dict[str, dict[str, Any]] = {}
    for name, given in (manifest.settings.parameters or {}).items():
        probe, _, as_todays = EARLIER.get(name, (name, {}, dict))
        found = parameters.setdefault(probe, {})
        for key, value in as_todays(**given).items():
            both = key in found and isinstance(value, list)
            found[key] = [*dict.fromkeys([*found[key], *value])] if both else found.get(key, value)
    seen: dict[str, list[int]] = {}
    for name, counts in ({} if manifest.not_visible is UNSET else manifest.not_visible).items():
        known = seen.setdefault(MERGED.get(name, name), [])
        known += [count for count in counts if count not in known]
    note = f"answers of {removed} are skipped: these probes were removed in 0.3; maskwise at commit cc8a75cd shows them"
    settings = structs.replace(manifest.settings, probes=probes, parameters=parameters or None)
    notes = [*manifest.notes, *[note] * bool(removed)]
    return structs.replace(manifest, settings=settings, not_visible=seen or UNSET, notes=notes)
