"""The paper's measurements on a published checkpoint, with our predictions next to them, in one file to send back.

1. `--paper`: the sixteen tasks, ten relevant examples among forty distractors (Piskorz et al., arXiv 2511.21338).
2. Word sets I and II (`--words unfamiliar-1`, `unfamiliar-2`) in the same setting, probe mask-count with
   `--select-tasks`: mask tax over the sets with room for a loss, and change of the likelihood over all sets.
3. The predictions below were written before anyone ran this on a published checkpoint. Each is an interval for one
   number; the file says whether the measured value lies inside it.

Hardware: one GPU that holds the model in bfloat16 (24 GB for 7 to 8 billion parameters). Run again, it resumes.

    python recipes/studies/reproduce_paper.py GSAI-ML/LLaDA-8B-Base --out reproduced --questions 100
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

import maskwise as mw
from maskwise.probes.examples import main_records
from maskwise.probes.published import last_part, paper_model
from maskwise.probes.section import Entry
from maskwise.probes.select_tasks import SUMMARY as SELECTED
from maskwise.runs.run import Run

PAPER_PROBES = ("location", "mask-count", "filler")
SETS = ("unfamiliar-1", "unfamiliar-2")
FILE = "send-back.json"


@dataclass(frozen=True)
class Prediction:
    """Where we expect a number of a model of the paper: shares and nats, with the reason."""

    measure: str
    models: tuple[str, ...]
    low: float
    high: float
    why: str


LLADA, DREAM = ("LLaDA-8B-Base", "LLaDA-8B-Instruct"), ("Dream-7B-Base", "Dream-7B-Instruct")
PREDICTIONS = (
    Prediction(
        "paper: accuracy, 200 masks less 2", LLADA[:1], -0.33, -0.13, "published -.23; other words and contexts"
    ),
    Prediction(
        "paper: accuracy, 200 masks less 2", LLADA[1:], -0.37, -0.17, "published -.27; other words and contexts"
    ),
    Prediction("paper: accuracy, 20 masks less 2", DREAM[:1], -0.12, 0.0, "published -.06"),
    Prediction("paper: accuracy, 20 masks less 2", DREAM[1:], -0.14, -0.02, "published -.08"),
    Prediction("unfamiliar-1: sets with room", LLADA + DREAM, 4, 12, "common English words, ten examples"),
    Prediction(
        "unfamiliar-1: mask tax over sets with room", LLADA, 0.1, 0.8, "masks cost as much as on the paper's tasks"
    ),
    Prediction(
        "unfamiliar-1: mask tax over sets with room", DREAM, -0.1, 0.35, "Dream's published loss is a quarter of it"
    ),
    Prediction("unfamiliar-1: nats lost to masks", LLADA, 0.05, 1.5, "the likelihood falls with the accuracy"),
    Prediction("unfamiliar-1: nats lost to masks", DREAM, -0.1, 0.5, "tiny-dream +.05 on these words"),
    Prediction("unfamiliar-2: nats lost to masks", LLADA, 0.05, 1.5, "as set I, which nothing was chosen on"),
    Prediction("unfamiliar-2: nats lost to masks", DREAM, -0.1, 0.5, "as set I"),
)


@dataclass(frozen=True)
class Measured:
    """A number with its 95 % interval; null where it was inconclusive, and then why."""

    measure: str
    value: float | None
    low: float | None
    high: float | None
    why: str | None = None


def measured(paper: Run, sets: dict[str, Run]) -> Iterator[Measured]:
    for count in (20, 200):
        entry = mask_entry(paper, count)
        if entry is not None and entry.paired:
            pair = entry.paired
            yield Measured(f"paper: accuracy, {count} masks less 2", pair.difference, pair.low, pair.high)
    for name, run in sets.items():
        summary = run.reading.summary
        tax, nats = summary.scores["mask_tax"], summary.scores["mask_nats"]
        yield Measured(f"{name}: sets with room", len(summary.extras[SELECTED].tasks), None, None)
        yield Measured(f"{name}: mask tax over sets with room", tax.value, tax.low, tax.high, tax.why)
        yield Measured(f"{name}: nats lost to masks", nats.value, nats.low, nats.high, nats.why)


def mask_entry(run: Run, count: int) -> Entry | None:
    entries = main_records(run.reading.summary.probes.get("mask-count", []))
    return next((entry for entry in entries if entry.condition["masks"] == count), None)


def verdict(model: str | None, found: Measured) -> dict[str, object]:
    """The prediction for this model, and whether the value lies in it; empty where there is none."""
    for one in PREDICTIONS:
        if model in one.models and one.measure == found.measure:
            inside = None if found.value is None else one.low <= found.value <= one.high
            return {"predicted": [one.low, one.high], "inside": inside, "why_predicted": one.why}
    return {}


def run_all(model: mw.Model, out: Path, points: int | None, probes: tuple[str, ...] = PAPER_PROBES) -> Path:
    """Asks everything and writes the file to send back."""
    chat = "instruct" in last_part(model.name)  # the paper asks Instruct models through the chat template
    paper = mw.diagnose(model, list(probes), preset="paper", questions=points, chat=chat, out=out / "paper")
    sets = {
        name: mw.diagnose(
            model,
            "mask-count",
            preset="paper",
            points=points,
            chat=chat,
            select_tasks=True,
            words=name,
            out=out / name,
        )
        for name in SETS
    }
    named = paper_model(model.name)
    rows = [asdict(one) | verdict(named, one) for one in measured(paper, sets)]
    described = paper.manifest.model
    content = {
        "model": described.to_dict() | {"name": Path(described.name).name, "of_the_paper": named},
        "versions": paper.manifest.versions,
        "points": paper.manifest.settings.questions,
        "measured": rows,
        SELECTED: {name: run.reading.summary.extras[SELECTED] for name, run in sets.items()},
    }
    file = out / FILE
    file.write_text(json.dumps(msgspec.to_builtins(content), indent=1) + "\n", encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a checkpoint folder or a published name")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int, help="questions per task; 1000 unless given, as in the paper")
    parser.add_argument("--device")
    options = parser.parse_args()
    file = run_all(mw.open(options.model, device=options.device), options.out, options.points)
    for row in json.loads(file.read_text(encoding="utf-8"))["measured"]:
        print(row)
    print(f"send back: {file}")


if __name__ == "__main__":
    main()
