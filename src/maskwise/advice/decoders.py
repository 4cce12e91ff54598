"""How the questions of a search are answered."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from maskwise.advice.questions import DecodingQuestion
from maskwise.advice.search_space import Setting
from maskwise.decoding.checks import check_request, end_tokens, text_before_end
from maskwise.decoding.generate import decode
from maskwise.decoding.prompt_ids import encode_prompts
from maskwise.models.batch import passes as batches
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.model import Model
from maskwise.runs.runner import batch_budget
from maskwise.support.randomness import torch_generator

ROUNDED = 6


@dataclass(frozen=True)
class DecodedText:
    text: str
    passes: int
    seconds: float


class ModelDecoder:
    def __init__(self, model: Model, questions: Sequence[DecodingQuestion], settings: Sequence[Setting], seed: int):
        self.model, self.seed, self.ends = model, seed, set(end_tokens(model))
        self.prompts = encode_prompts(model, [question.prompt for question in questions], None)
        check_request(model, [max(self.prompts, key=len)], settings[0].options)

    @property
    def device(self) -> str:
        device = self.model.device
        return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type

    def batches(self, numbers: Sequence[int], new: int) -> list[tuple[int, int]]:
        """On a CPU a batch saves nothing, and it waits for its slowest answer."""
        budget = batch_budget(self.model, None) if self.model.device.type == "cuda" else 1
        return list(batches([len(self.prompts[number]) + new for number in numbers], budget))

    def answers(self, setting: Setting, numbers: Sequence[int]) -> Iterator[tuple[Sequence[int], list[DecodedText]]]:
        """Texts for questions, by their numbers, batch by batch."""
        for first, last in self.batches(numbers, setting.options.max_new_tokens):
            yield numbers[first:last], self._batch(setting, numbers[first:last])

    def _batch(self, setting: Setting, numbers: Sequence[int]) -> list[DecodedText]:
        generators = [
            torch_generator("advise", self.seed, setting.name, number, device=self.model.device) for number in numbers
        ]
        start = time.perf_counter()
        made = decode(self.model, [self.prompts[number] for number in numbers], setting.options, generators)
        seconds = round((time.perf_counter() - start) / len(numbers), ROUNDED)
        return [DecodedText(text_before_end(self.model, one.ids, self.ends), one.forwards, seconds) for one in made]

    def seconds_per_pass(self, setting: Setting, order: Sequence[int]) -> float:
        """Of one question in a batch, per forward pass that it may take: fewer where texts stop early. The first batch
        warms up."""
        size = self.batches(order, setting.options.max_new_tokens)[0][1]
        taken = []
        for first in range(0, min(4 * size, len(order)), size):
            prompts = [self.prompts[number] for number in order[first : first + size]]
            start = time.perf_counter()
            decode(self.model, prompts, setting.options)
            taken.append((time.perf_counter() - start) / len(prompts) / setting.passes)
        return float(np.mean(taken[1:] or taken))


def described(model: Model) -> dict[str, Any]:
    """What tells the model apart, for the manifest."""
    return {"name": model.name, "fingerprint": fingerprint(model), "dtype": model.dtype_name}
