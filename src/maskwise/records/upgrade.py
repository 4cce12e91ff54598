"""Lines, manifests and samples of earlier versions under today's names: probes that became one.

An earlier probe's conditions get the entries in ADDED, which tell them apart in the probe they are part of now, and its
parameters those in PARAMETERS. A probe that several became asks what any of them asked: its lists hold all of theirs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, structs

from maskwise.records.manifest import Manifest
from maskwise.records.record import Condition
from maskwise.support.typed import decode

MERGED = {  # {earlier probe: today's}
    "mask-attribution": "attribution",
    "attention": "attribution",
    "hotpotqa": "datasets",
    "labelled-text": "datasets",
    "unmasking": "steps",
    "few-steps": "steps",
    "question-position": "location",
    "location-masks": "location",
    "shots-masks": "mask-count",
}
RENAMED = {"shots-masks": {"extra masks": "extra"}}  # entries of conditions
ADDED: dict[str, Condition] = {
    "attribution": {"of": "examples"},
    "mask-attribution": {"of": "masks"},
    "attention": {"of": "attention"},
    "unmasking": {"steps": 40},
    "few-steps": {"order": "random"},
    "filler": {"format": "A"},
    "location": {"question": "right", "masks": 0},
    "question-position": {"masks": 0},
    "location-masks": {"question": "right"},
}
Parameters = Mapping[str, Any]
PARAMETERS: dict[str, Callable[[Parameters], Parameters]] = {
    "attribution": lambda own: {"of": ["examples"], **own},
    "mask-attribution": lambda own: {**own, "of": ["masks"]},
    "attention": lambda own: {**own, "of": ["attention"]},
    "unmasking": lambda own: (
        without(own, "steps") | {"random": [own.get("steps", 40)], "confident": [own.get("steps", 40)]}
    ),
    "few-steps": lambda own: without(own, "steps") | {"random": own.get("steps", []), "confident": []},
    "location": lambda own: {"places": ["right"], "mask_counts": [], **own},
    "question-position": lambda own: {"mask_counts": [], **own},
    "location-masks": lambda own: {"places": ["right"], **own},
    "shots-masks": lambda own: {
        "mask_counts": [],
        "extra": own.get("masks", []),
        **{name: own[name] for name in ("shots", "clouds") if name in own},
    },
}


def with_todays_names(manifest: bytes) -> bytes:
    """A manifest as JSON: what was called points is called questions."""
    content = decode(manifest, dict[str, Any])
    if "points" in content.get("settings", {}):
        content["settings"]["questions"] = content["settings"].pop("points")
    return msgspec.json.encode(content)


def without(own: Parameters, name: str) -> dict[str, Any]:
    return {key: value for key, value in own.items() if key != name}


def upgrade(probe: str, condition: Condition) -> tuple[str, Condition]:
    """Today's probe and condition; what is today's stays as it is."""
    added, names = ADDED.get(probe, {}), RENAMED.get(probe, {})
    condition = {names.get(name, name): value for name, value in condition.items()} if names else condition
    return MERGED.get(probe, probe), condition if added.keys() <= condition.keys() else {**added, **condition}


def upgraded(manifest: Manifest) -> Manifest:
    """The manifest with today's probes and their parameters."""
    settings, not_visible = manifest.settings, {} if manifest.not_visible is UNSET else manifest.not_visible
    probes = list(dict.fromkeys(MERGED.get(name, name) for name in settings.probes))
    parameters: dict[str, dict[str, Any]] = {}
    for name, given in (settings.parameters or {}).items():
        found = parameters.setdefault(MERGED.get(name, name), {})
        for key, value in PARAMETERS.get(name, dict)(given).items():
            both = key in found and isinstance(value, list)
            found[key] = [*dict.fromkeys([*found[key], *value])] if both else found.get(key, value)
    seen: dict[str, list[int]] = {}
    for name, counts in not_visible.items():
        known = seen.setdefault(MERGED.get(name, name), [])
        known += [count for count in counts if count not in known]
    settings = structs.replace(settings, probes=probes, parameters=parameters if settings.parameters else None)
    return structs.replace(manifest, settings=settings, not_visible=seen or UNSET)
