"""Published values of the paper's models and our predictions, both fixed before a run (published.yaml)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

from maskwise.records.manifest import Manifest
from maskwise.scoring.estimates import Estimate
from maskwise.tasks.word_sources import load_word_source


class Published(NamedTuple):
    probe: str
    measured: Estimate
    published: float | None
    predicted: list[float] | None  # lowest, highest

    def __str__(self) -> str:
        """`published -23.0; predicted -33.0 to -13.0: inside`"""
        one, said = self.measured, []
        if self.published is not None:
            said.append(f"published {one.text(self.published)}")
        if self.predicted and one.value is not None:
            low, high = self.predicted
            where = "inside" if low <= one.value <= high else "outside"
            said.append(f"predicted {one.text(low)} to {one.text(high)}: {where}")
        return "; ".join(said)


def published(manifest: Manifest, measured: Mapping[str, Sequence[Estimate]]) -> Iterator[Published]:
    """Of runs with --paper in the paper's prompt format: Instruct models through the chat template, Base without."""
    import yaml

    asked, model = manifest.settings, PureWindowsPath(manifest.model.name).name.lower()
    kinds = [one + " with --select-tasks" * ("select-tasks" in asked.probes) for one in ("published", "predicted")]
    if asked.preset == "paper" and asked.chat == ("instruct" in model):
        known = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
        words = next((one for one in known if {*asked.tasks} <= {t.name for t in load_word_source(one).tasks}), None)
        for probe, one in ((probe, one) for probe, found in measured.items() for one in found if words):
            if any(own := [known[words].get(kind, {}).get(probe, {}).get(one.name, {}).get(model) for kind in kinds]):
                yield Published(probe, one, *own)
