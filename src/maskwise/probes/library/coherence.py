"""coherence: what decoding many tokens at once costs: copy, replace, shuffle under every strategy, at several speeds.

Tokens are sampled (temperature 1), as the closed forms of `tasks.word_puzzles` assume; `ideal` is the accuracy a
model with perfect marginals has under the same strategy and speed. Speed is tokens per forward pass.
Condition: {"puzzle": "copy", "rule": "random", "speed": "2 a step"}; the tasks are the puzzles; evidence
{"tokens_per_pass", "ideal", "ideal_speed"}.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType, structs

from maskwise.probes.evidence import evidence_means
from maskwise.probes.paces import ITEMS, Pace, paces
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, ItemMaker, Probe, Setup, Unit, items_of, units_of
from maskwise.probes.section import Entry, Measure, Point, Section, Shown, Summary, TextTable
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.claims import Claim, by_point, judged
from maskwise.scoring.intervals import Estimate, mean_over_tasks
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import NAMES, Name, PuzzlePrompt, ask, one_token_words
from maskwise.tasks.words import Words

NAME = "coherence"
SPEED = "tokens_per_pass"
LITTLE = 0.1  # of the puzzles
COSTLY = "all in one step solves less than one token a step"
LEAST_SOLVED = 0.2  # of puzzles one token per step: below it there is nothing that speed could cost
BLIND = ("random", "margin", "entropy", "left-to-right")  # strategies that look at no drawn token: closed forms hold
SHOWN = "random"  # its choice of places cannot depend on what is drawn, so the closed forms hold for it
DECODING_COST = 4


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.puzzles import solve

    tokenizer, mask_id, seed = setup.asker.tokenizer, setup.asker.mask, setup.settings.seed
    try:
        puzzles = draw_puzzles(tokenizer, mask_id, setup.words, setup.own["puzzles"], seed)
    except UserError as problem:
        setup.note(f"{NAME} was not run: {problem}")
        return
    for name in NAMES:
        for pace in paces():
            items = puzzle_items(tokenizer, name, puzzles[name], pace)
            answer = partial(solve, name=name, pace=pace, puzzles=puzzles[name], seed=seed)
            yield from units_of(len(puzzles[name]), 1, items, answer, DECODING_COST)


def draw_puzzles(tokenizer: Any, mask_id: int, words: Words, count: int, seed: int) -> dict[Name, list[PuzzlePrompt]]:
    """`count` puzzles of each task, in words that are one token each."""
    short = one_token_words(tokenizer, sorted({word for listed in words.values() for word in listed}))
    return {
        name: [ask(tokenizer, mask_id, name, ITEMS, short, seed * 10_000 + number) for number in range(count)]
        for name in NAMES
    }


def puzzle_items(tokenizer: Any, name: Name, puzzles: Sequence[PuzzlePrompt], pace: Pace) -> ItemMaker:
    def made(point: int, _: Condition) -> tuple[Prompt, str]:
        asked = puzzles[point]
        right = tokenizer.decode(min(asked.puzzle.answers)).strip()
        return Prompt(asked.ids, len(asked.ids) - ITEMS, asked.puzzle.items[0], ITEMS), right

    return items_of(NAME, name, [{"puzzle": name, **pace.condition}], made)


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """An answer of many tokens, each of its own step, has no one confidence or entropy."""
    known = [(record.task, record.evidence[SPEED]) for record in group if SPEED in record.evidence]
    speeds = {} if not known else evidence_means(group) | Estimate.of(mean_speed(known)).named(SPEED)
    return [entry.changed(confidence=UNSET, entropy=UNSET, **speeds)]


def mean_speed(speeds: Sequence[tuple[str, float]]) -> tuple[float, float | None, float | None]:
    """Tokens per forward pass, averaged as passes: twice as fast on half the puzzles is not twice as fast overall."""
    passes, low, high = mean_over_tasks((task, 1 / speed) for task, speed in speeds)
    return 1 / passes, None if high is None else 1 / high, None if low is None or low <= 0 else 1 / low


def areas(records: Sequence[Record]) -> dict[str, dict[str, dict[str, float]]]:
    """{puzzle: {rule: {"aup", "ideal"}}}: what the model reached, and what perfect marginals would under the rule."""
    groups: dict[tuple[str, str], dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        condition = record.condition
        groups[condition["puzzle"], condition["rule"]][condition_text(condition)].append(record)
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for (puzzle, rule), by_speed in groups.items():
        reached, ideal = [], []
        for group in by_speed.values():
            speed, _, _ = mean_speed([(puzzle, record.evidence[SPEED]) for record in group])
            reached.append((speed, float(np.mean([record.correct for record in group]))))
            ideal.append((group[0]["evidence"]["ideal_speed"], group[0]["evidence"]["ideal"]))
        found[puzzle][rule] = {"aup": aup(reached), "ideal": aup(ideal)}
    return dict(found)


def aup(points: Sequence[tuple[float, float]], fastest: float = ITEMS) -> float:
    """Area under accuracy against tokens per forward pass t, from t = 1 to `fastest`, divided by its width.

    points are (t, accuracy). Between them the line is straight; left of the slowest it is level; right of the fastest
    it is 0, for nothing that fast was measured. Of several points at one speed the best counts. 1 is: always right, at
    any speed.
    """
    best: dict[float, float] = {}
    for speed, accuracy in points:
        best[speed] = max(accuracy, best.get(speed, 0.0))
    curve = sorted(best.items())
    area = max(0.0, curve[0][0] - 1) * curve[0][1]
    for (t, a), (u, b) in pairwise(curve):
        area += (u - t) * (a + b) / 2
    return area / (fastest - 1)


def claims(records: Sequence[Record]) -> list[Claim]:
    """Solved one token per step less solved all in one step, puzzle by puzzle, over the strategies in BLIND."""
    chosen = [record for record in records if record.condition["rule"] in BLIND]
    speeds = sorted({record.condition["speed"] for record in chosen}, key=lambda speed: int(speed.split()[0]))
    if len(speeds) < 2:  # an unfinished run
        return []
    slow, fast = speeds[0], speeds[-1]
    found = []
    for puzzle in dict.fromkeys(record.condition["puzzle"] for record in chosen):
        of_puzzle = [record for record in chosen if record.condition["puzzle"] == puzzle]
        points = by_point(of_puzzle, lambda record: record.condition["speed"], lambda record: record.correct)
        lost = [float(np.mean(by[slow]) - np.mean(by[fast])) for by in points if len(by) == len(speeds)]
        skill = float(np.mean([np.mean(by[slow]) for by in points if slow in by]))
        claim = _claim(puzzle, f"solved {slow} less {fast}", lost, skill >= LEAST_SOLVED)
        found.append(structs.replace(claim, skill=skill))
    return found


def _claim(puzzle: str, measure: str, lost: list[float], enough: bool) -> Claim:
    little = puzzle == "copy"
    words = "nothing is coupled, so one step costs little" if little else COSTLY
    claim = partial(judged, f"speed-{puzzle}", f"{puzzle}: {words}", measure, lost, "points", bounds=(-1, 1))
    return claim(nothing=LITTLE, asked=LITTLE, less=True, enough=enough) if little else claim(enough=enough)


def _points(shown: Shown) -> list[Point]:
    """One strategy, measured and ideal; the areas of all strategies are given in words."""
    entries = [entry for entry in shown.entries(NAME) if entry.condition["rule"] == SHOWN]
    measured = [Point(entry.condition["puzzle"], entry.measures[SPEED], entry) for entry in entries]
    return measured + [_ideal_point(entry, f"{entry.condition['puzzle']}, perfect") for entry in entries]


def _ideal_point(entry: Entry, name: str) -> Point:
    condition, ideal = entry.condition | {"puzzle": name}, entry.measures["ideal"]
    perfect = entry.changed(accuracy=ideal, low=None, high=None, condition=condition)
    return Point(name, entry.measures["ideal_speed"], perfect)


def _areas_in_words(shown: Shown) -> list[str]:
    """The three strategies with the most area under accuracy against speed and the one with the least, by puzzle."""

    def in_words(pair: tuple[str, dict[str, float]]) -> str:
        rule, area = pair
        return f"{rule} {area['aup']:.2f} (perfect: {area['ideal']:.2f})"

    lines = []
    for puzzle, rules in shown.summary.extras.get("aup", {}).items():
        if not any(area["aup"] for area in rules.values()):
            lines.append(f"{puzzle}: never solved, under any rule")
            continue
        ordered = sorted(rules.items(), key=lambda pair: -pair[1]["aup"])
        best = ", ".join(map(in_words, ordered[:3]))
        lines.append(f"{puzzle}: area under accuracy against speed {best}; least {in_words(ordered[-1])}")
    return lines


def _area_table(summary: Summary) -> list[TextTable]:
    by_puzzle = summary.extras.get("aup")
    if not by_puzzle:
        return []

    def cell(area: dict[str, float] | None) -> str:
        return f"{area['aup']:.2f} ({area['ideal']:.2f})" if area else ""

    rows = [(rule, *(cell(rules.get(rule)) for rules in by_puzzle.values())) for rule in next(iter(by_puzzle.values()))]
    return [TextTable("coherence: area under accuracy against speed (perfect)", ("rule", *by_puzzle), rows)]


PROBE = Probe(
    name=NAME,
    group="coherence",
    about="puzzles with dependent tokens, under every strategy",
    condition={"puzzle": str, "rule": str, "speed": str},
    evidence={"tokens_per_pass": float | UnsetType, "ideal": float | UnsetType, "ideal_speed": float | UnsetType},
    units=units,
    parameters={"puzzles": 30},
    quick={"puzzles": 6},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    measures=measures,
    chance=None,
    claims=claims,
    extras={"aup": areas},
    columns={},
    tables=_area_table,
    sections=(
        Section(
            title="What does speed cost if tokens depend on each other?",
            question="Copy four words; replace one of them; shuffle them. Tokens are drawn, one, two or four a step. "
            "Does what was drawn together fit together?",
            paper="Not in the paper; the tasks and their closed forms are standard: four at once solve shuffle with "
            "4!/4⁴ = 9 %, two a step with 3/8, and replace with (3/4)³ = 42 %.",
            how_to_read="“Perfect” is what exact marginals reach at that speed. The gap to it is what the model does "
            "not know; the fall of “perfect” is what parallel drawing loses whatever the model knows. Drawn: the rule "
            "random.",
            x_label="Tokens per forward pass",
            at="{} tokens a pass",
            points=_points,
            measures=(Measure("accuracy", "Puzzles solved"),),
            caption="Line: share of puzzles solved; band: 95 % interval.",
            says=_areas_in_words,
            claims=("speed-copy", "speed-replace", "speed-shuffle"),
        ),
    ),
)
