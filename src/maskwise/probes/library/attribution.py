"""Attribution: what moves the answer, and what does it attend to?

    examples    R d d R d ... Q ?             the same examples in many orders, the question last, amid them or first
    masks       R d d R d ... Q ? _ _ _ ...   50 masks more
    attention   R d d R d ... Q ? _ _ _ ...

The gradient of the chosen answer's logit with respect to each token's embedding, times that embedding and by its norm
alone, as a share of the prompt's largest: of each example by its place, and of the masks, of the nearest other tokens
and of all other tokens. And the share of its attention that the place which predicts the answer pays to masks, to the
nearest and to all farther context, layer by layer, mean over heads.

A high point means that the answer is locally sensitive to what stands there. A mask states only that a token is
missing. Compare models by gradient x input: a norm grows as the embedding gets shorter, which says nothing about its
use. Attention to masks is attention lost to the text.

The paper (arXiv 2511.21338, probe 3, format A): a U in all models, the first and last examples and those near the
question weigh most; flatter for diffusion models than for autoregressive ones. With masks (format B), gradient norm of
masks / nearest 50 / all: LLaDA-Base .234/.005/.005, LLaDA-Instruct .220/.057/.017, Dream-Base .282/.012/.005,
Dream-Instruct .144/.030/.018.

Differs from the paper: it has no gradient x input and no attention, which its reviewers asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from maskwise.probes.blocks import sees_past_the_question, visible_counts
from maskwise.probes.evidence import TIMES_INPUT
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions, episodes
from maskwise.probes.setup import Asker, Setup
from maskwise.records.record import ProbeFields
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import QUESTION, SHARE, Estimate, curve, mean
from maskwise.support.randomness import python_random
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, Question
from maskwise.tasks.prompts import Place, Prompt, closed, encode_parts, encode_question, opened

NAME = "attribution"
EXAMPLES, MASKS, ATTENTION = "examples", "masks", "attention"
COST = 4  # of gradients and of attention weights
GRADIENTS = {TIMES_INPUT: "gradient x input", "": "gradient norm"}  # records of before have the norm alone
TOKENS = {"masks": "masks", "near": "the nearest other tokens", "all": "all other tokens"}
ATTENDED = {"masks": "masks", "near": "nearest context", "far": "farther context", "answer_found": "itself"}


class Evidence(ProbeFields, frozen=True, kw_only=True):
    """What one part measures: of examples and the question, of kinds of tokens, or of those in each layer."""

    examples: list[float] | UnsetType = UNSET
    question: float | UnsetType = UNSET
    masks: float | list[float] | UnsetType = UNSET
    near: float | list[float] | UnsetType = UNSET
    all: float | UnsetType = UNSET
    far: list[float] | UnsetType = UNSET
    answer: list[float] | UnsetType = UNSET
    examples_times_input: list[float] | UnsetType | None = UNSET
    question_times_input: float | UnsetType | None = UNSET
    masks_times_input: float | UnsetType | None = UNSET
    near_times_input: float | UnsetType | None = UNSET
    all_times_input: float | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        given = {name for name in self.__struct_fields__ if getattr(self, name) is not UNSET}
        plain = {name for name in given if not name.endswith(TIMES_INPUT)}
        if plain not in ({"examples", "question"}, {"masks", "near", "all"}, {"masks", "near", "far", "answer"}):
            raise ValueError("it does not hold what one part measures")
        if any(isinstance(getattr(self, name), list) != ("far" in plain) for name in plain & {"masks", "near"}):
            raise ValueError("it holds lists of attention where gradients are numbers")


def ask(
    setup: Setup,
    orderings: int = 30,
    questions: int = 20,
    near: int = 50,
    places: tuple[Place, ...] = ("right", "middle", "left"),
    masks: int = 50,
    of: tuple[str, ...] = (EXAMPLES, MASKS, ATTENTION),
) -> Iterator[Questions]:
    """At most every ordering of every question."""
    from maskwise.probes.answers.attention_shares import watch
    from maskwise.probes.answers.gradients import attribute

    settings, asker = setup.settings, setup.asker
    parts = parts_of(setup, of)
    shown: tuple[Place, ...] = places if sees_past_the_question(setup) else ("right",)
    extra = 0
    if asker.mask_id is not None and {MASKS, ATTENTION} & set(parts):
        extra = max(visible_counts(setup, NAME, [masks], other_tokens=1))
    conditions: dict[str, list[dict[str, Any]]] = {
        EXAMPLES: [{"of": EXAMPLES, "question": place} for place in shown],
        MASKS: [{"of": MASKS, "extra masks": extra}],
        ATTENTION: [{"of": ATTENTION, "extra masks": extra}],
    }
    for episode in episodes(setup, settings.main_relevant, settings.distractors, questions):
        source = Points(episode.task.name, range(min(settings.questions, orderings * questions)))

        def prompt(point: int, condition: Mapping[str, Any], episode=episode) -> Prompt:
            asked = drawn(episode, orderings, point)
            if condition["of"] == EXAMPLES:
                return prompt_with_parts(asker, *asked, condition["question"])
            return prompt_with_masks(asker, *asked, condition["extra masks"])

        def answer(point: int, episode=episode) -> str:
            letter: str = drawn(episode, orderings, point)[1].letter
            return letter

        for part in parts:
            answering = partial(watch if part == ATTENTION else attribute, near=near)
            yield Questions(source, conditions[part], prompt, answer, answering, COST)


def parts_of(setup: Setup, of: tuple[str, ...]) -> list[str]:
    """Those that can be asked of the model."""
    why = {}
    if setup.asker.mask_id is None:
        why[MASKS] = "an autoregressive model has no mask token"
    if not setup.model.attention_readable:
        why[ATTENTION] = f"the attention of a {setup.model.family.title} cannot be read"
    for part in of:
        if part in why:
            setup.note(f"{NAME} of {part} was not asked: {why[part]}")
    return [part for part in of if part not in why]


def drawn(episode: Episode, orderings: int, point: int) -> tuple[list[Question], Question]:
    """(examples in one of the random orders, test question) of a point: every question once before one recurs.

    So a run of few points still asks many questions, each with an order of its own.
    """
    rounds, question = divmod(point, len(episode.tests))
    examples = [*episode.relevant, *episode.distractors]
    ordering = (rounds + question) % orderings
    python_random("ordering", episode.seed, episode.task.name, ordering).shuffle(examples)
    return examples, episode.tests[question]


def prompt_with_parts(asker: Asker, examples: list[Question], test: Question, place: Place) -> Prompt:
    """Format A, the prompt knows which example a token belongs to."""
    encoded, parts = encode_parts(asker.tokenizer, examples, test, place, asker.chat)
    prompt = closed(encoded, asker.mask_id)
    return replace(prompt, parts=parts[: len(prompt.ids)])


def prompt_with_masks(asker: Asker, examples: list[Question], test: Question, extra: int) -> Prompt:
    """Format B with that many masks beyond the answer's."""
    encoded = encode_question(asker.tokenizer, examples, test, "right", asker.chat)
    return opened(encoded, asker.mask_id, 1 + extra)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Masks move the answer more than the nearest text: by gradient x input, of records without it by the norm."""
    found: list[Estimate] = []
    tokens = holding(table, "all").set_index(QUESTION)
    for end, gradient in GRADIENTS.items():
        values = tokens.reindex(columns=[name + end for name in TOKENS]).astype(float).dropna()
        if values.empty:
            continue
        if not found:
            more = values[f"masks{end}"] - values[f"near{end}"]
            name = f"{gradient} of masks less that of {TOKENS['near']}"
            found.append(mean(name, more, "", (-1.0, 1.0), claim="above"))
        found += [mean(f"{gradient} of {words}", values[name + end], "") for name, words in TOKENS.items()]
    for name, rows in of_layers(table).groupby("tokens", sort=False):
        by_question = rows.groupby(QUESTION, observed=True).value.mean()
        found.append(mean(f"attention to {name}, mean over layers", by_question, SHARE, (0.0, 1.0)))
    return found


def holding(table: Table, column: str) -> Table:
    """The rows whose records have this measurement."""
    return table[table[column].notna()] if column in table else table[:0]


def numbers(table: Table, columns: Mapping[str, Mapping[str, str]], place: str = "number") -> Table:
    """A row for each number in these columns or their lists: its `value`, its place from 1 on, words for the column."""
    import pandas as pd

    parts = []
    for column, said in columns.items():
        rows = holding(table, column)
        if len(rows):
            rows = rows.explode(column)
            more = {"value": rows[column].astype(float), place: 1 + rows.groupby(level=0).cumcount()}
            parts.append(rows.assign(**more, **said))
    return pd.concat(parts) if parts else table[:0].assign(value=0.0, gradient="", tokens="", **{place: 0})


def of_layers(table: Table) -> Table:
    columns = {name: {"tokens": called} for name, called in ATTENDED.items()}
    return numbers(holding(table, "far"), columns, "layer")


def by_example(table: Table, others: Tables) -> Table:
    rows = numbers(table, {f"examples{end}": {"gradient": called} for end, called in GRADIENTS.items()}, "example")
    return curve(rows, ["gradient", "question", "example"], {"value": ""})


def by_tokens(table: Table, others: Tables) -> Table:
    columns = {
        name + end: {"gradient": called, "tokens": TOKENS[name]} for end, called in GRADIENTS.items() for name in TOKENS
    }
    return curve(numbers(holding(table, "all"), columns), ["gradient", "tokens"], {"value": ""})


def by_layer(table: Table, others: Tables) -> Table:
    return curve(of_layers(table), ["tokens", "layer"], {"value": ""})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(
            by_example,
            "example",
            "Place of the example in the prompt",
            "Of the largest",
            title="Which examples move the answer?",
            series="question",
            panel="gradient",
        ),
        Figure(
            by_tokens,
            "tokens",
            "Tokens",
            "Of the largest",
            title="Do masks move the answer more than the text does?",
            panel="gradient",
            kind="points",
        ),
        Figure(
            by_layer,
            "layer",
            "Layer",
            "Share of attention",
            title="What does the answer attend to?",
            series="tokens",
        ),
    ],
    condition={"of": str, "question": str | UnsetType, "extra masks": Count | UnsetType},
    evidence=Evidence,
    needs=frozenset({"gradients"}),
    presets=("full", "paper"),
    sizes={
        "quick": {"orderings": 5, "questions": 4, "places": ("right", "left")},
        "paper": {"of": (EXAMPLES, MASKS)},
    },
)
