"""`maskwise reproduce`: runs a card, compares its score with the published one, finds the setting that moves it most.

One setting is changed at a time, on the same questions: paired differences from the card's own run, whose intervals
hold together (Bonferroni). The budget is for these; where it is short, fewer questions are asked of each.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maskwise.decoding.checks import check_request, end_tokens, text_before_end
from maskwise.decoding.generate import decode, prompt_generators
from maskwise.decoding.prompt_ids import encode_prompts
from maskwise.experiments.score_cards import SETTINGS, ScoreCard, card_questions, variations
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model
from maskwise.records.reproduced import Reproduction, ShareInterval, VariedSetting
from maskwise.scoring.intervals import CONFIDENCE, difference_interval, jeffreys_bounds
from maskwise.scoring.numbers import tenths
from maskwise.support.errors import UserError
from maskwise.support.terminal import one_line
from maskwise.tasks.checkable import is_right

BUDGET = 10.0  # minutes
FEWEST = 8  # questions of a variation


def reproduce(
    card: ScoreCard,
    data: Path | None = None,
    budget: float = BUDGET,
    device: str | None = None,
    model: Model | None = None,
    on_phase: Callable[[str], None] = lambda line: None,
) -> Reproduction:
    """Runs a card, then each variation. model: an opened one in the card's dtype, in place of the card's own."""
    if not budget > 0:
        raise UserError(f"a budget of {budget:g} minutes allows nothing: give the minutes that variations may take")
    questions = len(card_questions(card, data)[0])  # refuses what is missing before a model is opened
    opened = open_model(card.model, card.dtype, device) if model is None else model
    if opened.mask_id is None:
        raise UserError(f"{card.model} is autoregressive: a card's canvas, block, steps and strategy do not apply")
    on_phase(f"{questions} questions as the card says")
    started = time.perf_counter()
    right = answers(opened, card, data)
    asked = variations(card)
    count = affordable(card, asked, questions, time.perf_counter() - started, 60 * budget)
    measured, not_tried = [], []
    for number, (setting, value) in enumerate(asked, 1):
        named = f"{setting} {_short(value)}"
        if count is None:
            not_tried.append(f"{named}: the budget of {budget:g} minutes is spent")
            continue
        on_phase(f"{named} on {count} questions ({number} of {len(asked)})")
        other = card.changed(setting, value)
        try:
            used = open_model(card.model, other.dtype, device) if other.dtype != card.dtype else opened
            changed = answers(used, other, data, count)
            measured.append(varied(setting, value, right[:count], changed, len(asked)))
        except UserError as problem:
            not_tried.append(f"{named}: {problem}")
    return reproduction_of(card, right, measured, not_tried, time.perf_counter() - started)


def answers(model: Model, card: ScoreCard, data: Path | None, most: int | None = None) -> np.ndarray:
    """Which of the card's questions are answered right, [n] bool."""
    asked, check = card_questions(card, data)
    asked = asked[:most]
    prompts = encode_prompts(model, [one.asked for one in asked], card.chat)
    check_request(model, prompts, card.options)
    draws = prompt_generators(model, card.seed, prompts) if card.temperature else None
    ends = end_tokens(model)
    made = decode(model, prompts, card.options, draws, batch=card.batch)
    texts = [text_before_end(model, generation.ids, ends) for generation in made]
    return np.array([is_right(text, one.label, check) for one, text in zip(asked, texts, strict=True)], dtype=bool)


def affordable(
    card: ScoreCard, asked: Sequence[tuple[str, Any]], questions: int, taken: float, budget: float
) -> int | None:
    """The number of questions for each variation, by the time of the card's own run; None if too few."""
    needed = taken * sum(_cost(card.changed(*one)) / _cost(card) for one in asked)
    count = questions if needed <= budget else int(questions * budget / needed)
    return count if count >= min(FEWEST, questions) else None


def _cost(card: ScoreCard) -> float:
    """Forward passes times the canvas; the time of a question is roughly proportional to it."""
    return float((card.steps or card.canvas) * card.canvas)


def varied(setting: str, value: Any, before: np.ndarray, after: np.ndarray, comparisons: int) -> VariedSetting:
    tail = (1 - CONFIDENCE) / 2 / max(1, comparisons)
    gained, lost = np.array([(after & ~before).mean()]), np.array([(before & ~after).mean()])
    counts = np.array([float(len(before))])
    change, low, high = difference_interval(gained, lost, counts, tails=(tail, 1 - tail))
    return VariedSetting(
        setting=setting,
        value=value,
        score=100 * float(after.mean()),
        difference=100 * float(change),
        low=100 * float(low),
        high=100 * float(high),
        questions=len(before),
    )


def compared(measured: ShareInterval, published: ShareInterval) -> ShareInterval:
    """Measured less published: both intervals combined by the square-and-add rule (Zou and Donner 2008).

    A published score without a number of questions counts as exact.
    """
    difference = measured.value - published.value
    assert measured.low is not None and measured.high is not None
    low_p = published.value if published.low is None else published.low
    high_p = published.value if published.high is None else published.high
    below = np.hypot(measured.value - measured.low, high_p - published.value)
    above = np.hypot(measured.high - measured.value, published.value - low_p)
    return ShareInterval(value=difference, low=float(difference - below), high=float(difference + above),
                         questions=measured.questions)  # fmt: skip


def share_of(percent: float, questions: int | None) -> ShareInterval:
    if questions is None:
        return ShareInterval(value=percent, low=None, high=None, questions=None)
    low, high = jeffreys_bounds(np.array(percent / 100), float(questions))
    return ShareInterval(value=percent, low=100 * float(low), high=100 * float(high), questions=questions)


def reproduction_of(
    card: ScoreCard, right: np.ndarray, found: list[VariedSetting], not_tried: list[str], seconds: float
) -> Reproduction:
    published = share_of(card.published.score, card.published.questions)
    measured = share_of(100 * float(right.mean()), len(right))
    difference = compared(measured, published)
    assert difference.low is not None and difference.high is not None
    found = sorted(found, key=lambda one: -abs(one.difference))
    known = next((one for one in found if one.low > 0 or one.high < 0), None)
    reproduced = Reproduction(
        model=card.model,
        task=card.task,
        settings={name: getattr(card, name) for name in SETTINGS},
        published=published,
        source=card.published.source,
        note=card.note,
        measured=measured,
        difference=difference,
        agrees=difference.low <= 0 <= difference.high,
        sentence="",
        variations=found,
        moves_most=None if known is None else known.setting,
        not_tried=not_tried,
        seconds=round(seconds, 1),
    )
    return reproduced.changed(sentence=_sentence(reproduced, known))


def _sentence(found: Reproduction, known: VariedSetting | None) -> str:
    """known: the variation that moves the score most."""
    measured, difference = found.measured, found.difference
    ends = f"{tenths(difference.low or 0.0)} to {tenths(difference.high or 0.0)}"
    verdict = "agrees with" if found.agrees else "differs from"
    line = (
        f"The measured score, {tenths(measured.value)} % of {measured.questions} questions, {verdict} the published "
        f"{tenths(found.published.value)} % (difference {tenths(difference.value)} points, 95 % interval {ends})."
    )
    if known is not None:
        moved = f"{tenths(known.difference)} points ({tenths(known.low)} to {tenths(known.high)})"
        return f"{line} Of the settings tried, {known.setting} = {_short(known.value)} moves it most: {moved}."
    if found.variations:
        return f"{line} No single setting of the {len(found.variations)} tried is known to move it."
    return f"{line} No other setting was tried."


def lines_of(found: Reproduction) -> Iterator[str]:
    """What `maskwise reproduce` prints: the settings, both scores, each setting changed, the finding."""

    def score(one: ShareInterval) -> str:
        ends = "" if one.low is None or one.high is None else f"  ({tenths(one.low)} to {tenths(one.high)})"
        return f"{tenths(one.value):>5} %{ends}{'' if one.questions is None else f', {one.questions} questions'}"

    yield f"{one_line(found.model)}, {found.task}{f' ({one_line(found.note)})' if found.note else ''}"
    yield from (f"  {name:12} {one_line(_short(value))}" for name, value in found.settings.items())
    yield f"published  {score(found.published)}; {one_line(found.source)}"
    yield f"measured   {score(found.measured)}"
    if found.variations:
        yield "\none setting changed at a time, difference in points (intervals hold together):"
    for one in found.variations:
        name = f"{one.setting} = {one_line(_short(one.value))}"
        ends = f"({tenths(one.low)} to {tenths(one.high)})"
        yield f"  {name:40} {tenths(one.difference):>6}  {ends:18} {one.questions} questions"
    yield from (f"  not tried: {one_line(line)}" for line in found.not_tried)
    yield f"\n{found.sentence}"


def _short(value: Any) -> str:
    text = "none" if value is None else " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."
