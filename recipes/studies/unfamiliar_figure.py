"""Change of accuracy from 2 to 200 masks by kind of question, a dot a model.

python recipes/studies/unfamiliar_figure.py results_mixed.json unfamiliar.svg
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

STUDIES = {
    "mixed none": "all words\nfamiliar",
    "mixed lead": "one word in\nten unfamiliar",
    "mixed target": "right option\nunfamiliar",
    "mixed one other": "one wrong\noption unfamiliar",
    "mixed both others": "both wrong\noptions unfamiliar",
}
MODELS = {
    "seed0": "tiny-llada (seed 0)",
    "seed1": "seed 1",
    "seed2": "seed 2",
    "seed3": "seed 3",
    "tiny-dream": "tiny-dream",
}
MARKERS = "os^Dv"
COLOURS = ("#1b1b1b", "#d55e00", "#0072b2", "#009e73", "#767676")


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text())
    plt.rcParams |= {"svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif", "svg.hashsalt": "maskwise"}
    figure, axes = plt.subplots(figsize=(7.6, 3.7))
    axes.axhline(0, color="#888", linewidth=0.8)
    for number, (model, colour) in enumerate(zip(MODELS, COLOURS, strict=True)):
        values = [results[model][study]["masks 200"]["accuracy"]["difference"] for study in STUDIES]
        mean, low, high = (([100 * value[end] for value in values]) for end in range(3))
        places = [place + 0.13 * (number - 2) for place in range(len(STUDIES))]
        errors = [[m - a for m, a in zip(mean, low, strict=True)], [b - m for m, b in zip(mean, high, strict=True)]]
        axes.errorbar(
            places, mean, errors, fmt=MARKERS[number], color=colour, markersize=5, linewidth=1.4, label=MODELS[model]
        )
    axes.set_xticks(range(len(STUDIES)), STUDIES.values())
    axes.set_ylabel("accuracy, 200 masks minus 2\n(points)")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.legend(frameon=False, loc="upper left", ncols=2, fontsize=9)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
