"""unfamiliar (ours): do masks cost accuracy on words outside the few-shot training documents?

The twelve word sets of `unfamiliar-1` (tasks/word_sources.py): the right option is a word of one kind, the wrong ones
are of another, five relevant examples among ten distractors, drawn afresh for each question. They are scored apart from
the sixteen tasks. Only sets with room for a loss count (scoring/task_room.py), selected on questions of their own; the
likelihood of the right answer is over all twelve. Format B. Condition: {"questions": "scored", "masks": 200}, and
{"questions": "selection", "masks": 2} for the questions that select. `--words unfamiliar-1` asks the same words in all
few-shot probes instead.
"""

from collections.abc import Iterator, Sequence

from msgspec import structs

from maskwise.probes.blocks import visible_counts
from maskwise.probes.few_shot import afresh_units
from maskwise.probes.library.mask_count import mask_nats, mask_tax
from maskwise.probes.library.room import BASELINE_MASKS, in_sentence, selection_seed
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, ScoreRule, Setup, Unit, Variant
from maskwise.probes.section import Point, Shown, over_masks
from maskwise.records.record import Condition, Record
from maskwise.scoring.numbers import nats_between, parts_in_words, percent
from maskwise.scoring.scores import Score
from maskwise.scoring.task_room import Room, resting_on, room_of, with_room
from maskwise.support.typed import Count
from maskwise.tasks.word_sources import load_word_source

NAME, WORDS, SETS = "unfamiliar", "unfamiliar-1", 12
SELECTION, SCORED, QUESTIONS = "selection", "scored", "questions"


def units(setup: Setup) -> Iterator[Unit]:
    settings, own, source = setup.settings, setup.own, load_word_source(WORDS)
    counts = visible_counts(setup, NAME, own["mask_counts"])
    relevant, distractors, count = own["shots"], own["among"] or settings.distractors, settings.points
    selecting = Variant(NAME, _condition(SELECTION, counts[0]), open=True, masks=counts[0])
    variants = [Variant(NAME, _condition(SCORED, k), open=True, masks=k) for k in counts]
    for asked, seed in (([selecting], selection_seed(settings)), (variants, settings.seed)):
        yield from afresh_units(setup, asked, source.tasks, source.words, (relevant, distractors, count, seed))


def _condition(questions: str, masks: int) -> Condition:
    return {QUESTIONS: questions, "masks": masks}


def scored(records: Sequence[Record]) -> list[Record]:
    """The scored questions, their conditions those of mask-count."""
    return [
        structs.replace(record, condition={"masks": record.condition["masks"]})
        for record in records
        if record.condition[QUESTIONS] == SCORED
    ]


def room(records: Sequence[Record]) -> Room:
    return room_of([record for record in records if record.condition[QUESTIONS] == SELECTION])


def unfamiliar_tax(records: Sequence[Record]) -> Score:
    """The mask tax of the sets with room."""
    found = room(records)
    return resting_on(mask_tax(with_room(scored(records), found)), found)


def two_masks_scored(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    if condition[QUESTIONS] == SELECTION:
        return None
    return next((c for c in conditions if c == _condition(SCORED, BASELINE_MASKS)), None)


def _points(shown: Shown) -> list[Point]:
    return [Point("", one.masks, one) for one in shown.entries(NAME) if one.condition[QUESTIONS] == SCORED]


def _in_words(shown: Shown) -> list[str]:
    found = shown.summary.extras.get(NAME)
    if found is None:
        return ["not run"]
    nats, tax = shown.summary.scores["unfamiliar_nats"], shown.summary.scores["unfamiliar_mask_tax"]
    lines = [in_sentence(found)]
    if not found.tasks:
        lines[0] += ": accuracy on these words cannot show a loss"
    elif tax.value is not None:
        change = "cost" if tax.value >= 0 else "add"
        lines[0] += f"; masks {change} {percent(abs(tax.value))} of the skill above guessing there"
    if nats.value is not None:
        parts = f" ({found_parts})" if (found_parts := parts_in_words(nats)) else ""
        lost = nats_between(nats.value, nats.low, nats.high)
        lines.append(f"negative log-likelihood of the right answer, all sets: {lost}{parts}")
    return lines


PROBE = Probe(
    name=NAME,
    group="context",
    about="mask-count on words that the embedded models saw in no few-shot example",
    condition={"questions": str, "masks": Count},
    presets=("default", "full"),
    units=units,
    one_pass=True,
    parameters={"mask_counts": (2, 200), "shots": 5, "among": 10},
    not_causal=NO_MASK_TOKEN,
    baseline=two_masks_scored,
    questions=lambda settings: SETS * settings.points,
    scores=(
        ScoreRule(
            name="unfamiliar_mask_tax",
            title="Mask tax, unfamiliar words",
            meaning="as mask tax, over the word sets with room for a loss",
            formula=unfamiliar_tax,
        ),
        ScoreRule(
            name="unfamiliar_nats",
            title="Nats lost to masks, unfamiliar words",
            meaning="rise of the right answer's negative log-likelihood with 200 masks, over all twelve word sets",
            formula=lambda records: mask_nats(scored(records)),
            unit="nats",
        ),
    ),
    extras={NAME: room},
    sections=(
        over_masks(
            title="Do masks cost accuracy on unfamiliar words?",
            question="Twelve pairs of kinds of words that stand in no few-shot document of the embedded models' "
            "training: one word of the first kind among two of the second, five examples among ten distractors, with "
            "2 and with 200 masks.",
            how_to_read="On the dotted line the model guesses. Sets below 45 % or above 90 % right, on separate "
            "questions, cannot show a loss and are left out of the score; the likelihood is over all sets.",
            points=_points,
            says=_in_words,
        ),
    ),
)
