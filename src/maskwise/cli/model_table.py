"""The list of models on the terminal, as `maskwise models` prints it."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from rich.table import Column, Table
from rich.text import Text

from maskwise.models.checkpoints.catalog import Checkpoint
from maskwise.models.families import FAMILIES
from maskwise.support.terminal import one_line


def model_table(entries: Sequence[Checkpoint]) -> Table:
    """80 columns hold the longest published name whole, so that it can be copied."""
    table = Table(Column("model", overflow="fold", max_width=40), box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("kind", no_wrap=True)
    for head in ("size", "context", "mask id"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("shift", no_wrap=True)
    for entry in entries:
        mask = "-" if entry.mask_id is None else str(entry.mask_id)
        count = entry.parameters
        size = f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
        name = one_line(entry.name) + (" (planted)" if entry.planted else "")
        shift = "yes" if entry.shift else "no"
        table.add_row(Text(name), entry.kind, size, str(entry.window), mask, shift)
    return table


def attention_in_words(entry: Checkpoint) -> str:
    if entry.causal:
        return "causal"
    if entry.block is not UNSET:
        return f"over blocks of {entry.block}{', shifted' if entry.shift else ''}"
    return "bidirectional, shifted" if entry.shift else "bidirectional"


def notes_on_one(entry: Checkpoint) -> Iterator[str]:
    yield f"{attention_in_words(entry)}; adapters go on: {one_line(entry.lora_targets)}"
    if entry.checked is not UNSET:
        yield f"checked: {entry.checked}"
    yield f"works: {next(family.works for family in FAMILIES if family.name == entry.kind)}"


def notes_on_all() -> Iterator[str]:
    blocks = ", ".join(f"{family.name} ({family.default_block})" for family in FAMILIES if family.blockwise)
    yield (
        f"ar is autoregressive, with causal attention; {blocks} are masked and see no block (of so many tokens) "
        "after a token's own; the others are masked, with bidirectional attention."
    )
    yield "Each kind: what it was checked against, and what works."
    for family in FAMILIES:
        if family.checked:
            yield f"  {family.name:9} {family.checked}. {family.works[0].upper()}{family.works[1:]}."
