"""Run folders of known numbers: each condition says how many of ten points every task gets right."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

POINTS = 10
DIFFUSION = {
    "name": "lab/tiny-llada",
    "kind": "llada",
    "parameters": 12_300_000,
    "window": 1024,
    "mask_id": 7,
    "shift": False,
    "causal": False,
    "dtype": "float32",
}
AUTOREGRESSIVE = DIFFUSION | {"name": "lab/tiny-qwen", "kind": "ar", "mask_id": None, "shift": True, "causal": True}

Asked = tuple[str, dict[str, Any], int, Sequence[int]]  # probe, condition, masks, right answers of each task


def position_probes(near: Sequence[int], far: Sequence[int]) -> list[Asked]:
    places = (("right", 0, far), ("right", 15, near), ("left", 0, near), ("left", 15, far))
    return [("location", {"question": q, "location": at, "masks": 0}, 1, right) for q, at, right in places]


def mask_probes(two: Sequence[int], hundred: Sequence[int]) -> list[Asked]:
    return [
        ("mask-count", {"masks": 2}, 2, two),
        ("mask-count", {"masks": 100}, 100, hundred),
        ("filler", {"filler": ".", "fillers": 0, "format": "A"}, 1, two),
        ("filler", {"filler": ".", "fillers": 100, "format": "A"}, 1, two),
    ]


# Accuracy 90 % near and 60 % far; 80 % with two masks, 50 % with a hundred.
KNOWN = position_probes([9, 10, 8, 9], [6, 7, 5, 6]) + mask_probes([8, 9, 7, 8], [5, 6, 4, 5])
GUESSING = position_probes([3, 4, 3, 3], [4, 3, 3, 3]) + mask_probes([3, 3, 4, 3], [3, 4, 3, 3])


def write_run(
    folder: Path,
    asked: Sequence[Asked] = KNOWN,
    model: dict[str, Any] = DIFFUSION,
    complete: bool = True,
    notes: Sequence[str] = (),
    task: str = "task",
    command: str | None = "maskwise diagnose",
    **settings: Any,
) -> Path:
    """Writes records.jsonl and manifest.json as maskwise.records describes them."""
    folder.mkdir(parents=True)
    tasks = [f"{task}-{number}" for number in range(max(len(right) for *_, right in asked))]
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for probe, condition, masks, right in asked:
            for name, count in zip(tasks, right, strict=False):
                for point in range(POINTS):
                    record = {
                        "model": model["name"],
                        "probe": probe,
                        "task": name,
                        "point": point,
                        "condition": condition,
                        "masks": masks,
                        "predicted": "A" if point < count else "B",
                        "answer": "A",
                        "correct": point < count,
                        "confidence": 0.5,
                        "entropy": 0.25,
                        "nll": 1.5,
                        "nll_allowed": 1.0,
                        "nll_choice": 0.5,
                    }
                    file.write(json.dumps(record) + "\n")
    manifest = {
        "model": model,
        "settings": {
            "preset": "quick",
            "probes": list(dict.fromkeys(probe for probe, *_ in asked)),
            "tasks": tasks,
            "questions": POINTS,
            "seed": 0,
            "chat": False,
            **settings,
        },
        "versions": {"maskwise": "0.1.0", "torch": "2.13.0"},
        "command": command,
        "complete": complete,
        "notes": list(notes),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder
