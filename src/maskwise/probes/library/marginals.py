"""marginals: do distant masks become alike? A prompt and many masks in one pass, what is predicted at each distance.

After Sun, Wen and Wang (arXiv 2510.03289), who conjecture it. By the distance d from the last visible token (d = 1 is
the mask next to it), for the prediction p_d:

    entropy and the top token's probability; -log p of the true token
    tv_next      TV(p_d, p_d+1) = 1/2 sum |p_d - p_d+1|: 0 where neighbours are predicted alike
    tv_unigram   TV(p_d, frequencies of the text's tokens)
    common       probability of the end token and the 50 most frequent tokens together
    mode_common  1 where the most probable token is one of these, else 0

once with masks to the end of the canvas, once with the text going on after them. Condition: {"suffix": "none",
"distance": 8}, or "visible".
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import UnsetType

from maskwise.probes.evidence import measured_besides
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, Setup, Unit
from maskwise.probes.section import Measure, Point, Section, Shown, as_share, named_curves
from maskwise.probes.text import GAP, QUICK_GAP, Gap, gap_items, gap_of, gap_pieces
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, differences, judged, mean_of, means_by_point
from maskwise.support.typed import Count

NAME = "marginals"
ALIKE = 0.1  # total variation: nine tenths of the predictions agree


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.distant_masks import common_tokens, compare_rows, text_frequencies

    pieces, gap, distances = gap_pieces(setup, NAME), gap_of(setup.own), setup.own["distances"]
    if not pieces:
        return
    tokenizer = setup.asker.tokenizer
    frequencies = text_frequencies(tokenizer, setup.text, setup.model.vocab)
    common = common_tokens(frequencies, tokenizer.eos_token_id)
    asked = conditions(distances, gap)
    make = partial(gap_items, setup.asker, NAME, pieces, gap, asked, 1)  # distance 1 is the first mask
    answer = partial(compare_rows, frequencies=frequencies, common=common)
    yield Unit(range(len(pieces)), len(asked), make, answer)


def conditions(distances: Sequence[int], gap: Gap) -> list[Condition]:
    return [{"suffix": suffix, "distance": d} for suffix in ("none", "visible") for d in distances if d <= gap.masks]


def claims(records: Sequence[Record]) -> list[Claim]:
    """Distant masks become alike. Near is the mask next to the visible text, far the second half of the gap."""
    masks = max(record.masks for record in records)
    open_end = [record for record in records if record.condition["suffix"] == "none"]
    closed = [record for record in records if record.condition["suffix"] == "visible"]

    def near(record: Record) -> bool:
        return record.condition["distance"] == 1

    def far(record: Record) -> bool:
        return masks / 2 <= record.condition["distance"] < masks

    def middle(record: Record) -> bool:
        return abs(record.condition["distance"] - (masks + 1) / 2) <= masks / 8

    def at_an_end(record: Record) -> bool:
        return record.condition["distance"] in (1, masks)

    def entropy(record: Record) -> float:
        return math.nan if record.entropy is None else record.entropy

    def confidence(record: Record) -> float:
        return math.nan if record.confidence is None else record.confidence

    def alike(record: Record) -> float:
        return record.evidence["tv_next"]

    def frequent(record: Record) -> float:
        return record.evidence.get("mode_common", math.nan)  # runs of earlier versions do not hold it

    alike_near, frequent_near = (mean_of(means_by_point(open_end, near, value)) for value in (alike, frequent))
    return [
        judged("far-unsure", "far from the text the model is less sure", "entropy, far less near",
               differences(open_end, far, near, entropy), "nats"),
        judged("far-doubtful", "confidence falls with distance", "top probability, near less far",
               differences(open_end, near, far, confidence), "points", bounds=(-1, 1)),
        judged("grow-alike", "neighbours grow more alike with distance", "distance of neighbours, near less far",
               differences(open_end, near, far, alike), "points", bounds=(-1, 1)),
        judged("far-identical", "far neighbours are almost identical", "distance of neighbours, far",
               means_by_point(open_end, far, alike), "share", nothing=alike_near, asked=ALIKE, less=True,
               bounds=(0, 1)),
        judged("far-frequent", "far predictions name frequent words or the end", "most probable token is frequent, far",
               means_by_point(open_end, far, frequent), "share", nothing=frequent_near, asked=0.5, bounds=(0, 1)),
        judged("middle-unsure", "with text on both sides it is the middle that is unsure", "entropy, middle less ends",
               differences(closed, middle, at_an_end, entropy), "nats"),
    ]  # fmt: skip


_curves = named_curves(NAME, "distance", "suffix", {"none": "masks to the end", "visible": "text after the masks"})


def _likeness(shown: Shown) -> list[Point]:
    """The last mask has no neighbour."""
    return [point for point in _curves(shown) if point.entry.measures.get("tv_next") is not None]


PROBE = Probe(
    name=NAME,
    group="coherence",
    about="predictions of masks by their distance from the text",
    condition={"suffix": str, "distance": Count},
    evidence={"tv_unigram": float, "common": float, "mode_common": float | UnsetType, "tv_next": float | UnsetType},
    units=units,
    parameters=GAP | {"distances": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 60, 62, 63, 64)},
    quick=QUICK_GAP,
    not_causal=NO_MASK_TOKEN,
    not_blocks="the masks of its gap would stand in several blocks of a block diffusion model",
    measures=measured_besides,
    chance=None,
    claims=claims,
    columns={
        "entropy": "entropy",
        "confidence": "top",
        "common": "frequent",
        "tv_next": "to next",
        "tv_unigram": "to unigram",
    },
    sections=(
        Section(
            title="Do distant masks become alike?",
            question="A piece of text, then many masks, predicted in one pass. How unsure is the model of a mask far "
            "from the text, and how close is it to simply naming frequent words?",
            paper="A conjecture: far from any visible token predictions lose information and become almost identical, "
            "in the middle when both ends are visible.",
            how_to_read="A line that climbs and levels off shows predictions that fade into word frequencies. With "
            "text after the masks it should be highest in the middle. Frequent: the text's 50 commonest tokens and the "
            "end. Near is the mask next to the text, far the second half of the masks.",
            x_label="Distance from the last visible token",
            at="distance {}",
            points=_curves,
            measures=(
                Measure("entropy", "Entropy (nats)", "", "", percent=False),
                as_share("common", "Share of frequent tokens"),
            ),
            caption="Line: mean over pieces of text; band: 95 % interval.",
            says=lambda shown: [],  # the ends of these curves say little: it is the middle that counts
            claims=("far-unsure", "far-doubtful", "far-frequent", "middle-unsure"),
        ),
        Section(
            name="likeness",
            title="How alike, and how like plain frequencies?",
            question="The distance (total variation) between the predictions of neighbouring masks, and between a "
            "prediction and the frequencies of the text's tokens.",
            paper="Neighbours become almost identical; their modes are function words or the end token.",
            how_to_read="0 % is identical, 100 % is nothing in common. Lines that fall to the right confirm it.",
            x_label="Distance from the last visible token",
            at="distance {}",
            points=_likeness,
            measures=(
                as_share("tv_next", "Distance to the next mask's prediction"),
                as_share("tv_unigram", "Distance to word frequencies"),
            ),
            caption="Line: mean over pieces of text; band: 95 % interval.",
            says=lambda shown: [],
            claims=("grow-alike", "far-identical"),
        ),
    ),
)
