"""Recall: is a value found again wherever its key stands in a list of pairs?

    K V  K V  K V ... K V  K ? _

A fresh list for each question, every word used once; then one of the keys again. Near is one of the five next pairs,
but never the very next, far is the last of the list. The question stands behind the list, with masks or with masks and
full stops after it, or before it (the value alone is masked). Only the value's first token counts, which no other value
has, so guessing among them is right once in as many answers as there are pairs.

Nothing but its pair tells the value: what is lost with the distance is the use of distant context. Locality is the
share of the skill (accuracy above guessing) with a near pair that is lost with a far one. Wrong answers that are values
of neighbouring pairs say that the key was found, though not exactly; values from anywhere, that it was not found.

Not in the paper.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from maskwise.probes.blocks import visible_counts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, SHARE, Estimate, change, curve, locality, mean, share, wide, without_skill
from maskwise.scoring.scores import LEAST_SKILL
from maskwise.support.typed import AtLeast1, Count
from maskwise.tasks import recall_pairs
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.recall_pairs import DISTANCES, NEAR

NAME, TASK = "recall", "pairs"
LAST, FIRST = "right", "left"  # where the question stands
CONDITION = ["question", "distance", "masks", "fillers"]
NEIGHBOUR, ANOTHER = "value of a neighbouring pair", "value of another pair"


def ask(
    setup: Setup,
    pairs: int = 60,
    distances: tuple[str, ...] = tuple(DISTANCES),
    mask_counts: tuple[int, ...] = (2, 20, 200),
    filler_counts: tuple[int, ...] = (18, 198),
    lists_per_point: int = 2,
) -> Iterator[Questions]:
    asker, seed = setup.asker, setup.settings.seed
    words = recall_pairs.recall_words(asker.tokenizer, setup.words, setup.settings.held_out, pairs)
    counts = visible_counts(setup, NAME, mask_counts)
    fillers = visible_counts(setup, NAME, filler_counts, other_tokens=min(mask_counts))
    after = [(LAST, count, 0) for count in counts] + [(LAST, min(counts), count) for count in fillers]
    if setup.model.causal:
        after = [(LAST, 0, 0)]
    elif setup.model.block is not None:
        setup.note(f"{NAME}: not asked with the question first, which would see no pair after its block")
    else:
        after.append((FIRST, words.tokens, 0))
    asked = [dict(zip(CONDITION, (place, d, *tokens), strict=True)) for place, *tokens in after for d in distances]

    def prompt(point: int, condition: Mapping[str, Any]) -> Prompt:
        listed = recall_pairs.list_of_point(words, pairs, seed, point)
        away = recall_pairs.pairs_between(condition["distance"], pairs, seed, point)
        if condition["question"] == FIRST:
            return recall_pairs.asked_first(asker.tokenizer, listed, away, asker.mask, asker.chat)
        tail = [asker.filler_id] * condition["fillers"]
        masks = condition["masks"]
        return recall_pairs.asked_last(asker.tokenizer, listed, away, asker.mask_id, masks, tail, asker.chat)

    points = Points(TASK, range(setup.settings.questions * lists_per_point))
    yield Questions(points, asked, prompt, answering=recall, one_pass=True)


def recall(model: Any, prompts: Sequence[Any]) -> list[Any]:
    """Evidence: the pairs in the list, those between the asked pair and the question, and whose value was answered: so
    many pairs after the asked one (before it, below zero), None if of no pair."""
    from maskwise.probes.answers import plain

    found = []
    for prompt, one in zip(prompts, plain.ask(model, prompts), strict=True):
        offset = prompt.allowed.index(one.token) - prompt.asked if one.token in prompt.allowed else None
        found.append(replace(one, evidence={"pairs": len(prompt.allowed), "between": prompt.between, "offset": offset}))
    return found


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """With the question last, the fewest masks, no full stops."""
    own = table[(table.question == LAST) & (table.fillers == 0)]
    own = own[own.masks == own.masks.min()]
    far = max({*DISTANCES} & {*own.distance}, key=list(DISTANCES).index, default=NEAR)
    own = own[own.distance.isin((NEAR, far))]
    right, nats = wide(own, "distance"), wide(own, "distance", "nll")
    if NEAR not in right or far == NEAR or right.empty:
        return []
    guessing = 1 / float(table.pairs.iloc[0])
    lost = change(f"accuracy with a {far} pair less a near one", right[far], right[NEAR])
    skilled = max(right[NEAR].mean(), right[far].mean()) - guessing >= LEAST_SKILL
    return [
        lost if skilled else without_skill(lost),
        locality("locality", right[NEAR], right[far], guessing),
        share("accuracy with a near pair", right[NEAR]),
        share(f"accuracy with a {far} pair", right[far]),
        mean("nats lost to distance", nats[far] - nats[NEAR]),
    ]


def by_distance(table: Table, others: Tables) -> Table:
    """A curve for each number of masks, then of full stops, then the question first."""
    away = table.offset.astype(float).abs()
    table = table.assign(**{NEIGHBOUR: (away == 1).astype(float), ANOTHER: (away > 1).astype(float)})
    measures = {"correct": SHARE, "nll": NATS, NEIGHBOUR: SHARE, ANOTHER: SHARE}
    between = table.groupby(CONDITION).between.mean().round(1).reset_index()
    found = curve(table, CONDITION, measures, {"distance": NEAR}).merge(between, on=CONDITION)
    masks = found.masks.astype(str).replace("0", "no") + " masks"
    stops = masks.where(found.fillers == 0, masks + ", " + found.fillers.astype(str) + " full stops")
    found["asked"] = stops.where(found.question == LAST, "question first")
    return found.sort_values(["question", "fillers", "masks", "between"], ascending=[False, True, True, True])


QUICK = {"pairs": 30, "distances": ("near", "far"), "mask_counts": (2,), "filler_counts": (), "lists_per_point": 1}

PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(
            by_distance, "between", "Pairs between the asked pair and the question", "", series="asked", panel="measure"
        )
    ],
    condition={"question": str, "distance": str, "masks": Count, "fillers": Count},
    evidence={"pairs": AtLeast1, "between": Count, "offset": float | None},
    sizes={"quick": QUICK},
)
