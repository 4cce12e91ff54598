"""A prompt as the model was given it, with its likeliest answers: for the report's page and the studio."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2

from maskwise.records.sample import SampledPrompt
from maskwise.report.chart import minus

LONG_RUN = 4  # equal tokens in a row that are counted
HERE = Path(__file__).parent


def environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"minus": minus, "pieces": pieces_of}
    return found


def pieces_of(prompt: SampledPrompt) -> Iterator[dict[str, Any]]:
    """The tokens, runs of equal ones as one with their number; the answer's place is a piece of its own, at the end
    where the prompt has no mask. weight: the norm of the answer's gradient there, of the largest."""
    weights: Sequence[float | None] = prompt.attribution or [None] * len(prompt.tokens)
    marked = [(text, place == prompt.row, weights[place]) for place, text in enumerate(prompt.tokens)]
    for (text, answer), grouped in groupby(marked, key=lambda one: one[:2]):
        same = [weight for _, _, weight in grouped]
        known = [weight for weight in same if weight is not None]
        if len(same) >= LONG_RUN:
            mean = sum(known) / len(known) if known else None
            yield {"text": text, "times": len(same), "answer": answer, "weight": mean}
        else:
            yield from ({"text": text, "times": 1, "answer": answer, "weight": weight} for weight in same)
    if prompt.row == len(prompt.tokens):
        yield {"text": "", "times": 1, "answer": True, "weight": None}
