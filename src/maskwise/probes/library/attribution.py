"""attribution: which examples move the answer? Gradients of the input embeddings, example by example.

Paper probe 3: the same examples in many random orders, the question right, middle or left, format A. The mean over each
example's tokens (`answers/gradients.py` says of what). Condition: {"question": "left"}; evidence {"examples": [...],
"question"}, the gradient norms, and the same names with "_times_input": gradient x input (not in records of before).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from msgspec import UnsetType

from maskwise.probes.blocks import sees_past_the_question
from maskwise.probes.evidence import GRADIENT_INPUT, entry_per_target
from maskwise.probes.few_shot import episodes
from maskwise.probes.library.question_position import PLACE_NAMES, PLACES
from maskwise.probes.probe import Asker, ItemMaker, Probe, Setup, Unit, items_of, slices
from maskwise.probes.section import Section, as_share, named_curves
from maskwise.records.record import Condition
from maskwise.support.randomness import python_random
from maskwise.tasks.episodes import Episode, Question
from maskwise.tasks.prompts import Place, Prompt, closed, encode_parts

NAME = "attribution"
GRADIENT_COST = 4
GRADIENT = as_share("evidence", "Gradient norm, of the largest")
PRODUCT = as_share(GRADIENT_INPUT, "Gradient x input, of the largest")
MEASURES = (PRODUCT, GRADIENT)
COMPARE_BY = (
    "Compare models by gradient x input: a norm grows as the embedding gets shorter, which says nothing about its use."
)
ORDERINGS = {"orderings": 30, "questions": 20, "near": 50}
QUICK_ORDERINGS = {"orderings": 5, "questions": 4}


def ordered_episodes(setup: Setup) -> Iterator[tuple[Episode, range]]:
    """Each task's episode and the points to ask of it: at most every ordering of every question."""
    count = min(setup.settings.points, setup.own["orderings"] * setup.own["questions"])
    settings = setup.settings
    for episode in episodes(setup, settings.main_relevant, settings.distractors, setup.own["questions"]):
        for points in slices(count):
            yield episode, points


def drawn(episode: Episode, orderings: int, point: int) -> tuple[list[Question], Question]:
    """(examples in one of the random orders, test question) of a point: every question once before one recurs.

    So a run of few points still asks many questions, each with an order of its own.
    """
    rounds, question = divmod(point, len(episode.tests))
    examples = [*episode.relevant, *episode.distractors]
    ordering = (rounds + question) % orderings
    python_random("ordering", episode.seed, episode.task.name, ordering).shuffle(examples)
    return examples, episode.tests[question]


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.gradients import attribute

    places: tuple[Place, ...] = setup.own["places"] if sees_past_the_question(setup) else ("right",)
    answer = partial(attribute, near=setup.own["near"])
    for episode, points in ordered_episodes(setup):
        items = example_items(setup.asker, episode, setup.own["orderings"], places)
        yield Unit(points, len(places), items, answer, GRADIENT_COST)


def example_items(asker: Asker, episode: Episode, orderings: int, places: Sequence[Place]) -> ItemMaker:
    """Format A, each prompt knowing which example a token belongs to."""

    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        examples, test = drawn(episode, orderings, point)
        place = cast(Place, condition["question"])
        encoded, parts = encode_parts(asker.tokenizer, examples, test, place, asker.chat)
        prompt = closed(encoded, asker.mask_id)
        return replace(prompt, parts=parts[: len(prompt.ids)]), test.letter

    return items_of(NAME, episode.task.name, [{"question": place} for place in places], made)


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="gradients of the answer by example",
    condition={"question": str},
    evidence={
        "examples": list[float],
        "question": float,
        "examples_times_input": list[float] | None | UnsetType,
        "question_times_input": float | None | UnsetType,
    },
    presets=("full", "paper"),
    units=units,
    gradients=True,
    parameters=ORDERINGS | PLACES,
    quick=QUICK_ORDERINGS | {"places": ("right", "left")},
    measures=entry_per_target,
    sections=(
        Section(
            title="Which examples move the answer?",
            question="How much would the chosen answer's logit change if an example's tokens were nudged? The "
            "gradient with respect to each token's embedding, times that embedding and by its norm alone, examples in "
            "random orders, by their place in the prompt.",
            paper="A U in all models: the first and last examples and those near the question weigh most; flatter for "
            "diffusion models than for autoregressive ones.",
            how_to_read="A high point means that the answer is locally sensitive to the example at that place. The "
            f"question stands at the left end, in the middle or at the right end of the axis. {COMPARE_BY}",
            x_label="Place of the example in the prompt",
            at="example {}",
            points=named_curves(NAME, "example", "question", PLACE_NAMES, first=1),
            measures=MEASURES,
        ),
    ),
)
