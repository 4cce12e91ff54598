"""The first screen: what masks, full stops and distance change in one forward pass, a verdict each, and what to do."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from shutil import get_terminal_size
from typing import Any

import numpy as np

from maskwise.models.families import FAMILIES
from maskwise.probes.core.contrast import BY
from maskwise.probes.core.mask_count import few_shots
from maskwise.probes.one_probe import of_relevant, relevant_numbers
from maskwise.records.manifest import Manifest
from maskwise.records.sample import SampledPrompt
from maskwise.records.table import Table, Tables
from maskwise.scoring import verdicts as rule
from maskwise.scoring.estimates import POINTS, Estimate, answers, change, mean, of_questions, share, wide
from maskwise.scoring.power import questions_for, smallest_detectable
from maskwise.scoring.verdicts import GUESSING, LOSS, TOO_FEW, Change, Verdict
from maskwise.tasks.contrast_questions import RULES
from maskwise.tasks.episodes import CHANCE, LETTERS

MASKS, FILLER, CONTRAST, TOGETHER = "mask-count", "filler", "contrast", "total-correlation"
SHOWN = (2, 20, 200)  # numbers of masks, where they were asked
AFTER = "full stops after the closed answer"  # format A
LEADS = {"masks": MASKS, "distance": CONTRAST}  # the row that leads, and its probe


@dataclass(frozen=True)
class Row:
    """One line: the accuracies along it, and the change from the first to the last."""

    key: str
    levels: tuple[tuple[str, Estimate], ...]
    change: Estimate
    by_question: Any = field(repr=False)  # after minus before

    @property
    def as_change(self) -> Change:
        return Change(self.change, self.levels[0][1])


@dataclass(frozen=True)
class Screen:
    """The first screen of one model. claims: the first estimate of each other probe that makes a claim.

    stated: what the paper states of this model and protocol, by the name of the estimate."""

    label: str
    manifest: Manifest
    tables: Tables
    claims: Mapping[str, Estimate]
    prompts: Sequence[SampledPrompt] = ()
    stated: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[str, Row]:
        found = {"masks": _masks, "stops": _stops, "distance": _distance}
        made = ((key, make(self.tables)) for key, make in found.items())
        return {key: row for key, row in made if row is not None}

    @property
    def lead(self) -> str:
        """Fixed before the run: masks, of a model without them distance; empty where neither was asked."""
        return next((key for key in LEADS if key in self.rows), "")

    @cached_property
    def together(self) -> tuple[Estimate, Estimate] | None:
        """What the nearest and the farthest pair of masks share, in nats."""
        table = self.tables.get(TOGETHER)
        if table is None or not len(table):
            return None
        each = [answers(table[table.distance == apart], "tc") for apart in (table.distance.min(), table.distance.max())]
        return mean("nats shared by neighbours", each[0]), mean(f"{table.distance.max()} apart", each[1])

    @cached_property
    def beyond_stops(self) -> Estimate | None:
        """The control: the change by masks less the change by as many full stops, question by question."""
        masks, stops = self.rows.get("masks"), self.rows.get("stops")
        if masks is None or stops is None or self.verdict_of_masks.word != LOSS:
            return None
        both = (masks.by_question - stops.by_question).dropna()
        name = f"change with {masks.levels[-1][0]} masks less that with {stops.levels[-1][0]} full stops"
        return mean(name, both, POINTS, (-2.0, 2.0))

    @property
    def verdict_of_masks(self) -> Verdict:
        return rule.verdict(self.rows["masks"].as_change)

    @cached_property
    def from_few(self) -> Estimate | None:
        """The change from about 20 masks to the most: what a canvas that grows by so many would give back."""
        levels = self.rows["masks"].levels if "masks" in self.rows else ()
        if len(levels) < 3:
            return None
        return self._between(int(levels[1][0]), int(levels[-1][0]))

    @cached_property
    def to_few(self) -> Estimate | None:
        """What so many cost."""
        levels = self.rows["masks"].levels if "masks" in self.rows else ()
        return self._between(int(levels[0][0]), int(levels[1][0])) if len(levels) > 2 else None

    def _between(self, few: int, more: int) -> Estimate:
        right = _right_by_masks(self.tables)
        return change(f"change of accuracy with {more} masks instead of {few}", right[more], right[few])

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        changes = {key: row.as_change for key, row in self.rows.items()}
        given = (changes.get("masks"), changes.get("stops"), changes.get("distance"), self.beyond_stops)
        others = {probe: one for probe, one in self.claims.items() if probe not in (MASKS, FILLER, CONTRAST)}
        return rule.verdicts(*given, self.together and self.together[0], others)

    @cached_property
    def curves(self) -> dict[str, list[tuple[int, Estimate]]]:
        """The change from the baseline at each number of masks that was asked, and of full stops."""
        found = {}
        for series, key, right in (("masks", "masks", _right_by_masks), ("full stops", "stops", _right_by_stops)):
            if key in self.rows:
                table, base = right(self.tables), int(self.rows[key].levels[0][0])
                said = f"masks instead of {base}" if key == "masks" else AFTER
                listed = [(k, f"change of accuracy with {k} {said}") for k in table if k > base]
                found[series] = [(k, change(name, table[k], table[base])) for k, name in listed]
        return found

    @property
    def tasks(self) -> int:
        return len(set(self.rows[self.lead].by_question.index.get_level_values("task")))

    @property
    def flips(self) -> tuple[int, int, int]:
        """Answers of the lead that became wrong, became right, and did not change."""
        moved = np.sign(self.rows[self.lead].by_question)
        return int((moved < 0).sum()), int((moved > 0).sum()), int((moved == 0).sum())

    @property
    def smallest(self) -> float:
        """The smallest change that so many questions show with probability .8, if as many answers change as here."""
        wrong, right, same = self.flips
        total = wrong + right + same
        return smallest_detectable(total, max(wrong + right, 1) / total)

    @property
    def example(self) -> list[SampledPrompt]:
        """One question at both ends of the lead: one whose answer becomes wrong, or else the first."""
        by_question: dict[Any, list[SampledPrompt]] = {}
        for prompt in self.prompts:
            if prompt.probe == LEADS.get(self.lead):
                by_question.setdefault((prompt.task, prompt.point), []).append(prompt)
        pairs = [pair for pair in by_question.values() if len(pair) > 1]
        pairs = [[pair[0], pair[-1]] for pair in (sorted(pair, key=_along) for pair in pairs)]
        flips = [pair for pair in pairs if pair[0].correct and not pair[1].correct]
        moved = [pair for pair in pairs if pair[0].correct != pair[1].correct]
        return next(iter(flips + moved + pairs), [])

    @property
    def name(self) -> str:
        return shlex.quote(self.manifest.model.name)

    @property
    def facts(self) -> list[str]:
        model, settings = self.manifest.model, self.manifest.settings
        titles = {family.name: family.title for family in FAMILIES}
        return [
            titles.get(model.kind, model.kind),
            *([] if model.parameters is None else [f"{_short(model.parameters)} parameters"]),
            *([f"blocks of {model.block} tokens"] if model.block else []),
            model.dtype if model.weights is None else f"{model.weights} weights",
            *(["--chat"] if settings.chat else []),
            *([f"planted on purpose: {model.planted}"] if model.planted else []),
        ]

    @property
    def estimates(self) -> list[tuple[str, Estimate]]:
        """(row, estimate): every number of the screen."""
        found = [(key, one) for key, row in self.rows.items() for one in (row.change, *(one for _, one in row.levels))]
        found += [("masks", one) for one in (self.from_few, self.to_few) if one is not None]
        found += [] if self.beyond_stops is None else [("stops", self.beyond_stops)]
        return found + [("together", one) for one in self.together or ()]

    @property
    def numbers(self) -> dict[str, str]:
        """The one number of each row: `-23.4 (-28.9 to -18.0)`."""
        changes = {key: row.change for key, row in self.rows.items()}
        changes |= {} if self.together is None else {"together": self.together[0]}
        return {key: f"{one.text(one.value)}{in_brackets(one)}" for key, one in changes.items()}

    @property
    def advice(self) -> list[tuple[str, str]]:
        """(command, why it is named), which answer the lead."""
        return list(_advice(self)) if self.lead else []


def _advice(found: Screen) -> Iterator[tuple[str, str]]:
    lead, name, model = found.verdicts[found.lead], found.name, found.manifest.model
    own = (f"maskwise diagnose {name} --data FILE", "asks your own questions, in one pass and decoded")
    if model.tuned and found.lead == "masks":
        yield f"maskwise compare {shlex.quote(model.tuned)} {name}", "shows what tuning changed"
    if lead.why == GUESSING:
        if not found.manifest.settings.chat:
            yield f"maskwise diagnose {name} --chat", "asks through the chat template, if the model was tuned with one"
        yield f"maskwise verify {name}", "compares it with the original code: wrong weights or a wrong mask guess too"
        yield f"maskwise diagnose {name} --relevant 20", "shows more relevant examples"
        return
    if lead.word in ("", rule.CANNOT_TELL) and lead.why == TOO_FEW:
        changed = sum(found.flips[:2]) / max(1, sum(found.flips))
        tasks = max(1, len(found.manifest.settings.tasks))
        each = ceil(questions_for(rule.LARGE, max(0.1, changed)) / tasks)
        yield f"maskwise diagnose {name} --questions {each}", "questions a task show a change of 10 points"
    if lead.word == LOSS and found.lead == "masks":
        yield f"maskwise diagnose {name} --probes mitigations", "measures what each way out gives back"
        if found.from_few is not None and found.to_few is not None and found.from_few.side < 0:
            cost = f"{found.to_few.text(found.to_few.value)} points{in_brackets(found.to_few)}"
            few = found.rows["masks"].levels[1][0]
            why = f"shows the model few masks at a time; {few} of them change its accuracy by {cost}"
            yield f"maskwise generate {name} --canvas growing", why
        yield own
        can_tune = model.mask_id is not None and not model.block and not model.tuned
        if can_tune and lead.why != rule.ANY_TEXT:
            why = f"trains it to answer alike however many masks follow; then: maskwise compare {name} TUNED"
            yield f"maskwise tune {name} --data FILE", why
        return
    if found.verdicts.get("distance", Verdict("")).word == LOSS:
        yield "", "What decides belongs next to the question: an example far from it is used less."
    yield own


# Rows


def _main(table: Table) -> Table:
    return of_relevant(table, relevant_numbers(table)[0], True)


def _right_by_masks(tables: Tables) -> Table:
    return wide(few_shots(_main(tables[MASKS])), "masks")


def _masks(tables: Tables) -> Row | None:
    if not len(tables.get(MASKS, ())):
        return None
    right = _right_by_masks(tables)
    base = 2 if 2 in right else min(right, default=0)
    most = max(right, default=0)
    shown = [k for k in right if k in SHOWN and base < k < most]
    named = [(k, f"accuracy with {k} masks") for k in (base, *shown, most)]
    return _row("masks", right, named, f"change of accuracy with {most} masks instead of {base}")


def _right_by_stops(tables: Tables) -> Table:
    table = _main(tables[FILLER])
    return wide(table[table.format.fillna("A") == "A"] if "format" in table else table, "fillers")


def _stops(tables: Tables) -> Row | None:
    """Format A, as in the paper: they follow the closed answer."""
    if not len(tables.get(FILLER, ())):
        return None
    right = _right_by_stops(tables)
    named = [(n, f"accuracy with {n} {AFTER}") for n in (min(right, default=0), max(right, default=0))]
    return _row("stops", right, named, f"change of accuracy with {named[-1][0]} {AFTER}")


def _distance(tables: Tables) -> Row | None:
    """Under the fewest masks from 2."""
    if not len(tables.get(CONTRAST, ())):
        return None
    asked = of_questions(tables[CONTRAST], BY, RULES, in_full=True)
    counts = asked.masks.unique()
    right = wide(asked[asked.masks == (2 if 2 in counts else min(counts))], "examples")
    named = [(where, f"accuracy with the example {where}") for where in ("near", "far")]
    return _row("distance", right, named, "change of accuracy with the example far instead of near")


def _row(key: str, right: Table, named: Sequence[tuple[Any, str]], name: str) -> Row | None:
    (first, _), (last, _) = named[0], named[-1]
    if first == last or right.empty or not {first, last} <= set(right):
        return None
    levels = tuple((str(at), share(said, right[at])) for at, said in named)
    return Row(key, levels, change(name, right[last], right[first]), right[last] - right[first])


# In words


def _along(prompt: SampledPrompt) -> tuple[int, int]:
    condition = prompt.condition
    return int(condition.get("examples") == "far"), int(condition.get("masks", 0))


def _short(count: int) -> str:
    sizes = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
    return next((f"{count / size:.3g} {unit}" for size, unit in sizes if count >= size), str(count))


def letters_of(prompt: SampledPrompt) -> list[tuple[str, float]]:
    """The probability of each option's letter, as far as they are among the likeliest answers."""
    known = {text.strip(): chance for text, chance in reversed(prompt.top)} | {prompt.answer: prompt.probability}
    return [(letter, known.get(letter, 0.0)) for letter in LETTERS]


WHAT = {"masks": "empty masks", "stops": "full stops", "distance": "distance", "together": "at once"}
FILL = {
    rule.ONE_AT_A_TIME: "fill neighbours one at a time",
    rule.TOGETHER: "neighbours may be filled together",
    rule.CANNOT_TELL: "whether neighbours may be filled together: cannot tell",
}


def in_lines(found: Screen, width: int | None = None) -> list[str]:
    """The screen for a terminal, of its width."""
    width = get_terminal_size((100, 24)).columns if width is None else width
    lines = [f"{found.label}: {', '.join(found.facts)}"]
    if found.rows:
        lines.append(f"{'In one forward pass':<46}change (95 %: questions; tasks)")
    for key, row in found.rows.items():
        one = row.change
        at = "/".join(name for name, _ in row.levels)
        levels = "/".join(level.text(level.value) for _, level in row.levels)
        name = f"{' ' * (key == 'stops')}{WHAT[key]}"
        start = f"{name:<12}{at:>9}  {levels + ' %':<19}  {one.text(one.value):>6}{in_brackets(one, tasks=True)}"
        verdict = str(found.verdicts[key])
        lines += [f"{start}  {verdict}"] if len(start) + len(verdict) + 2 <= width else [start, f"{'':<14}{verdict}"]
    if found.together is not None:
        near, far = found.together
        shared = f"neighbours share {near.text(near.value)} nats{in_brackets(near)}, {far.name} {far.text(far.value)}"
        lines.append(f"at once     {shared}: {FILL[found.verdicts['together'].word]}")
    if found.lead:
        wrong, right, same = found.flips
        asked = f"{wrong + right + same:,} questions, {found.tasks} tasks, guessing {CHANCE:.0%}"
        lines.append(f"{asked}. {wrong} answers became wrong, {right} right, {same} did not change.")
    lines += [f" {line}" for line in _example_lines(found)]
    lines += [f"do: {command}{'  # ' if command else ''}{why}" for command, why in found.advice]
    return lines


def in_brackets(one: Estimate, tasks: bool = False) -> str:
    """` (-28.9 to -18.0)`; with tasks the interval over them too."""
    ends = [(one.low, one.high), (one.tasks_low, one.tasks_high)][: 1 + tasks]
    said = "; ".join(f"{one.text(low)} to {one.text(high)}" for low, high in ends if low is not None)
    return f" ({said})" if said else ""


def question_of(prompt: SampledPrompt) -> str:
    """The asked row of a prompt, without its context: the last line before the answer."""
    text = "".join(prompt.tokens[: prompt.row]).rstrip()
    return next((line for line in reversed(text.splitlines()) if any(f"({a})" in line for a in LETTERS)), text[-80:])


def end_of(prompt: SampledPrompt) -> str:
    """`200 masks`, or the place of the example."""
    examples = prompt.condition.get("examples")
    return f"example {examples}" if examples else f"{prompt.condition.get('masks')} masks"


def _example_lines(found: Screen) -> Iterator[str]:
    if not found.example:
        return
    yield question_of(found.example[0])
    for prompt in found.example:
        shares = sorted(letters_of(prompt), key=lambda one: -one[1])
        said = ", ".join(f"{letter} {chance:.0%}" for letter, chance in shares if chance >= 0.005)
        yield f"{end_of(prompt)}: {said} ({'right' if prompt.correct else f'wrong, right is {prompt.answer}'})"
