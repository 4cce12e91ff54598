"""What the probes over labelled exercises share: prompts in format B, and data sets by the share of masks.

The prompt is cut before the label, and masks enough for the longest label and `].` follow. The label's first token is
scored.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from maskwise.errors import UserError
from maskwise.probes.probe import Asker, Item, Probe, Setup, Unit, slices
from maskwise.probes.section import Point, Shown
from maskwise.randomness import python_random
from maskwise.records.record import Condition, Key, still_to_ask
from maskwise.tasks.datasets import HOTPOTQA, Dataset, with_distinct_labels
from maskwise.tasks.labelled import Labelled, answer_masks, balanced, first_tokens
from maskwise.tasks.prompts import encode_label, opened

if TYPE_CHECKING:
    from maskwise.models.base import Model

ONE_SHOT_TOKENS = 300  # the longest single example shown before a HotpotQA question
SHARES = {"shares": (0.0, 0.05, 0.1, 0.2), "longest_prompt": 1000}
QUICK_SHARES = {"shares": (0.0, 0.1, 0.2)}


def label_item(
    asker: Asker, key: Key, condition: Condition, examples: Sequence[Labelled], test: Labelled, masks: int,
    labels: tuple[int, ...], share: float = 0.0,
) -> Item:  # fmt: skip
    """`labels` are the labels' first tokens; `share` of the text's length in masks comes on top of the answer's own."""
    encoded = encode_label(asker.tokenizer, examples, test, asker.chat)
    listed = labels if encoded.ids[encoded.row] in labels else ()
    prompt = opened(replace(encoded, allowed=listed), asker.mask_id, masks + round(share * encoded.row))
    return Item(key, condition, prompt, asker.tokenizer.decode([prompt.answer_id]))


def data_units(setup: Setup, probe: Probe, shots: int, want: str) -> Iterator[Unit]:
    """Questions of the data sets given, under each share of masks. `want` says what to give with --data."""
    given = [found for name, found in setup.data.items() if probe.takes(name)]
    asker, own, settings = setup.asker, setup.own, setup.settings
    shares = (0.0,) if setup.model.causal else own["shares"]
    if not given:
        setup.note(f"{probe.name} was not run for want of data: give it with --data {want}")
    for read in given:
        found = with_distinct_labels(read, asker.tokenizer)
        if found.labels != read.labels:
            setup.note(f"{found.name}: its labels begin alike in this tokenizer and were given letters")
        masks = answer_masks(asker.tokenizer, found.labels)
        labels = first_tokens(asker.tokenizer, found.labels)
        examples = data_examples(asker, found, shots, settings.seed)
        longest = min(own["longest_prompt"], longest_that_fits(setup.model, shares, masks))
        tests = tests_that_fit(asker, found, examples, settings.points, longest, settings.seed)
        if len(tests) < settings.points:
            setup.note(f"{found.name}: {len(tests)} questions of at most {longest} tokens, not {settings.points}")
        make = partial(data_items, asker, probe.name, found.name, examples, tests, masks, labels, shares)
        for points in slices(len(tests)):
            yield Unit(points, len(shares), make)


def data_examples(asker: Asker, data: Dataset, shots: int, seed: int) -> list[Labelled]:
    """What every test question of a data set is shown: balanced labels, or one short example of HotpotQA."""
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
        if len(found) < count and len(encode_label(asker.tokenizer, examples, test, asker.chat).ids) <= longest:
            found.append(test)
    return found


def data_items(
    asker: Asker, probe: str, task: str, examples: Sequence[Labelled], tests: Sequence[Labelled], masks: int,
    labels: tuple[int, ...], shares: Sequence[float], points: Sequence[int], done: Collection[Key],
) -> Iterator[Item]:  # fmt: skip
    conditions: list[Condition] = [{"share": share} for share in shares]
    for key, point, condition in still_to_ask(probe, task, points, conditions, done):
        yield label_item(asker, key, condition, examples, tests[point], masks, labels, float(condition["share"]))


def longest_that_fits(model: "Model", shares: Sequence[float], masks: int) -> int:
    """How many tokens a prompt may have so that it fits the context length with the largest share of masks on top."""
    return int((model.window - masks) / (1 + max(shares)))


def by_share(probe: str, shown: Shown) -> list[Point]:
    return [Point("", 100 * entry["condition"]["share"], entry) for entry in shown.entries(probe)]
