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
from maskwise.probes.library.contrast import BY
from maskwise.probes.library.mask_count import few_shots
from maskwise.probes.library.own_task import NAME as OWN_TASK
from maskwise.probes.published import Published
from maskwise.records.manifest import Manifest
from maskwise.records.sample import SampledPrompt
from maskwise.records.table import Table, Tables
from maskwise.report.own_task_view import own_lines
from maskwise.report.prompts import environment
from maskwise.scoring import verdicts as rule
from maskwise.scoring.estimates import (
    POINTS,
    Estimate,
    answers,
    change,
    mean,
    of_questions,
    of_relevant,
    relevant_numbers,
    share,
    wide,
)
from maskwise.scoring.power import questions_for, smallest_detectable
from maskwise.scoring.verdicts import GUESSING, LOSS, TOO_FEW, Change, Verdict
from maskwise.support.terminal import counted, one_line
from maskwise.tasks.contrast_questions import RULES
from maskwise.tasks.episodes import CHANCE, LETTERS

MASKS, FILLER, CONTRAST, TOGETHER = "mask-count", "filler", "contrast", "total-correlation"
SHOWN = (2, 20, 200)  # numbers of masks, where they were asked
ON_SCREEN = (MASKS, FILLER, CONTRAST, TOGETHER, "own-task")
PROBE_OF = {"masks": MASKS, "stops": FILLER, "distance": CONTRAST, "together": TOGETHER}  # by row
LEADS = ("masks", "distance")


@dataclass(frozen=True)
class Row:
    """One line: right answers, questions x conditions, and the conditions shown, of which the first is the baseline.

    accuracy, changed: names of estimates, by the condition and the one it is compared with. asked: the answers, where
    a question is several.
    """

    right: Table = field(repr=False)
    shown: tuple[Any, ...]
    accuracy: str
    changed: str
    asked: Table | None = field(default=None, repr=False)

    @cached_property
    def levels(self) -> list[tuple[str, Estimate]]:
        return [(str(at), share(self.accuracy.format(at), self.right[at])) for at in self.shown]

    def between(self, before: Any, after: Any) -> Estimate:
        return change(self.changed.format(after, before), self.right[after], self.right[before])

    @cached_property
    def change(self) -> Estimate:
        return self.between(self.shown[0], self.shown[-1])

    @property
    def by_question(self) -> Any:
        return self.right[self.shown[-1]] - self.right[self.shown[0]]

    @property
    def as_change(self) -> Change:
        return Change(self.change, self.levels[0][1])


@dataclass(frozen=True)
class Screen:
    """The first screen of one model. claims: the first estimate of each other probe that makes a claim.

    stated: what the paper states of this model and protocol, by probe and name of the estimate."""

    label: str
    manifest: Manifest
    tables: Tables
    claims: Mapping[str, Estimate]
    prompts: Sequence[SampledPrompt] = ()
    stated: Mapping[tuple[str, str], Published] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Of the probes that were asked at both ends."""
        return {key: row for key, row in _rows(self.tables) if len(row.shown) > 1 and len(row.right)}

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
        if masks is None or stops is None or rule.verdict(masks.as_change).word != LOSS:
            return None
        both = (masks.by_question - stops.by_question).dropna()
        name = f"change with {masks.shown[-1]} masks less that with {stops.shown[-1]} full stops"
        return mean(name, both, POINTS, (-2.0, 2.0))

    @cached_property
    def few(self) -> tuple[Estimate, Estimate] | None:
        """What about 20 masks cost, and what the most cost beyond them: what a canvas that grows by 20 gives back."""
        row = self.rows.get("masks")
        if row is None or len(row.shown) < 3:
            return None
        return row.between(*row.shown[:2]), row.between(row.shown[1], row.shown[-1])

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        changes = {key: row.as_change for key, row in self.rows.items()}
        given = (changes.get("masks"), changes.get("stops"), changes.get("distance"), self.beyond_stops)
        others = {probe: one for probe, one in self.claims.items() if probe not in (MASKS, FILLER, CONTRAST)}
        return rule.verdicts(*given, self.together and self.together[0], others)

    @property
    def tasks(self) -> int:
        return len(set(self.rows[self.lead].by_question.index.get_level_values("task")))

    @property
    def flips(self) -> tuple[int, int, int]:
        """Answers of the lead that became wrong, became right, and did not change."""
        row = self.rows[self.lead]
        each = row.right if row.asked is None else row.asked
        moved = np.sign(each[row.shown[-1]] - each[row.shown[0]])
        return int((moved < 0).sum()), int((moved > 0).sum()), int((moved == 0).sum())

    @property
    def smallest(self) -> float:
        """The smallest change that so many questions show with probability .8, if as many answers change as here."""
        wrong, right, same = self.flips
        total = wrong + right + same
        return smallest_detectable(total, max(wrong + right, 1) / total)

    @cached_property
    def example(self) -> list[SampledPrompt]:
        """One question at both ends of the lead: of a loss one whose answer becomes wrong, else one that stays right.

        None of a model that guesses."""
        if not self.lead or self.verdicts[self.lead].why == GUESSING:
            return []
        probe, ends = PROBE_OF[self.lead], (self.rows[self.lead].shown[0], self.rows[self.lead].shown[-1])
        main = relevant_numbers(self.tables[probe])[0]
        by_question: dict[Any, dict[Any, SampledPrompt]] = {}
        for prompt in sorted((one for one in self.prompts if one.probe == probe), key=_along):
            asked = prompt.condition
            end = asked.get("examples", asked.get("masks"))
            if end in ends and asked.get("relevant", main) == main and "shots" not in asked:
                by_question.setdefault((prompt.task, prompt.point), {}).setdefault(end, prompt)
        pairs = [[*own.values()] for own in by_question.values() if len(own) == 2]
        stays = self.verdicts[self.lead].word != LOSS
        return max(pairs, key=lambda p: (p[1].correct == (p[0].correct == stays), p[0].correct), default=[])

    @property
    def why_this(self) -> str:
        (first, last), word = self.example, self.verdicts[self.lead].word
        if first.correct != last.correct:
            return "chosen because it flips" if word == LOSS else "this one flips"
        return {LOSS: "none here flips", rule.NONE: "no loss: this one stays"}.get(word, "this one stays")

    @property
    def name(self) -> str:
        return shlex.quote(one_line(self.manifest.model.name))

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
        found += [("masks", one) for one in self.few or ()]
        found += [] if self.beyond_stops is None else [("stops", self.beyond_stops)]
        return found + [("together", one) for one in self.together or ()]

    @property
    def numbers(self) -> dict[str, str]:
        """The one number of each row: `-23.4 (-28.9 to -18.0)`."""
        changes = {key: row.change for key, row in self.rows.items()}
        changes |= {} if self.together is None else {"together": self.together[0]}
        return {key: f"{one.text(one.value)}{one.brackets()}" for key, one in changes.items()}

    @property
    def advice(self) -> list[tuple[str, str]]:
        """(command, why it is named), which answer the lead."""
        return list(_advice(self)) if self.lead else []


def finding_of(found: Screen) -> str:
    """What the run found of its lead, in a sentence."""
    if not found.lead:
        return "this run asked nothing of the first screen: see its estimates"
    said: str = environment().get_template("finding.jinja").module.sentence(found)  # type: ignore[attr-defined]
    return " ".join(said.split())


def _advice(found: Screen) -> Iterator[tuple[str, str]]:
    lead, name, model = found.verdicts[found.lead], found.name, found.manifest.model
    own = [(f"maskwise diagnose {name} --data FILE", "asks your own questions, in one pass and decoded")]
    own = [] if OWN_TASK in found.tables else own
    if model.tuned and found.lead == "masks":
        yield f"maskwise compare {shlex.quote(one_line(model.tuned))} {name}", "shows what tuning changed"
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
        yield f"maskwise diagnose {name} --questions {each}", "asks enough questions to show a change of 10 points"
    if lead.word == LOSS and found.lead == "masks":
        yield f"maskwise diagnose {name} --probes mitigations", "measures what each way out gives back"
        if found.few is not None and found.few[1].side < 0:
            cost = f"{found.few[0].text(found.few[0].value)} points{found.few[0].brackets()}"
            count = found.rows["masks"].shown[1]
            why = f"shows the model few masks at a time; {count} of them change its accuracy by {cost}"
            yield f"maskwise generate {name} --canvas growing", why
        yield from own
        can_tune = model.mask_id is not None and not model.block and not model.tuned
        if can_tune and lead.why != rule.ANY_TEXT:
            why = f"trains it to answer alike however many masks follow; then: maskwise compare {name} TUNED"
            yield f"maskwise tune {name} --data FILE", why
        return
    if found.verdicts.get("distance", Verdict("")).word == LOSS:
        yield "", "Put what decides next to the question: an example far from it is used less."
    yield from own


def _rows(tables: Tables) -> Iterator[tuple[str, Row]]:
    def main(probe: str) -> Table:
        table = tables[probe]
        return of_relevant(table, relevant_numbers(table)[0], True)

    if len(tables.get(MASKS, ())) and len(masks := few_shots(main(MASKS))):
        right = wide(masks, "masks")
        most = max(right, default=0)
        few = [k for k in right if k in SHOWN and k < most]
        named = "accuracy with {} masks", "change of accuracy with {} masks instead of {}"
        yield "masks", Row(right, (*few, most), *named)
    if len(tables.get(FILLER, ())):  # format A, as in the paper: they follow the closed answer
        table = main(FILLER)
        right = wide(table[table.format == "A"], "fillers")
        ends = tuple(sorted({min(right, default=0), max(right, default=0)}))
        after = "{} full stops after the closed answer"
        yield "stops", Row(right, ends, f"accuracy with {after}", f"change of accuracy with {after}")
    if len(tables.get(CONTRAST, ())):  # under the fewest masks from 2
        table = tables[CONTRAST]
        same = table[table.masks == (2 if 2 in set(table.masks) else table.masks.min())]
        right = wide(of_questions(same, BY, RULES, in_full=True), "examples")
        named = "accuracy with the example {}", "change of accuracy with the example {} instead of {}"
        yield (
            "distance",
            Row(right, tuple(where for where in ("near", "far") if where in right), *named, wide(same, "examples")),
        )


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
        start = f"{name:<12}{at:>9}  {levels + ' %':<19}  {one.text(one.value):>6}{one.brackets(tasks=True)}"
        verdict = str(found.verdicts[key])
        lines += [f"{start}  {verdict}"] if len(start) + len(verdict) + 2 <= width else [start, f"{'':<14}{verdict}"]
        stated = found.stated.get((PROBE_OF[key], one.name))
        lines += [] if stated is None else [f"{'':<14}{stated}"]
    if any(row.change.tasks_low is not None for row in found.rows.values()):
        lines.append("The interval over questions decides the verdict; over tasks: how it would be with other tasks.")
    if found.together is not None:
        near, far = found.together
        shared = f"neighbours share {near.text(near.value)} nats{near.brackets()}, {far.name} {far.text(far.value)}"
        lines.append(f"at once     {shared}: {FILL[found.verdicts['together'].word]}")
        lines.append(f"{'':<12}0 nats: independent; the more nats, the more choosing one changes the other")
    if found.lead:
        wrong, right, same = found.flips
        asked = f"{found.rows[found.lead].change.n:,} questions, {counted(found.tasks, 'task')}"
        lines.append(f"{asked}, guessing {CHANCE:.0%}.")
        lines[-1] += f" Of {wrong + right + same:,} answers {wrong} became wrong, {right} right, {same} did not change."
    lines += [f" {line}" for line in _example_lines(found)]
    lines += own_lines(found.tables)
    lines += [f"do {n}: {command}{'  # ' if command else ''}{why}" for n, (command, why) in enumerate(found.advice, 1)]
    return lines


def question_of(prompt: SampledPrompt) -> str:
    """The asked row of a prompt, without its context: the last line before the answer."""
    text = "".join(prompt.tokens[: prompt.row]).rstrip()
    return next((line for line in reversed(text.splitlines()) if any(f"({a})" in line for a in LETTERS)), text[-80:])


def end_of(prompt: SampledPrompt) -> str:
    """`200 masks`, or the place of the example."""
    examples = prompt.condition.get("examples")
    return f"the example {examples}" if examples else f"{prompt.condition.get('masks')} masks"


def _example_lines(found: Screen) -> Iterator[str]:
    if not found.example:
        return
    yield f"one question ({found.why_this}): {question_of(found.example[0])}"
    for prompt in found.example:
        shares = sorted(letters_of(prompt), key=lambda one: -one[1])
        said = ", ".join(f"{letter} {chance:.0%}" for letter, chance in shares if chance >= 0.005)
        yield f"{end_of(prompt)}: {said} ({'right' if prompt.correct else f'wrong, right is {prompt.answer}'})"
