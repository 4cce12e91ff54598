"""order: in which order a model fills its canvas, one token per step, under several unmasking strategies.

After claim 3 of Sun, Wen and Wang (arXiv 2510.03289). `answers/unmasking_order.py` defines the measures. Condition:
{"rule": "margin"}; evidence {"tau", "global1", "global4", "local1", "local4"}.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

from maskwise.probes.evidence import measured_besides
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Probe, Setup, Unit, units_for
from maskwise.probes.section import Entry, Point, Section, Shown, as_share, in_unit
from maskwise.probes.text import GAP, QUICK_GAP, TASK, gap_of, gap_pieces
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, judged
from maskwise.tasks.prompts import Prompt

NAME = "order"
EULER = 0.5772156649015329  # of the harmonic numbers
STRATEGIES = ("low-confidence", "margin", "entropy", "random")  # random: what no preference looks like
CLOSE_TAU = 0.5  # three of four pairs of tokens in reading order
CLOSE_ARNESS = 0.7  # LLaDA-8B has .73 (reported elsewhere)
DECODING_COST = 4


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.unmasking_order import watch_order

    pieces, gap, tokens = gap_pieces(setup, NAME), gap_of(setup.own), setup.own["tokens"]
    if not pieces:
        return

    def made(point: int, _: Condition) -> tuple[Prompt, str]:
        """The beginning of a piece, to be continued."""
        ids = (*pieces[point][: gap.before], *[setup.asker.mask] * tokens)
        right = pieces[point][gap.before]
        return Prompt(ids, gap.before, right, tokens), setup.asker.tokenizer.decode([right])

    for rule in STRATEGIES:
        answer = partial(watch_order, rule=rule, seed=setup.settings.seed)
        yield from units_for(NAME, TASK, len(pieces), [{"rule": rule}], made, answer, DECODING_COST)


def claims(records: Sequence[Record]) -> list[Claim]:
    """The reliable order is close to left to right."""
    chosen = [record for record in records if record.condition["rule"] == "low-confidence"]
    if not chosen:  # an unfinished run
        return []
    at_random = _leftmost_at_random(chosen[0]["masks"])
    return [
        judged("reading-order", "the order by confidence is close to left to right", "Kendall's tau",
               [record.evidence["tau"] for record in chosen], "", asked=CLOSE_TAU, bounds=(-1, 1)),
        judged("leftmost-first", "most steps take the leftmost mask", "global AR-ness@1",
               [record.evidence["global1"] for record in chosen], "share", nothing=at_random, asked=CLOSE_ARNESS,
               bounds=(0, 1)),
    ]  # fmt: skip


def _leftmost_at_random(places: int) -> float:
    """How often the leftmost of the masks left is taken if each is as likely: the mean of 1/n. A stranger's record may
    state any number of them."""
    harmonic = sum(1 / n for n in range(1, places + 1)) if places <= 10_000 else math.log(places) + EULER
    return harmonic / max(places, 1)


def _by_strategy(shown: Shown) -> dict[str, Entry]:
    entries = {entry.condition["rule"]: entry for entry in shown.entries(NAME)}
    return {rule: entries[rule] for rule in STRATEGIES if rule in entries}


def _points(shown: Shown) -> list[Point]:
    return [Point("", STRATEGIES.index(rule), entry) for rule, entry in _by_strategy(shown).items()]


def _in_words(shown: Shown) -> list[str]:
    return [
        f"{rule}: tau {found['tau']:.2f}, global AR-ness@1 {found['global1']:.2f}, @4 {found['global4']:.2f}, "
        f"local AR-ness@1 {found['local1']:.2f}, @4 {found['local4']:.2f}"
        for rule, found in ((rule, entry.measures) for rule, entry in _by_strategy(shown).items())
    ]


PROBE = Probe(
    name=NAME,
    group="coherence",
    about="the order in which strategies fill a continuation",
    condition={"rule": str},
    evidence={"tau": float, "global1": float, "global4": float, "local1": float, "local4": float},
    units=units,
    parameters=GAP | {"tokens": 32},
    quick=QUICK_GAP | {"tokens": 16},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    measures=measured_besides,
    chance=None,
    claims=claims,
    columns={"tau": "tau", "global1": "global@1", "global4": "global@4", "local1": "local@1", "local4": "local@4"},
    sections=(
        Section(
            title="In which order does it write?",
            question="The text is continued one token a step, each rule choosing the place. How close is that to "
            "reading order?",
            paper="Confidence falls with distance, so the reliable order is close to left to right. Reported "
            "elsewhere: global AR-ness@1 of LLaDA-8B 0.73, of Dream-7B 0.92.",
            how_to_read="Tau is 1 from left to right, −1 from right to left and 0 at random. Global AR-ness is the "
            "share of steps that take the leftmost mask, local AR-ness of those that go on to the right of the one "
            "before.",
            x_label="Rule",
            x_names=("confidence", *STRATEGIES[1:]),
            points=_points,
            measures=(in_unit("", "tau", "Kendall's tau"), as_share("global1", "Global AR-ness@1")),
            caption="Mean over pieces of text; whisker: 95 % interval.",
            says=_in_words,
            claims=("reading-order", "leftmost-first"),
        ),
    ),
)
