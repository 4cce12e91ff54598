"""Lines, manifests and samples of earlier versions under today's names: probes that became one.

An earlier probe's conditions get the entries in ADDED, which tell them apart in the probe they are part of now. Its
parameters are that probe's; where one of them lists the parts asked (PARTS), it lists those of the earlier probes.
"""

from msgspec import UNSET, structs

from maskwise.records.manifest import Manifest
from maskwise.records.record import Condition

MERGED = {  # {earlier probe: today's}
    "mask-attribution": "attribution",
    "attention": "attribution",
    "hotpotqa": "datasets",
    "labelled-text": "datasets",
}
ADDED: dict[str, Condition] = {
    "attribution": {"of": "examples"},
    "mask-attribution": {"of": "masks"},
    "attention": {"of": "attention"},
}
PARTS = {"attribution": "of"}  # {today's probe: the parameter and the entry of a condition}


def upgrade(probe: str, condition: Condition) -> tuple[str, Condition]:
    """Today's probe and condition; what is today's stays as it is."""
    added = ADDED.get(probe, {})
    return MERGED.get(probe, probe), condition if added.keys() <= condition.keys() else {**added, **condition}


def upgraded(manifest: Manifest) -> Manifest:
    """The manifest with today's probes and their parameters."""
    settings, not_visible = manifest.settings, {} if manifest.not_visible is UNSET else manifest.not_visible
    probes = list(dict.fromkeys(MERGED.get(name, name) for name in settings.probes))
    parameters: dict[str, dict[str, object]] = {}
    for name, own in (settings.parameters or {}).items():
        found = parameters.setdefault(MERGED.get(name, name), {})
        found |= {key: value for key, value in own.items() if key not in found}
        part = PARTS.get(MERGED.get(name, name))
        if part is not None and part not in own:
            found[part] = [*found.get(part, []), ADDED[name][part]]  # type: ignore[misc]
    seen: dict[str, list[int]] = {}
    for name, counts in not_visible.items():
        known = seen.setdefault(MERGED.get(name, name), [])
        known += [count for count in counts if count not in known]
    settings = structs.replace(settings, probes=probes, parameters=parameters if settings.parameters else None)
    return structs.replace(manifest, settings=settings, not_visible=seen or UNSET)
