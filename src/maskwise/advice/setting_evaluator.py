"""Settings evaluated on questions: the answers of the model, their quality and cost, the rounds of the search.

The budget counts the seconds of decoding that the records state. A quarter of it at most goes to the search, the rest
to the questions held back, whose number depends on the time left and on no answer to them.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwise.advice.decoders import DecodedText, ModelDecoder
from maskwise.advice.plan import asked_at_most
from maskwise.advice.quality import judged
from maskwise.advice.questions import DecodingQuestion
from maskwise.advice.search_folder import SettingAnswer, append_answers, read_answers
from maskwise.advice.search_request import SearchRequest
from maskwise.advice.search_space import Setting
from maskwise.advice.selection import FEWEST_HELD, Confirmation, Plan, Round, confirm, finalists, halve
from maskwise.models.model import Model
from maskwise.records.search import DroppedSetting
from maskwise.runs.runner import Crew
from maskwise.support.randomness import numpy_generator

SECONDS = 1e-6  # weight of a second next to a forward pass: it decides between equal numbers of passes


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
        request: SearchRequest,
        judge: Model | None,
        folder: Path,
        advance: Callable[[int], None],
        crew: Crew,
    ) -> None:
        self.model, self.settings, self.questions, self.request, self.judge = model, settings, questions, request, judge
        self.folder, self.advance, self.crew = folder, advance, crew
        self.decoder = ModelDecoder(model, questions, settings, request.seed)
        self.order = numpy_generator("advise", request.seed, "order").permutation(len(questions)).tolist()
        self.answers: dict[tuple[str, int], SettingAnswer] = {}

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
        if self.request.cost == "seconds":
            return answer.seconds
        return answer.passes + SECONDS * min(answer.seconds, 1e3)

    def _ask(self, setting: Setting, numbers: Sequence[int]) -> None:
        missing = [number for number in numbers if (setting.name, number) not in self.answers]
        own = self.crew.share(missing)
        self.advance(len(numbers) - len(own))
        for asked, decoded in self.decoder.answers(setting, own):
            answers = self._judged(setting, asked, decoded)
            append_answers(self.folder, answers, self.crew.rank)
            self.answers |= {(answer.setting, answer.question): answer for answer in answers}
            self.advance(len(asked))

    def read_answers_on_file(self) -> None:
        """Reads the answers of all processes, none of which writes meanwhile."""
        if self.crew.size > 1 or not self.answers:
            self.crew.wait()
            self.answers = read_answers(self.folder, {setting.name for setting in self.settings}, len(self.questions))
            self.crew.wait()

    def _judged(self, setting: Setting, asked: Sequence[int], decoded: Sequence[DecodedText]) -> list[SettingAnswer]:
        questions, texts = [self.questions[number] for number in asked], [one.text for one in decoded]
        if self.judge is not None:
            values = judged(self.judge, [question.prompt for question in questions], texts, self.request.seed)
        else:
            measure = self.request.quality.of_text
            values = [measure(text, one.answer or "") for one, text in zip(questions, texts, strict=True)]
        return [
            SettingAnswer(setting.name, number, value, one.passes, one.seconds, one.text)
            for number, value, one in zip(asked, values, decoded, strict=True)
        ]

    def seconds_per_pass(self) -> float:
        """Under the reference."""
        return self.decoder.seconds_per_pass(self.settings[0], self.order)


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
    request: SearchRequest, ask: SettingEvaluator, plan: Plan, on_phase: Callable[[str, int], None]
) -> SearchResult:
    """Searches, then confirms. `on_phase(what, questions to ask)` is called when either begins."""
    space, first = request.space, request.settings
    numbers = {setting.name: number for number, setting in enumerate(ask.settings)}

    def with_caches(kept: Sequence[int]) -> list[int]:
        return [numbers[one.name] for number in kept for one in space.cached_variants(ask.settings[number])]

    on_phase("Searching", asked_at_most(len(first), space.variants, plan))
    rounds = halve(ask, range(len(first)), plan, with_caches)
    last = finalists(rounds)
    plan = replace(plan, held=affordable(ask, last, plan, request.budget))
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
                name, ranked_by = ask.settings[number].name, round(cost, 3)
                found.append(
                    DroppedSetting(
                        setting=name,
                        questions=one.questions,
                        quality=quality,
                        cost=ranked_by,
                        passes=passes,
                        seconds=seconds,
                    )
                )
    return found


def _means(answers: Sequence[SettingAnswer]) -> tuple[float, float]:
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


def every_setting(request: SearchRequest) -> list[Setting]:
    """Those that are tried at once, then the same with caches."""
    return [*request.settings, *(one for first in request.settings for one in request.space.cached_variants(first))]


def as_stored(plan: Plan) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}
