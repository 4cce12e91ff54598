"""Generation length (ours): what does the size of the canvas do to written answers?

    64 masks    Q Q ? _ _ _
    1024 masks  Q Q ? _ _ _ _ _ _ _ _
    growing     Q Q ? _

Questions with a known answer (embedded ones, or yours with --data) are answered by greedy decoding, the most confident
first, on canvases of several sizes: all masks in one block, in blocks from left to right, and on a canvas that grows
block by block. An answer needs no more room than it has tokens.

Level lines are what one would hope for. Instruction-tuned models are known to write end tokens early on long canvases
(LLaDA-Instruct was given rules against them, arXiv 2502.09992; our forbid_end and late_end): answers end the sooner,
the more masks there are. Length: tokens before the first end token. End share: end tokens of the whole canvas, which
should grow with it. Empty: no text stands before the first end token. Cut: the canvas ends before the answer does. End
step: the share of the steps after which the first end token was committed.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import UnsetType

from maskwise.probes.checked import ONE_BLOCK, AskedSet, CanvasLayout, asked_sets, layouts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SHARE, TOKENS, Estimate, change, curve, mean, wide
from maskwise.support.typed import Count
from maskwise.tasks.checkable import CHECKED
from maskwise.tasks.prompts import Prompt

NAME = "generation-length"
BY = ["layout", "canvas"]
WRITTEN = {"correct": SHARE, "length": TOKENS}
ENDS = {"end_share": "", "empty": SHARE, "cut": SHARE, "end_step": ""}
DECODING_COST = 4


def ask(
    setup: Setup,
    canvases: tuple[int, ...] = (64, 128, 256, 512, 1024),
    blocks: tuple[int, ...] = (32,),
    tokens_per_step: int = 8,
    questions: int = 64,
) -> Iterator[Questions]:
    from maskwise.probes.answers.canvas_answers import write

    for asked in asked_sets(setup, questions):
        room = setup.model.window - asked.longest
        left_out = sorted(canvas for canvas in set(canvases) if canvas > room)
        if len(left_out) == len(set(canvases)):
            setup.note(f"{NAME} was not run: no canvas fits after the prompts of {asked.name}")
        elif left_out:
            sizes = ", ".join(map(str, left_out))
            setup.note(f"{NAME}: prompts of {asked.longest} tokens leave no room for canvases of {sizes} masks")
        source = Points(asked.name, range(len(asked.questions)))
        for layout in layouts([canvas for canvas in canvases if canvas <= room], blocks):

            def prompt(point: int, _: Any, asked: AskedSet = asked, layout: CanvasLayout = layout) -> Prompt:
                one = asked.questions[point]
                ids = (*one.ids, *[setup.asker.mask] * layout.canvas)
                return Prompt(ids, len(one.ids), one.answer_ids[0], layout.shown)

            writing = partial(write, layout=layout, asked=asked, tokens_per_step=tokens_per_step)
            yield Questions(source, [layout.condition], prompt, asked.answer, writing, DECODING_COST)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """In one block, the longest canvas against the shortest; lengths are cut at the shorter, so that room alone does
    not count."""
    one_block = table[table.layout == ONE_BLOCK]
    right, length = wide(one_block, "canvas"), wide(one_block, "canvas", "length")
    short, most = min(right, default=0), max(right, default=0)
    if short == most:
        return []
    sooner, said = length[most].clip(upper=short) - length[short].clip(upper=short), f"with {most} masks instead of"
    return [
        mean(f"tokens before the end {said} {short}", sooner, TOKENS, (-float(short), float(short)), claim="below"),
        change(f"change of accuracy {said} {short}", right[most], right[short]),
    ]


def by_canvas(table: Table, others: Tables) -> Table:
    """The changes are from the smallest canvas of the same layout."""
    smallest = table.groupby("layout").canvas.min()
    return curve(table, BY, WRITTEN, lambda condition: {"canvas": smallest[condition["layout"]]})


def ends(table: Table, others: Tables) -> Table:
    """Records of earlier versions do not have all of these."""
    return curve(table, BY, {name: unit for name, unit in ENDS.items() if name in table})


def advice(found: Sequence[Estimate]) -> str | None:
    flooded = bool(found) and found[0].side < 0
    return "decode in blocks or on a growing canvas, or with --late-end" if flooded else None


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(by_canvas, "canvas", "Masks of the canvas", "", series="layout", panel="measure", log=True),
        Figure(ends, "canvas", "Masks of the canvas", "", "End tokens", series="layout", panel="measure", log=True),
    ],
    condition={"layout": str, "canvas": Count},
    evidence={
        "length": Count,
        "ended": float,
        **dict.fromkeys(("end_share", "empty", "cut", "end_step"), float | UnsetType),
    },
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"canvases": (16, 64, 128), "blocks": (16,), "questions": 8}},
    takes=lambda data_set: data_set in CHECKED,
    advice=advice,
)
