"""What a probe asks: points of a task under conditions, and how a point becomes a prompt."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from maskwise.probes.blocks import moved_on_grid
from maskwise.probes.setup import PAPER_RELEVANT, Answerer, Asker, Item, Setup, Unit
from maskwise.records.record import Key, make_key
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, blocked, draw, draw_afresh, example_words, mixed
from maskwise.tasks.prompts import Encoded, Place, Prompt, encode_question, opened

FEW_SHOT = {"relevant": Count}  # of the conditions of probes that show relevant examples
DECODING_COST = 4  # of a token, relative to plain asking
POINTS_PER_UNIT = 96  # prepared, sorted by length and asked together; the three rules of a question stay together


@dataclass(frozen=True, eq=False)
class Points:
    """A task's points."""

    task: str
    points: Sequence[int]


@dataclass(frozen=True, eq=False)
class Questions:
    """Points of a source under conditions. prompt: of (point, condition).

    answer: the text of the right answer to a point; the text of the prompt's right token where it is None. answering:
    how the prompts are asked, by default in one forward pass; one_pass: it is that, and something more. cost: the
    memory a token takes, relative to plain asking. passes: forward passes over each prompt.
    """

    source: Points
    conditions: Sequence[Mapping[str, Any]]
    prompt: Callable[[int, Mapping[str, Any]], Prompt]
    answer: Callable[[int], str] | None = None
    answering: Answerer | None = None
    cost: int = 1
    one_pass: bool = False
    passes: int = 1


@dataclass(frozen=True, eq=False)
class FewShot(Points):
    """A task's few-shot questions with so many relevant examples; encoded once per point for all probes."""

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
            episode = self.known["context"]
            fewer = episode if distractors is None else episode.with_distractors(distractors)
            examples = mixed(fewer) if location is None else blocked(fewer, location)
            test = episode.tests[point]
            self.known[layout] = encode_question(self.asker.tokenizer, examples, test, place, self.asker.chat)
        found: Encoded = self.known[layout]
        return found

    def under(
        self,
        conditions: Iterable[Mapping[str, Any]],
        prompt: Callable[["FewShot", int, Mapping[str, Any]], Prompt],
        **more: Any,
    ) -> Questions:
        """Its questions under these conditions and with so many relevant examples. more: fields of `Questions`."""
        named = [{**one, "relevant": self.relevant} for one in conditions]
        return Questions(self, named, partial(prompt, self), self.answer, **more)


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
            points = range(settings.questions)
            setup.few_shot[key] = [
                FewShot(one.task.name, points, relevant, setup.asker, one, context_of(setup, one, fresh))
                for one in episodes(setup, relevant, most, settings.questions)
            ]
        yield from setup.few_shot[key]


def with_masks(source: FewShot, point: int, condition: Mapping[str, Any]) -> Prompt:
    """The prompt of most probes: format B with the condition's masks."""
    return opened(source.encoded(point), source.asker.mask_id, condition["masks"])


def units_of_questions(setup: Setup, asked: Iterable[tuple[str, Questions]]) -> list[Unit]:
    """The units of (probe, questions): those of one source that are answered in one pass are asked together."""
    together: dict[Any, list[tuple[str, Questions]]] = {}
    for probe, one in asked:
        alone = one.answering is not None
        together.setdefault((id(one.source), id(one) if alone else None), []).append((probe, one))
    units = []
    for some in together.values():
        first, conditions = some[0][1], sum(len(one.conditions) for _, one in some)
        points, one_pass = first.source.points, first.answering is None or first.one_pass
        for start in range(0, len(points), POINTS_PER_UNIT):
            part, items = points[start : start + POINTS_PER_UNIT], partial(items_of, setup, some)
            units.append(Unit(part, conditions, items, first.answering, first.cost, one_pass, first.passes))
    return units


def items_of(
    setup: Setup, asked: Sequence[tuple[str, Questions]], points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    """The items of these points that are not done; of a block model on its grid."""
    for point in points:
        for probe, one in asked:
            for condition in map(dict, one.conditions):
                key = make_key(probe, one.source.task, point, condition)
                if key not in done:
                    prompt = moved_on_grid(setup.model, one.prompt(point, condition), condition.get("offset"))
                    token = [prompt.answer_id]
                    text = setup.asker.tokenizer.decode(token) if one.answer is None else one.answer(point)
                    yield Item(key, condition, prompt, text)
