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

import numpy as np
from msgspec import UnsetType

from maskwise.probes.evidence import measured_besides
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, Setup, Unit
from maskwise.probes.section import Measure, Point, Section, Shown, as_share, named_curves
from maskwise.probes.text import GAP, QUICK_GAP, Gap, gap_items, gap_of, gap_pieces
from maskwise.records.groups import values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, differences, judged, means_by_point
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
    items = gap_items(setup.asker, NAME, pieces, gap, asked, 1)  # distance 1 is the first mask
    answer = partial(compare_rows, frequencies=frequencies, common=common)
    yield Unit(range(len(pieces)), len(asked), items, answer)


def conditions(distances: Sequence[int], gap: Gap) -> list[Condition]:
    return [{"suffix": suffix, "distance": d} for suffix in ("none", "visible") for d in distances if d <= gap.masks]


def claims(records: Sequence[Record]) -> list[Claim]:
    """Distant masks become alike. Near is the mask next to the visible text, far the second half of the gap."""
    masks, distances = max(record.masks for record in records), set(values_of(records, "distance"))
    near, far = {1}, {d for d in distances if masks / 2 <= d < masks}
    middle, ends = {d for d in distances if abs(d - (masks + 1) / 2) <= masks / 8}, {1, masks}

    def at(wanted: set[int], suffix: str = "none") -> list[Record]:
        of_suffix = (record for record in records if record.condition["suffix"] == suffix)
        return [record for record in of_suffix if record.condition["distance"] in wanted]

    def each(wanted: set[int], name: str) -> list[float]:
        """Of every piece of text; runs of earlier versions do not hold "mode_common"."""
        return [mean for mean in means_by_point(at(wanted), name).values() if not math.isnan(mean)]

    alike, frequent = each(far, "tv_next"), each(far, "mode_common")
    alike_near, frequent_near = (
        float(np.mean(found)) if (found := each(near, name)) else math.nan for name in ("tv_next", "mode_common")
    )
    return [
        judged("far-unsure", "far from the text the model is less sure", "entropy, far less near",
               differences(at(far), at(near - far), "entropy"), "nats"),
        judged("far-doubtful", "confidence falls with distance", "top probability, near less far",
               differences(at(near), at(far - near), "confidence"), "points", bounds=(-1, 1)),
        judged("grow-alike", "neighbours grow more alike with distance", "distance of neighbours, near less far",
               differences(at(near), at(far - near), "tv_next"), "points", bounds=(-1, 1)),
        judged("far-identical", "far neighbours are almost identical", "distance of neighbours, far", alike, "share",
               nothing=alike_near, asked=ALIKE, less=True, bounds=(0, 1)),
        judged("far-frequent", "far predictions name frequent words or the end", "most probable token is frequent, far",
               frequent, "share", nothing=frequent_near, asked=0.5, bounds=(0, 1)),
        judged("middle-unsure", "with text on both sides it is the middle that is unsure", "entropy, middle less ends",
               differences(at(middle, "visible"), at(ends - middle, "visible"), "entropy"), "nats"),
    ]  # fmt: skip


_curves = named_curves(NAME, "distance", "suffix", {"none": "masks to the end", "visible": "text after the masks"})


def _likeness(shown: Shown) -> list[Point]:
    """The last mask has no neighbour."""
    return [point for point in _curves(shown) if point.entry.measures.get("tv_next") is not None]


along_the_gap = partial(
    Section,
    x_label="Distance from the last visible token",
    at="distance {}",
    caption="Line: mean over pieces of text; band: 95 % interval.",
    says=lambda shown: [],  # the ends of these curves say little: it is the middle that counts
)

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
        along_the_gap(
            title="Do distant masks become alike?",
            question="A piece of text, then many masks, predicted in one pass. How unsure is the model of a mask far "
            "from the text, and how close is it to simply naming frequent words?",
            paper="A conjecture: far from any visible token predictions lose information and become almost identical, "
            "in the middle when both ends are visible.",
            how_to_read="A line that climbs and levels off shows predictions that fade into word frequencies. With "
            "text after the masks it should be highest in the middle. Frequent: the text's 50 commonest tokens and the "
            "end. Near is the mask next to the text, far the second half of the masks.",
            points=_curves,
            measures=(
                Measure("entropy", "Entropy (nats)", "", "", percent=False),
                as_share("common", "Share of frequent tokens"),
            ),
            claims=("far-unsure", "far-doubtful", "far-frequent", "middle-unsure"),
        ),
        along_the_gap(
            name="likeness",
            title="How alike, and how like plain frequencies?",
            question="The distance (total variation) between the predictions of neighbouring masks, and between a "
            "prediction and the frequencies of the text's tokens.",
            paper="Neighbours become almost identical; their modes are function words or the end token.",
            how_to_read="0 % is identical, 100 % is nothing in common. Lines that fall to the right confirm it.",
            points=_likeness,
            measures=(
                as_share("tv_next", "Distance to the next mask's prediction"),
                as_share("tv_unigram", "Distance to word frequencies"),
            ),
            claims=("grow-alike", "far-identical"),
        ),
    ),
)
