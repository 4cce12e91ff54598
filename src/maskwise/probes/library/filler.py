"""Full stops in the place of masks: is it the masks, or just more text?

    R d d R d ... Q A ] . . . . .

If any extra tokens did the harm, full stops would do it too. Format A: they follow the closed bracket, as in the
paper. Format B is ours: they follow two masks, where the other masks of `mask-count` stood, so that nothing but the
kind of the tokens differs; full stops or the model's end token. Masks low and full stops level: the masks themselves
distract; both low: any text does.

The paper (arXiv 2511.21338, probe 6, format A): LLaDA loses only 3 points (Base) and 10 (Instruct) to full stops, far
less than to masks. Dream: full stops and masks alike.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UnsetType

from maskwise.probes.blocks import visible_counts
from maskwise.probes.library.mask_count import NAME as MASK_COUNT
from maskwise.probes.library.mask_count import few_shots
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import FEW_SHOT, FewShot, Questions, few_shot
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SHARE, Estimate, change, curve, share, wide
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Prompt, closed, opened
from maskwise.tasks.prompts import filler_id as text_filler_id

NAME = "filler"
END = "end token"
CLOSED = 3  # the answer and `].`, which is one token or two
AFTER = {"A": "the closed answer", "B": "two masks"}


def ask(
    setup: Setup,
    filler_counts: tuple[int, ...] = (0, 5, 10, 20, 50, 100, 200),
    after_two_masks: tuple[str, ...] = (".", END),
    mask_counts: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200),
    among: int | None = None,
) -> Iterator[Questions]:
    filler, mask_id = setup.settings.filler, setup.asker.mask_id
    counts = visible_counts(setup, NAME, filler_counts, other_tokens=CLOSED)
    asked: list[dict[str, Any]] = [{"filler": filler, "fillers": n, "format": "A"} for n in counts]
    tokens = {kind: token for kind in after_two_masks if (token := filler_token(setup, kind)) is not None}
    behind = [max(0, k - 2) for k in visible_counts(setup, NAME, mask_counts)] if tokens else []
    asked += [{"filler": kind, "fillers": n, "format": "B"} for kind in tokens for n in behind]

    def prompt(source: FewShot, point: int, condition: Mapping[str, Any]) -> Prompt:
        encoded, count = source.encoded(point, distractors=among), condition["fillers"]
        if condition["format"] == "A":
            return closed(encoded, mask_id, 1, [setup.asker.filler_id] * count)
        return opened(encoded, mask_id, 2, [tokens[condition["filler"]]] * count)

    for source in few_shot(setup, [setup.settings.main_relevant]):
        yield source.under(asked, prompt)


def filler_token(setup: Setup, kind: str) -> int | None:
    """The token of a filler after two masks; without an end token a note says so."""
    if kind != END:
        return text_filler_id(setup.asker.tokenizer, kind)
    token: int | None = setup.asker.tokenizer.eos_token_id
    if token is None:
        setup.note(f"{NAME}: not asked with end tokens, which the tokenizer does not have")
    return token


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """What fillers cost, in each format."""
    found = []
    for (format, kind), own in table.groupby(["format", "filler"], observed=True):
        right = wide(own, "fillers")
        if 0 in right and right.shape[1] > 1:
            most, name = max(right), f"{in_words(kind)} after {AFTER[format]}"
            found.append(change(f"change of accuracy with {most} {name}", right[most], right[0]))
            found += [share(f"accuracy with {n} {name}", right[n]) for n in (0, most)]
    return found


def in_words(kind: str) -> str:
    return {".": "full stops", END: "end tokens"}.get(kind, f"“{kind}”")


def by_fillers(table: Table, others: Tables) -> Table:
    """Fillers after two masks stand where the other masks stood, so those are counted with them; the masks' own curve
    is drawn next to them."""
    import pandas as pd

    listed = curve(table, ["filler", "fillers", "format"], {"correct": SHARE}, {"fillers": 0})
    listed["tokens"] = listed.fillers + 2 * (listed.format == "B")
    listed["series"] = listed.format.map({"A": "", "B": "2 masks, then "}) + listed.filler.astype(str).map(in_words)
    masks = few_shots(others[MASK_COUNT]) if MASK_COUNT in others else ()
    if not len(masks):
        return listed
    drawn = curve(masks, ["masks"], {"correct": SHARE}, {"masks": 2})
    return pd.concat([drawn.assign(tokens=drawn.masks, series="masks"), listed])


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(by_fillers, "tokens", "Masks, or full stops, at the end", series="series", log=True, guessing=CHANCE)
    ],
    condition=FEW_SHOT | {"filler": str, "fillers": Count, "format": str | UnsetType},
    needs=frozenset({"masks"}),
    presets=("quick", "default", "full", "paper"),
    sizes={
        "quick": {"filler_counts": (0, 200), "after_two_masks": (), "among": 6},
        "default": {"filler_counts": (0, 200), "after_two_masks": ()},
        "paper": {"after_two_masks": ()},
    },
)
