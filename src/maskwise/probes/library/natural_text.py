"""natural-text (ours): the last word of a passage is masked, and masks or full stops follow it.

The score is that of the word's first token, so that passages are the same for every tokenizer. Condition:
{"after": "masks", "count": 50}, or "full stops".
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from maskwise.probes.blocks import visible_counts
from maskwise.probes.probe import Asker, ItemMaker, Probe, Setup, Unit, items_of, units_of, with_nll
from maskwise.probes.section import Measure, Section, in_nats, named_curves
from maskwise.probes.text import TASK, Passage, passages_of
from maskwise.records.record import Condition
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Encoded, Prompt, encode_last_word, opened, unknown_id

NAME = "natural-text"
MASKS, FILLERS = "masks", "full stops"


def units(setup: Setup) -> Iterator[Unit]:
    chosen, wanted = passages_of(setup), setup.settings.passages
    if len(chosen) < wanted:
        setup.note(f"{NAME}: the text holds {len(chosen)} passages, {wanted} were asked for")
    fillers = setup.asker.filler_id != unknown_id(setup.asker.tokenizer)
    if not fillers:
        setup.note(f"{NAME}: not asked with full stops, for which the tokenizer has no token")
    asked = conditions(visible_counts(setup, NAME, setup.own["counts"], other_tokens=1), setup.model.causal, fillers)
    yield from units_of(len(chosen), len(asked), text_items(setup.asker, chosen, asked))


def conditions(counts: Sequence[int], causal: bool, fillers: bool = True) -> list[Condition]:
    """The numbers of masks, or fillers, after the masked word; a causal model sees nothing after it."""
    if causal:
        return [{"after": MASKS, "count": 0}]
    return [{"after": what, "count": n} for what in ((MASKS, FILLERS) if fillers else (MASKS,)) for n in counts]


def text_items(asker: Asker, chosen: Sequence[Passage], asked: Sequence[Condition]) -> ItemMaker:
    @lru_cache(1)  # all conditions of a point share a text
    def text(point: int) -> tuple[Encoded, str]:
        encoded = encode_last_word(asker.tokenizer, *chosen[point])
        return encoded, asker.tokenizer.decode([encoded.ids[encoded.row]])

    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        encoded, answer = text(point)
        count = int(condition["count"])
        masks, fillers = (1 + count, 0) if condition["after"] == MASKS else (1, count)
        return opened(encoded, asker.mask_id, masks, [asker.filler_id] * fillers), answer

    return items_of(NAME, TASK, asked, made)


def nothing_after(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    return next((c for c in conditions if c["after"] == condition["after"] and c["count"] == 0), None)


PROBE = Probe(
    name=NAME,
    group="context",
    about="the last word of a passage with masks or full stops after it",
    condition={"after": str, "count": Count},
    presets=("default", "full"),
    units=units,
    one_pass=True,
    parameters={"counts": (0, 1, 5, 10, 20, 50, 100, 200)},
    quick={"counts": (0, 20, 100)},
    baseline=nothing_after,
    measures=with_nll,
    chance=None,
    questions=lambda settings: settings.passages,
    sections=(
        Section(
            title="And in ordinary prose?",
            question="The last word of a passage is masked, with masks or full stops behind it. How likely is "
            "the true word under the model, and how often is it the model's first choice?",
            paper="Not in the paper; this probe is ours.",
            how_to_read="Lower is better; 0.7 nats more means half the probability. Level lines mean that masks do not "
            "disturb it here.",
            x_label="Masks, or full stops, after the word",
            points=named_curves(NAME, "count", "after", {what: what for what in (MASKS, FILLERS)}),
            measures=(in_nats("nll", "Negative log-likelihood of the word (nats)"), Measure("accuracy", "Accuracy")),
            caption="Line: mean over passages; band: 95 % interval.",
            spread=True,
        ),
    ),
)
