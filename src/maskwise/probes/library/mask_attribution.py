"""mask-attribution: do appended masks move the answer more than the text does? Gradients by kind of token.

Paper probe 3b: masks at the end; the mean over the masks, the nearest other tokens, and all other tokens. Condition:
{"extra masks": 50}; evidence {"masks", "near", "all"}, the gradient norms, and the same names with "_times_input":
gradient x input (not in records of before).
"""

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import UnsetType

from maskwise.probes.blocks import visible_counts
from maskwise.probes.evidence import TIMES_INPUT, entry_per_target
from maskwise.probes.library import attribution
from maskwise.probes.library.attribution import COMPARE_BY, drawn, ordered_episodes
from maskwise.probes.probe import NO_MASK_TOKEN, Answerer, Asker, ItemMaker, Probe, Setup, Unit, items_of
from maskwise.probes.published import EXPECTATIONS
from maskwise.probes.section import Point, Section, Shown
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, judged
from maskwise.scoring.intervals import by_task
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode
from maskwise.tasks.prompts import Prompt, encode_question, opened

NAME = "mask-attribution"
EXTRA_MASKS = {"masks": 50}
TOKENS = ("masks", "near", "all")


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.gradients import attribute

    return mask_units(setup, NAME, partial(attribute, near=setup.own["near"]), attribution.GRADIENT_COST)


def mask_units(setup: Setup, probe: str, answer: Answerer, cost: int) -> Iterator[Unit]:
    """Also for attention, which is asked the same."""
    masks = max(visible_counts(setup, probe, [setup.own["masks"]], other_tokens=1))
    for episode, points in ordered_episodes(setup):
        yield Unit(points, 1, mask_items(probe, setup.asker, episode, setup.own["orderings"], masks), answer, cost)


def mask_items(probe: str, asker: Asker, episode: Episode, orderings: int, masks: int) -> ItemMaker:
    """Format B with that many masks beyond the answer's."""
    extra = 0 if asker.mask_id is None else masks

    def made(point: int, _: Condition) -> tuple[Prompt, str]:
        examples, test = drawn(episode, orderings, point)
        encoded = encode_question(asker.tokenizer, examples, test, "right", asker.chat)
        return opened(encoded, asker.mask_id, 1 + extra), test.letter

    return items_of(probe, episode.task.name, [{"extra masks": extra}], made)


def claims(records: Sequence[Record]) -> list[Claim]:
    """Masks move the answer more than the text nearest to it. Measured: the mean normalised gradient x input of the
    masks less that of the nearest other tokens, prompt by prompt, above zero; of records without it, gradient norms."""
    product = all("masks_times_input" in record.evidence for record in records)
    suffix, gradient = (TIMES_INPUT, "gradient x input") if product else ("", "gradient norm")
    found = by_task((r.task, r.evidence[f"masks{suffix}"] - r.evidence[f"near{suffix}"]) for r in records)
    claim = "appended masks move the answer more than the nearest text"
    measure = f"{gradient} of masks less that of the nearest text"
    return [judged("masks-move-more", claim, measure, found, "", bounds=(-1.0, 1.0))]


def _points(shown: Shown) -> list[Point]:
    entries = {entry.condition["tokens"]: entry for entry in shown.entries(NAME)}
    return [Point("", place, entries[name]) for place, name in enumerate(TOKENS) if name in entries]


def _published() -> tuple[tuple[str, float, tuple[float, ...]], ...]:
    """The paper's models next to the points of this one; their name is written once, where there is room for it."""
    stated = [tuple(one.values.values()) for one in EXPECTATIONS if one.probe == NAME]
    names = ("", "", "the paper's models")
    return tuple((name, place + 0.15, values) for place, (name, values) in enumerate(zip(names, stated, strict=True)))


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="gradients of the answer by kind of token",
    condition={"extra masks": Count},
    evidence={
        "masks": float,
        "near": float,
        "all": float,
        "masks_times_input": float | None | UnsetType,
        "near_times_input": float | None | UnsetType,
        "all_times_input": float | None | UnsetType,
    },
    presets=("full", "paper"),
    units=units,
    gradients=True,
    parameters=attribution.ORDERINGS | EXTRA_MASKS,
    quick=attribution.QUICK_ORDERINGS,
    not_causal=NO_MASK_TOKEN,
    measures=entry_per_target,
    claims=claims,
    sections=(
        Section(
            title="Do masks move the answer more than the text does?",
            question="Masks are appended, and the same gradient is taken: of the masks, of the other tokens nearest to "
            "the answer, and of all other tokens.",
            paper="Gradient norm, mean of masks / nearest 50 / all: LLaDA-Base .234/.005/.005, LLaDA-Instruct "
            ".220/.057/.017, Dream-Base .282/.012/.005, Dream-Instruct .144/.030/.018.",
            how_to_read="A mask states only that a token is missing, and their number the length of the text. If their "
            f"point is the highest, the answer is locally more sensitive to them than to the text. {COMPARE_BY}",
            x_label="Tokens",
            x_names=("masks", "nearest context", "all context"),
            points=_points,
            claims=("masks-move-more",),
            measures=attribution.MEASURES,
            caption="Mean over tasks; whisker: 95 % interval for these tasks, with questions drawn afresh. Open "
            "marks, gradient norm: the six models of the paper (arXiv 2511.21338).",
            published=_published(),
            published_measure=attribution.GRADIENT.key,
        ),
    ),
)
