"""The fields of every --json output and of the files that commands write, as structs.

Tests decode the outputs by these types, and the site's page of fields is made of them (docs/pages.py).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from maskwise.probes.section import Summary
from maskwise.records.manifest import Manifest
from maskwise.records.record import Record
from maskwise.records.reproduced import Reproduction
from maskwise.records.sample import SampledPrompt
from maskwise.records.search import Advice, SearchManifest
from maskwise.scoring.scores import Score
from maskwise.support.typed import AtLeast1, Count, Typed


class Checkpoint(Typed, frozen=True, kw_only=True):
    """A checkpoint that can be opened."""

    name: Annotated[str, Meta(description="its name or folder")]
    kind: Annotated[str, Meta(description="its family; ar is autoregressive")]
    parameters: Annotated[Count, Meta(description="how many")]
    window: Annotated[Count, Meta(description="context length in tokens")]
    mask_id: Annotated[Count | None, Meta(description="the mask token; null if autoregressive")]
    shift: Annotated[bool, Meta(description="is position i predicted from hidden state i - 1?")]
    causal: Annotated[bool, Meta(description="is attention causal?")]
    lora_targets: Annotated[str, Meta(description="regular expression of the linear layers that adapters go on")]
    planted: Annotated[str | UnsetType | None, Meta(description="the fault that was planted in it")] = UNSET
    block: Annotated[AtLeast1 | UnsetType, Meta(description="block diffusion: tokens per block")] = UNSET
    checked: Annotated[str | UnsetType, Meta(description="published checkpoints: what was compared with")] = UNSET


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


class Report(Typed, frozen=True, kw_only=True):
    """report --json, and diagnose --json of several models"""

    report: Annotated[str, Meta(description="the page")]
    runs: Annotated[list[Summary], Meta(description="each run as diagnose prints it")]
    table: Annotated[str | UnsetType, Meta(description="of report, several folders: the page with one table")] = UNSET
    searches: Annotated[list[Advice] | UnsetType, Meta(description="of report: each search, as of advise")] = UNSET


class ComparedModel(Typed, frozen=True, kw_only=True):
    """A model's own numbers, null where they were not measured."""

    degradation: Annotated[float | None, Meta(description="(max - min) / max over mask counts")]
    mask_tax: Annotated[float | None, Meta(description="a score")]
    locality: Annotated[float | None, Meta(description="a score")]
    accuracy_k2: Annotated[float | None, Meta(description="with two masks")]
    accuracy_most_masks: Annotated[float | None, Meta(description="with the most")]
    mask_loss: Annotated[float | None, Meta(description="their difference")]
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

    reduction: Annotated[Score, Meta(description="1 - degradation after / before")]
    few_steps: Annotated[dict[str, Score], Meta(description="the same by number of steps")]
    few_steps_reduction: Annotated[Score, Meta(description="of their mean")]
    mask_loss: Annotated[Score, Meta(description="share of the accuracy lost to the most masks that is recovered")]
    recall: Annotated[Score, Meta(description="change of accuracy")]
    accuracy_k2: Annotated[Score, Meta(description="change of accuracy")]
    accuracy_most_masks: Annotated[Score, Meta(description="change of accuracy")]
    multi_step_accuracy: Annotated[Score, Meta(description="change of accuracy")]
    nelbo: Annotated[Score, Meta(description="change in nats")]
    confidence: Annotated[Score, Meta(description="change of the mean")]
    entropy: Annotated[Score, Meta(description="change in nats")]


class Comparison(Typed, frozen=True, kw_only=True):
    """compare --json"""

    models: Annotated[dict[str, ComparedModel], Meta(description="by label")]
    reduction: Annotated[Score, Meta(description="1 - degradation after / before, of the second model")]
    changes: Annotated[dict[str, Changes], Meta(description="of each further model, by label")]
    baseline: Annotated[str, Meta(description="the first model")]
    report: Annotated[str, Meta(description="the page")]


class Export(Typed, frozen=True, kw_only=True):
    """export --json"""

    model: Annotated[str, Meta(description="the checkpoint")]
    adapter: Annotated[str | None, Meta(description="the adapter; null where MODEL names it")]
    out: Annotated[str, Meta(description="the folder that was written")]


class Trace(Typed, frozen=True, kw_only=True):
    """One generated text; a line of generate --out"""

    prompt: Annotated[Any, Meta(description="a text, a chat or token ids, as it was given")]
    text: Annotated[str, Meta(description="the new text")]
    prompt_tokens: Annotated[Count, Meta(description="length of the prompt")]
    masks: Annotated[Count, Meta(description="new tokens")]
    steps: Annotated[Count, Meta(description="steps")]
    forwards: Annotated[Count, Meta(description="forward passes; twice the steps under guidance")]
    ids: Annotated[list[int], Meta(description="the new tokens")]
    order: Annotated[list[int], Meta(description="the step at which each was committed")]


class Generation(Typed, frozen=True, kw_only=True):
    """generate --json"""

    model: Annotated[str, Meta(description="the model's name")]
    settings: Annotated[dict[str, Any], Meta(description="every option of decoding by name, and the mask count")]
    generations: Annotated[list[Trace], Meta(description="one per prompt")]
    divergence: Annotated[dict[str, Any] | None, Meta(description="with --divergence: tokens, agreement, first")]
    seed: Annotated[Count, Meta(description="of the random numbers")]


class Likelihood(Typed, frozen=True, kw_only=True):
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
    scores: list[Likelihood]


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
    accuracy_few: Annotated[float, Meta(description="with few masks")]
    accuracy_many: Annotated[float, Meta(description="with many")]
    gap: Annotated[float, Meta(description="their difference")]


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


class Toy(Typed, frozen=True, kw_only=True):
    """toy --json, also toy.json"""

    marginals: Annotated[dict[str, Any], Meta(description="P(A) and P(B) of the model in one parallel step")]
    data: Annotated[list[float], Meta(description="shares of [AB, A without B, B without A, neither] in the data")]
    parallel: Annotated[list[float], Meta(description="of one parallel step")]
    sequential: Annotated[list[float], Meta(description="of decoding from left to right")]
    rules: Annotated[dict[str, Any], Meta(description="of each strategy, by name")]
    forwards: Annotated[dict[str, float], Meta(description="mean forward passes of each strategy")]


class Accuracy(Typed, frozen=True, kw_only=True):
    """An accuracy with its 95 % interval."""

    accuracy: Annotated[float | None, Meta(description="null where it could not be measured")]
    low: Annotated[float | None, Meta(description="lower end of the 95 % interval")]
    high: Annotated[float | None, Meta(description="upper end")]


class MitigationResult(Accuracy, frozen=True, kw_only=True):
    """A mitigation; the first one is the baseline."""

    cure: Annotated[str, Meta(description="its name")]
    paper: Annotated[str | None, Meta(description="where it was published")]
    difference: Annotated[float | None, Meta(description="from the baseline, over the same questions")]
    difference_low: Annotated[float | None, Meta(description="lower end")]
    difference_high: Annotated[float | None, Meta(description="upper end")]
    tokens_per_pass: Annotated[float, Meta(description="200 / forward passes")]
    training: Annotated[str, Meta(description="what it took")]
    why: Annotated[str | UnsetType, Meta(description="why it was not run, where no adapter would help")] = UNSET


class Mitigations(Typed, frozen=True, kw_only=True):
    """cures --json, also cures.json"""

    model: Annotated[str, Meta(description="the model's name")]
    masks: Annotated[Count, Meta(description="of the canvas")]
    block: Annotated[Count | UnsetType, Meta(description="block diffusion: tokens per block")] = UNSET
    n: Annotated[Count, Meta(description="questions")]
    two_masks: Annotated[Accuracy, Meta(description="for comparison: with two masks")]
    cures: list[MitigationResult]


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
    teacher: Annotated[str | UnsetType, Meta(description="fingerprint of the teacher's")] = UNSET
    counts: Annotated[dict[str, Any], Meta(description="examples used, held out and dropped; trained parameters")]
    versions: Annotated[dict[str, str], Meta(description="of maskwise, Python, torch and transformers")]


FILES: Mapping[str, type[Typed]] = {
    "records.jsonl of a run folder, each line": Record,
    "manifest.json of a run folder": Manifest,
    "sample.json of a run folder, each prompt": SampledPrompt,
    "settings.json of tune and train": TrainingSettings,
    "manifest.json of a search of advise": SearchManifest,
    "traces of generate --out, each line": Trace,
}
OUTPUTS: Mapping[str, type[Typed]] = {
    "models": Models,
    "convert": Conversion,
    "verify": Verification,
    "diagnose (one model)": Summary,
    "diagnose (several models), report": Report,
    "compare": Comparison,
    "export": Export,
    "generate": Generation,
    "score": Likelihoods,
    "reproduce": Reproduction,
    "advise (also advice.json)": Advice,
    "tune (also result.json)": Tuning,
    "train (also result.json)": Pretraining,
    "toy (also toy.json)": Toy,
    "cures (also cures.json)": Mitigations,
}
