"""The probes of the second paper as units of a run: marginals by distance, pairs, order, puzzles."""

from collections.abc import Iterator
from functools import partial

from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.probes import coherence, correlation, marginals, order
from maskwise.probes.settings import COHERENCE_PROBES, ORDER_RULES, Settings
from maskwise.probes.units import Unit, slices
from maskwise.probes.variants import Asker
from maskwise.tasks.coherence import NAMES
from maskwise.tasks.words import Words

DECODING_COST = 4


def coherence_units(
    model: Model, asker: Asker, settings: Settings, words: Words, text: str
) -> tuple[list[Unit], list[str]]:
    """The units of these probes, and notes on what could not be run as asked."""
    if asker.mask_id is None or not set(settings.probes) & set(COHERENCE_PROBES):
        return [], []
    notes: list[str] = []
    units = list(text_units(model, asker, settings, text, notes))
    if coherence.PROBE in settings.probes:
        try:
            units += puzzle_units(asker, settings, words)
        except UserError as problem:
            notes.append(f"{coherence.PROBE} was not run: {problem}")
    return units, notes


def text_units(model: Model, asker: Asker, settings: Settings, text: str, notes: list[str]) -> Iterator[Unit]:
    wanted, mask_id, tokenizer = settings.coherence, asker.mask_id, asker.tokenizer
    assert mask_id is not None
    gap = marginals.Gap(wanted.before, wanted.masks, wanted.after)
    pieces = marginals.cut_text(tokenizer, text, gap.length, wanted.pieces)
    if not pieces:
        notes.append(f"marginals, total-correlation and order need a text of {gap.length} tokens: give one with --text")
        return
    if len(pieces) < wanted.pieces:
        notes.append(f"marginals: the text holds {len(pieces)} pieces, {wanted.pieces} were asked for")
    points = range(len(pieces))
    if marginals.PROBE in settings.probes:
        frequencies = marginals.text_frequencies(tokenizer, text, model.vocab)
        common = marginals.common_tokens(frequencies, tokenizer.eos_token_id)
        make = partial(marginals.gap_items, mask_id, tokenizer, pieces, gap, wanted.distances)
        answer = partial(marginals.compare_rows, frequencies=frequencies, common=common)
        yield Unit(points, len(marginals.conditions(wanted.distances, gap)), make, answer)
    if correlation.PROBE in settings.probes:
        distances = [distance for distance in wanted.pair_distances if distance < gap.masks]
        pairs = partial(correlation.pair_items, mask_id, tokenizer, pieces, gap, distances)
        correlate = partial(correlation.correlate, seed=settings.seed, samples=wanted.samples)
        yield Unit(points, len(distances), pairs, correlate, 2 * wanted.samples)
    if order.PROBE in settings.probes:
        for rule in ORDER_RULES:
            to_continue = partial(order.order_items, mask_id, tokenizer, pieces, gap, wanted.order_tokens, rule)
            watch = partial(order.watch_order, rule=rule, seed=settings.seed)
            yield Unit(points, 1, to_continue, watch, DECODING_COST)


def puzzle_units(asker: Asker, settings: Settings, words: Words) -> list[Unit]:
    assert asker.mask_id is not None
    puzzles = coherence.draw_puzzles(asker.tokenizer, asker.mask_id, words, settings.coherence.puzzles, settings.seed)
    return [
        Unit(
            points,
            1,
            partial(coherence.puzzle_items, asker.tokenizer, name, puzzles[name], pace),
            partial(coherence.solve, name=name, pace=pace, puzzles=puzzles[name], seed=settings.seed),
            DECODING_COST,
        )
        for name in NAMES
        for pace in coherence.paces()
        for points in slices(len(puzzles[name]))
    ]
