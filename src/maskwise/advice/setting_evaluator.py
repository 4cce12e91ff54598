"""Settings evaluated on questions: the answers of the model, their quality and cost, the rounds of the search.

The budget counts the seconds of decoding that the records state. A quarter of it at most goes to the search, the rest
to the questions held back, whose number depends on the time left and on no answer to them.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwise.advice.plan import asked_at_most
from maskwise.advice.quality import Quality, judged
from maskwise.advice.questions import DecodingQuestion
from maskwise.advice.search_folder import SettingAnswer, append_answers, read_answers
from maskwise.advice.search_space import SearchSpace, Setting, cached_variants, settings_in
from maskwise.advice.selection import FEWEST_HELD, Confirmation, Plan, Round, confirm, finalists, halve
from maskwise.decoding.checks import check_request, end_tokens
from maskwise.decoding.generate import decode
from maskwise.decoding.prompt_ids import encode_prompts
from maskwise.models.batch import passes as batches
from maskwise.models.model import Model
from maskwise.records.search import DroppedSetting
from maskwise.runs.runner import Crew, batch_budget
from maskwise.support.randomness import numpy_generator, torch_generator

SECONDS = 1e-6  # weight of a second beside a forward pass: it decides between equal numbers of passes
ROUNDED = 6


class SettingEvaluator:
    """Quality and cost of settings on questions, by their numbers; an answer on file is not computed again.

    Calling it gives quality and cost, [settings, questions]. Questions are numbered in an order drawn by the seed.
    Each process of a crew asks its share and then reads those of the others: all of them go on with the same answers.
    """

    def __init__(
        self,
        model: Model,
        settings: list[Setting],
        questions: Sequence[DecodingQuestion],
        quality: Quality,
        judge: Model | None,
        folder: Path,
        seed: int,
        cost: str,
        advance: Callable[[int], None],
        crew: Crew,
    ) -> None:
        self.model, self.settings, self.questions, self.quality, self.judge = model, settings, questions, quality, judge
        self.folder, self.seed, self.cost, self.advance, self.crew = folder, seed, cost, advance, crew
        self.prompts = encode_prompts(model, [question.prompt for question in questions], None)
        self.order = numpy_generator("advise", seed, "order").permutation(len(questions)).tolist()
        self.answers: dict[tuple[str, int], SettingAnswer] = {}
        self.ends = set(end_tokens(model))
        longest = max(self.prompts, key=len)
        check_request(model, [longest], settings[0].options)

    def __call__(self, settings: Sequence[int], questions: range) -> tuple[np.ndarray, np.ndarray]:
        for setting in settings:
            self._ask(self.settings[setting], [self.order[place] for place in questions])
        self.read_answers_on_file()
        found = [self.found(setting, questions) for setting in settings]
        quality = np.array([[answer.quality for answer in line] for line in found])
        cost = np.array([[self._cost(answer) for answer in line] for line in found])
        return quality, cost

    def found(self, setting: int, questions: range) -> list[SettingAnswer]:
        name = self.settings[setting].name
        return [self.answers[name, self.order[place]] for place in questions]

    def answers_to(self, setting: int, numbers: Sequence[int]) -> list[SettingAnswer]:
        """What a setting answers to questions by their numbers in the file."""
        self._ask(self.settings[setting], numbers)
        self.read_answers_on_file()
        return [self.answers[self.settings[setting].name, number] for number in numbers]

    def _cost(self, answer: SettingAnswer) -> float:
        return answer.seconds if self.cost == "seconds" else answer.passes + SECONDS * min(answer.seconds, 1e3)

    def batches(self, numbers: Sequence[int], new: int) -> list[tuple[int, int]]:
        """On a CPU a batch saves nothing, and it waits for its slowest answer."""
        budget = batch_budget(self.model, None) if self.model.device.type == "cuda" else 1
        return list(batches([len(self.prompts[number]) + new for number in numbers], budget))

    def _ask(self, setting: Setting, numbers: Sequence[int]) -> None:
        missing = [number for number in numbers if (setting.name, number) not in self.answers]
        own = self.crew.share(missing)
        self.advance(len(numbers) - len(own))
        for first, last in self.batches(own, setting.options.max_new_tokens):
            answers = self._batch(setting, own[first:last])
            append_answers(self.folder, answers, self.crew.rank)
            self.answers |= {(answer.setting, answer.question): answer for answer in answers}
            self.advance(last - first)

    def read_answers_on_file(self) -> None:
        """Reads the answers of all processes, none of which writes meanwhile."""
        if self.crew.size > 1 or not self.answers:
            self.crew.wait()
            self.answers = read_answers(self.folder, {setting.name for setting in self.settings}, len(self.questions))
            self.crew.wait()

    def _batch(self, setting: Setting, numbers: Sequence[int]) -> list[SettingAnswer]:
        generators = [
            torch_generator("advise", self.seed, setting.name, number, device=self.model.device) for number in numbers
        ]
        start = time.perf_counter()
        made = decode(self.model, [self.prompts[number] for number in numbers], setting.options, generators)
        seconds = round((time.perf_counter() - start) / len(numbers), ROUNDED)
        texts = [self._text(generation.ids) for generation in made]
        values = self._judged([self.questions[number] for number in numbers], texts)
        return [
            SettingAnswer(setting.name, number, value, generation.forwards, seconds, text)
            for number, value, generation, text in zip(numbers, values, made, texts, strict=True)
        ]

    def _text(self, ids: Sequence[int]) -> str:
        """The text up to the first end token, as lm-eval's."""
        length = next((place for place, token in enumerate(ids) if token in self.ends), len(ids))
        return self.model.tokenizer.decode(ids[:length], skip_special_tokens=True)

    def _judged(self, questions: Sequence[DecodingQuestion], texts: Sequence[str]) -> list[float]:
        if self.judge is not None:
            return judged(self.judge, [question.prompt for question in questions], texts, self.seed)
        return [self.quality.of_text(text, one.answer or "") for one, text in zip(questions, texts, strict=True)]

    def seconds_per_pass(self) -> float:
        """Of one question in a batch under the reference, per forward pass that it may take: fewer where texts stop
        early. The first batch warms up."""
        options, size = (
            self.settings[0].options,
            self.batches(self.order, self.settings[0].options.max_new_tokens)[0][1],
        )
        taken = []
        for first in range(0, min(4 * size, len(self.order)), size):
            prompts = [self.prompts[number] for number in self.order[first : first + size]]
            start = time.perf_counter()
            decode(self.model, prompts, options)
            taken.append((time.perf_counter() - start) / len(prompts) / self.settings[0].passes)
        return float(np.mean(taken[1:] or taken))


@dataclass(frozen=True)
class SearchResult:
    """The result of a search. Settings by their numbers; `finalists` are what the confirmation is about."""

    settings: list[Setting]
    plan: Plan
    dropped: list[DroppedSetting]  # the latest first
    finalists: tuple[int, ...]
    confirmation: Confirmation
    passes: tuple[float, ...]  # per question held back, of each finalist
    seconds: tuple[float, ...]


def run_search(
    space: SearchSpace, ask: SettingEvaluator, plan: Plan, budget: float | None, on_phase: Callable[[str, int], None]
) -> SearchResult:
    """Searches, then confirms. `on_phase(what, questions to ask)` is called when either begins."""
    first = settings_in(space)
    numbers = {setting.name: number for number, setting in enumerate(ask.settings)}

    def with_caches(kept: Sequence[int]) -> list[int]:
        return [numbers[one.name] for number in kept for one in cached_variants(space, ask.settings[number])]

    on_phase("Searching", asked_at_most(len(first), space.variants, plan))
    rounds = halve(ask, range(len(first)), plan, with_caches)
    last = finalists(rounds)
    plan = replace(plan, held=affordable(ask, last, plan, budget))
    on_phase("Confirming", len(last) * plan.held)
    quality, cost = ask(last, plan.held_back)
    held = [ask.found(setting, plan.held_back) for setting in last]
    passes, seconds = (tuple(values) for values in zip(*map(_means, held), strict=True))
    dropped = dropped_in(rounds, last, ask)
    return SearchResult(ask.settings, plan, dropped, last, confirm(quality, cost.mean(1)), passes, seconds)


def dropped_in(rounds: Sequence[Round], last: Sequence[int], ask: SettingEvaluator) -> list[DroppedSetting]:
    """The settings that a round dropped, the latest first, with what they had reached by then."""
    found = []
    for one in reversed(rounds):
        for number, quality, cost in zip(one.settings, one.quality, one.cost, strict=True):
            if number not in one.kept and number not in last:
                passes, seconds = _means(ask.found(number, range(one.questions)))
                found.append(
                    DroppedSetting(
                        setting=ask.settings[number].name,
                        questions=one.questions,
                        quality=quality,
                        cost=round(cost, 3),
                        passes=passes,
                        seconds=seconds,
                    )
                )
    return found


def _means(answers: Sequence[SettingAnswer]) -> tuple[float, float]:
    """Forward passes and seconds per question."""
    return float(np.mean([one.passes for one in answers])), float(np.mean([one.seconds for one in answers]))


def affordable(ask: SettingEvaluator, last: Sequence[int], plan: Plan, budget: float | None) -> int:
    """How many questions held back the rest of the budget lasts for, which all processes use at once."""
    if budget is None:
        return plan.held
    budget *= ask.crew.size
    searched = {ask.order[place] for place in range(plan.searched)}
    taken: dict[str, list[float]] = defaultdict(list)
    for answer in ask.answers.values():
        if answer.question in searched:
            taken[answer.setting].append(answer.seconds)
    used = sum(map(sum, taken.values()))
    each = sum(float(np.mean(taken[ask.settings[one].name])) for one in last)
    return int(min(plan.held, max(FEWEST_HELD, (budget - used) / each)))


def every_setting(space: SearchSpace) -> list[Setting]:
    """Those that are tried at once, then the same with caches."""
    first = settings_in(space)
    return [*first, *(variant for setting in first for variant in cached_variants(space, setting))]


def described(model: Model) -> dict[str, Any]:
    """What tells the model apart, for the manifest."""
    from maskwise.models.checkpoints.fingerprint import fingerprint

    return {"name": model.name, "fingerprint": fingerprint(model), "dtype": model.dtype_name}


def as_stored(plan: Plan) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}


def device_name(model: Model) -> str:
    return torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else model.device.type
