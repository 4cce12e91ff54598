"""Where does the model look? Location of the examples, position of the question, and both under masks."""

from collections.abc import Sequence

from maskwise.probes.variants import Variant
from maskwise.tasks.prompts import Place


def location(locations: Sequence[int]) -> list[Variant]:
    """The relevant examples in one block, moved among the distractors; question last, format A."""
    return [Variant("location", {"location": at}, location=at) for at in locations]


def question_position(locations: Sequence[int], places: Sequence[Place]) -> list[Variant]:
    """The same with the masked question before, amid and after the examples: is it locality or recency?"""
    return [
        Variant("question-position", {"question": place, "location": at}, location=at, place=place)
        for place in places
        for at in locations
    ]


def location_masks(locations: Sequence[int], mask_counts: Sequence[int]) -> list[Variant]:
    """The location probe in format B with k masks at the end."""
    return [
        Variant("location-masks", {"location": at, "masks": k}, location=at, open=True, masks=k)
        for k in mask_counts
        for at in locations
    ]
