"""What `maskwise reproduce` finds: a published score, the measured one, and each setting changed."""

from typing import Annotated

from msgspec import Meta

from maskwise.support.typed import Typed


class ShareInterval(Typed, frozen=True, kw_only=True):
    """A score in percent with its 95 % interval over questions."""

    value: float
    low: float | None
    high: float | None
    questions: int | None


class VariedSetting(Typed, frozen=True, kw_only=True):
    """The card's score with one setting changed."""

    setting: str
    value: str | int | float | None
    score: Annotated[float, Meta(description="percent of the questions asked")]
    difference: Annotated[float, Meta(description="from the card's own run on the same questions, in points")]
    low: Annotated[float, Meta(description="lower end of its interval; those of all settings hold together in 95 %")]
    high: Annotated[float, Meta(description="upper end")]
    questions: int


class Reproduction(Typed, frozen=True, kw_only=True):
    """reproduce --json"""

    model: str
    task: str
    settings: Annotated[dict[str, str | int | float | None], Meta(description="every setting of the card")]
    published: Annotated[ShareInterval, Meta(description="its interval where the card says over how many questions")]
    source: Annotated[str, Meta(description="where it was published")]
    note: str
    measured: ShareInterval
    difference: Annotated[ShareInterval, Meta(description="measured less published, in points")]
    agrees: Annotated[bool, Meta(description="does the interval of the difference include 0?")]
    sentence: Annotated[str, Meta(description="the finding")]
    variations: Annotated[list[VariedSetting], Meta(description="one setting changed at a time, the largest first")]
    moves_most: Annotated[str | None, Meta(description="the setting that moves the score most, if one is known to")]
    not_tried: Annotated[list[str], Meta(description="settings that the budget, or the model, did not allow")]
    seconds: Annotated[float, Meta(description="of decoding in all")]
