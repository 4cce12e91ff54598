"""Effects of six training choices on what 200 masks do, from the answers of training_factorial.py: tables and a figure.

1. The response of a run is the mean over sets of the change from 2 to 200 masks; runs of one cell are averaged.
2. An effect is the mean of the cells at + minus the mean of those at -. First interval: Student's t over sets, the
   effect computed set by set. Second: over runs, residuals of the main-effects model, 9 degrees of freedom, so that
   interactions count as noise. Third: over questions of these sets, normal.
3. A folder with runs of one cell alone has no effects: per seed, over sets (mean of the seeds) and over seeds, the
   change of choice with 200 masks, with number questions, and their difference.
4. Accuracy is read where a task has 45 to 90 % with 2 masks on separate questions; likelihoods always.

    python recipes/unplanted/training_effects.py OUT --figure docs/figures/training-choices.svg
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("studies", "zoo")]  # questions and corpora

from training_factorial import FACTORS
from unfamiliar_tables import MEASURES, ROOM, question_half, t_interval

Answers = dict[str, np.ndarray]


@dataclass(frozen=True)
class Runs:
    """All runs: names, levels [R, 6], facts, and answers by "study|condition", each [sets, questions, 3]."""

    names: list[str]
    levels: np.ndarray
    facts: list[dict[str, Any]]
    answers: list[Answers]

    def change(self, study: str, after: str, measure: str, before: str = "masks 2") -> list[np.ndarray]:
        """Of each run: [sets, questions]."""
        number = MEASURES.index(measure)
        return [(one[f"{study}|{after}"] - one[f"{study}|{before}"])[..., number] for one in self.answers]

    def cells(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(levels [16, 6], values [16, ...]): runs of one cell averaged."""
        cells = sorted({tuple(one) for one in self.levels.tolist()})
        return np.array(cells), np.array([values[(self.levels == cell).all(1)].mean(0) for cell in cells])


def load(folder: Path) -> Runs:
    files = sorted(folder.glob("*.npz"))
    facts = [json.loads(file.with_suffix(".json").read_text()) for file in files]
    answers = [{key: value.astype(np.float64) for key, value in np.load(file).items()} for file in files]
    return Runs([file.stem for file in files], np.array([one["levels"] for one in facts]), facts, answers)


@dataclass(frozen=True)
class Effect:
    value: float
    over_sets: tuple[float, float]
    over_runs: tuple[float, float]
    questions_half: float

    @property
    def shown(self) -> bool:
        """Whether both intervals exclude 0."""
        return all(low > 0 or high < 0 for low, high in (self.over_sets, self.over_runs))


def effects(runs: Runs, changes: list[np.ndarray]) -> list[Effect]:
    """One effect a factor, of changes [sets, questions] by run."""
    levels, by_set = runs.cells(np.array([change.mean(1) for change in changes]))
    _, variance = runs.cells(np.array([question_half(change) ** 2 for change in changes]))
    response = by_set.mean(1)
    design = np.column_stack([np.ones(len(levels)), levels])
    fitted = design @ np.linalg.lstsq(design, response, rcond=None)[0]
    freedom = len(levels) - design.shape[1]
    spread = np.sqrt(((response - fitted) ** 2).sum() / freedom) * 2 / len(levels) ** 0.5
    half = float(stats.t.ppf(0.975, freedom) * spread)
    found = []
    for column in levels.T:
        contrast = 2 * column / len(levels)
        value, low, high = t_interval(contrast @ by_set)
        questions = float(np.sqrt((contrast**2) @ variance))
        found.append(Effect(value, (low, high), (value - half, value + half), questions))
    return found


def effect_table(runs: Runs) -> str:
    """Markdown: effects on the primary outcome, on number questions, and on the other questions."""
    columns = {
        "set I, 200 masks": runs.change("sets", "masks 200", "choice"),
        "set I, number questions": runs.change("sets", "numbers", "choice"),
        "set I, masks - numbers": runs.change("sets", "masks 200", "choice", "numbers"),
        "own kinds, 200 masks": runs.change("own", "masks 200", "choice"),
        "own word among new ones, 200 masks": runs.change("half", "masks 200", "choice"),
    }
    found = {title: effects(runs, changes) for title, changes in columns.items()}
    lines = ["| factor | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for number, (letter, plus, minus) in enumerate(FACTORS):
        cells = []
        for column in found.values():
            one = column[number]
            (a, b), (c, d) = one.over_sets, one.over_runs
            text = f"{one.value:+.3f} ({a:.3f} to {b:.3f}; {c:.3f} to {d:.3f}; ±{one.questions_half:.3f})"
            cells.append(f"**{text}**" if one.shown else text)
        lines.append(f"| {letter} {plus} / {minus} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def room(one: Answers, study: str) -> np.ndarray:
    """Which tasks have room, [sets] bool, on separate questions."""
    accuracy = one[f"screen {study}|masks 2"][..., 0].mean(1)
    return (accuracy >= ROOM[0]) & (accuracy <= ROOM[1])


def run_table(runs: Runs) -> str:
    """Markdown: a row a run; accuracy with 2 and 200 masks, choice at both ends, tasks with room and their change."""
    lines = ["| run | NELBO | " + " | ".join(f"{s}: accuracy %; choice 2 -> 200 (change, over sets); room"
                                             for s in ("sets", "own", "half")) + " |", "|---" * 5 + "|"]  # fmt: skip
    for name, facts, one in zip(runs.names, runs.facts, runs.answers, strict=True):
        cells = []
        for study in ("sets", "own", "half"):
            few, many = one[f"{study}|masks 2"], one[f"{study}|masks 200"]
            change = t_interval((many - few)[..., 2].mean(1))
            keep = room(one, study)
            text = f"{100 * few[..., 0].mean():.0f} -> {100 * many[..., 0].mean():.0f}; {few[..., 2].mean():.2f} -> "
            text += f"{many[..., 2].mean():.2f} ({change[0]:+.2f}, {change[1]:.2f} to {change[2]:.2f}); {keep.sum()}"
            if keep.any():
                points = t_interval(100 * (many - few)[keep][..., 0].mean(1))
                text += f": {points[0]:+.1f} ({points[1]:.1f} to {points[2]:.1f})"
            cells.append(text)
        lines.append(f"| {name} | {min(facts['nelbo']):.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def seed_table(runs: Runs) -> str:
    """Markdown: a row a seed of one cell; changes of choice on set I, then the mean over sets and over seeds."""
    columns = {
        "200 masks - 2": runs.change("sets", "masks 200", "choice"),
        "number questions - 2 masks": runs.change("sets", "numbers", "choice"),
        "200 masks - number questions": runs.change("sets", "masks 200", "choice", "numbers"),
    }
    by_set = [np.array([change.mean(1) for change in changes]) for changes in columns.values()]
    rows = {name: [one[place] for one in by_set] for place, name in enumerate(runs.names)}
    rows |= {"over sets": [one.mean(0) for one in by_set], "over seeds": [one.mean(1) for one in by_set]}
    lines = ["| set I, choice | " + " | ".join(columns) + " |", "|---" * 4 + "|"]
    for name, values in rows.items():
        cells = ["{:+.3f} ({:.3f} to {:.3f})".format(*t_interval(one)) for one in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figure(runs: Runs) -> str:
    """SVG: the effects on the primary outcome, and the response of every run against its accuracy on its own kinds."""
    from matplotlib.figure import Figure

    from maskwise.report.figures.drawing import CURVES, INK, PAPER, SOFT, drawing_style, svg_of

    changes = runs.change("sets", "masks 200", "choice")
    with drawing_style():
        drawing = Figure(figsize=(10.0, 3.9), layout="constrained")
        drawing.set_facecolor(PAPER)
        left, right = drawing.subplots(1, 2, width_ratios=(1.25, 1))
        for place, one in enumerate(effects(runs, changes)):
            colour = CURVES[0] if one.shown else SOFT
            left.hlines(place, *one.over_runs, color=colour, linewidth=1.2)
            left.hlines(place, *one.over_sets, color=colour, linewidth=4)
            left.plot(one.value, place, marker="o", markersize=6, color=INK)
        left.axvline(0, color=INK, linewidth=0.8)
        left.set_yticks(range(len(FACTORS)), [f"{plus}\n(instead of {minus})" for _, plus, minus in FACTORS])
        left.set_ylim(len(FACTORS) - 0.4, -0.6)
        left.set_xlabel("effect on the change from 2 to 200 masks, nats\nthick: 95 % over sets, thin: over runs")
        for place, change in enumerate(changes):
            accuracy = 100 * runs.answers[place]["own|masks 2"][..., 0].mean()
            mean, low, high = t_interval(change.mean(1))
            start = runs.levels[place, 3] > 0
            colour = CURVES[1] if start else CURVES[2]
            right.vlines(accuracy, low, high, color=colour, linewidth=1)
            size = 8 if runs.levels[place, 5] > 0 else 4
            right.plot(accuracy, mean, marker="o" if start else "s", markersize=size, color=colour)
        right.axhline(0, color=INK, linewidth=0.8)
        right.set_xlabel("accuracy on own kinds, 2 masks (%)\ncircle: AR start, square: from scratch; large: 15 M")
        right.set_ylabel("choice, 200 masks minus 2 (nats), new words")
        return svg_of(drawing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--figure", type=Path, help="SVG file to write")
    options = parser.parse_args()
    runs = load(options.folder)
    print(f"{len(runs.names)} runs, {runs.facts[0]['tokens'] / 1e6:.1f} M tokens each\n")
    one_cell = len({tuple(levels) for levels in runs.levels.tolist()}) == 1
    print(run_table(runs) + "\n\n" + (seed_table(runs) if one_cell else effect_table(runs)))
    if options.figure:
        options.figure.write_text(figure(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
