"""question-position: `location` with the masked question before, amid or after the examples: locality or recency?

Paper probe 2, format A. Condition: {"question": "left", "location": 20}.
"""

from maskwise.probes.location import BOTH_SIDES as NAME
from maskwise.probes.location import DISTANCE_NATS, LOCALITY, LOCATIONS, nearest
from maskwise.probes.probe import Probe, Setup, Variant
from maskwise.probes.section import Section, named_curves

PLACE_NAMES = {"left": "question first", "middle": "question in the middle", "right": "question last"}
PLACES = {"places": ("right", "middle", "left")}


def variants(setup: Setup) -> list[Variant]:
    return [
        Variant(NAME, {"question": place, "location": at}, location=at, place=place)
        for place in setup.own["places"]
        for at in setup.own["locations"]
    ]


PROBE = Probe(
    name=NAME,
    group="context",
    about="the same with the question first, in the middle or last",
    presets=("quick", "default", "full", "paper"),
    variants=variants,
    parameters=LOCATIONS | PLACES,
    quick={"locations": (0, 15), "places": ("right", "left")},
    not_causal="an autoregressive model reads only what stands before the question, so it is always last",
    baseline=nearest,
    scores=(LOCALITY, DISTANCE_NATS),
    sections=(
        Section(
            title="Near the question, or simply near the end?",
            question="The same block is moved again, with the question at the start, in the middle or at the end of "
            "the prompt. Does it favour the latest text, or the text nearest to the gap it has to fill?",
            paper="Best near the gap wherever the gap is: locality, not recency. Lowest when the question stands first "
            "and the examples far behind it.",
            how_to_read="If the line of “question first” falls to the right while that of “question last” climbs, "
            "nearness is what counts. If both climb, it is the end of the prompt.",
            x_label="Distracting examples before the block",
            at="location {}",
            points=named_curves(NAME, "location", "question", PLACE_NAMES),
        ),
    ),
)
