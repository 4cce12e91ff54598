"""generation-length (ours): what the size of the canvas does to generated answers, under several layouts of it.

Checkable questions (tasks/checkable.py: a user's, GSM8K, or embedded ones) are answered by greedy decoding, the most
confident first, on canvases of several sizes: all masks in one block, in blocks from left to right, and on a canvas
that grows block by block. The known fault of instruction-tuned models is an early flood of end tokens on long canvases
(Nie et al., arXiv 2502.09992, give LLaDA-Instruct rules against end tokens, our forbid_end and late_end): answers end
the sooner, the more masks there are. Condition: {"layout": "one block", "canvas": 256}; evidence {"length": tokens
before the first end token, "ended": 0 or 1, "end_share": end tokens of the whole canvas, "empty": 1 where no text
stands before the first end token, "cut": 1 where the canvas ends before the answer does (no end token), "end_step": the
share of the steps after which the first end token was committed, where there is one}.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from maskwise.probes.checked import ONE_BLOCK, asked_sets, canvas_items, layouts
from maskwise.probes.evidence import evidence_means
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Probe, Setup, Unit, first_of_same, units_of
from maskwise.probes.section import Entry, Measure, Point, Shown, Summary, TextTable, as_share, in_unit, over_masks
from maskwise.records.record import Record
from maskwise.scoring.intervals import bounded_mean, by_task, stratified_share
from maskwise.scoring.numbers import between, percent
from maskwise.support.typed import Count
from maskwise.tasks.checkable import CHECKED

NAME = "generation-length"
FLOOD = "end_flood"
# Answers that cannot be used: the measure, its name, the remedy.
UNUSABLE = (
    ("empty", "empty", "decode in blocks or on a growing canvas, or with --late-end"),
    ("cut", "cut off", "raise --max-new-tokens, or give the model's end token with --end-id"),
)
DECODING_COST = 4


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.canvas_answers import write

    own, planned = setup.own, layouts(setup.own)
    for asked in asked_sets(setup):
        fitting = [layout for layout in planned if asked.longest + layout.canvas <= setup.model.window]
        left_out = sorted({layout.canvas for layout in planned} - {layout.canvas for layout in fitting})
        if not fitting:
            setup.note(f"{NAME} was not run: no canvas fits after the prompts of {asked.name}")
        elif left_out:
            sizes = ", ".join(map(str, left_out))
            setup.note(f"{NAME}: prompts of {asked.longest} tokens leave no room for canvases of {sizes} masks")
        for layout in fitting:
            items = canvas_items(setup.asker, NAME, asked, layout, layout.condition)
            answer = partial(write, layout=layout, asked=asked, tokens_per_step=own["tokens_per_step"])
            yield from units_of(len(asked.questions), 1, items, answer, DECODING_COST)


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """An answer of many tokens, each of its own step, has no one confidence or entropy."""
    found: dict[str, float | None] = evidence_means(group)
    for share, _, _ in UNUSABLE:
        values = by_task((record.task, record.evidence[share]) for record in group if share in record.evidence)
        found[share] = None  # not known of records of earlier versions
        if values:
            found |= stratified_share(values).named(share)
    return [entry.changed(confidence=UNSET, entropy=UNSET, **found)]


def flood(records: Sequence[Record]) -> dict[str, Any] | None:
    """The number of tokens by which answers end sooner on the longest canvas than on the shortest, in one block.

    Paired over questions; both lengths are cut at the shorter canvas, so that room alone does not count. None where
    there are not two canvases.
    """
    lengths: dict[int, dict[tuple[str, int], int]] = {}  # of each canvas, of each question
    for record in records:
        if record.condition["layout"] == ONE_BLOCK:
            of_canvas = lengths.setdefault(int(record.condition["canvas"]), {})
            of_canvas[record.task, record.point] = record.evidence["length"]
    short, most = min(lengths, default=0), max(lengths, default=0)
    shared = sorted(lengths[short].keys() & lengths[most].keys()) if short != most else []
    if not shared:
        return None
    lost = [float(min(lengths[short][one], short) - min(lengths[most][one], short)) for one in shared]
    value, low, high = bounded_mean({"": np.array(lost)}, (-short, short))
    return {"value": value, "low": low, "high": high, "n": len(lost), "short": short, "long": most}


def _points(shown: Shown) -> list[Point]:
    return [Point(str(e.condition["layout"]), e.condition["canvas"], e) for e in _one_block_first(shown)]


def _one_block_first(shown: Shown) -> list[Entry]:
    return sorted(shown.entries(NAME), key=lambda entry: entry.condition["layout"] != ONE_BLOCK)


def flood_named(found: dict[str, Any]) -> str:
    """The fault by its name where the interval is above zero."""
    is_there = found["low"] is not None and found["low"] > 0
    return "end tokens flood long canvases early" if is_there else "no early flood of end tokens was detected"


def flood_in_words(shown: Shown) -> list[str]:
    """Whether the fault is there, and what each layout does on the longest canvas."""
    found = shown.summary.extras.get(FLOOD)
    if found is None:
        return ["inconclusive whether end tokens flood long canvases: this needs two canvas sizes in one block"]
    entries = _one_block_first(shown)
    most = max(entry.condition["canvas"] for entry in entries)
    ends = "" if found["low"] is None else f", 95 % interval {found['low']:.1f} to {found['high']:.1f}"
    lines = [
        f"{flood_named(found)}: with {found['long']} masks instead of {found['short']} answers end "
        f"{found['value']:.1f} tokens sooner{ends}"
    ]
    for entry in (entry for entry in entries if entry.condition["canvas"] == most):
        when, flooded = entry.measures.get("end_step"), entry.measures.get("end_share")
        first = "" if when is None else f", the first after {100 * when:.0f} % of the steps"
        share = "" if flooded is None else f", {100 * flooded:.0f} % of the canvas end tokens{first}"
        lines.append(
            f"{entry.condition['layout']}, {most} masks: {100 * (entry.accuracy or 0.0):.0f} % right, answers of "
            f"{entry.measures['length']:.1f} tokens{share}"
        )
    return lines


def empty_and_cut(shown: Shown) -> list[str]:
    """In one block: the canvas with the most empty and the one with the most cut answers, and what to do about them."""
    known = [e for e in shown.entries(NAME) if e.condition["layout"] == ONE_BLOCK and e.measures["empty"] is not None]
    if not known:
        return ["inconclusive whether answers are empty or cut off: these records do not say"]
    lines = []
    for what, kind, remedy in UNUSABLE:
        worst = max(known, key=lambda entry: (entry.measures[what], entry.condition["canvas"]))
        found = between(worst.measures[f"{what}_low"], worst.measures[f"{what}_high"])
        if worst.measures[what]:
            most = f"{percent(worst.measures[what])} of the answers are {kind} with {worst.condition['canvas']} masks"
            lines.append(f"{most} in one block, the most of all canvases ({found}): {remedy}")
        else:
            lines.append(f"no answer is {kind} on any canvas of one block ({found})")
    return lines


def _flood_table(summary: Summary) -> list[TextTable]:
    found = summary.extras.get(FLOOD)
    if found is None:
        return []
    ends = "no interval" if found["low"] is None else f"{found['low']:.1f} to {found['high']:.1f}"
    row = (f"{found['long']} masks instead of {found['short']}", f"{found['value']:.1f}", ends, str(found["n"]))
    return [TextTable(f"{NAME}: {flood_named(found)}", ("one block", "tokens sooner", "95 % interval", "n"), [row])]


over_canvases = partial(
    over_masks,
    x_label="Masks of the canvas",
    points=_points,
    masks=lambda shown: "masks: as many as the canvas has, or one block of a growing one",
)

PROBE = Probe(
    name=NAME,
    group="evidence",
    about="generated answers with 64 to 1024 masks to fill (--data gsm8k=, prompts=)",
    condition={"layout": str, "canvas": Count},
    evidence={
        "length": Count,
        "ended": float,
        "end_share": float | UnsetType,
        "empty": float | UnsetType,
        "cut": float | UnsetType,
        "end_step": float | UnsetType,
    },
    units=units,
    takes=lambda data_set: data_set in CHECKED,
    parameters={"canvases": (64, 128, 256, 512, 1024), "blocks": (32,), "tokens_per_step": 8, "questions": 64},
    quick={"canvases": (16, 64, 128), "blocks": (16,), "questions": 8},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    baseline=first_of_same,
    measures=measures,
    chance=None,
    extras={FLOOD: flood},
    columns={
        "accuracy": "accuracy",
        "length": "tokens",
        "ended": "ended",
        "end_share": "end tokens",
        "empty": "empty",
        "cut": "cut",
        "end_step": "first at",
    },
    tables=_flood_table,
    sections=(
        over_canvases(
            title="What does the size of the canvas do to its answers?",
            question="The same questions are answered on canvases of more and more masks: all at once, in blocks, and "
            "on a canvas that grows. An answer needs no more room than it has tokens. Does the rest change it?",
            paper="Not in the paper. Instruction-tuned diffusion models are known to write end tokens early on long "
            "canvases: LLaDA-Instruct was given rules against them (arXiv 2502.09992; forbid_end, late_end).",
            how_to_read="Level lines are what one would hope for. Where answers get shorter and wrong as the canvas "
            "grows, end tokens flood it; blocks or a growing canvas that stay level are the remedy.",
            measures=(Measure("accuracy", "Right answers"), in_unit("tokens", "length", "Tokens of the answer")),
            caption="Line: mean over questions; band: 95 % interval.",
            says=flood_in_words,
        ),
        over_canvases(
            name="unusable-answers",
            title="How many answers are empty or cut off?",
            question="An answer is empty where no text stands before the first end token, and cut off where the canvas "
            "ends before the answer does, without an end token.",
            paper="Not in the paper. Empty answers on long canvases are what users of LLaDA-Instruct report first.",
            how_to_read="The share of end tokens should grow with the canvas, because answers keep their length. Empty "
            "answers on long canvases are the flood of end tokens. Answers cut off on short canvases need a longer "
            "one; where all are cut off on every canvas, the model does not end its answers.",
            measures=(
                as_share("end_share", "End tokens"),
                as_share("empty", "Empty answers"),
                as_share("cut", "Answers cut off"),
            ),
            caption="Line: share over questions; band: 95 % interval.",
            says=empty_and_cut,
        ),
    ),
)
