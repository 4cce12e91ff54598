"""What a comparison of models finds."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from maskwise.scoring.scores import Score
from maskwise.scoring.skill import Skill
from maskwise.support.typed import Count, Typed


class ComparedModel(Typed, frozen=True, kw_only=True):
    """A model's own numbers, null where they were not measured."""

    skill: Annotated[Skill | UnsetType, Meta(description="whether its answers can show a loss")] = UNSET
    accuracy_k2: Annotated[float | None, Meta(description="with two masks")]
    accuracy_most_masks: Annotated[float | None, Meta(description="with the most")]
    mask_loss: Annotated[float | None, Meta(description="their difference")]
    nll_k2: Annotated[
        float | None, Meta(description="mean negative log-likelihood of the right answer with two masks, nats")
    ] = None
    nll_most_masks: Annotated[float | None, Meta(description="with the most")] = None
    degradation: Annotated[float | None, Meta(description="(max - min) / max over mask counts")]
    mask_tax: Annotated[float | None, Meta(description="a score")]
    locality: Annotated[float | None, Meta(description="a score")]
    recall: Annotated[float | None, Meta(description="accuracy of recall, two masks")]
    most_masks: Annotated[Count | None, Meta(description="how many that is")]
    mask_counts: Annotated[list[Count], Meta(description="that degradation, mask_tax and means are over")]
    nelbo: Annotated[float | None, Meta(description="nats per token")]
    confidence: Annotated[float | None, Meta(description="mean")]
    entropy: Annotated[float | None, Meta(description="mean, nats")]
    few_steps: Annotated[dict[str, Score], Meta(description="degradation by number of steps")]
    few_steps_degradation: Annotated[float | None, Meta(description="mean over numbers of steps")]
    multi_step_accuracy: Annotated[float | None, Meta(description="mean over numbers of steps")]
    intervals: Annotated[dict[str, list[float | None]], Meta(description="[low, high] of the scores")]
    out: Annotated[str, Meta(description="the run folder")]


class Changes(Typed, frozen=True, kw_only=True):
    """What changed from the first model."""

    mask_loss: Annotated[Score, Meta(description="share of the accuracy lost to the most masks that is recovered")]
    accuracy_k2: Annotated[Score, Meta(description="change of accuracy")]
    accuracy_most_masks: Annotated[Score, Meta(description="change of accuracy")]
    nll_k2: Annotated[Score, Meta(description="change of the negative log-likelihood, nats")]
    nll_most_masks: Annotated[Score, Meta(description="change of the negative log-likelihood, nats")]
    reduction: Annotated[Score, Meta(description="1 - degradation after / before")]
    few_steps: Annotated[dict[str, Score], Meta(description="the same by number of steps")]
    few_steps_reduction: Annotated[Score, Meta(description="of their mean")]
    recall: Annotated[Score, Meta(description="change of accuracy")]
    multi_step_accuracy: Annotated[Score, Meta(description="change of accuracy")]
    nelbo: Annotated[Score, Meta(description="change in nats")]
    confidence: Annotated[Score, Meta(description="change of the mean")]
    entropy: Annotated[Score, Meta(description="change in nats")]


class ComparisonResult(Typed, frozen=True, kw_only=True):
    """compare --json"""

    finding: Annotated[str | UnsetType, Meta(description="the first sentence of the page")] = UNSET
    recovered: Annotated[
        Score, Meta(description="share of the loss recovered with the most masks, both ends; of the second model")
    ]
    models: Annotated[dict[str, ComparedModel], Meta(description="by label")]
    reduction: Annotated[Score, Meta(description="1 - degradation after / before, of the second model")]
    changes: Annotated[dict[str, Changes], Meta(description="of each further model, by label")]
    baseline: Annotated[str, Meta(description="the first model")]
    report: Annotated[str | UnsetType, Meta(description="the page")] = UNSET
