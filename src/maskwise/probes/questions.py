"""What a probe asks: points of a task under conditions, and how a point becomes a prompt."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from maskwise.probes.setup import PAPER_RELEVANT, Answerer, Asker, Item, Setup, Unit
from maskwise.records.record import Key, make_key
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, Question, blocked, draw, draw_afresh, example_words, mixed
from maskwise.tasks.prompts import Encoded, Place, Prompt, closed, encode_question, opened

FEW_SHOT = {"relevant": Count}  # of the conditions of probes that show relevant examples
POINTS_PER_UNIT = 96  # prepared, sorted by length and asked together; the three rules of a question stay together


class Source(Protocol):
    """A task's points."""

    @property
    def task(self) -> str: ...

    @property
    def points(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class Points:
    """Points of a task that need nothing more."""

    task: str
    points: Sequence[int]


@dataclass(frozen=True, eq=False)
class Questions:
    """Points of a source under conditions. prompt: of (point, condition).

    answer: the text of the right answer to a point; the text of the prompt's right token where it is None. answering:
    how the prompts are asked, by default in one forward pass; one_pass: it is that, and something more. cost: the
    memory a token takes, relative to plain asking. passes: forward passes over each prompt.
    """

    source: Source
    conditions: Sequence[Mapping[str, Any]]
    prompt: Callable[[int, Mapping[str, Any]], Prompt]
    answer: Callable[[int], str] | None = None
    answering: Answerer | None = None
    cost: int = 1
    one_pass: bool = False
    passes: int = 1


@dataclass(frozen=True, eq=False)
class FewShot:
    """A task's few-shot questions with so many relevant examples; encoded once per point for all probes."""

    task: str
    points: Sequence[int]
    relevant: int
    asker: Asker
    episode: Episode
    context: Callable[[int], Episode]
    known: dict[Any, Any] = field(default_factory=dict)

    def answer(self, point: int) -> str:
        return self.episode.tests[point].letter

    def encoded(
        self, point: int, location: int | None = None, distractors: int | None = None, place: Place = "right"
    ) -> Encoded:
        """location None mixes relevant examples and distractors at random; distractors None means all."""
        if self.known.get("point") != point:
            self.known.clear()
            self.known.update({"point": point, "context": self.context(point)})
        layout = location, distractors, place
        if layout not in self.known:
            examples = arranged(self.known["context"], location, distractors)
            test = self.known["context"].tests[point]
            self.known[layout] = encode_question(self.asker.tokenizer, examples, test, place, self.asker.chat)
        found: Encoded = self.known[layout]
        return found


def arranged(episode: Episode, location: int | None, distractors: int | None) -> tuple[Question, ...]:
    fewer = episode if distractors is None else episode.with_distractors(distractors)
    return mixed(fewer) if location is None else blocked(fewer, location)


def episodes(setup: Setup, relevant: int, distractors: int, points: int) -> Iterator[Episode]:
    """The episode of each task asked for."""
    settings = setup.settings
    for task in setup.tasks:
        if task.name in settings.tasks:
            yield draw(task, setup.words, relevant, distractors, points, settings.seed, settings.held_out)


def context_of(setup: Setup, episode: Episode, afresh: bool) -> Callable[[int], Episode]:
    """The episode as a question sees it: its own examples where they are drawn afresh."""
    if not afresh:
        return lambda point: episode
    return partial(draw_afresh, episode, example_words(setup.words, setup.settings.held_out))


def few_shot(
    setup: Setup, numbers: Sequence[int] | None = None, distractors: int | None = None, afresh: bool | None = None
) -> Iterator[FewShot]:
    """The questions of every task asked for, with each of these numbers of relevant examples (None: the run's).

    afresh: a context is drawn for each question; by default as the settings say. All probes of a run share them, so
    that equal prompts are asked once."""
    settings = setup.settings
    most = settings.distractors if distractors is None else distractors
    for relevant in settings.relevant if numbers is None else numbers:
        fresh = not (settings.one_context and relevant == PAPER_RELEVANT) if afresh is None else afresh
        key = settings, relevant, most, fresh
        if key not in setup.few_shot:
            drawn = episodes(setup, relevant, most, settings.questions)
            setup.few_shot[key] = [
                FewShot(
                    *(one.task.name, range(settings.questions), relevant, setup.asker),
                    *(one, context_of(setup, one, fresh)),
                )
                for one in drawn
            ]
        yield from setup.few_shot[key]


def ended(
    asker: Asker,
    encoded: Encoded,
    masks: int | float,
    fillers: int = 0,
    filler_id: int | None = None,
    format: str = "B",
) -> Prompt:
    """Format B ends the prompt with masks, of which the first is the answer; format A masks the answer alone.

    A float is a share of the length; fillers stand behind the masks."""
    ending = opened if format == "B" else closed
    return ending(encoded, asker.mask_id, masks, [asker.filler_id if filler_id is None else filler_id] * fillers)


def units_of_questions(setup: Setup, asked: Iterable[tuple[str, Questions]]) -> list[Unit]:
    """The units of (probe, questions): those of one source that are answered in one pass are asked together."""
    together: dict[Any, list[tuple[str, Questions]]] = {}
    for probe, one in asked:
        alone = one.answering is not None
        together.setdefault((id(one.source), id(one) if alone else None), []).append((probe, one))
    units = []
    for some in together.values():
        first = some[0][1]
        conditions = sum(len(one.conditions) for _, one in some)
        one_pass = all(one.answering is None or one.one_pass for _, one in some)
        for points in slices_of(first.source.points):
            make = _maker(setup, some)
            cost = max(one.cost for _, one in some)
            units.append(Unit(points, conditions, make, first.answering, cost, one_pass, first.passes))
    return units


def slices_of(points: Sequence[int]) -> list[Sequence[int]]:
    return [points[first : first + POINTS_PER_UNIT] for first in range(0, len(points), POINTS_PER_UNIT)]


def _maker(setup: Setup, asked: Sequence[tuple[str, Questions]]) -> Callable[..., Iterator[Item]]:
    def items(points: Sequence[int], done: Collection[Key]) -> Iterator[Item]:
        for point in points:
            for probe, one in asked:
                for condition in one.conditions:
                    named = dict(condition)
                    key = make_key(probe, one.source.task, point, named)
                    if key not in done:
                        prompt = one.prompt(point, condition)
                        yield Item(key, named, prompt, answer_to(setup, one, point, prompt))

    return items


def answer_to(setup: Setup, one: Questions, point: int, prompt: Prompt) -> str:
    text: str = setup.asker.tokenizer.decode([prompt.answer_id]) if one.answer is None else one.answer(point)
    return text


def with_relevant(source: FewShot, conditions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**condition, "relevant": source.relevant} for condition in conditions]
