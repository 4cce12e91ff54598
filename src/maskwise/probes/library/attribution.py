"""Attribution: what moves the answer, and what does it attend to?

    examples    R d d R d ... Q ?             the same examples in many orders, the question last, amid them or first
    masks       R d d R d ... Q ? _ _ _ ...   50 masks more
    attention   R d d R d ... Q ? _ _ _ ...

The norm of the gradient of the chosen answer's logit with respect to each token's embedding, as a share of the prompt's
largest: of each example by its place, and of the masks, of the nearest other tokens and of all other tokens. And the
share of its attention that the place which predicts the answer pays to masks, to the nearest and to all farther
context, layer by layer, mean over heads.

A high point means that the answer is locally sensitive to what stands there. A mask states only that a token is
missing. A norm grows as the embedding gets shorter, which says nothing about its use. Attention to masks is attention
lost to the text.

The paper (arXiv 2511.21338, probe 3, format A): a U in all models, the first and last examples and those near the
question weigh most; flatter for diffusion models than for autoregressive ones. With masks (format B), gradient norm of
masks / nearest 50 / all: LLaDA-Base .234/.005/.005, LLaDA-Instruct .220/.057/.017, Dream-Base .282/.012/.005,
Dream-Instruct .144/.030/.018.

Differs from the paper: it has no attention, which its reviewers asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from maskwise.probes.blocks import sees_past_the_question, visible_counts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions, episodes
from maskwise.probes.setup import Asker, Setup
from maskwise.records.record import ProbeFields
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import QUESTION, SHARE, Estimate, curve, mean
from maskwise.support.randomness import python_random
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, Question
from maskwise.tasks.prompts import Place, Prompt, closed, encode_parts, opened

NAME = "attribution"
EXAMPLES, MASKS, ATTENTION = "examples", "masks", "attention"
COST = 4  # of gradients and of attention weights
TOKENS = {"masks": "masks", "near": "the nearest other tokens", "all": "all other tokens"}
ATTENDED = {"masks": "masks", "near": "nearest context", "far": "farther context", "answer_found": "itself"}
MEASURED = (  # by each part; True: a list
    {"examples": True, "question": False},
    dict.fromkeys(("masks", "near", "all"), False),
    dict.fromkeys(("masks", "near", "far", "answer"), True),
)


class Evidence(ProbeFields, frozen=True, kw_only=True):
    """Of examples and the question, of kinds of tokens, or of those in each layer. Records of 0.2 hold more."""

    examples: list[float] | UnsetType = UNSET
    question: float | UnsetType = UNSET
    masks: float | list[float] | UnsetType = UNSET
    near: float | list[float] | UnsetType = UNSET
    all: float | UnsetType = UNSET
    far: list[float] | UnsetType = UNSET
    answer: list[float] | UnsetType = UNSET

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        if {name: isinstance(one, list) for name, one in given.items() if one is not UNSET} not in MEASURED:
            raise ValueError("it does not hold what one part measures")


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
    from maskwise.probes.answers.gradients import attribute, watch

    settings, parts = setup.settings, parts_of(setup, of)
    shown: tuple[Place, ...] = places if sees_past_the_question(setup) else ("right",)
    extra = 0
    if setup.asker.mask_id is not None and {MASKS, ATTENTION} & set(parts):
        extra = max(visible_counts(setup, NAME, [masks], other_tokens=1))
    for episode in episodes(setup, settings.main_relevant, settings.distractors, questions):
        source = Points(episode.task.name, range(min(settings.questions, orderings * questions)))
        prompt = partial(prompt_of, setup.asker, episode, orderings)
        for part in parts:
            conditions: list[dict[str, Any]] = [{"of": part, "extra masks": extra}]
            if part == EXAMPLES:
                conditions = [{"of": part, "question": place} for place in shown]
            answering = partial(watch if part == ATTENTION else attribute, near=near)
            yield Questions(source, conditions, prompt, answering=answering, cost=COST)


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


def prompt_of(asker: Asker, episode: Episode, orderings: int, point: int, condition: Mapping[str, Any]) -> Prompt:
    """Of examples in format A, and it knows which example a token belongs to; else in format B with masks beyond the
    answer's."""
    examples, test = drawn(episode, orderings, point)
    encoded, parts = encode_parts(asker.tokenizer, examples, test, condition.get("question", "right"), asker.chat)
    if condition["of"] != EXAMPLES:
        return opened(encoded, asker.mask_id, 1 + condition["extra masks"])
    prompt = closed(encoded, asker.mask_id)
    return replace(prompt, parts=parts[: len(prompt.ids)])


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Masks move the answer more than the nearest text."""
    found = []
    norms, shares = (by_question(table, *own) for own in ((MASKS, TOKENS), (ATTENTION, ATTENDED)))
    if len(norms):
        masks, near, _ = TOKENS.values()
        more = norms[masks] - norms[near]
        found = [mean(f"gradient norm of {masks} less that of {near}", more, "", (-1.0, 1.0), claim="above")]
        found += [mean(f"gradient norm of {name}", norms[name], "") for name in TOKENS.values()]
    for name in [name for name in ATTENDED.values() if name in shares]:
        found.append(mean(f"attention to {name}, mean over layers", shares[name], SHARE, (0.0, 1.0)))
    return found


def by_question(table: Table, part: str, columns: Mapping[str, str]) -> Table:
    """Questions x columns: the mean of their numbers, or of their lists."""
    listed = numbers(table, part, columns).groupby([*QUESTION, "tokens"], observed=True, sort=False).value.mean()
    return listed.unstack("tokens")


def numbers(table: Table, part: str, columns: Mapping[str, str]) -> Table:
    """A row for each number in these columns or their lists: `value`, its `place` from 1 on, the column in words."""
    same = [*QUESTION, "question"]
    own = table[table["of"] == part].reindex(columns=[*same, *columns])
    rows = own.melt(same, [*columns], "tokens").explode("value")
    place = 1 + rows.groupby(level=0).cumcount()
    return rows.assign(value=rows.value.astype(float), tokens=rows.tokens.map(columns), place=place)


def by_example(table: Table, others: Tables) -> Table:
    return curve(numbers(table, EXAMPLES, {"examples": ""}), ["question", "place"], {"value": ""})


def by_tokens(table: Table, others: Tables) -> Table:
    return curve(numbers(table, MASKS, TOKENS), ["tokens"], {"value": ""})


def by_layer(table: Table, others: Tables) -> Table:
    return curve(numbers(table, ATTENTION, ATTENDED), ["tokens", "place"], {"value": ""})


NORM = "Gradient norm, of the largest"
PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(by_example, "place", "Place of the example", NORM, "Which examples move the answer?", "question"),
        Figure(by_tokens, "tokens", "Tokens", NORM, "Do masks move the answer more than the text does?", kind="points"),
        Figure(by_layer, "place", "Layer", "Share of attention", "What does the answer attend to?", "tokens"),
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
