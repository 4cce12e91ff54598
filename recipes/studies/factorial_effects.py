"""Main effects and two-way interactions of the trainings of factorial.py, with intervals: tables and one figure.

1. An effect is the mean of the cells at +1 minus the mean of those at -1; repeats of a cell are averaged first.
2. Its 95 % interval adds two variances: between repeats of one cell, pooled over the repeated cells, with Student's t
   for its degrees of freedom (assumed equal in all cells, which does not hold where only some have learnt); and over
   questions, the three rules of a contrast question together, for these tasks. No adjustment for multiple effects.
3. Effects are read at the end of training, and at matched accuracy: the mean over all exams during training at which a
   run's accuracy on near contrast questions, averaged over mask counts, lies between 60 and 90 %. Runs that were never
   in that band have no reading.
4. The tables are printed, per run too; the figure shows the effects with their intervals.

Hardware: a CPU. FACTORIAL and LEARNT are the folders that factorial.py wrote, without and with --learnt.

    python recipes/studies/factorial_effects.py FACTORIAL LEARNT --figure docs/figures/factorial.svg
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from factorial import FACTORS
from maskwise.report.figures.drawing import CURVES, INK, PAPER, SOFT, drawing_style, svg_of
from maskwise.tasks.contrast_questions import RULES

BAND = (0.6, 0.9)
FEW, MANY = 2, 200


@dataclass(frozen=True)
class Measure:
    """A sum of mean answers: what is read of them (right or nats), and the factor of each exam and number of masks."""

    title: str
    kind: str
    terms: tuple[tuple[str, int, float], ...]
    digits: int = 3


def cost_of_masks(title: str, exam: str) -> Measure:
    return Measure(title, "nats", ((exam, MANY, 1), (exam, FEW, -1)))


NEAR = Measure("accuracy near, points", "right", (("contrast near", FEW, 100),), 1)
LOCALITY = Measure("locality (far less near), nats", "nats", (("contrast far", FEW, 1), ("contrast near", FEW, -1)))
MASKS_NEAR = cost_of_masks("198 more masks, near, nats", "contrast near")
MASKS_FAR = cost_of_masks("198 more masks, far, nats", "contrast far")
RECALL = Measure("recall accuracy near, points", "right", (("recall near", FEW, 100),), 1)
RECALL_LOCALITY = Measure("recall locality, nats", "nats", (("recall far", FEW, 1), ("recall near", FEW, -1)))
RECALL_MASKS_NEAR = cost_of_masks("198 more masks, recall near, nats", "recall near")
RECALL_MASKS_FAR = cost_of_masks("198 more masks, recall far, nats", "recall far")
CONTRAST = (NEAR, LOCALITY, MASKS_NEAR, MASKS_FAR)
ALL = (*CONTRAST, RECALL, RECALL_LOCALITY, RECALL_MASKS_NEAR, RECALL_MASKS_FAR)

Parts = list[np.ndarray]  # one array [R, n] for each set of questions; the value is the sum of their means over n


@dataclass(frozen=True)
class Effect:
    name: str
    value: float
    runs: float  # half of the interval that each source alone would give
    questions: float

    @property
    def half(self) -> float:
        return float(np.hypot(self.runs, self.questions))


class Experiment:
    """The design and all answers of one folder."""

    def __init__(self, folder: Path) -> None:
        self.facts: dict[str, Any] = json.loads((folder / "results.json").read_text())
        with np.load(folder / "answers.npz") as stored:
            self.answers = {name: stored[name].astype(float) for name in stored.files}
        self.names = [run["name"] for run in self.facts["runs"]]
        self.levels = np.array([run["levels"] for run in self.facts["runs"]])
        self.exams = self.facts["exams"]

    def parts(self, measure: Measure, exam: int) -> Parts:
        """Answers by question at one exam; near and far of a contrast question are the same question."""
        sums: dict[str, Any] = defaultdict(float)
        for name, masks, factor in measure.terms:
            answers = factor * self.answers[f"{exam} {name} {masks} {measure.kind}"]
            sums["contrast" if name.startswith("contrast") else name] += answers
        return [self._by_question(name, part) for name, part in sums.items()]

    def _by_question(self, name: str, part: np.ndarray) -> np.ndarray:
        return part.reshape(len(part), -1, RULES).mean(2) if name == "contrast" else part

    def at_end(self, measure: Measure) -> Parts:
        return self.parts(measure, len(self.exams) - 1)

    def matched(self, measure: Measure) -> Parts:
        """As at_end, of the exams in the band; NaN in runs that have none."""
        inside = self.in_band()  # [exams, R]
        counted = [exam for exam in range(len(self.exams)) if inside[exam].any()]
        by_exam = [self.parts(measure, exam) for exam in counted]
        weights = inside[counted][:, :, None].astype(float)
        with np.errstate(invalid="ignore"):
            return [(np.stack(parts) * weights).sum(0) / weights.sum(0) for parts in zip(*by_exam, strict=True)]

    def in_band(self) -> np.ndarray:
        """[exams, R]: along the way only, and of runs with an autoregressive start what came after it."""
        inside = np.zeros((len(self.exams), len(self.names)), dtype=bool)
        kinds = [exam["kind"] for exam in self.exams]
        start = kinds.index("start") if "start" in kinds else -1
        for number, exam in enumerate(self.exams):
            if exam["kind"] == "along":
                near = np.mean([exam["found"][f"contrast near {k}"]["right"] for k in self.facts["masks"]], axis=0)
                diffusion = (self.levels[:, 3] < 0) | (number > start)
                inside[number] = (near >= BAND[0]) & (near <= BAND[1]) & diffusion
        return inside


def values_of(parts: Parts) -> np.ndarray:
    """[R]"""
    return np.sum([part.mean(1) for part in parts], axis=0)


def noise(levels: np.ndarray, values: np.ndarray) -> tuple[float, int]:
    """Standard deviation between repeats of a cell, pooled over cells, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    known = ~np.isnan(values)
    for cell in np.unique(levels, axis=0):
        alike = values[known & (levels == cell).all(1)]
        if len(alike) > 1:
            squares, freedom = squares + alike.var() * len(alike), freedom + len(alike) - 1
    return (float(np.sqrt(squares / freedom)) if freedom else np.nan), freedom


def effects(levels: np.ndarray, parts: Parts, which: np.ndarray | None = None) -> list[Effect]:
    """Main effects and two-way interactions of the factors that vary among the runs `which` [R], default: all.

    Those runs' cells must be a balanced fraction in which the effects are orthogonal. The noise is of all runs.
    """
    values = values_of(parts)
    spread, freedom = noise(levels, values)
    which = np.ones(len(levels), dtype=bool) if which is None else which
    cells, cell_of, counts = np.unique(levels[which], axis=0, return_inverse=True, return_counts=True)
    varying = [factor for factor in range(levels.shape[1]) if len(np.unique(cells[:, factor])) > 1]
    columns = [factors for size in (1, 2) for factors in combinations(varying, size)]
    contrasts = np.stack([cells[:, factors].prod(1) for factors in columns])
    assert (contrasts @ contrasts.T == len(cells) * np.eye(len(columns))).all(), "the effects are not orthogonal"
    found = []
    for factors, contrast in zip(columns, contrasts, strict=True):
        weights = (2 / len(cells) * contrast / counts)[cell_of]  # [runs of which]
        by_question = [weights @ part[which] for part in parts]
        found.append(
            Effect(
                "".join(FACTORS[factor][0] for factor in factors),
                float(weights @ values[which]),
                float(stats.t.ppf(0.975, freedom) * spread * np.sqrt((weights**2).sum())) if freedom else np.nan,
                float(1.96 * np.sqrt(sum(one.var(ddof=1) / len(one) for one in by_question))),
            )
        )
    return found


# Tables


def number(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def effect_table(levels: np.ndarray, measured: Sequence[tuple[Measure, Parts]], which: np.ndarray | None = None) -> str:
    """Markdown: a row per effect, a column per measure; bold where the interval leaves zero out."""
    columns = [effects(levels, parts, which) for _, parts in measured]
    lines = [
        "| effect | " + " | ".join(measure.title for measure, _ in measured) + " |",
        "|---" * (len(measured) + 1) + "|",
    ]
    for row in zip(*columns, strict=True):
        cells = []
        for effect, (measure, _) in zip(row, measured, strict=True):
            text = f"{number(effect.value, measure.digits)} ± {effect.half:.{measure.digits}f}"
            cells.append(f"**{text}**" if abs(effect.value) > effect.half else text)
        lines.append(f"| {row[0].name} | " + " | ".join(cells) + " |")
    shares = [
        f"{measure.title}: sd of repeats {noise(levels, values_of(parts))[0]:.{measure.digits}f} "
        f"({noise(levels, values_of(parts))[1]} df), half-width by runs {column[0].runs:.{measure.digits}f}, "
        f"by questions {min(e.questions for e in column):.{measure.digits}f} to "
        f"{max(e.questions for e in column):.{measure.digits}f}"
        for column, (measure, parts) in zip(columns, measured, strict=True)
    ]
    return "\n".join([*lines, "", *shares])


def run_table(experiment: Experiment, measured: Sequence[tuple[Measure, Parts]]) -> str:
    """Markdown: a row per run with the interval over questions."""
    lines = [
        "| run | " + " | ".join(measure.title for measure, _ in measured) + " |",
        "|---" * (len(measured) + 1) + "|",
    ]
    for place, name in enumerate(experiment.names):
        cells = []
        for measure, parts in measured:
            value = values_of(parts)[place]
            half = 1.96 * np.sqrt(sum(part[place].var(ddof=1) / part.shape[1] for part in parts))
            cells.append("" if np.isnan(value) else f"{number(value, measure.digits)} ± {half:.{measure.digits}f}")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# The figure


def figure(main: Experiment, learnt: Experiment) -> str:
    """SVG: effects of the factorial at the end, and what masks do to each run that was in the band."""
    from matplotlib.figure import Figure

    with drawing_style():
        drawing = Figure(figsize=(10.4, 5.4), layout="constrained")
        drawing.set_facecolor(PAPER)
        axes = drawing.subplots(1, 4, width_ratios=(1, 1, 1, 1.35))
        for axis, measure, title in zip(
            axes, (NEAR, LOCALITY, MASKS_FAR), ("Accuracy, near", "Locality", "198 more masks, far"), strict=False
        ):
            draw_effects(axis, effects(main.levels, main.at_end(measure)))
            axis.set_title(title, loc="left")
            axis.set_xlabel("effect, points" if measure is NEAR else "effect, nats")
        axes[0].set_ylabel("main effects and two-way interactions")
        for axis in axes[1:3]:
            axis.set_yticklabels([])
        draw_runs(axes[3], [main, learnt])
        return svg_of(drawing)


def draw_effects(axis: Any, found: Sequence[Effect]) -> None:
    places = range(len(found))
    for place, effect in zip(places, found, strict=True):
        sure = abs(effect.value) > effect.half
        axis.hlines(place, effect.value - effect.half, effect.value + effect.half, color=CURVES[0] if sure else SOFT)
        axis.plot(effect.value, place, marker="o", markersize=5, color=CURVES[0] if sure else SOFT)
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(places, [effect.name for effect in found])
    axis.set_ylim(len(found) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)


def spaced(name: str) -> str:
    """A run's signs apart, so that minuses are no line: `+--++ 2` -> `+ − − + +  2`."""
    signs, *repeat = name.replace("-", "−").split()
    return "  ".join([" ".join(signs), *repeat])


def draw_runs(axis: Any, experiments: Sequence[Experiment]) -> None:
    """Matched accuracy: nats added by masks on far questions; runs of filled rows and of documents that end apart."""
    found = []
    for number_, experiment in enumerate(experiments):
        (part,) = experiment.matched(MASKS_FAR)
        for place, name in enumerate(experiment.names):
            if not np.isnan(part[place]).any():
                half = 1.96 * part[place].std(ddof=1) / np.sqrt(part.shape[1])
                found.append((experiment.levels[place, 2], number_, name, part[place].mean(), half))
    found.sort(key=lambda one: (one[0], one[1]))
    for place, (ends, number_, _, value, half) in enumerate(found):
        colour = CURVES[1] if ends > 0 else CURVES[2]
        axis.hlines(place, value - half, value + half, color=colour)
        axis.plot(value, place, marker="os"[number_], markersize=5, color=colour)
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(found)), [spaced(name) for _, _, name, _, _ in found])
    axis.set_ylim(len(found) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)
    filled = sum(ends < 0 for ends, *_ in found)
    for text, place, colour in (
        ("rows filled", filled - 1, CURVES[2]),
        ("documents\nthat end", len(found) - 1, CURVES[1]),
    ):
        axis.annotate(text, (0.03, place + 0.3), xycoords=("axes fraction", "data"), color=colour)
    axis.set_title("198 more masks, far, at 60 to 90 %", loc="left")
    axis.set_xlabel("nats added, by run (A to E)\n● factorial  ■ second experiment")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factorial", type=Path, help="folder of factorial.py")
    parser.add_argument("learnt", type=Path, help="folder of factorial.py --learnt")
    parser.add_argument("--figure", type=Path, help="SVG file to write")
    arguments = parser.parse_args()
    whole, learnt = Experiment(arguments.factorial), Experiment(arguments.learnt)
    for experiment in (whole, learnt):
        last = experiment.exams[-1]
        print(
            f"# {len(experiment.names)} runs, {last['tokens'] / 1e6:.0f} M tokens each, {experiment.facts['device']}\n"
        )
        at_end = [(measure, experiment.at_end(measure)) for measure in ALL]
        matched = [(measure, experiment.matched(measure)) for measure in ALL]
        print(
            "At the end\n\n" + run_table(experiment, at_end) + "\n\n" + effect_table(experiment.levels, at_end) + "\n"
        )
        print("At matched accuracy\n\n" + run_table(experiment, matched) + "\n")
    focused = learnt.levels[:, 4] > 0
    print("# B and C under the recipe's objective, the second experiment\n\nAt the end\n")
    print(effect_table(learnt.levels, [(measure, learnt.at_end(measure)) for measure in ALL], focused))
    print("\nAt matched accuracy\n")
    print(effect_table(learnt.levels, [(measure, learnt.matched(measure)) for measure in ALL], focused))
    if arguments.figure:
        arguments.figure.write_text(figure(whole, learnt), encoding="utf-8")


if __name__ == "__main__":
    main()
