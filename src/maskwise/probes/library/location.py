"""Distance: is an example used wherever it stands?

    near            d d d d R R Q ?
    far             R R d d d d Q ?
    question first  Q ? R R d d d d
    far, 200 masks  R R d d d d Q ? _ _ _ _ _

The examples that show the rule stand in one block among examples of another rule, and the block is moved. Where the
question comes last, a line that climbs to the right means that near examples are used more than distant ones; a level
line means that distance does not matter. If the line of the question that comes first falls where the other climbs,
the distance to the mask counts; if both climb, the distance to the end of the prompt does. With masks behind the
question, lines that keep their shape but sink mean that masks cost the same at every distance.
Locality: (a_near - a_far) / (a_near - 1/3), the share of the skill lost with the examples far from the question, which
is last. Masks 0: only the answer's letter is masked, and the text after it is visible (format A); else the prompt ends
in so many masks, of which the first is the answer (format B).

The paper (arXiv 2511.21338, probes 1, 2 and 8): diffusion models (LLaDA, Dream): the further the examples are from the
question, the lower the accuracy, steadily; best near the mask wherever that is. Autoregressive models (Llama 3, Qwen
2.5): a U, best at both ends of the prompt. Masks flatten the line mostly by lowering it, most of all near the question.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwise.probes.blocks import sees_past_the_question, visible_counts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import FEW_SHOT, FewShot, Questions, few_shot
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import POINTS, SHARE, Estimate, change, curve, locality, mean, share, wide
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Prompt, closed, opened

NAME, LAST = "location", "right"
PLACES = {"left": "first", "middle": "in the middle", LAST: "last"}  # of the question


def ask(
    setup: Setup,
    locations: tuple[int, ...] = (0, 10, 20, 30, 40),
    places: tuple[str, ...] = (LAST, "middle", "left"),
    mask_counts: tuple[int, ...] = (2, 50, 100, 200),
) -> Iterator[Questions]:
    """locations: distractors before the block. Other places of the question: with one number of examples only."""
    model = setup.model
    if not sees_past_the_question(setup) and set(places) - {LAST}:
        setup.note(f"{NAME}: this model sees nothing behind the question, so the question is always last")
        places = (LAST,)
    counts = () if model.causal else visible_counts(setup, NAME, mask_counts)
    for source in few_shot(setup):
        main = source.relevant == setup.settings.main_relevant
        asked = [(place, 0) for place in places if place == LAST or main] + [(LAST, masks) for masks in counts]
        conditions = [{"question": place, "location": at, "masks": masks} for place, masks in asked for at in locations]
        yield source.under(conditions, prompt_of)


def prompt_of(source: FewShot, point: int, condition: Mapping[str, Any]) -> Prompt:
    encoded, mask_id = source.encoded(point, condition["location"], place=condition["question"]), source.asker.mask_id
    return opened(encoded, mask_id, condition["masks"]) if condition["masks"] else closed(encoded, mask_id)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    return [*of_distance(table), *of_places(table), *of_masks(table)]


def of_distance(table: Table) -> list[Estimate]:
    """With the question last."""
    last = table[(table.question == LAST) & (table.masks == 0)]
    right, nats = wide(last, "location"), wide(last, "location", "nll")
    if right.shape[1] < 2:
        return []
    near, *_, far = nearest_first(right, LAST)
    claim = "below" if last.masks_seen.any() else ""  # the paper's, of diffusion models
    return [
        change("change of accuracy with the examples far instead of near", right[far], right[near], claim=claim),
        share("accuracy with the examples near", right[near]),
        share("accuracy with the examples far", right[far]),
        locality("locality", right[near], right[far], CHANCE),
        mean("nats lost to distance", nats[far] - nats[near]),
    ]


def of_places(table: Table) -> list[Estimate]:
    """For each place of the question: whether the examples are used best next to it."""
    alone = table[table.masks == 0]
    found = []
    for place in [one for one in PLACES if (alone.question == one).any()]:
        right = wide(alone[alone.question == place], "location")
        if right.shape[1] > 1:
            nearest, *further = nearest_first(right, place)
            name = f"question {PLACES[place]}: accuracy with the examples nearest less the mean of the other places"
            gained = right[nearest] - right[further].mean(axis=1)
            found.append(mean(name, gained, POINTS, (-1.0, 1.0), claim="above"))
    return found if alone.question.nunique() > 1 else []


def of_masks(table: Table) -> list[Estimate]:
    right = wide(table[table.masks > 0], ["masks", "location"])
    counts, places = (sorted({key[level] for key in right}) for level in (0, 1))
    if len(counts) < 2 or len(places) < 2:
        return []
    lost = right[counts[-1]] - right[counts[0]]
    name = f"change of accuracy with {counts[-1]} masks instead of {counts[0]}"
    least = mean(f"{name}, mean over places", lost.mean(axis=1), POINTS, (-1.0, 1.0), claim="below")
    near = lost[places[-1]] - lost[places[0]]
    return [least, mean(f"{name}, near less far", near, POINTS, (-2.0, 2.0), claim="below")]


def nearest_first(places: Any, question: str) -> list[int]:
    """Locations by their distance from the question."""
    asked = sorted(places)
    at = {"left": asked[0], "middle": (asked[0] + asked[-1]) / 2, LAST: asked[-1]}[question]
    return sorted(asked, key=lambda place: abs(place - at))


def by_place(table: Table, others: Tables) -> Table:
    alone = table[table.masks == 0]
    nearest = {place: nearest_first(own.location.unique(), place)[0] for place, own in alone.groupby("question")}
    return curve(
        alone, ["question", "location"], {"correct": SHARE}, lambda one: {"location": nearest[one["question"]]}
    )


def by_masks(table: Table, others: Tables) -> Table:
    more = table[table.masks > 0]
    return curve(more, ["masks", "location"], {"correct": SHARE}, {"masks": more.masks.min()})


DISTRACTORS = "Distracting examples before the relevant ones"
PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(
            by_place, "location", DISTRACTORS, title="By the place of the question", series="question", guessing=CHANCE
        ),
        Figure(
            by_masks, "location", DISTRACTORS, series="masks", title="With masks behind the question", guessing=CHANCE
        ),
    ],
    condition=FEW_SHOT | {"question": str, "location": Count, "masks": Count},
    presets=("full", "paper"),
    sizes={"quick": {"locations": (0, 15), "places": (LAST, "left"), "mask_counts": (2, 20, 200)}},
)
