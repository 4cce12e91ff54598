"""What a user asks of `advise`, checked before torch is imported and a model opened."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any

from maskwise.advice.plan import FASTEST_PASS, fit_plan
from maskwise.advice.quality import Judge, Quality, check_quality, chosen_quality
from maskwise.advice.questions import (
    EMBEDDED_MINUTES,
    EMBEDDED_PATTERN,
    EMBEDDED_SPACE,
    DecodingQuestion,
    embedded_questions,
    read_questions,
)
from maskwise.advice.search_space import SearchSpace, Setting, as_words, settings_in
from maskwise.support.errors import UserError
from maskwise.support.files import Records, to_json
from maskwise.support.nearest import did_you_mean
from maskwise.tasks.rewordings import Rewording, read_rewordings

COSTS = ("passes", "seconds")


@dataclass(frozen=True)
class SearchRequest:
    """What is searched, on which questions and by which measure, checked."""

    questions: list[DecodingQuestion]
    embedded: bool  # the questions are the package's own
    quality: Quality
    space: SearchSpace
    settings: list[Setting]  # without a cache; the reference first
    budget: float | None  # seconds
    cost: str
    seed: int
    rewordings: tuple[Rewording, ...] = ()  # templates under which the settings that are named are confirmed

    @property
    def identity(self) -> dict[str, Any]:
        """What a search must have in common with this one to be resumed, with the same model."""
        asked = [[question.prompt, question.answer] for question in self.questions]
        templates = {"templates": [[one.name, one.text] for one in self.rewordings]} if self.rewordings else {}
        return {
            **templates,
            "questions": {"count": len(asked), "hash": blake2b(to_json(asked).encode(), digest_size=8).hexdigest()},
            "quality": {"kind": self.quality.kind, "said": self.quality.said},
            "space": {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self.space).items()},
            "budget": self.budget,
            "cost": self.cost,
            "seed": self.seed,
        }


def prepare(
    data: Records | None = None,
    exact: bool = False,
    pattern: str | None = None,
    function: str | Judge | None = None,
    judge: Any = None,
    budget: float | None = None,
    cost: str | None = None,
    seed: int = 0,
    templates: str | Path | None = None,
    **searched: Any,
) -> SearchRequest:
    """Checks what a user asks of `advise`.

    searched: the fields of SearchSpace that were given; numbers and names as lists or as texts with commas.
    """
    cost = cost or "passes"
    if budget is not None and not (isfinite(budget) and budget > 0):
        raise UserError(f"a budget of {budget:g} minutes is too small for one round: give the minutes it may take")
    if cost not in COSTS:
        raise UserError(f"unknown cost {cost!r}{did_you_mean(cost, COSTS)}")
    rewordings = () if templates is None else read_rewordings(Path(templates), of_prompts=True)
    space = _space(EMBEDDED_SPACE if data is None else SearchSpace(), searched)
    settings = settings_in(space)
    named = exact or any(given is not None for given in (pattern, function, judge))
    if data is None and not named:
        pattern = EMBEDDED_PATTERN
    quality = chosen_quality(exact, pattern, function, judge)
    questions = embedded_questions(seed) if data is None else read_questions(data, quality.needs_answers)
    check_quality(quality, questions)
    if data is None and budget is None:
        budget = EMBEDDED_MINUTES
    seconds = None if budget is None else 60 * budget
    fit_plan(settings, space.variants, len(questions), FASTEST_PASS, seconds)  # refuses what no machine could do
    return SearchRequest(questions, data is None, quality, space, settings, seconds, cost, seed, rewordings)


def _space(start: SearchSpace, searched: dict[str, Any]) -> SearchSpace:
    given = {name: value for name, value in searched.items() if value is not None}
    known = {one.name for one in fields(SearchSpace)}
    for name in given:
        if name not in known:
            raise UserError(f"advise searches no {name!r}{did_you_mean(name, sorted(known))}")
    for name in ("canvases", "rules", "caches"):
        if name in given:
            given[name] = as_words(given[name])
    for name in ("blocks", "steps"):
        if name in given:
            given[name] = _numbers(name, given[name])
    space = replace(start, **given)
    if given.get("blocks") and all(block and space.max_new_tokens % block for block in space.blocks):
        listed = ", ".join(map(str, space.blocks))
        raise UserError(f"--blocks {listed} do not divide {space.max_new_tokens} tokens: give sizes that do")
    return space


def _numbers(name: str, listed: str | int | Sequence[Any]) -> tuple[int, ...]:
    words = as_words([listed] if isinstance(listed, int) else listed) or ()
    if not all(word.isdecimal() for word in words):
        raise UserError(f"{name} {', '.join(words)}: give whole numbers, separated by commas")
    return tuple(map(int, words))
