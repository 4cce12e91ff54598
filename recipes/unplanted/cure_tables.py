"""Both ends of every tuning of cure_both_ends.py: accuracy and choice with 2 and 200 masks, and what was recovered.

Intervals: Student's t over sources (pairs of kinds), paired by question. Recovered: (a200 tuned - a200) / (a2 - a200)
of the untuned model, with the interval of Fieller's method over sources. UNTUNED may hold the untuned models' answers
of unfamiliar_words.py, whose questions begin with the same ones.

    python recipes/unplanted/cure_tables.py OUT [--untuned UNTUNED]
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy import stats

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("studies", "zoo")]  # questions and corpora

from unfamiliar_tables import load, t_interval

Arrays = dict[str, np.ndarray]
ALIASES = {"sets I": "sets", "listed": "listed 5+10"}  # names of the same questions in unfamiliar_words.py


def fieller(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float, float]:
    """The ratio of two paired means [n], and its 95 % interval; infinite where the lower mean may be 0."""
    a, b, n = top.mean(), bottom.mean(), len(top)
    (vaa, vab), (_, vbb) = np.cov(top, bottom) / n
    t = stats.t.ppf(0.975, n - 1) ** 2
    square, middle, rest = b * b - t * vbb, a * b - t * vab, a * a - t * vaa
    root = middle * middle - square * rest
    if square <= 0 or root < 0:
        return a / b, -np.inf, np.inf
    return a / b, (middle - root**0.5) / square, (middle + root**0.5) / square


def ends(arrays: Arrays, study: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Answers with 2 and 200 masks, [sources, count, 3]."""
    name = study if f"{study}|masks 2" in arrays else ALIASES.get(study, study)
    few, many = (arrays[f"{name}|masks {masks}"][:, :count] for masks in (2, 200))
    return few, many


def row(name: str, study: str, after: Arrays, before: Arrays | None) -> str:
    few, many = ends(after, study, 10**6)
    cells = [f"{100 * few[..., 0].mean():.1f} -> {100 * many[..., 0].mean():.1f}"]
    cells.append(f"{few[..., 2].mean():.2f} -> {many[..., 2].mean():.2f}")
    if before is not None:
        few_before, many_before = ends(before, study, few.shape[1])
        for tuned, untuned in ((few, few_before), (many, many_before)):
            mean, low, high = t_interval(100 * (tuned - untuned)[..., 0].mean(1))
            nats = t_interval((tuned - untuned)[..., 2].mean(1))
            cells.append(f"{mean:+.1f} ({low:.1f} to {high:.1f}); {nats[0]:+.2f} ({nats[1]:.2f} to {nats[2]:.2f})")
        won, lost = ((one - many_before)[..., 0].mean(1) for one in (many, few_before))
        share, low, high = fieller(won, lost)
        cells.append(f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})")
    return f"| {study} | {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--untuned", type=Path, nargs="+", default=[], help="folders of unfamiliar_words.py")
    options = parser.parse_args()
    tuned = load(options.folder)
    untuned: dict[str, Arrays] = {}
    for folder in options.untuned:
        for name, arrays in load(folder).items():
            untuned.setdefault(name, {}).update(arrays)
    untuned |= {name.split("_-_")[0]: arrays for name, arrays in tuned.items() if "_-_none_-_" in name}
    print("| questions | tuning | accuracy %, 2 -> 200 masks | choice | tuned - untuned, 2 | 200 masks | recovered |")
    print("|---" * 7 + "|")
    for study in sorted({key.split("|")[0] for arrays in tuned.values() for key in arrays}):
        for name, arrays in tuned.items():
            if f"{study}|masks 2" in arrays:
                before = untuned.get(name.split("_-_")[0])
                known = before is not None and any(f"{one}|masks 2" in before for one in (study, ALIASES.get(study)))
                print(row(name, study, arrays, before if known and "_-_none_-_" not in name else None))


if __name__ == "__main__":
    main()
