"""filler: full stops in the place of appended masks: is it the masks, or just more text?

Paper probe 6, format A with n fillers after the closed bracket: as many tokens as masks, none of them a mask.
Condition: {"filler": ".", "fillers": 50}.

Ours, format B: two masks as in the mask-count probe, then n fillers: full stops or the model's end token. With k = n+2
the prompt is that of k masks but for the kind of the tokens 3 to k, so nothing else can differ. Condition: {"filler":
".", "fillers": 48, "format": "B"}, or "filler": "end token". Without fillers it is the prompt of two masks.
"""

from collections.abc import Sequence

from msgspec import UnsetType

from maskwise.probes.blocks import visible_counts
from maskwise.probes.examples import FEW_SHOT
from maskwise.probes.probe import Probe, Setup, Variant
from maskwise.probes.section import Entry, Lead, Point, Section, Shown, by_masks
from maskwise.records.groups import conditions_of, records_of, values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import weights_of
from maskwise.support.typed import Count
from maskwise.tasks.prompts import filler_id as text_filler_id

NAME, MASK_COUNT = "filler", "mask-count"
END = "end token"
CLOSED = 3  # the answer and `].`, which is one token or two


def variants(setup: Setup) -> list[Variant]:
    text = setup.settings.filler
    after_bracket = visible_counts(setup, NAME, setup.own["filler_counts"], other_tokens=CLOSED)
    found = [Variant(NAME, {"filler": text, "fillers": n}, fillers=n) for n in after_bracket]
    for filler in setup.own["after_two_masks"]:
        token = filler_token(setup, filler)
        if token is not None:
            for n in (k - 2 for k in visible_counts(setup, NAME, setup.own["mask_counts"])):
                condition: Condition = {"filler": filler, "fillers": n, "format": "B"}
                found.append(Variant(NAME, condition, open=True, masks=2, fillers=n, filler_id=token))
    return found


def filler_token(setup: Setup, filler: str) -> int | None:
    """The token of a filler after two masks; without an end token a note says so."""
    if filler != END:
        return text_filler_id(setup.asker.tokenizer, filler)
    token = setup.asker.tokenizer.eos_token_id
    if token is None:
        setup.note(f"{NAME}: not asked with end tokens, which the tokenizer does not have")
    return token


def fewest_fillers(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    """The baseline: the fewest fillers of the same kind in the same format."""
    same = [c for c in conditions if (c["filler"], c.get("format")) == (condition["filler"], condition.get("format"))]
    return min(same, key=lambda c: int(c["fillers"]))


def claims(records: Sequence[Record]) -> list[Claim]:
    """Fillers cost less than masks: it is the masks, not the length.

    Measured at the largest number k of masks with a counterpart in fillers (two masks and k - 2 fillers in format B,
    else k fillers in format A): what k masks cost (2 masks less k) less what the fillers cost, question by question.
    """
    masks = values_of(records_of(records, MASK_COUNT), "masks")
    conditions = conditions_of(records_of(records, NAME))
    for format, own_masks in (("B", 2), (None, 0)):
        asked = [c for c in conditions if c.get("format") == format]
        common = [n for n in {int(c["fillers"]) for c in asked} if n > 0 and n + own_masks in masks]
        if 2 in masks and common and any(c["fillers"] == 0 for c in asked):
            return [_cost_less(records, asked, max(common), max(common) + own_masks)]
    return []


def _cost_less(records: Sequence[Record], asked: Sequence[Condition], fillers: int, masks: int) -> Claim:
    """`asked`: conditions of one format; several kinds of fillers are averaged."""
    none, many = ([c for c in asked if c["fillers"] == n] for n in (0, fillers))
    weighted = [(c, -1 / len(none)) for c in none] + [(c, 1 / len(many)) for c in many]
    weights = weights_of(NAME, weighted) | weights_of(MASK_COUNT, [({"masks": 2}, 1.0), ({"masks": masks}, -1.0)])
    measure = f"lost to {masks} masks less lost to {fillers} fillers"
    return contrast_claim("fillers-cost-less", "fillers cost less than masks", measure, records, weights)


def filler_name(filler: str) -> str:
    return {".": "full stops", END: "end tokens"}.get(filler, f"“{filler}” repeated")


def _points(shown: Shown) -> list[Point]:
    """The control with the mask-count curve, which it is compared with."""
    masks = by_masks(MASK_COUNT, "masks")(shown)
    controls = []
    for entry in shown.entries(NAME):
        kind, in_format_b = filler_name(entry.condition["filler"]), entry.condition.get("format") == "B"
        controls.append(Point(f"2 masks, then {kind}" if in_format_b else kind, _with_masks(entry), entry))
    return masks + controls


def _with_masks(entry: Entry) -> int:
    """After two masks fillers stand where the other masks stood, so those are counted with them."""
    return int(entry.condition["fillers"]) + (2 if entry.condition.get("format") == "B" else 0)


def _effect(point: Point, base: Point) -> str:
    condition = point.entry.condition
    after = "2 masks" if condition.get("format") == "B" else "the closed answer"
    return f"with {condition['fillers']} {filler_name(condition['filler'])} after {after}"


def strictest(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of one control, by the number of fillers: full stops in format B where they were asked."""
    format_b = [e for e in entries if e.condition.get("format") == "B" and e.condition["filler"] != END]
    chosen = format_b or [e for e in entries if "format" not in e.condition]
    return sorted(chosen, key=lambda entry: entry.condition["fillers"])


def _after_masks(entries: Sequence[Entry]) -> list[Entry]:
    return [entry.changed(masks=_with_masks(entry)) for entry in strictest(entries)]


def _instead(entries: Sequence[Entry]) -> str:
    return f"{filler_name(strictest(entries)[-1].condition['filler'])} instead"


PROBE = Probe(
    name=NAME,
    group="context",
    about="full stops in the place of appended masks",
    condition=FEW_SHOT | {"filler": str, "fillers": Count, "format": str | UnsetType},
    lead=Lead(_after_masks, _instead, published=", full stops"),
    presets=("default", "full", "paper"),
    variants=variants,
    parameters={
        "filler_counts": (0, 5, 10, 20, 50, 100, 200),
        "after_two_masks": (".", END),
        "mask_counts": (2, 5, 10, 20, 50, 100, 200),
    },
    paper={"after_two_masks": ()},
    quick={"filler_counts": (), "after_two_masks": (".",), "mask_counts": (2, 200)},
    not_causal="an autoregressive model never sees what follows its answer",
    baseline=fewest_fillers,
    claims=claims,
    claims_also_read=(MASK_COUNT,),
    sections=(
        Section(
            title="Is it the masks, or just more text?",
            question="Full stops take the place of the extra masks. If any extra tokens did the harm, full stops would "
            "do it too. After two masks they stand exactly where the other masks stood; in the paper's control they "
            "follow the closed bracket.",
            paper="LLaDA loses only 3 points (Base) and 10 (Instruct) to full stops, far less than to masks: it is the "
            "masks. Dream: full stops and masks alike.",
            how_to_read="Compare the two lines: masks low and full stops level means the masks themselves distract; "
            "both low means any extra text does.",
            x_label="Masks, or full stops, at the end",
            points=_points,
            claims=("fillers-cost-less",),
            spread=True,
            effect=_effect,
        ),
    ),
)
