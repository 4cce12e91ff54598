"""What the page says about each probe. A section is data: to show a new probe, add one entry to SECTIONS.

Those of the probes beyond the core and of the second paper are in evidence_sections.py and coherence_sections.py.

A probe without an entry is still shown, by `plain_section`: a curve of accuracy and a table, without the explanations.
"""

from collections.abc import Sequence
from typing import Any

from maskwise.report.coherence_sections import COHERENCE_SECTIONS
from maskwise.report.curves import Measure, Point, Section
from maskwise.report.evidence_sections import EVIDENCE_SECTIONS
from maskwise.report.readings import Reading


def sections_for(readings: Sequence[Reading]) -> list[Section]:
    """The sections of the probes that were run, in the page's order; probes the page does not know come last."""
    probes = [reading.summary["probes"] for reading in readings]
    ran = dict.fromkeys(name for found in probes for name, entries in found.items() if entries)
    sections = (*SECTIONS, *EVIDENCE_SECTIONS, *COHERENCE_SECTIONS)
    known = [s for s in sections if s.probe in ran and (len(readings) > 1 or not s.side_by_side)]
    names = {section.probe for section in sections}
    return known + [plain_section(probe, readings) for probe in ran if probe not in names]


def plain_section(probe: str, readings: Sequence[Reading]) -> Section:
    """A probe the page has no words for: accuracy along the first number that varies, a curve per other setting."""
    cells = [_cells(entry) for reading in readings for entry in reading.entries(probe)]
    keys = list(dict.fromkeys(key for row in cells for key in row))
    varying = [key for key in keys if len({row.get(key) for row in cells}) > 1]
    numeric = [key for key in varying if all(isinstance(row.get(key), int | float) for row in cells)]
    x = numeric[0] if numeric else "masks"

    def points(reading: Reading) -> list[Point]:
        return [
            Point(", ".join(f"{key} {row.get(key)}" for key in varying if key != x), row[x], entry)
            for entry in reading.entries(probe)
            for row in [_cells(entry)]
        ]

    return Section(
        probe=probe,
        title=probe.replace("-", " ").capitalize(),
        question="",
        paper="",
        how_to_read="The line is the share of right answers, the band its 95 % interval.",
        x_label=x,
        at=x.replace("{", "{{").replace("}", "}}") + " {}",
        points=points,
        measures=(Measure("accuracy", "Right answers"),),
        caption="",
    )


def _cells(entry: dict[str, Any]) -> dict[str, Any]:
    """A condition with its mask count last, so that another number that varies is preferred for the x axis."""
    named = {key: value for key, value in entry["condition"].items() if key != "masks"}
    return {**named, "masks": entry["masks"]}


def _location(reading: Reading) -> list[Point]:
    return [Point("", entry["condition"]["location"], entry) for entry in reading.entries("location")]


def _question_position(reading: Reading) -> list[Point]:
    names = {"left": "question first", "middle": "question in the middle", "right": "question last"}
    return [
        Point(name, entry["condition"]["location"], entry)
        for place, name in names.items()
        for entry in reading.entries("question-position")
        if entry["condition"]["question"] == place
    ]


def _mask_count(reading: Reading) -> list[Point]:
    return [Point("", entry["masks"], entry) for entry in reading.entries("mask-count")]


def _filler(reading: Reading) -> list[Point]:
    """The mask-count curve is drawn beside the control: the control means nothing without it."""
    masks = [Point("masks", entry["masks"], entry) for entry in reading.entries("mask-count")]
    return masks + [
        Point(filler_name(entry["condition"]["filler"]), entry["condition"]["fillers"], entry)
        for entry in reading.entries("filler")
    ]


def filler_name(filler: str) -> str:
    return "full stops" if filler == "." else f"“{filler}” repeated"


def _context_length(reading: Reading) -> list[Point]:
    return [
        Point(entry["condition"]["masks"], entry["condition"]["distractors"], entry)
        for entry in reading.entries("context-length")
    ]


def _location_masks(reading: Reading) -> list[Point]:
    entries = sorted(reading.entries("location-masks"), key=lambda entry: entry["condition"]["masks"])
    return [Point(f"k = {entry['condition']['masks']}", entry["condition"]["location"], entry) for entry in entries]


def _natural_text(reading: Reading) -> list[Point]:
    conditions = [(entry["condition"], entry) for entry in reading.entries("natural-text")]
    ordered = sorted(conditions, key=lambda pair: pair[0]["after"] != "masks")
    return [Point(condition["after"], condition["count"], entry) for condition, entry in ordered]


NEARER_TO_THE_RIGHT = "Distracting examples before the block (further right: nearer the question)"

SECTIONS = (
    Section(
        probe="location",
        title="Does it matter where the examples stand?",
        question="The examples that show the rule stand in one block among examples of another rule, and the question "
        "comes last. The block is moved from the start of the prompt to right before the question. Is it still used?",
        paper="Diffusion models (LLaDA, Dream): the further the examples are from the question, the lower the "
        "accuracy, steadily. Autoregressive models (Llama 3, Qwen 2.5): a U, best at both ends of the prompt.",
        how_to_read="A line that climbs to the right means it favours what is near the question; a level line means "
        "distance does not matter. On the dotted line it might as well guess.",
        x_label=NEARER_TO_THE_RIGHT,
        at="location {}",
        points=_location,
    ),
    Section(
        probe="question-position",
        title="Near the question, or simply near the end?",
        question="The same block is moved again, with the question at the start, in the middle or at the end of the "
        "prompt. Does it favour the latest text, or the text nearest to the gap it has to fill?",
        paper="Best near the gap wherever the gap is: locality, not recency. Lowest when the question stands first and "
        "the examples far behind it.",
        how_to_read="If the line of “question first” falls to the right while that of “question last” climbs, nearness "
        "is what counts. If both climb, it is the end of the prompt.",
        x_label="Distracting examples before the block",
        at="location {}",
        points=_question_position,
    ),
    Section(
        probe="mask-count",
        title="Do extra masks distract it?",
        question="The same question is asked with more and more masks behind it. Only the first mask is the answer; "
        "the others carry no information. Does the answer change?",
        paper="From few masks to 200: LLaDA-Base loses 23 points, LLaDA-Instruct 27. Dream-Base loses 6 and "
        "Dream-Instruct 8 by about 20 masks, then both stay level.",
        how_to_read="A level line is what one would hope for: empty space should not matter. A falling line is the "
        "mask tax. The axis widens the small counts; two masks are the baseline.",
        x_label="Masks at the end (k)",
        at="k\u00a0=\u00a0{}",
        points=_mask_count,
        spread=True,
    ),
    Section(
        probe="filler",
        title="Is it the masks, or just more text?",
        question="Full stops take the place of the extra masks. If any extra tokens did the harm, full stops would do "
        "it too.",
        paper="LLaDA loses only 3 points (Base) and 10 (Instruct) to full stops, far less than to masks: it is the "
        "masks. Dream: full stops and masks alike.",
        how_to_read="Compare the two lines: masks low and full stops level means the masks themselves distract; both "
        "low means any extra text does.",
        x_label="Masks, or full stops, at the end",
        at="{}",
        points=_filler,
        spread=True,
    ),
    Section(
        probe="context-length",
        title="Do masks hurt more in a longer prompt?",
        question="The prompt grows by more and more distracting examples, once with two masks and once with masks "
        "worth a share of its length. Does the gap grow?",
        paper="With two masks against masks worth 20 % of the length, the gap grows with the context for LLaDA; for "
        "Dream it does not.",
        how_to_read="The vertical distance between the lines is the price of the masks at that length.",
        x_label="Distracting examples in the prompt",
        at="{} distractors",
        points=_context_length,
    ),
    Section(
        probe="location-masks",
        title="Do masks change where it looks?",
        question="The block of examples is moved as in the first probe, now with more masks behind the question. Do "
        "masks make it look elsewhere, or only worse?",
        paper="Masks flatten the curve mostly by lowering it, most of all near the question.",
        how_to_read="Lines that keep their shape but sink mean masks cost the same everywhere; a line that loses its "
        "rise at the right means they take away what stood near.",
        x_label=NEARER_TO_THE_RIGHT,
        at="location {}",
        points=_location_masks,
    ),
    Section(
        probe="natural-text",
        title="And in ordinary prose?",
        question="The last word of a passage is masked, with masks or full stops behind it. How surprised is the model "
        "by the true word, and how often does it guess it?",
        paper="Not in the paper; this probe is ours.",
        how_to_read="Surprise is the negative log-likelihood of the true word: lower is better, 0.7 nats more means "
        "half the probability. Level lines mean that masks do not disturb it here.",
        x_label="Masks, or full stops, after the word",
        at="{}",
        points=_natural_text,
        measures=(
            Measure("nll", "Surprise at the true word (nats)", "nll_low", "nll_high", percent=False),
            Measure("accuracy", "Word guessed right"),
        ),
        caption="Line: mean over passages; band: 95 % interval.",
        spread=True,
    ),
)
