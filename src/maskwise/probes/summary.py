"""From a run's records to its numbers, as the probes describe them: what `maskwise diagnose --json` prints."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import UNSET, structs

from maskwise.probes import PROBES, examples, select_tasks
from maskwise.probes.examples import RelevantCount, in_words, numbers_in, score_name, with_number
from maskwise.probes.probe import Probe, ScoreRule
from maskwise.probes.published import other_format, published_values
from maskwise.probes.section import Entry, Paired, Shown, Summary
from maskwise.records.folder import RunOnDisk
from maskwise.records.groups import Group, as_group, groups_of, joined
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.changes import paired_difference, paired_nats
from maskwise.scoring.claims import Claim, holm
from maskwise.scoring.intervals import Ends, Estimate, accuracy_interval, rules_ends, stratified_mean
from maskwise.scoring.power import DetectableDifference, detectable
from maskwise.scoring.repeated_questions import by_question
from maskwise.scoring.scores import LIKELIHOODS, Score, null_score
from maskwise.scoring.skill import Skill, task_skill
from maskwise.scoring.task_room import Room, resting_on, room_of, with_room

NO_MASKS = "does not apply: no masks"

ByProbe = Mapping[str, Sequence[Record]]


def summarise(run: RunOnDisk, probes: Sequence[Probe] = PROBES) -> Summary:
    """Scores, every condition of every probe, and what the probes add of their own."""
    by_probe: dict[str, Sequence[Record]] = {**dict.fromkeys(run.manifest.settings.probes, ()), **run.by_probe}
    selecting = by_probe.pop(select_tasks.NAME, ())
    known = {probe.name: probe for probe in probes}
    autoregressive = run.manifest.model.is_autoregressive
    extras = {
        key: compute(by_probe[probe.name])
        for probe in probes
        if by_probe.get(probe.name)
        for key, compute in probe.extras.items()
    }
    scores = scores_of(by_probe, probes, autoregressive)
    if selecting:
        room = extras[select_tasks.SUMMARY] = room_of(selecting)
        scores = over_selected(scores, room, by_probe, probes, autoregressive)
    listed = {
        name: entries(known.get(name, unknown_probe(name)), records) for name, records in by_probe.items() if records
    }
    summary = Summary(
        model=run.manifest.model.name,
        out=str(run.folder),
        settings=run.manifest.settings,
        not_visible=run.manifest.not_visible,
        skill=main_skill(listed, probes) or UNSET,
        scores=scores,
        probes=listed,
        extras=extras,
        claims=claims_of(by_probe, probes) or UNSET,
    )
    return structs.replace(
        summary,
        published=published_values(summary, run) or UNSET,
        other_format=other_format(summary) or UNSET,
        power=power_of_entries(summary.probes) or UNSET,
    )


def power_of_entries(by_probe: Mapping[str, list[Entry]]) -> list[DetectableDifference]:
    """The power of each probe, from the questions of its largest paired difference."""
    counts = {name: max((e.paired.n for e in entries if e.paired), default=0) for name, entries in by_probe.items()}
    return [detectable(name, count) for name, count in counts.items() if count]


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


def scores_of(by_probe: ByProbe, probes: Sequence[Probe], autoregressive: bool) -> dict[str, Score]:
    """Every score the probes know, for each number of relevant examples asked (probes/examples.py).

    Of several probes that give a score, the last one that was run counts.
    """
    found = {}
    for name, (rule, giving) in score_rules(probes).items():
        of_masks = rule.sentences is not None and rule.sentences.autoregressive is not None
        if autoregressive and (of_masks or all(probe.not_causal for probe in giving)):
            found[name] = null_score(NO_MASKS)
            continue
        asked = [by_probe.get(probe.name, []) for probe in giving]
        numbers = numbers_in(joined(*asked))
        found[name] = null_score()
        for number in numbers:
            records = [same for records in asked if (same := with_number(records, number))][-1]
            found[score_name(name, number, number == numbers[0])] = rule.formula(records)
    return found


def over_selected(
    scores: dict[str, Score], room: Room, by_probe: ByProbe, probes: Sequence[Probe], autoregressive: bool
) -> dict[str, Score]:
    """The scores of a run with --select-tasks: those in shares of the few-shot probes rest on the tasks with room."""
    asked = {probe.name: by_probe[probe.name] for probe in probes if few_shot(probe) and by_probe.get(probe.name)}
    kept = scores_of({name: with_room(records, room) for name, records in asked.items()}, probes, autoregressive)
    rested = {
        name: resting_on(kept[name], room)
        for name, (rule, giving) in score_rules(probes).items()
        if rule.unit == "share" and any(probe.name in asked for probe in giving) and kept[name].why != NO_MASKS
    }
    return {**scores, **rested}


def few_shot(probe: Probe) -> bool:
    return probe.variants is not None or (probe.measured is not None and "relevant" in (probe.condition or ()))


def scores_shown(summary: Summary, probes: Sequence[Probe]) -> list[ScoreRule]:
    """The scores of a summary in their order, one for each number of relevant examples; titles tell them apart."""
    found: list[ScoreRule] = []
    for rule, giving in score_rules(probes).values():
        asked = (entry for probe in giving for entry in summary.probes.get(probe.name, []))
        numbers = numbers_in(asked) or [None]
        named = [(score_name(rule.name, number, number == numbers[0]), number) for number in numbers]
        found += [rule_of_number(rule, name, number) for name, number in named if name in summary.scores]
    return found


def rule_of_number(rule: ScoreRule, name: str, number: RelevantCount) -> ScoreRule:
    """The rule of one number of relevant examples: its words see the entries of that number alone."""
    words, named = rule.sentences, "" if number is None else f", {in_words(number)}"
    if words is not None:
        words = replace(
            words,
            topic=words.topic + named,
            seen=_seeing(words.seen, number),
            no_skill=None if words.no_skill is None else _seeing(words.no_skill, number),
            addition=None if words.addition is None else _seeing(words.addition, number),
        )
    return replace(rule, name=name, title=rule.title + named, sentences=words)


def _seeing(words: Callable[[Shown], str], number: RelevantCount) -> Callable[[Shown], str]:
    return lambda shown: words(examples.WithNumber(shown, number))


def probes_giving(score: str, probes: Sequence[Probe]) -> list[Probe]:
    """The probes that give a score, also by its name for one number of relevant examples (`locality_1`)."""
    rules = score_rules(probes)
    return rules[score if score in rules else score.rsplit("_", 1)[0]][1]


def claims_of(by_probe: ByProbe, probes: Sequence[Probe]) -> list[Claim]:
    """The papers' claims that these records can judge, by Holm's procedure over all of them.

    Each is judged for every number of relevant examples asked (probes/examples.py), named as scores are. An unfinished
    run may lack one side of a comparison.
    """
    found = []
    for probe in probes:
        own = by_probe.get(probe.name)
        if probe.claims is None or not own:
            continue
        numbers = numbers_in(own)
        for number in numbers:
            others = (with_number(by_probe.get(name, []), number) for name in probe.claims_also_read)
            of_number = probe.claims(joined(with_number(own, number), *others))
            found += [claim_of_number(claim, number, number == numbers[0]) for claim in of_number]
    return holm([claim for claim in found if claim.n and not math.isnan(claim.nothing)])


def claim_of_number(claim: Claim, number: RelevantCount, is_main: bool) -> Claim:
    """The claim with its name ("finding") and its number of relevant examples ("relevant")."""
    named = "" if number is None else f", {in_words(number)}"
    name = score_name(claim.name, number, is_main)
    return structs.replace(claim, name=name, claim=claim.claim + named, finding=claim.name, relevant=number)


def entries(probe: Probe, records: Sequence[Record]) -> list[Entry]:
    """Accuracy and the other measures of each condition of a probe, and the paired difference from its baseline."""
    groups = {condition_text(group.condition): group for group in groups_of(probe.scored(records))}
    listed = probe.chance is not None or all(group.has("nll_choice") for group in groups.values())
    found = []
    for condition, baseline in examples.with_baselines([group.condition for group in groups.values()], probe.baseline):
        group = groups[condition_text(condition)]
        entry = _entry(condition, group, listed, probe.points_per_question)
        if baseline is not None:
            here, before = (
                by_question(groups[condition_text(one)], probe.points_per_question) for one in (condition, baseline)
            )
            nats: dict[str, Any] = {**paired_nats(here, before)}
            paired = Paired(baseline=baseline, **paired_difference(here, before).to_dict(), **nats)
            entry = structs.replace(entry, paired=paired)
        found += probe.measures(entry, group)
    return _with_skill(found, groups, probe.chance or 0.0)


def _with_skill(found: Sequence[Entry], groups: Mapping[str, Group], guessing: float) -> list[Entry]:
    """Each entry that others are compared with says whether a loss from it can be shown."""
    changes: dict[str, list[Ends]] = {}
    for entry in found:
        if entry.paired is not UNSET and entry.accuracy is not None:
            ends = (entry.paired.low, entry.paired.high)
            changes.setdefault(condition_text(entry.paired.baseline), []).append(ends)
    listed = []
    for entry in found:
        compared = changes.get(condition_text(entry.condition))
        if compared is not None and entry.accuracy is not None:
            right = groups[condition_text(entry.condition)].column("correct")
            skill = task_skill(round(float(right.sum())), len(right), guessing, compared)
            entry = structs.replace(entry, skill=skill)
        listed.append(entry)
    return listed


def main_skill(listed: Mapping[str, Sequence[Entry]], probes: Sequence[Probe]) -> Skill | None:
    """The skill at the report's main baseline: of the probe that leads it, else of the first probe run."""
    leading = sorted(probes, key=lambda probe: not (probe.lead is not None and probe.lead.main))
    for probe in leading:
        for entry in examples.main_records(listed.get(probe.name, ())):
            if entry.skill is not UNSET:
                return entry.skill
    return None


def _entry(condition: Condition, group: Group, listed: bool, points_per_question: int) -> Entry:
    """`listed`: the question has a list of answers, so the likelihood of the right one is given with the accuracy."""
    questions = by_question(group, points_per_question)
    accuracy, low, high = accuracy_interval(questions)
    rules_low, rules_high = rules_ends(questions.by_task("correct"), (0.0, 1.0))
    return Entry(
        condition=condition,
        masks=round(float(group.column("masks").mean())),
        n=len(group),
        accuracy=accuracy,
        low=low,
        high=high,
        rules_low=rules_low,
        rules_high=rules_high,
        confidence=float(group.column("confidence").mean()) if group.has("confidence") else UNSET,
        entropy=float(group.column("entropy").mean()) if group.has("entropy") else UNSET,
        visible=round(float(group.column("visible").mean())) if group.has("visible") else UNSET,
        **(likelihoods(questions) if listed else {}),
    )


def likelihoods(group: Sequence[Record]) -> dict[str, Any]:
    """NAME, NAME_low and NAME_high of the right answer's negative log-likelihood and of its two parts; records of
    earlier versions hold the whole alone."""
    found: dict[str, Any] = {}
    held = as_group(group)
    for name in LIKELIHOODS:
        if held.has(name):
            found |= Estimate.of(stratified_mean(held.by_task(name))).named(name)
    return found
