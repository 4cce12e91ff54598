"""Tables of what smol_unfamiliar.py and smol_training.py wrote: 2 and 200 masks, intervals t over word sets.

The changes in the other files are compared with those in the first.

    python recipes/unplanted/smol_tables.py OUT/smol_as-it-is.npz OUT/smol_plain.npz
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import t, ttest_1samp

LOW, HIGH = 0.45, 0.9  # accuracy at 2 masks on separate questions: room for a loss
Found = tuple[np.ndarray, np.ndarray]  # [24] True where a set has room, [24, n] change: right, format, choice


def interval(values: np.ndarray, digits: int) -> str:
    """Mean and 95 % interval over sets [n]."""
    if len(values) < 2:
        return "–"
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    mean = values.mean()
    return f"{mean:+.{digits}f} ({mean - half:.{digits}f} to {mean + half:.{digits}f})"


def rows(file: Path) -> Found:
    """Prints the lines of one model."""
    kept = np.load(file)
    screened = kept["screen|masks 2"][..., 0].mean(1)
    few, many = kept["asked|masks 2"], kept["asked|masks 200"]
    room, change = (screened >= LOW) & (screened <= HIGH), (many - few).mean(1)
    first = np.arange(24) < 12
    for name, chosen in (("room", room), ("room, I", room & first), ("room, II", room & ~first), ("all", room | True)):
        if not chosen.any():
            print(f"| {file.stem} | {name}: 0 sets | – | – | – | – |")
            continue
        before, after = few[chosen], many[chosen]
        lost = int(((before[..., 0] == 1) & (after[..., 0] == 0)).sum())
        won = int(((before[..., 0] == 0) & (after[..., 0] == 1)).sum())
        right = f"{100 * before[..., 0].mean():.1f} -> {100 * after[..., 0].mean():.1f} ({lost} lost, {won} won)"
        nats = f"{before[..., 2].mean():.3f} -> {after[..., 2].mean():.3f}, {interval(change[chosen, 2], 3)}"
        points = interval(100 * change[chosen, 0], 1)
        form = interval(change[chosen, 1], 3)
        print(f"| {file.stem} | {name}: {chosen.sum()} sets | {right} | {points} | {nats} | {form} |")
    return room, change


def main(files: list[Path]) -> None:
    print("| model | sets | accuracy %, 2 -> 200 masks | change, points | choice, nats | format, nats |")
    print("|---|---|---|---|---|---|")
    found = {file.stem: rows(file) for file in files}
    (base, (base_room, base_change)), *others = found.items()
    print(f"\n| change minus that of {base}: room in both | choice, nats | format, nats | points | choice, all sets |")
    print("|---|---|---|---|---|")
    for name, (room, change) in others:
        both, more = room & base_room, change - base_change
        cells = [
            f"{interval(more[both, column] * unit, digits)}, p = {ttest_1samp(more[both, column], 0).pvalue:.2g}"
            for column, unit, digits in ((2, 1, 3), (1, 1, 3), (0, 100, 1))
        ]
        print(f"| {name}: {both.sum()} sets | {' | '.join(cells)} | {interval(more[:, 2], 3)} |")


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])
