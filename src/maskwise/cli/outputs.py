"""The fields of every --json output and of the files that commands write, as structs.

Tests decode the outputs by these types, and the site's page of fields is made of them (docs/pages.py).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from maskwise.advise import Advice
from maskwise.models.checkpoints.catalog import Checkpoint
from maskwise.probes.section import Summary
from maskwise.records.manifest import Manifest
from maskwise.records.record import Record
from maskwise.records.sample import SampledPrompt
from maskwise.support.typed import Count, Typed
from maskwise.toy import Toy


class Models(Typed, frozen=True, kw_only=True):
    """models --json"""

    models: Annotated[list[Checkpoint], Meta(description="one entry per model")]


class Conversion(Typed, frozen=True, kw_only=True):
    """convert --json"""

    source: Annotated[str, Meta(description="the checkpoint that was converted")]
    out: Annotated[str, Meta(description="the folder that was written")]
    model: Annotated[Checkpoint, Meta(description="what it holds now")]


class Verification(Typed, frozen=True, kw_only=True):
    """verify --json"""

    model: Annotated[str, Meta(description="the checkpoint")]
    dtype: Annotated[str, Meta(description="of the comparison")]
    texts: Annotated[Count, Meta(description="texts tokenised by both")]
    texts_with_other_ids: Annotated[Count, Meta(description="of these, with different tokens")]
    chat_prompts_agree: Annotated[bool | None, Meta(description="do the chat templates give the same?")]
    positions: Annotated[Count, Meta(description="positions whose logits were compared")]
    largest_logit_difference: Annotated[float, Meta(description="of all of them")]
    largest_logit: Annotated[float, Meta(description="of the original code")]
    greedy_tokens_that_differ: Annotated[Count, Meta(description="positions with another most probable token")]
    agrees: Annotated[bool, Meta(description="same ids and chat prompts, and logits that differ by rounding only?")]


class Report(Typed, frozen=True, kw_only=True):
    """report --json, and diagnose --json of several models"""

    report: Annotated[str, Meta(description="the page")]
    runs: Annotated[list[Summary], Meta(description="each run as diagnose prints it")]
    table: Annotated[str | UnsetType, Meta(description="of report, several folders: the page with one table")] = UNSET


class Comparison(Typed, frozen=True, kw_only=True):
    """compare --json"""

    finding: Annotated[str, Meta(description="the change of accuracy with the most masks, and its verdict")]
    estimates: Annotated[
        list[dict[str, Any]], Meta(description="of each model, and of each change from the first one (from)")
    ]
    report: Annotated[str, Meta(description="the page")]


class Export(Typed, frozen=True, kw_only=True):
    """export --json"""

    model: Annotated[str, Meta(description="the checkpoint")]
    adapter: Annotated[str | None, Meta(description="the adapter; null where MODEL names it")]
    out: Annotated[str, Meta(description="the folder that was written")]


class GeneratedText(Typed, frozen=True, kw_only=True):
    """One generated text; a line of generate --out"""

    prompt: Annotated[Any, Meta(description="a text, a chat or token ids, as it was given")]
    text: Annotated[str, Meta(description="the new text")]
    prompt_tokens: Annotated[Count, Meta(description="length of the prompt")]
    masks: Annotated[Count, Meta(description="new tokens")]
    steps: Annotated[Count, Meta(description="steps")]
    forwards: Annotated[Count, Meta(description="forward passes; twice the steps under guidance")]
    ids: Annotated[list[int], Meta(description="the new tokens")]
    order: Annotated[list[int], Meta(description="the step at which each was committed")]


class GenerationOutput(Typed, frozen=True, kw_only=True):
    """generate --json"""

    model: Annotated[str, Meta(description="the model's name")]
    settings: Annotated[dict[str, Any], Meta(description="every option of decoding by name, and the mask count")]
    generations: Annotated[list[GeneratedText], Meta(description="one per prompt")]
    divergence: Annotated[dict[str, Any] | None, Meta(description="with --divergence: tokens, agreement, first")]
    seed: Annotated[Count, Meta(description="of the random numbers")]


class AnswerLikelihood(Typed, frozen=True, kw_only=True):
    """A line of the data with its likelihood."""

    prompt: Annotated[str, Meta(description="as given")]
    answer: Annotated[str, Meta(description="as given")]
    log_likelihood: Annotated[float, Meta(description="nats")]
    tokens: Annotated[Count, Meta(description="of the answer")]
    method: Annotated[str, Meta(description="the estimator")]
    forwards: Annotated[Count, Meta(description="forward passes it took")]
    masks: Annotated[Count, Meta(description="masks after the answer")]
    visible: Annotated[Count | UnsetType, Meta(description="block diffusion: those of them that are seen")] = UNSET
    greedy: Annotated[bool | None, Meta(description="is it what greedy decoding gives? null where not known")]


class Likelihoods(Typed, frozen=True, kw_only=True):
    """score --json"""

    model: Annotated[str, Meta(description="the model's name")]
    settings: Annotated[dict[str, Any], Meta(description="method, samples, masks, seed")]
    scores: list[AnswerLikelihood]


class EvaluationMasks(Typed, frozen=True, kw_only=True):
    """Masks appended at evaluation."""

    few: Annotated[Count, Meta(description="the fewest")]
    many: Annotated[Count, Meta(description="the most that fit, at most as many as asked")]
    many_least: Annotated[Count, Meta(description="the least, after the longest of them")]


class Training(Typed, frozen=True, kw_only=True):
    """What tune and train print."""

    model: Annotated[str, Meta(description="what was trained")]
    out: Annotated[str, Meta(description="the folder that was written")]
    held_out: Annotated[Count, Meta(description="examples kept for the measures")]
    dropped: Annotated[Count, Meta(description="examples that exceed the context length")]
    trained_parameters: Annotated[Count, Meta(description="how many")]
    steps: Annotated[Count, Meta(description="optimiser steps made")]
    masks: EvaluationMasks
    losses: Annotated[list[Any], Meta(description="of every step that was logged")]


class TuningMeasures(Typed, frozen=True, kw_only=True):
    """Measures of tune on the examples held out."""

    ce: Annotated[float, Meta(description="cross-entropy of the masked answer tokens, nats")]
    tv: Annotated[float, Meta(description="L1 distance between predictions with few and many masks, 0 to 2")]
    accuracy_few: Annotated[float, Meta(description="share of masked answer tokens predicted, with few masks")]
    accuracy_many: Annotated[float, Meta(description="with many")]
    gap: Annotated[float, Meta(description="their difference; not the loss that diagnose measures")]


class Tuning(Training, frozen=True, kw_only=True):
    """tune --json, also result.json"""

    pairs: Annotated[Count, Meta(description="trained on")]
    before: Annotated[TuningMeasures | None, Meta(description="null where nothing was held out")]
    after: Annotated[TuningMeasures | None, Meta(description="the same after")]


class PretrainingMeasures(Typed, frozen=True, kw_only=True):
    """Measures of train on the examples held out."""

    nelbo: Annotated[float, Meta(description="nats per token")]
    next_few: Annotated[float, Meta(description="NLL of the next token with few masks behind it, nats")]
    next_many: Annotated[float, Meta(description="with many")]
    mask_tax: Annotated[float, Meta(description="their difference")]


class Pretraining(Training, frozen=True, kw_only=True):
    """train --json, also result.json"""

    tokens: Annotated[Count, Meta(description="of all rows")]
    rows: Annotated[Count, Meta(description="trained on")]
    before: Annotated[PretrainingMeasures | None, Meta(description="null where nothing was held out")]
    after: Annotated[PretrainingMeasures | None, Meta(description="the same after")]


class TrainingIdentity(Typed, frozen=True, kw_only=True):
    """What must be the same for a training run to be resumed."""

    model: Annotated[str, Meta(description="the model's name")]
    dtype: Annotated[str, Meta(description="as it was asked for")]
    settings: Annotated[dict[str, Any], Meta(description="every option by name")]
    data: Annotated[dict[str, Any], Meta(description="the file's name and its sha256")]
    processes: Annotated[Count, Meta(description="how many train together")]
    seeds: Annotated[Count, Meta(description="version of the derivation of seeds")]


class TrainingSettings(Typed, frozen=True, kw_only=True):
    """settings.json of tune and train"""

    identity: TrainingIdentity
    base: Annotated[str, Meta(description="fingerprint of the model's weights")]
    base_files: Annotated[
        str | UnsetType, Meta(description="digest of its weight files, by which the adapter knows its base")
    ] = UNSET
    counts: Annotated[dict[str, Any], Meta(description="examples used, held out and dropped; trained parameters")]
    versions: Annotated[dict[str, str], Meta(description="of maskwise, Python, torch and transformers")]


FILES: Mapping[str, type[Typed]] = {
    "records.jsonl of a run folder, each line": Record,
    "manifest.json of a run folder": Manifest,
    "sample.json of a run folder, each prompt": SampledPrompt,
    "settings.json of tune and train": TrainingSettings,
    "traces of generate --out, each line": GeneratedText,
}
OUTPUTS: Mapping[str, type[Typed]] = {
    "models": Models,
    "convert": Conversion,
    "verify": Verification,
    "diagnose (one model)": Summary,
    "diagnose (several models), report": Report,
    "compare": Comparison,
    "export": Export,
    "generate": GenerationOutput,
    "score": Likelihoods,
    "advise (also advice.json)": Advice,
    "tune (also result.json)": Tuning,
    "train (also result.json)": Pretraining,
    "toy (also toy.json)": Toy,
}
