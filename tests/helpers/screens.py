"""First screens of models whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from maskwise.records.sample import SampledPrompt
from maskwise.report.screen import Screen

TASKS, EACH = 16, 16
N = TASKS * EACH


def manifest(**model):
    known = {
        "name": "m",
        "kind": "llada",
        "parameters": 8_000_000_000,
        "mask_id": 1,
        "block": None,
        "dtype": "bfloat16",
    }
    known |= {"weights": None, "planted": None, "tuned": None} | model
    return SimpleNamespace(
        model=SimpleNamespace(**known), settings=SimpleNamespace(chat=False, tasks=list("t" * TASKS))
    )


def answered(conditions, wrong, **more):
    """The questions that are wrong under a condition are the first so many, spread over the tasks."""
    parts = []
    for condition, count in zip(conditions, wrong, strict=True):
        place = np.arange(N)
        own = pd.DataFrame({"task": place % TASKS, "point": place // TASKS, "correct": (place >= count).astype(float)})
        parts.append(own.assign(nll=1.0, nll_allowed=0.5, nll_choice=0.5, **condition, **more))
    return pd.concat(parts, ignore_index=True).astype({"task": "category"})


def masks(*wrong, counts=(2, 20, 200)):
    return answered([{"masks": k, "relevant": 10} for k in counts], wrong)


def stops(*wrong, counts=(0, 200)):
    return answered([{"fillers": n, "filler": ".", "format": "A", "relevant": 10} for n in counts], wrong)


def contrast(near, far, masks=2):
    """Each question under its three rules, all of them right or all wrong."""
    table = answered([{"examples": "near", "masks": masks}, {"examples": "far", "masks": masks}], (near, far))
    return pd.concat([table.assign(point=3 * table.point + one) for one in range(3)], ignore_index=True)


def pairs(near, far):
    rows = [
        {"task": "text", "point": p, "distance": d, "tc": v + 0.01 * p}
        for d, v in ((1, near), (16, far))
        for p in range(12)
    ]
    return pd.DataFrame(rows).astype({"task": "category"})


def screen(model=None, prompts=(), **tables):
    named = {"masks": "mask-count", "stops": "filler", "distance": "contrast", "together": "total-correlation"}
    return Screen("m", manifest(**(model or {})), {named[key]: table for key, table in tables.items()}, {}, prompts)


def prompt(masks, chances, point=0, answer="A"):
    text = "Answer:[B].\n\nOptions: (A) fox, (B) knife, (C) rugby\nAnswer:["
    chosen = max(chances, key=chances.get)
    return SampledPrompt(
        **{"probe": "mask-count", "task": "t", "point": point, "condition": {"masks": masks}, "answer": answer},
        **{"correct": chosen == answer, "tokens": [text, "<mask>"], "row": 1, "top": list(chances.items())},
        probability=chances[answer],
    )
