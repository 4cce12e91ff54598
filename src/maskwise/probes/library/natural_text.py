"""Natural text (ours): do masks after a word of prose make it less likely?

    nothing     t t t t t t ?
    masks       t t t t t t ? _ _ _ _
    full stops  t t t t t t ? . . . .

The last word of a passage is masked, and masks or full stops follow it. What is measured is the likelihood of the
word's first token, so that passages are the same for every tokenizer, and how often it is the model's first choice.

0.7 nats more mean half the probability; level lines mean that masks do not disturb the model here. An autoregressive
model sees nothing after the word.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from maskwise.probes.blocks import visible_counts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.probes.text import TASK, passages_of
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, SHARE, Estimate, answers, change, curve, mean, share, wide
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Encoded, Prompt, encode_last_word, opened, unknown_id

NAME = "natural-text"
MASKS, FILLERS = "masks", "full stops"


def ask(setup: Setup, counts: tuple[int, ...] = (0, 1, 5, 10, 20, 50, 100, 200)) -> Iterator[Questions]:
    asker, chosen, wanted = setup.asker, passages_of(setup), setup.settings.passages
    if len(chosen) < wanted:
        setup.note(f"{NAME}: the text holds {len(chosen)} passages, {wanted} were asked for")
    after = [MASKS, FILLERS]
    if asker.filler_id == unknown_id(asker.tokenizer):
        setup.note(f"{NAME}: not asked with full stops, for which the tokenizer has no token")
        after.remove(FILLERS)
    visible = visible_counts(setup, NAME, counts, other_tokens=1)
    asked: list[dict[str, Any]] = [{"after": what, "count": count} for what in after for count in visible]
    if setup.model.causal:
        asked = [{"after": MASKS, "count": 0}]

    @lru_cache(1)  # all conditions of a point share a text
    def text(point: int) -> Encoded:
        return encode_last_word(asker.tokenizer, *chosen[point])

    def prompt(point: int, condition: Mapping[str, Any]) -> Prompt:
        masks, fillers = (condition["count"], 0) if condition["after"] == MASKS else (0, condition["count"])
        return opened(text(point), asker.mask_id, 1 + masks, [asker.filler_id] * fillers)

    yield Questions(Points(TASK, range(len(chosen))), asked, prompt)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """The changes from nothing after the word to the most masks, and to as many full stops."""
    nats, right = (wide(table, ["after", "count"], value) for value in ("nll", "correct"))
    most, found = max(table["count"]), []
    for after in (MASKS, FILLERS):
        if most and {(after, 0), (after, most)} <= set(nats):
            name = f"with {most} {after} after the word instead of none"
            found.append(mean(f"log-likelihood {name}", nats[after, 0] - nats[after, most]))
            found.append(change(f"accuracy {name}", right[after, most], right[after, 0]))
    alone = table[(table.after == MASKS) & (table["count"] == 0)]
    found.append(mean("negative log-likelihood", answers(alone, "nll")))
    return [*found, share("accuracy", answers(alone))]


def by_count(table: Table, others: Tables) -> Table:
    table = table.sort_values(["after", "count"], ascending=[False, True])  # masks first
    return curve(table, ["after", "count"], {"nll": NATS, "correct": SHARE}, {"count": 0})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_count, "count", "Masks, or full stops, after the word", "", series="after", panel="measure")],
    condition={"after": str, "count": Count},
    sizes={"quick": {"counts": (0, 20, 100)}},
)
