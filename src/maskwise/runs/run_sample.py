"""The sample of a run: a few prompts of each condition with the model's likeliest answers, for the page to show."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from msgspec import structs
from torch import Tensor

from maskwise.models.model import Model
from maskwise.probes.answers.gradients import embedding_gradients
from maskwise.probes.answers.plain import DIGITS, answer_rows, pack
from maskwise.probes.probe import Probe
from maskwise.probes.setup import PAPER_RELEVANT, Item, Unit
from maskwise.records.record import Key, Record, condition_text, key_of
from maskwise.records.sample import MOST_PROMPTS, MOST_TOKENS, SampledPrompt
from maskwise.tasks.prompts import Prompt

TOP, ATTRIBUTION_DIGITS = 5, 3
BASELINE = 2  # masks
FEWEST, RECORDS_PER_PROMPT = 8, 28  # fewer prompts of a short run, because they are asked again


def take_sample(
    model: Model, units: Sequence[Unit], records: Sequence[Record], probes: Sequence[Probe]
) -> list[SampledPrompt]:
    """Asked one prompt at a time, so that it does not depend on what else was asked. With a probe of gradients those of
    two prompts are measured token by token: of one with the fewest masks and of one with the most."""
    shown = {item.key[0] for unit in units if unit.one_pass for item in unit.items(unit.points[:1], set())}
    chosen = choose(records, [probe.name for probe in probes if probe.name in shown])
    wanted = {key_of(record): record for record in chosen}
    items = {item.key: item for item in items_of(units, wanted)}
    by_masks = sorted((key for key in wanted if key in items), key=lambda key: wanted[key].masks)
    attributed = (
        {by_masks[0], by_masks[-1]} if by_masks and any("gradients" in probe.needs for probe in probes) else set()
    )
    answered: dict[tuple[tuple[int, ...], int], Tensor] = {}
    found, tokens = [], 0
    for key, record in wanted.items():
        item = items.get(key)
        if item is None or tokens + len(item.prompt.ids) > MOST_TOKENS:
            continue
        tokens += len(item.prompt.ids)
        asked = item.prompt.ids, item.prompt.row
        if asked not in answered:  # two probes may ask the same, or one for another answer
            answered[asked] = chances_of(model, item.prompt)
        prompt = sampled(model, item.prompt, record, answered[asked])
        if key in attributed:
            prompt = structs.replace(prompt, attribution=rounded(embedding_gradients(model, [item.prompt])[1][0]))
        found.append(prompt)
    return found


def rounded(norms: Tensor) -> list[float]:
    """Norms of the answer's gradient at each token, relative to the largest, for a sample."""
    return [round(norm, ATTRIBUTION_DIGITS) for norm in norms.tolist()]


def choose(records: Sequence[Record], probes: Sequence[str]) -> list[Record]:
    """Two questions at both ends of the lead; then the first answer of each condition, the outermost conditions first,
    the probes in turn; a third of the room is for answers that are right where those are wrong, or the other way."""
    pair = both_ends(records)
    pairs: dict[str, dict[str, dict[bool, Record]]] = {name: defaultdict(dict) for name in probes}
    for record in records:
        if record.probe in pairs:
            pairs[record.probe][condition_text(record.condition)].setdefault(record.correct, record)
    queues = [list(_outermost_first(list(conditions.values()))) for conditions in pairs.values()]
    turns = [queue[turn] for turn in range(max(map(len, queues), default=0)) for queue in queues if turn < len(queue)]
    most = min(MOST_PROMPTS, max(FEWEST, len(records) // RECORDS_PER_PROMPT))
    both = [list(pair.values()) for pair in turns]
    others = [pair[1] for pair in both if len(pair) > 1][: most // 3]
    rest = [one[0] for one in both][: most - len(others)] + others
    named = {key_of(record) for record in pair}
    return [*pair, *(record for record in rest if key_of(record) not in named)][:MOST_PROMPTS]


def both_ends(records: Sequence[Record]) -> list[Record]:
    """Two questions of the first screen's lead, each at its two ends: the first whose answer becomes wrong (else one
    that changes), and the first that stays right (else one that stays wrong)."""
    asked = [record for record in records if record.probe == "mask-count" and "shots" not in record.condition]
    numbers = [record.condition["relevant"] for record in asked]
    main = PAPER_RELEVANT if PAPER_RELEVANT in numbers else max(numbers, default=0)
    asked = [record for record in asked if record.condition["relevant"] == main]
    near_and_far = not asked
    if near_and_far:
        asked = [record for record in records if record.probe == "contrast" and record.condition["examples"] != "none"]
    ends: dict[tuple[str, int], dict[int, Record]] = defaultdict(dict)
    for record in asked:
        place = int(record.condition["examples"] == "far") if near_and_far else int(record.condition["masks"])
        if near_and_far or place >= BASELINE:
            ends[record.task, record.point].setdefault(place, record)
    pairs = [[own[min(own)], own[max(own)]] for own in ends.values() if len(own) > 1]
    flips = max(pairs, key=lambda pair: (pair[0].correct != pair[1].correct, pair[0].correct), default=[])
    stays = max(pairs, key=lambda pair: pair[0].correct and pair[1].correct, default=[])
    return flips if stays == flips else [*flips, *stays]


def _outermost_first(conditions: list[dict[bool, Record]]) -> Iterator[dict[bool, Record]]:
    while conditions:
        yield conditions.pop(0)
        conditions.reverse()


class AllBut(set[Key]):
    """The set of all keys but these, as `done`: a unit then makes only the items of these keys."""

    def __init__(self, keys: set[Key]) -> None:
        self.keys = keys

    def __contains__(self, key: object) -> bool:
        return key not in self.keys


def items_of(units: Sequence[Unit], wanted: dict[Key, Record]) -> Iterator[Item]:
    points, others = {record.point for record in wanted.values()}, AllBut(set(wanted))
    for unit in units:
        asked = [point for point in unit.points if point in points]
        if asked:
            yield from unit.items(asked, others)


@torch.inference_mode()
def chances_of(model: Model, prompt: Prompt) -> Tensor:
    """The probability of every token in the answer's place, [V]."""
    batch, row = pack(model, [prompt]), answer_rows(model, [prompt])
    return model.head(model.hidden(batch)[model.locate(batch, torch.zeros_like(row), row)])[0].softmax(-1).cpu()


def sampled(model: Model, prompt: Prompt, record: Record, chances: Tensor) -> SampledPrompt:
    top = chances.topk(min(TOP, len(chances)))
    return SampledPrompt(
        probe=record.probe,
        task=record.task,
        point=record.point,
        condition=record.condition,
        answer=record.answer,
        correct=record.correct,
        tokens=[model.tokenizer.decode([token]) for token in prompt.ids],
        row=prompt.row,
        top=[
            (model.tokenizer.decode([token]), round(chance, DIGITS))
            for token, chance in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ],
        probability=round(float(chances[prompt.answer_id]), DIGITS),
    )
