"""sample.json of a run folder: a few prompts as the model was given them, with its likeliest answers."""

from pathlib import Path

import msgspec
from msgspec import structs

from maskwise.records.folder import write_into
from maskwise.records.manifest import Manifest, RunSettings
from maskwise.records.record import Condition
from maskwise.records.upgrade import upgrade
from maskwise.support.errors import UserError
from maskwise.support.files import open_regular, to_json
from maskwise.support.removed import REMOVED
from maskwise.support.typed import Count, Share, Typed, decode_with

SAMPLE = "sample.json"
MOST_PROMPTS, MOST_TOKENS, MOST_BYTES = 48, 64_000, 4 << 20


class SampledPrompt(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt and the prediction at its answer's position (fields: docs/fields.md)."""

    probe: str
    task: str
    point: Count
    condition: Condition
    answer: str
    correct: bool
    tokens: list[str]  # of the prompt, as the model saw it
    row: Count  # the answer's place among them, or just behind an autoregressive prompt
    top: list[tuple[str, Share]]  # the likeliest answers with their probabilities
    probability: Share  # of the right answer
    attribution: list[Share] | None = None  # of each token: the norm of the answer's gradient, of the largest


PROMPT = msgspec.json.Decoder(SampledPrompt)
PROMPTS = msgspec.json.Decoder(list[msgspec.Raw])


def write_sample(folder: Path, prompts: list[SampledPrompt]) -> None:
    """Whole or not at all."""
    write_into(folder, SAMPLE, [to_json(prompts) + "\n"])


def read_sample(folder: Path, manifest: Manifest) -> list[SampledPrompt]:
    """The prompts, checked; none where the run has no sample, as those of earlier versions have not."""
    file = folder / SAMPLE
    try:
        with open_regular(file) as opened:
            content = opened.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise UserError(f"cannot read {file}: {problem.strerror}") from None
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
        listed = decode_with(PROMPTS, content)
        if len(listed) > MOST_PROMPTS:
            raise ValueError(f"it has more than {MOST_PROMPTS} prompts")
        prompts = [_checked(number, bytes(raw), manifest.settings) for number, raw in enumerate(listed, 1)]
    except ValueError as problem:
        raise UserError(f"{file} is not a sample of this run ({problem}); remove the file to go on") from None
    return [prompt for prompt in prompts if prompt.probe not in REMOVED["probe"]]


def _checked(number: int, content: bytes, settings: RunSettings) -> SampledPrompt:
    try:
        prompt = decode_with(PROMPT, content)
    except ValueError as problem:
        raise ValueError(f"prompt {number}: {problem}") from None
    probe, condition = upgrade(prompt.probe, prompt.condition, settings.relevant)
    prompt = structs.replace(prompt, probe=probe, condition=condition)
    if prompt.probe not in settings.probes:
        raise ValueError(f"prompt {number}: the run did not ask the probe {prompt.probe!r:.40}")
    if prompt.row > len(prompt.tokens):
        raise ValueError(f"prompt {number}: row {prompt.row} is not one of its {len(prompt.tokens)} tokens")
    if prompt.attribution is not None and len(prompt.attribution) not in (0, len(prompt.tokens)):
        raise ValueError(f"prompt {number}: attribution is not a number for each token")
    return prompt
