"""manifest.json of a run folder: the model, the settings and the versions of a run (fields: docs/fields.md)."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from maskwise.support.typed import AtLeast1, Count, Typed

FORMAT = 2


class ModelDescription(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """The model that was asked."""

    name: str
    planted: str | None = None  # the fault that was planted in it, to be found
    tuned: str | None = None  # the model it was tuned from against masks, by its card
    kind: str  # its family; ar is autoregressive
    parameters: Count | None
    window: Count | None
    mask_id: Count | None  # the mask token; null if autoregressive
    shift: bool
    causal: bool | None
    block: AtLeast1 | None = None  # block diffusion: tokens per block
    dtype: str
    weights: str | None = None  # fp8 if the layers were quantised at opening
    fingerprint: str | None = None  # of the weights and the tokenizer


class RunSettings(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked; a run with other settings is refused."""

    preset: str  # quick, default, full or paper
    probes: list[str]  # in the order in which they were asked
    tasks: list[str]
    questions: Count  # of a task; called points until 0.2
    seed: Count
    relevant: list[Count] | Count | None = None  # numbers of relevant examples; one number in version 0.1
    distractors: Count | None = None  # examples of other rules among them
    filler: str | None = None  # the text compared with masks
    passages: Count | None = None
    passage_words: Count | None = None
    held_out: float | None = None  # share of the words kept for test points
    chat: bool
    one_context: bool = True  # did all questions of a task see one context?
    parameters: dict[str, dict[str, Any]] | None = None  # each probe's own parameters, by its name
    seeds: Any = None  # version of the derivation of seeds
    words: str | None = None  # hash of the word lists
    text: str | None = None  # hash of the prose
    data: dict[str, str] | None = None  # hashes of the data sets, by name
    date: str | None = None  # the date that a chat template was shown, if it writes one
    exact: bool | None = None  # was each prompt asked alone?


class Manifest(Typed, frozen=True, kw_only=True):
    """The manifest of a run folder."""

    format: Annotated[int, Meta(ge=1, le=FORMAT)] = 1  # 2: lines name `relevant` wherever their probe does
    model: ModelDescription
    settings: RunSettings
    versions: dict[str, str]  # of maskwise, Python, torch and transformers
    command: str | UnsetType | None = UNSET
    complete: bool
    notes: list[str]  # probes that do not apply, shorter contexts and the like
    not_visible: dict[str, list[Count]] | UnsetType = UNSET  # by probe, counts of masks or fillers that no answer sees
