"""From a run's records to its numbers, as the probes describe them: what `maskwise diagnose --json` prints."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from maskwise.probes import PROBES
from maskwise.probes.probe import Probe, ScoreRule
from maskwise.probes.section import Entry
from maskwise.records.folder import Run
from maskwise.records.record import Condition, Record, condition_order, condition_text
from maskwise.scoring.changes import paired_difference, paired_nats
from maskwise.scoring.claims import Claim, holm
from maskwise.scoring.intervals import accuracy_interval, by_task, mean_over_tasks, rules_ends
from maskwise.scoring.scores import LIKELIHOODS, Score, null_score

NO_MASKS = "does not apply: no masks"


def summarise(run: Run, probes: Sequence[Probe] = PROBES) -> dict[str, Any]:
    """Scores, every condition of every probe, and what the probes add of their own."""
    by_probe: dict[str, list[Record]] = {probe: [] for probe in run.manifest["settings"]["probes"]}
    for record in run.records:
        by_probe.setdefault(record["probe"], []).append(record)
    known = {probe.name: probe for probe in probes}
    autoregressive = run.manifest["model"]["mask_id"] is None
    summary: dict[str, Any] = {
        "model": run.manifest["model"]["name"],
        "out": str(run.folder),
        "settings": run.manifest["settings"],
        "scores": scores_of(by_probe, probes, autoregressive),
        "probes": {
            name: entries(known.get(name, unknown_probe(name)), records)
            for name, records in by_probe.items()
            if records
        },
    }
    for probe in probes:
        records = by_probe.get(probe.name)
        if records:
            summary |= {key: compute(records) for key, compute in probe.extras.items()}
    judged = claims_of(by_probe, probes)
    return summary | ({"claims": judged} if judged else {})


def unknown_probe(name: str) -> Probe:
    """A probe of another version: its accuracies can still be read."""
    return Probe(name, "context", "not known to this version")


def score_rules(probes: Sequence[Probe]) -> dict[str, tuple[ScoreRule, list[Probe]]]:
    """Each score by name, with the probes that give it."""
    found: dict[str, tuple[ScoreRule, list[Probe]]] = {}
    for probe in probes:
        for rule in probe.scores:
            found.setdefault(rule.name, (rule, []))[1].append(probe)
    return found


def scores_of(by_probe: dict[str, list[Record]], probes: Sequence[Probe], autoregressive: bool) -> dict[str, Score]:
    """Every score the probes know; of several probes that give it the last one that was run counts."""
    found = {}
    for name, (rule, giving) in score_rules(probes).items():
        if autoregressive and all(probe.not_causal for probe in giving):
            found[name] = null_score(NO_MASKS)
            continue
        ran = [probe for probe in giving if by_probe.get(probe.name)]
        found[name] = rule.formula(by_probe[ran[-1].name]) if ran else null_score()
    return found


def claims_of(by_probe: dict[str, list[Record]], probes: Sequence[Probe]) -> list[Claim]:
    """The papers' claims that these records can judge, by Holm's procedure over all of them. An unfinished run may lack
    one side of a comparison."""
    found = []
    for probe in probes:
        if probe.claims is not None and by_probe.get(probe.name):
            beside = [record for name in probe.beside for record in by_probe.get(name, [])]
            found += probe.claims([*by_probe[probe.name], *beside])
    return holm([claim for claim in found if claim["n"] and not math.isnan(claim["nothing"])])


def entries(probe: Probe, records: Sequence[Record]) -> list[Entry]:
    """Accuracy and the other measures of each condition of a probe, and the paired difference from its baseline."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[condition_text(record["condition"])].append(record)
    listed = probe.chance is not None or all("nll_choice" in record for record in records)
    conditions = sorted((group[0]["condition"] for group in groups.values()), key=condition_order)
    found = []
    for condition in conditions:
        group = groups[condition_text(condition)]
        baseline = probe.baseline(condition, conditions)
        entry = _entry(condition, group, listed)
        if baseline is not None and baseline != condition:
            before = groups[condition_text(baseline)]
            changes = paired_difference(group, before) | paired_nats(group, before)
            entry["paired"] = {"baseline": baseline, **changes}
        found += probe.measures(entry, group)
    return found


def _entry(condition: Condition, group: Sequence[Record], listed: bool) -> Entry:
    """`listed`: the question has a list of answers, so the likelihood of the right one stands beside the accuracy."""
    accuracy, low, high = accuracy_interval(group)
    entry = {
        "condition": condition,
        "masks": round(float(np.mean([record["masks"] for record in group]))),
        "n": len(group),
        "accuracy": accuracy,
        "low": low,
        "high": high,
        **rules_ends(by_task((record["task"], record["correct"]) for record in group)),
        "confidence": float(np.mean([record["confidence"] for record in group])),
        "entropy": float(np.mean([record["entropy"] for record in group])),
    }
    return entry | (likelihoods(group) if listed else {})


def likelihoods(group: Sequence[Record]) -> dict[str, float | None]:
    """NAME, NAME_low and NAME_high of the right answer's negative log-likelihood and of its two parts; records of
    earlier versions hold the whole alone."""
    found: dict[str, float | None] = {}
    for name in LIKELIHOODS:
        if all(name in record for record in group):
            values = mean_over_tasks((record["task"], record[name]) for record in group)
            found |= dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))
    return found
