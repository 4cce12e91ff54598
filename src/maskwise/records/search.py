"""The files of a search of `maskwise advise`: manifest.json, and advice.json, which `advise --json` prints too."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from maskwise.support.typed import Count, Typed

Number = int | float


class MeanInterval(Typed, frozen=True, kw_only=True):
    """A mean with its 95 % interval."""

    mean: Annotated[Number, Meta(description="the mean")]
    low: Annotated[Number | None, Meta(description="lower end of the 95 % interval; null where nothing varied")]
    high: Annotated[Number | None, Meta(description="upper end")]

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def __neg__(self) -> "MeanInterval":
        """Negation as 0 - x, because -0.0 would be printed with its sign."""
        low, high = (None if end is None else 0.0 - end for end in (self.high, self.low))
        return MeanInterval(mean=0.0 - self.mean, low=low, high=high)


class ConfirmedSetting(Typed, frozen=True, kw_only=True):
    """A setting that answered the questions held back."""

    setting: Annotated[str, Meta(description="its name")]
    quality: Annotated[MeanInterval, Meta(description="mean over the questions")]
    to_reference: Annotated[MeanInterval, Meta(description="difference from the reference")]
    to_best: Annotated[MeanInterval, Meta(description="difference from the highest mean")]
    passes: Annotated[Number, Meta(description="forward passes per question")]
    seconds: Annotated[Number, Meta(description="per question")]
    frontier: Annotated[bool, Meta(description="is no other both better and cheaper?")]


class AdvisedSetting(ConfirmedSetting, frozen=True, kw_only=True):
    """A setting to use, and how to write it."""

    goal: Annotated[str, Meta(description="best quality; fastest within 1 point; within 3")]
    options: Annotated[dict[str, Any], Meta(description="of mw.generate, by name")]
    command: Annotated[str, Meta(description="the same as a command line")]
    python: Annotated[str, Meta(description="as Python")]
    lm_eval: Annotated[str, Meta(description="as arguments of lm-eval")]


class RewordedSetting(Typed, frozen=True, kw_only=True):
    """A setting that is named, compared with the reference under every template of --templates."""

    setting: Annotated[str, Meta(description="its name")]
    questions: Annotated[Count, Meta(description="held back, asked under every template")]
    difference: Annotated[Number, Meta(description="from the reference, mean over templates and questions")]
    low: Annotated[Number | None, Meta(description="lower end of its 95 % interval; null where no template changed it")]
    high: Annotated[Number | None, Meta(description="upper end")]
    sd: Annotated[Number, Meta(description="standard deviation of the difference over templates")]
    sd_low: Annotated[Number | None, Meta(description="lower end of its 95 % interval")]
    sd_high: Annotated[Number | None, Meta(description="upper end")]
    new_low: Annotated[Number | None, Meta(description="lower end of the 95 % predictive interval of a new template")]
    new_high: Annotated[Number | None, Meta(description="upper end")]
    templates: Annotated[dict[str, Number], Meta(description="the difference under each template")]


class UndecidedGoal(Typed, frozen=True, kw_only=True):
    """A goal that no setting is shown to meet."""

    goal: Annotated[str, Meta(description="best quality; fastest within 1 point; within 3")]
    questions: Annotated[Count | None, Meta(description="held back, that would decide; null where none would")]


class DroppedSetting(Typed, frozen=True, kw_only=True):
    """A setting that a round of the search dropped."""

    setting: Annotated[str, Meta(description="its name")]
    questions: Annotated[Count, Meta(description="how many it was asked")]
    quality: Annotated[Number, Meta(description="mean over these")]
    cost: Annotated[Number, Meta(description="what it was ranked by: forward passes or seconds")]
    passes: Annotated[Number, Meta(description="forward passes per question")]
    seconds: Annotated[Number, Meta(description="per question")]


class QuestionCounts(Typed, frozen=True, kw_only=True):
    """How many questions were asked."""

    searched: Annotated[Count, Meta(description="in the search")]
    held_back: Annotated[Count, Meta(description="to confirm what it found")]
    embedded: Annotated[bool, Meta(description="are they those that come with the package?")]


class Advice(Typed, frozen=True, kw_only=True):
    """What a search found."""

    model: Annotated[str, Meta(description="the model's name")]
    quality: Annotated[str, Meta(description="what a good answer is, in words")]
    unit: Annotated[str, Meta(description="of the quality: share or value")]
    questions: QuestionCounts
    sentence: Annotated[str, Meta(description="the finding")]
    all_equal: Annotated[bool, Meta(description="does no pair of settings differ?")]
    winner: Annotated[str | None, Meta(description="the best setting, if significantly better than the reference")]
    reference: Annotated[str, Meta(description="the setting that the others are compared with")]
    advice: Annotated[list[AdvisedSetting], Meta(description="one setting per goal that one is shown to meet")]
    undecided: Annotated[list[UndecidedGoal], Meta(description="the goals that no setting is shown to meet")] = field(
        default_factory=list  # searches of earlier versions have none
    )
    rewordings: Annotated[
        list[RewordedSetting] | UnsetType, Meta(description="with --templates: the settings named, under rewordings")
    ] = UNSET
    confirmed: Annotated[list[ConfirmedSetting], Meta(description="the settings that answered the questions held back")]
    dropped: Annotated[list[DroppedSetting], Meta(description="settings that the search dropped, the latest first")]
    not_tried: Annotated[list[str], Meta(description="what was left out")]
    cost: Annotated[str, Meta(description="the estimate printed before it started")]
    passes: Annotated[Number, Meta(description="forward passes in all")]
    seconds: Annotated[Number, Meta(description="of decoding in all")]
    device: Annotated[str, Meta(description="where")]
    folder: Annotated[str, Meta(description="the folder of the search")]


class SearchedModel(Typed, frozen=True, kw_only=True):
    """The model of a search."""

    fingerprint: Annotated[str, Meta(description="of its weights")]
    dtype: Annotated[str, Meta(description="of the weights")]
    served: Annotated[
        Any | UnsetType, Meta(description="of maskwise 0.2: a server answered, the search is refused")
    ] = UNSET


class SearchedQuestions(Typed, frozen=True, kw_only=True):
    """The questions of a search."""

    count: Annotated[Count, Meta(description="how many")]
    hash: Annotated[str, Meta(description="of their texts")]


class SearchIdentity(Typed, frozen=True, kw_only=True):
    """What must be the same for a search to be resumed."""

    model: SearchedModel
    questions: SearchedQuestions
    space: Annotated[dict[str, Any], Meta(description="the settings that were searched")]
    cost: Annotated[str, Meta(description="what settings are ranked by: passes or seconds")]
    budget: Annotated[Number | None, Meta(description="seconds of decoding; null is no limit")]
    seed: Annotated[Count, Meta(description="of the random draws")]


class SearchManifest(Typed, frozen=True, kw_only=True):
    """manifest.json of a search, as far as its page reads it."""

    command: Annotated[str, Meta(description="advise")]
    identity: SearchIdentity
    versions: Annotated[dict[str, str], Meta(description="of maskwise, Python, torch and transformers")]
    planted: Annotated[str | UnsetType | None, Meta(description="the fault that was planted in the model")] = UNSET
