"""Shared code of the probes over labelled exercises: prompts in format B, and questions of data sets.

The prompt is cut before the label, and masks enough for the longest label and `].` follow; a question that is not the
last has as many in their place. The label's first token is scored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maskwise.probes.probe import Probe
from maskwise.probes.setup import Asker, Setup
from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.tasks.datasets import HOTPOTQA, Dataset, with_distinct_labels
from maskwise.tasks.labelled_exercises import ANSWER, Labelled, answer_masks, balanced, first_tokens
from maskwise.tasks.prompts import Place, Prompt, encode_label, gapped

if TYPE_CHECKING:
    from maskwise.models.model import Model

ONE_SHOT_TOKENS = 300  # the longest single example shown before a HotpotQA question


@dataclass(frozen=True)
class Labels:
    """The labels of a task: masks enough for any of them, their first tokens, the system prompt."""

    masks: int
    tokens: tuple[int, ...]
    system: str = ""


def labels_of(tokenizer: Any, labels: Sequence[str], form: str = ANSWER, system: str = "") -> Labels:
    return Labels(answer_masks(tokenizer, labels, form), first_tokens(tokenizer, labels, form), system)


def label_prompt(
    asker: Asker,
    examples: Sequence[Labelled],
    test: Labelled,
    labels: Labels,
    more: int = 0,
    share: float = 0.0,
    place: Place = "right",
) -> Prompt:
    """`more` masks and a `share` of the text's length in masks come on top of the answer's own, at the end."""
    ids, gap = encode_label(asker.tokenizer, examples, test, place, asker.chat, labels.system)
    listed = labels.tokens if ids[gap.start] in labels.tokens else ()
    extra = more + round(share * (len(ids) - len(gap)))
    return gapped(ids, gap, asker.mask_id, labels.masks, extra, listed)


def given_data(setup: Setup, probe: Probe) -> Iterator[tuple[Dataset, Labels]]:
    """The data sets of the probe, with distinct labels."""
    for read in filter(probe.takes, setup.data.values()):
        found = with_distinct_labels(read, setup.asker.tokenizer)
        if found.labels != read.labels:
            setup.note(f"{found.name}: its labels begin alike in this tokenizer and were given letters")
        yield found, labels_of(setup.asker.tokenizer, found.labels, found.tests[0].form, found.system)


def data_examples(asker: Asker, data: Dataset, shots: int, seed: int) -> list[Labelled]:
    """The examples of every test question of a data set: balanced labels, or one short example of HotpotQA."""
    draws = python_random("shown", data.name, seed)
    if data.name != HOTPOTQA:
        return balanced(data.shown, shots, draws)
    fitting = [e for e in data.shown if len(asker.tokenizer(e.asked)["input_ids"]) <= ONE_SHOT_TOKENS]
    if not fitting:
        raise UserError(f"no question of {data.name} is short enough to be shown as an example")
    return [draws.choice(fitting)]


def tests_that_fit(
    asker: Asker, data: Dataset, examples: Sequence[Labelled], count: int, longest: int, seed: int
) -> list[Labelled]:
    """`count` tests whose prompt, without extra masks, has at most `longest` tokens.

    Drawn from all of them: published files may hold one label's texts before the other's.
    """
    found: list[Labelled] = []
    for test in python_random("asked", data.name, seed).sample(data.tests, len(data.tests)):
        if len(found) == count:
            break
        if len(encode_label(asker.tokenizer, examples, test, "right", asker.chat, data.system)[0]) <= longest:
            found.append(test)
    return found


def longest_that_fits(model: "Model", shares: Sequence[float], masks: int) -> int:
    """The longest prompt that fits the context length with the largest share of masks."""
    moved = (model.block or 1) - 1  # at most, so that the answer begins a block
    return int((model.window - moved - masks) / (1 + max(shares)))
