"""Probes over labelled exercises: points in space by the order of the examples, and data sets by the share of masks.

All are in format B: the prompt is cut before the label, and masks enough for the longest label and `].` follow. The
label's first token is scored.
"""

import random
from collections.abc import Collection, Iterator, Sequence

from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.probes.records import Condition, Key, make_key, still_to_ask
from maskwise.probes.variants import Asker, Item
from maskwise.tasks.datasets import HOTPOTQA, Dataset
from maskwise.tasks.labelled import Labelled, answer_masks, balanced
from maskwise.tasks.points import LABELS, ORDERS, Cloud, arranged, exercise
from maskwise.tasks.prompts import encode_label, opened

POINTS, TEXTS = "points", "labelled-text"
ONE_SHOT_TOKENS = 300  # the longest single example shown before a HotpotQA question


def label_item(
    asker: Asker, key: Key, condition: Condition, examples: Sequence[Labelled], test: Labelled, masks: int,
    share: float = 0.0,
) -> Item:  # fmt: skip
    """`share` of the text's length in masks comes on top of the answer's own."""
    encoded = encode_label(asker.tokenizer, examples, test, asker.chat)
    prompt = opened(encoded, asker.mask_id, masks + round(share * encoded.row))
    return Item(key, condition, prompt, asker.tokenizer.decode([prompt.answer_id]))


# Points in space


def point_items(
    asker: Asker, cloud: Cloud, count: int, masks: int, points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    """Each test point after the same examples as drawn, nearest first and nearest last."""
    for point in points:
        for order in ORDERS:
            key = make_key(POINTS, cloud.name, point, {"order": order})
            if key not in done:
                test = exercise(cloud.tests[point], cloud.test_labels[point])
                yield label_item(asker, key, {"order": order}, arranged(cloud, point, order, count), test, masks)


def examples_that_fit(asker: Asker, cloud: Cloud, window: int) -> int:
    """As many examples as the window holds, a few tokens spared for longer numbers."""
    masks = answer_masks(asker.tokenizer, LABELS)
    count = len(cloud.examples)
    while count > 0:
        sample = list(point_items(asker, cloud, count, masks, [0], set()))
        if max(len(item.prompt.ids) for item in sample) + 8 <= window:
            break
        count = count * 9 // 10
    return count


# Data sets


def data_examples(asker: Asker, data: Dataset, shots: int, seed: int) -> list[Labelled]:
    """What every test question of a data set is shown: balanced labels, or one short example of HotpotQA."""
    draws = random.Random(f"{data.name} {seed}")
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
    for test in random.Random(f"{data.name} tests {seed}").sample(data.tests, len(data.tests)):
        if len(found) < count and len(encode_label(asker.tokenizer, examples, test, asker.chat).ids) <= longest:
            found.append(test)
    return found


def data_items(
    asker: Asker, probe: str, task: str, examples: Sequence[Labelled], tests: Sequence[Labelled], masks: int,
    shares: Sequence[float], points: Sequence[int], done: Collection[Key],
) -> Iterator[Item]:  # fmt: skip
    conditions: list[Condition] = [{"share": share} for share in shares]
    for key, point, condition in still_to_ask(probe, task, points, conditions, done):
        yield label_item(asker, key, condition, examples, tests[point], masks, float(condition["share"]))


def longest_prompt(model: Model, shares: Sequence[float], masks: int) -> int:
    """How many tokens a prompt may have so that it fits the window with the largest share of masks on top."""
    return int((model.window - masks) / (1 + max(shares)))
