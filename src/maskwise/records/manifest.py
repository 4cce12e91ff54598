"""manifest.json of a run folder: the model, the settings and the versions of a run."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from maskwise.support.typed import AtLeast1, Count, Typed

FORMAT = 2


class ModelDescription(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """The model that was asked."""

    name: Annotated[str, Meta(description="its name or folder")]
    planted: Annotated[str | None, Meta(description="the fault that was planted in it, to be found")] = None
    tuned: Annotated[str | None, Meta(description="the model it was tuned from against masks, by its card")] = None
    kind: Annotated[str, Meta(description="its family; ar is autoregressive, served is behind an endpoint")]
    parameters: Annotated[Count | None, Meta(description="how many; null if not known")]
    window: Annotated[Count | None, Meta(description="context length in tokens; null if not known")]
    mask_id: Annotated[Count | None, Meta(description="the mask token; null if autoregressive")]
    shift: Annotated[bool, Meta(description="is position i predicted from hidden state i - 1?")]
    causal: Annotated[bool | None, Meta(description="is attention causal? null if not known")]
    block: Annotated[AtLeast1 | None, Meta(description="block diffusion: tokens per block")] = None
    dtype: Annotated[str, Meta(description="of the weights")]
    weights: Annotated[str | None, Meta(description="fp8 if the layers were quantised at opening")] = None
    fingerprint: Annotated[str | None, Meta(description="of the weights and the tokenizer")] = None


class RunSettings(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked; a run with other settings is refused."""

    preset: Annotated[str, Meta(description="quick, default, full or paper")]
    probes: Annotated[list[str], Meta(description="in the order in which they were asked")]
    tasks: Annotated[list[str], Meta(description="of the few-shot probes")]
    questions: Annotated[Count, Meta(description="of a task; called points until 0.2")]
    seed: Annotated[Count, Meta(description="draws the examples and questions")]
    relevant: Annotated[
        list[Count] | Count | None, Meta(description="numbers of relevant examples; one number in version 0.1")
    ] = None
    distractors: Annotated[Count | None, Meta(description="examples of other rules among them")] = None
    filler: Annotated[str | None, Meta(description="the text compared with masks")] = None
    passages: Annotated[Count | None, Meta(description="passages of natural text")] = None
    passage_words: Annotated[Count | None, Meta(description="words of a passage")] = None
    held_out: Annotated[float | None, Meta(description="share of the words kept for test points")] = None
    chat: Annotated[bool, Meta(description="was it asked through the chat template?")]
    one_context: Annotated[bool, Meta(description="did all questions of a task see one context?")] = True
    parameters: Annotated[
        dict[str, dict[str, Any]] | None, Meta(description="each probe's own parameters, by its name")
    ] = None
    seeds: Annotated[Any, Meta(description="version of the derivation of seeds")] = None
    words: Annotated[str | None, Meta(description="hash of the word lists")] = None
    text: Annotated[str | None, Meta(description="hash of the prose")] = None
    data: Annotated[dict[str, str] | None, Meta(description="hashes of the data sets, by name")] = None
    date: Annotated[str | None, Meta(description="the date that a chat template was shown, if it writes one")] = None
    exact: Annotated[bool | None, Meta(description="was each prompt asked alone?")] = None


class Manifest(Typed, frozen=True, kw_only=True):
    """The manifest of a run folder."""

    format: Annotated[
        int, Meta(ge=1, le=FORMAT, description="2: records name `relevant` wherever their probe does")
    ] = 1
    model: ModelDescription
    settings: RunSettings
    versions: Annotated[dict[str, str], Meta(description="of maskwise, Python, torch and transformers")]
    command: Annotated[str | UnsetType | None, Meta(description="the command line that was run")] = UNSET
    complete: Annotated[bool, Meta(description="was everything asked?")]
    notes: Annotated[list[str], Meta(description="probes that do not apply, shorter contexts and the like")]
    not_visible: Annotated[
        dict[str, list[Count]] | UnsetType,
        Meta(description="by probe, counts of masks or fillers that no answer of a block diffusion model sees"),
    ] = UNSET
