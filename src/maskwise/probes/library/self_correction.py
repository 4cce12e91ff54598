"""self-correction (ours): can the model see and repair a mistake?

One token of a right sequence (probes/known_tokens.py: words of a Markov source, answers to questions) is replaced by a
wrong one, drawn uniformly or from the model's own prediction. On the Markov source a token is wrong if its exact
posterior is zero. Sources that the model cannot do, by other sequences of them (`known_tokens.skill_units`), are
reported apart and left out of all figures. Related: arXiv 2512.15596, 2604.18738.

    seen        AUROC of the probability of the visible token, right tokens against wrong ones: with the position
                masked, and left visible. The latter mostly measures copying: the network reads the token it scores.
    refill      the position alone is masked and filled greedily: the share of wrong tokens repaired, of right ones
                damaged (up to `right_places` right positions per sequence)
    re-mask     a quarter of the answer's tokens is masked and filled in as many steps: at random, as `remdm` does, or
                the tokens that look least likely left visible. Both mask and compute the same.
    edit        the most probable token replaces the visible one where its probability is above 0.9: `--edit 0.9`

With r the share of wrong tokens repaired and d that of right ones damaged, re-masking pays where more than d / (r + d)
of the written tokens are wrong (`break_even`).

Condition: {"wrong": "uniform"} or "model", or "skill" for the check of the sources, which has no evidence. Evidence
{"wrong", "masked", "visible", "refilled", "edited"}: of each site, the wrong one first, whether it is wrong, the
probability of its token, and whether a refill and an edit leave it right; {"random_repaired", "random_damaged",
"least_repaired", "least_damaged", "others"}: after re-masking, of so many right tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import UNSET

from maskwise.probes import known_tokens
from maskwise.probes.known_tokens import SKILL, able_sources, known_sequences, known_units, scored_in_words, skill_units
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Probe, Setup, Unit
from maskwise.probes.section import Entry, Measure, Point, Section, Shown, as_share, mark_place, without_accuracy
from maskwise.records.record import Evidence, Record
from maskwise.scoring.intervals import ENDS, Estimate, paired_share
from maskwise.scoring.numbers import between, percent, points_between
from maskwise.scoring.reliability import Predictions, auroc, share_over_sequences
from maskwise.tasks.checkable import CHECKED

NAME = "self-correction"
OWN = "model"  # errors drawn from the model's own prediction, which are those that decoding makes
KINDS = {"uniform": "drawn uniformly", OWN: "drawn from the model"}
REMASKING = {"random": "random re-masking", "least": "least-likely re-masking"}
METHODS = {"refilled": "refilling"} | REMASKING | {"edited": "editing"}
SHORT_METHODS = ("refill", "random", "least likely", "edit")  # for a narrow page
VIEWS = {"masked": "position masked", "visible": "left visible"}
CHANCE = 0.5  # AUROC of guessing
OPTIONS = (("refilled", "--rule remdm"), ("edited", "--edit 0.9"))
COLUMN = "the column masks has the tokens of the answer"
DECODING_COST = 4


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.repair import self_correct

    own, seed = setup.own, setup.settings.seed
    for source, listed in known_sequences(setup, NAME).items():
        for kind in KINDS:
            answer = partial(self_correct, kind=kind, right_places=own["right_places"], seed=seed)
            yield from known_units(setup, NAME, source, listed, {"wrong": kind}, answer, DECODING_COST)
    yield from skill_units(setup, NAME, {"wrong": SKILL})


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    return [entry.changed(confidence=UNSET, entropy=UNSET, **corrected(group))]


def corrected(group: Sequence[Record]) -> Evidence:
    """AUROC of both views; shares repaired and damaged by each method, with the break-even share of wrong tokens."""
    found: Evidence = {}
    right = [[1 - wrong for wrong in record.evidence["wrong"]] for record in group]
    for view in VIEWS:
        found |= auroc(Predictions.of([one.evidence[view] for one in group], right)).named(f"auroc_{view}")
    for method in METHODS:
        repaired, damaged, others = _changes(group, method)
        repair = share_over_sequences(repaired, np.ones(len(repaired)))
        damage = share_over_sequences(damaged, others)
        found |= repair.named(f"{method}_repair") | damage.named(f"{method}_damage")
        found |= break_even(repair, damage).named(f"{method}_break_even")
    return found | _chosen_gain(group).named("chosen_gain")


def of_sources(records: Sequence[Record]) -> dict[str, Evidence]:
    """Measures of the model's own errors."""
    names = ("auroc_masked", "refilled_repair", "refilled_damage", "edited_repair", "edited_damage")
    kept = [name + end for name in names for end in ENDS]

    def measured(group: Sequence[Record]) -> Evidence:
        found = corrected(group)
        return {name: found[name] for name in kept} | {"sequences": len(group)}

    return known_tokens.by_source(records, {"wrong": OWN}, measured)


def _changes(group: Sequence[Record], method: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each sequence: is its error repaired, right tokens damaged, right tokens looked at."""
    evidence = [record.evidence for record in group]
    if method in REMASKING:
        columns = [[one[f"{method}_repaired"], one[f"{method}_damaged"], one["others"]] for one in evidence]
    else:
        sites = (one[method] for one in evidence)
        columns = [[first, len(others) - sum(others), len(others)] for first, *others in sites]
    repaired, damaged, others = np.array(columns, dtype=float).T
    return repaired, damaged, others


def _chosen_gain(group: Sequence[Record]) -> Estimate:
    """Errors repaired where the least likely tokens are masked again, less those where random ones are."""
    gains = [record.evidence["least_repaired"] - record.evidence["random_repaired"] for record in group]
    return paired_share({"": np.array(gains)})


def break_even(repair: Estimate, damage: Estimate) -> Estimate:
    """d / (r + d); the interval from the ends of both, which can only widen it."""
    if repair.value is None or damage.value is None:
        return Estimate.of()
    least, most = (damage.low or 0.0, repair.high or 0.0), (damage.high or 0.0, repair.low or 0.0)
    shares = (d / (r + d) if r + d > 0 else None for d, r in ((damage.value, repair.value), least, most))
    return Estimate.of(shares)


def _by_kind(shown: Shown) -> dict[str, Entry]:
    return {str(entry.condition["wrong"]): entry for entry in shown.entries(NAME)}


def _marks(shown: Shown, drawn: Sequence[Mapping[str, str]]) -> list[Point]:
    """Of each kind of error a mark at each place. drawn: of each place, the measure drawn under each name."""
    return [
        Point(f"errors {KINDS[kind]}", mark_place(place, turn, 2), without_accuracy(entry).changed(**measured))
        for turn, (kind, entry) in enumerate(_by_kind(shown).items())
        for place, keys in enumerate(drawn)
        for measured in [{name + end: entry.measures[key + end] for name, key in keys.items() for end in ENDS}]
    ]


def _views(shown: Shown) -> list[Point]:
    return _marks(shown, [{"auroc": f"auroc_{view}"} for view in VIEWS])


def _methods(shown: Shown) -> list[Point]:
    return _marks(shown, [{what: f"{method}_{what}" for what in ("repair", "damage")} for method in METHODS])


def seen(shown: Shown) -> list[str]:
    lines = []
    for kind, entry in _by_kind(shown).items():
        found = entry.measures
        views = "; ".join(f"{_estimate(found, f'auroc_{view}')} {words}" for view, words in VIEWS.items())
        low, high = (found[f"auroc_masked_{end}"] for end in ("low", "high"))
        verdict = "are not shown to look less likely than right ones"
        if low is not None and low > CHANCE:
            verdict = "look less likely than right ones"
        elif high is not None and high < CHANCE:
            verdict = "look likelier than right ones"
        lines.append(f"wrong tokens {KINDS[kind]} {verdict}, AUROC {views}")
    apart = known_tokens.sources_in_words(_sources(shown), f"errors {KINDS[OWN]}, masked and filled again", _of_source)
    sees, do = _by_source_apart(shown)
    return [*sees, *lines, *apart, do] if lines else ["not run"]


def _by_source_apart(shown: Shown) -> tuple[list[str], str]:
    """The AUROC of each source where their intervals do not overlap, and what the probability is good for."""
    able, pooled_entry = able_sources(_sources(shown)), _by_kind(shown).get(OWN)
    of_all = {} if pooled_entry is None else {"these": pooled_entry.measures}
    known = {name: one for name, one in _sources(shown).items() if name in able} or of_all
    ends = {name: [one[f"auroc_masked_{end}"] or CHANCE for end in ("low", "high")] for name, one in known.items()}
    good, bad = ([name for name, (low, _) in ends.items() if (low > CHANCE) == sees] for sees in (True, False))
    uses = [f"{do} it on questions like {' and '.join(on)}" for do, on in (("use", good), ("do not use", bad)) if on]
    do = f"what to do: to find wrong tokens by their probability, {' and '.join(uses)}; whether it pays: section repair"
    if not ends or max(low for low, _ in ends.values()) <= min(high for _, high in ends.values()):
        return [], do
    each = {name: f"on {name} with AUROC {_estimate(one, 'auroc_masked')}" for name, one in known.items()}
    spots, misses = (" and ".join(each[name] for name in names) for names in (good, bad))
    found = f"it spots wrong tokens {KINDS[OWN]} {spots}{f' but not {misses}' if bad else ''}; guessing is 50 %"
    return [found] if good else [], do


def _sources(shown: Shown) -> Mapping[str, Evidence]:
    return shown.summary.extras.get("self_correction_by_source", {})


def _of_source(one: Mapping[str, Any]) -> str:
    mended, damaged = (percent(one[f"refilled_{what}"]) for what in ("repair", "damage"))
    return f"AUROC {percent(one['auroc_masked'])}, {mended} of wrong tokens repaired, {damaged} of right ones damaged"


def _estimate(found: Mapping[str, Any], name: str) -> str:
    return f"{percent(found[name])} ({between(found[f'{name}_low'], found[f'{name}_high'])})"


def repaired(shown: Shown) -> list[str]:
    """Of the model's own errors: repair, damage, and whether it can pay."""
    entry = _by_kind(shown).get(OWN)
    if entry is None:
        return ["not run"]
    found = entry.measures
    lines = [f"{words} {_shares(found, method)}" for method, words in METHODS.items()]
    gained, low, high = (found[f"chosen_gain{end}"] for end in ENDS)
    where = "choosing them by their probability helps" if low > 0 else "not shown to help"
    return [
        *lines,
        "errors repaired by re-masking the least likely tokens minus those at random, at equal cost: "
        f"{points_between(gained, low, high)}: {where}",
        decision(shown, found),
    ]


def decision(shown: Shown, found: Mapping[str, Any]) -> str:
    """Whether `remdm` and `--edit` can pay on this model."""
    commits = [one.measures for one in shown.entries("confidence") if one.condition.get("of") == "commits"][:1]
    wrong = "measure first how many of your tokens are wrong (--probes confidence)"
    for one in commits:
        wrong = f"{percent(1 - one['right'])} of the commits were wrong in this run"
        wrong += f" ({between(1 - one['right_high'], 1 - one['right_low'])})"
    each = "; ".join(pays(found, *option, *commits) for option in OPTIONS)
    return (
        f"what to do: {wrong}; {each}; damage is measured next to a wrong token, which overstates it in short answers; "
        "maskwise has no option for least-likely re-masking"
        + (", the better method here" if found["chosen_gain_low"] > 0 else "")
    )


def _shares(found: Mapping[str, Any], method: str) -> str:
    repair, damage = (_estimate(found, f"{method}_{what}") for what in ("repair", "damage"))
    return f"repairs {repair} of the wrong tokens and damages {damage} of the right ones"


def pays(found: Mapping[str, Any], method: str, option: str, commits: Mapping[str, Any] | None = None) -> str:
    """Whether an option can pay: the share of wrong tokens above which its method repairs more than it damages,
    compared with the share of wrong commits of the probe `confidence`, where that was run."""
    value, low, high = (found[f"{method}_break_even{end}"] for end in ENDS)
    if value is None:
        most = found[f"{method}_repair_high"]
        return f"leave {option} out (it changed no token here; at most {percent(most)} of the errors are repaired)"
    share = f"it gains where more than {percent(value)} of the written tokens are wrong, {between(low, high)}"
    if commits is not None and high < 1 - commits["right_high"]:
        return f"try {option} ({share})"
    if commits is not None and low > 1 - commits["right_low"]:
        return f"leave {option} out ({share})"
    more = "" if commits is None else f"; ask 500 of each source, --probes confidence,{NAME} --points 500"
    return f"{option} is inconclusive ({share}){more}"


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="whether the model detects and repairs its wrong tokens (--data prompts=, gsm8k=)",
    condition={"wrong": str},
    evidence=known_tokens.known_evidence(
        dict.fromkeys(("wrong", "refilled", "edited"), list[int])
        | dict.fromkeys(("masked", "visible"), list[float])
        | dict.fromkeys(("random_repaired", "random_damaged", "least_repaired", "least_damaged", "others"), int)
    ),
    units=units,
    takes=lambda data_set: data_set in CHECKED,
    parameters={"questions": 32, "right_places": 5},
    quick={"questions": 12, "right_places": 3},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    scored=known_tokens.pooled,
    measures=measures,
    chance=None,
    extras={"self_correction_by_source": of_sources},
    columns={
        "auroc_masked": "AUROC masked",
        "auroc_visible": "left visible",
        "refilled_repair": "repaired",
        "refilled_damage": "damaged",
        "edited_repair": "edit repairs",
        "edited_damage": "edit damages",
    },
    sections=(
        Section(
            title="Does it see a wrong token?",
            question="One token of a right sequence is replaced by a wrong one, drawn uniformly or from the model "
            "itself. Is the probability of the visible token lower where it is wrong?",
            paper="Not in the paper. Related: arXiv 2512.15596, 2604.18738.",
            how_to_read="At 50 % the model cannot tell wrong tokens from right ones; at 100 % every wrong token is "
            "less likely than every right one. With the position masked the context alone decides. Left visible, the "
            "network also reads the token and mostly copies it, a right one more surely: this AUROC may be higher.",
            x_label="How the position is read",
            x_names=tuple(VIEWS.values()),
            points=_views,
            measures=(Measure("auroc", "AUROC", "auroc_low", "auroc_high", chance=CHANCE),),
            caption="Mark: AUROC over positions; whisker: 95 % interval over sequences.",
            says=seen,
            masks=lambda shown: f"{scored_in_words(_sources(shown))}masks: none, or the position alone; {COLUMN}",
        ),
        Section(
            name="repair",
            title="Does masking and filling again repair it?",
            question="Wrong and right tokens are masked and filled again, one by one or a quarter of the answer at a "
            "time, or edited in place. What is repaired, and what is damaged?",
            paper="Not in the paper. ReMDM (arXiv 2503.00307) masks committed tokens again at random; LLaDA2.1 edits "
            "committed tokens.",
            how_to_read="A method pays where it repairs many wrong tokens and damages few right ones. Where most "
            "tokens are right, damage weighs more than repair. refill: one position (--rule remdm masks committed "
            "tokens again at random); random, least likely: a quarter of the answer, at least one token (1 of 2); "
            "edit: replaced in place where another token has a probability above 0.9, as --edit 0.9. Right tokens are "
            "tried while the wrong one stands near them, so damage depends on the errors too.",
            x_label="Method",
            x_names=SHORT_METHODS,
            points=_methods,
            measures=(as_share("repair", "Wrong tokens repaired"), as_share("damage", "Right tokens damaged")),
            caption="Mark: share; whisker: 95 % interval over sequences.",
            says=repaired,
            masks=lambda shown: f"{scored_in_words(_sources(shown))}masks: one, or a quarter of the answer; {COLUMN}",
        ),
    ),
)
