"""Coherence: what does speed cost if tokens depend on each other?

    Copy: fig oak tin hat    Copied: ? ? ? ?

Copy four words; replace any one of them by a given word; shuffle them. Tokens are drawn (temperature 1) under every
unmasking strategy, one, two or four per step, or from slow to fast. Does what was drawn together fit together?

`ideal` is what exact marginals reach under the same strategy at that speed. The gap to it is what the model does not
know; the fall of `ideal` is what parallel drawing loses whatever the model knows: four at once solve shuffle with
4!/4^4 = 9 % and replace with (3/4)^3 = 42 %, while copy has no dependent tokens and loses nothing. These closed forms
hold for strategies that look at no drawn token, and only these count in the estimates. One figure shows the strategy
random, the other the area under accuracy against speed of each strategy.

Not in the paper (the claim is that of arXiv 2510.03289).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from msgspec import UnsetType

from maskwise.probes.paces import ITEMS, paces
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import QUESTION, SHARE, TOKENS, Estimate, change, curve, share, without_skill
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import NAMES, Name, PuzzlePrompt, one_token_words
from maskwise.tasks.word_puzzles import ask as draw_puzzle
from maskwise.tasks.words import Words

NAME = "coherence"
BY = ["puzzle", "rule", "speed"]
MEASURED = ("tokens_per_pass", "ideal", "ideal_speed")
LITTLE = 0.1  # of the puzzles, lost by copy
LEAST_SOLVED = 0.2  # of the puzzles, one token per step: below it there is nothing that speed could cost
BLIND = ("random", "margin", "entropy", "left-to-right")  # strategies that look at no drawn token: closed forms hold
DECODING_COST = 4


def ask(setup: Setup, puzzles: int = 30) -> Iterator[Questions]:
    from maskwise.probes.answers.puzzles import solve

    seed = setup.settings.seed
    try:
        drawn = draw_puzzles(setup.asker.tokenizer, setup.asker.mask, setup.words, puzzles, seed)
    except UserError as problem:
        setup.note(f"{NAME} was not run: {problem}")
        return
    for name, asked in drawn.items():

        def prompt(point: int, condition: Mapping[str, Any], asked=asked) -> Prompt:
            one = asked[point]
            return Prompt(one.ids, len(one.ids) - ITEMS, one.puzzle.items[0], ITEMS)

        def answer(point: int, asked=asked) -> str:
            return str(setup.asker.tokenizer.decode(min(asked[point].puzzle.answers)).strip())

        source = Points(name, range(puzzles))
        for pace in paces():
            solved = partial(solve, name=name, pace=pace, puzzles=asked, seed=seed)
            yield Questions(source, [{"puzzle": name, **pace.condition}], prompt, answer, solved, DECODING_COST)


def draw_puzzles(tokenizer: Any, mask_id: int, words: Words, count: int, seed: int) -> dict[Name, list[PuzzlePrompt]]:
    """`count` puzzles of each task, in words that are one token each."""
    short = one_token_words(tokenizer, sorted({word for listed in words.values() for word in listed}))
    return {
        name: [draw_puzzle(tokenizer, mask_id, name, ITEMS, short, seed * 10_000 + number) for number in range(count)]
        for name in NAMES
    }


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Of each puzzle, the change from one token per step to all in one step, and what is solved one by one."""
    solved = table[table.rule.isin(BLIND)].pivot_table("correct", QUESTION, "speed", observed=True).dropna()
    asked = sorted(solved, key=lambda speed: int(speed.split()[0]))
    if len(asked) < 2:  # an unfinished run
        return []
    slow, fast = asked[0], asked[-1]
    costs, skills = [], []
    for puzzle in reversed(NAMES):
        own = solved[solved.index.get_level_values("task") == puzzle]
        claim: dict[str, Any] = {"against": -LITTLE, "claim": "above"} if puzzle == "copy" else {"claim": "below"}
        cost = change(f"change of {puzzle} puzzles solved, {fast} instead of {slow}", own[fast], own[slow], **claim)
        skill = share(f"{puzzle} puzzles solved, {slow}", own[slow])
        costs.append(cost if (skill.value or 0.0) >= LEAST_SOLVED else without_skill(cost, "hardly any is solved"))
        skills.append(skill)
    return costs + skills


def speeds(table: Table, others: Tables) -> Table:
    """Puzzles solved and tokens per forward pass under each strategy at each speed, and those of perfect marginals.

    Tokens per pass are averaged as passes: twice as fast on half the puzzles is not twice as fast overall."""
    table = table.reindex(columns=[*dict.fromkeys((*table, *MEASURED))])
    listed = curve(table.assign(passes=1 / table.tokens_per_pass), BY, {"correct": SHARE, "passes": TOKENS})
    solved, passes = (listed[listed.measure == measure].set_index(BY) for measure in ("correct", "passes"))
    pace = 1 / passes[["value", "high", "low"]].astype(float).where(lambda ends: ends > 0)
    pace.columns = ["tokens_per_pass", "tokens_per_pass_low", "tokens_per_pass_high"]
    perfect = table.groupby(BY, observed=True)[["ideal", "ideal_speed"]].first()
    return solved.join(pace).join(perfect).reset_index()


def random_order(table: Table, others: Tables) -> Table:
    """Of the strategy random, and as further series what perfect marginals reach."""
    import pandas as pd

    drawn = speeds(table, others).query("rule == 'random'")
    perfect = drawn.drop(columns="tokens_per_pass").rename(columns={"ideal_speed": "tokens_per_pass"})
    perfect = perfect.assign(puzzle=drawn.puzzle + ", perfect", value=drawn.ideal, low=float("nan"), high=float("nan"))
    return pd.concat([drawn, perfect], ignore_index=True)


def areas(table: Table, others: Tables) -> Table:
    """The area under accuracy against tokens per forward pass of each strategy, and that of perfect marginals."""
    import pandas as pd

    rows = [
        {"puzzle": puzzle, "rule": rule, "value": aup(zip(own.tokens_per_pass, own.value, strict=True))}
        | {"low": None, "high": None, "n": own.n.min(), "ideal": aup(zip(own.ideal_speed, own.ideal, strict=True))}
        for (puzzle, rule), own in speeds(table, others).groupby(["puzzle", "rule"], sort=False)
    ]
    return pd.DataFrame(rows)


def aup(points: Sequence[tuple[float, float]] | Iterator[tuple[float, float]], fastest: float = ITEMS) -> float:
    """Area under accuracy against tokens per forward pass t, from t = 1 to `fastest`, divided by its width.

    points are (t, accuracy). Between them the line is straight; left of the slowest it is level; right of the fastest
    it is 0, for nothing that fast was measured. Of several points at one speed the best counts. 1 is: always right, at
    any speed.
    """
    line = sorted(dict(sorted(points)).items())  # of equal speeds the last, which is the best, stays
    area = max(0.0, line[0][0] - 1) * line[0][1]
    area += sum((u - t) * (a + b) / 2 for (t, a), (u, b) in pairwise(line))
    return area / (fastest - 1)


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(random_order, "tokens_per_pass", "Tokens per forward pass", "Puzzles solved", series="puzzle"),
        Figure(areas, "rule", "Strategy", "Area under puzzles solved", series="puzzle", unit="", kind="points"),
    ],
    condition={"puzzle": str, "rule": str, "speed": str},
    evidence=dict.fromkeys(MEASURED, float | UnsetType),
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"puzzles": 6}},
)
