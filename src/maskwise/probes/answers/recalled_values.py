"""Which pair's value a model answers with, when one of the keys is asked again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, ask
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.recall_pairs import RecallPrompt


def recall(model: Model, prompts: Sequence[Prompt]) -> list[Answer]:
    """Evidence {"pairs", "between", "offset"}, as the probe's file says."""
    pairs = zip(prompts, ask(model, prompts), strict=True)
    return [replace(answer, evidence=evidence_of(prompt, answer.token)) for prompt, answer in pairs]


def evidence_of(prompt: Prompt, token: int) -> dict[str, Any]:
    assert isinstance(prompt, RecallPrompt)
    offset = prompt.allowed.index(token) - prompt.asked if token in prompt.allowed else None
    return {"pairs": len(prompt.allowed), "between": prompt.between, "offset": offset}
