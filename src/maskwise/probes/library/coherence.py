"""Coherence: what does speed cost if tokens depend on each other?

    Copy: fig oak tin hat    Copied: ? ? ? ?

Copy four words; replace any one of them by a given word; shuffle them. Tokens are drawn (temperature 1), one, two or
four per step, under every unmasking strategy that commits so many. Does what was drawn together fit together?

`perfect` is what exact marginals reach at that speed. The gap to it is what the model does not know; the fall of
`perfect` is what parallel drawing loses whatever the model knows: four at once solve shuffle with 4!/4^4 = 9 % and
replace with (3/4)^3 = 42 %, while copy has no dependent tokens and loses nothing. These closed forms hold for
strategies that look at no drawn token, and only these count in the estimates. One figure shows the strategy random, the
other every strategy.

Not in the paper (the claim is that of arXiv 2510.03289).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from maskwise.decoding.strategies import STRATEGIES
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import DECODING_COST, Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import QUESTION, SHARE, Estimate, change, curve, share, without_skill
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import NAMES, Name, PuzzlePrompt, one_token_words
from maskwise.tasks.word_puzzles import ask as draw_puzzle
from maskwise.tasks.words import Words

NAME = "coherence"
ITEMS = 4  # words in a puzzle
SPEEDS = {f"{tokens} a step": tokens for tokens in (1, 2, 4)}
PERFECT = {"copy": (1.0, 1.0, 1.0), "replace": (1.0, 21 / 32, 27 / 64), "shuffle": (1.0, 3 / 8, 3 / 32)}  # at SPEEDS
LITTLE = 0.1  # of the puzzles, lost by copy
LEAST_SOLVED = 0.2  # of the puzzles, one token per step: below it there is nothing that speed could cost
BLIND = ("random", "margin", "entropy", "left-to-right")  # strategies that look at no drawn token: closed forms hold


def ask(setup: Setup, puzzles: int = 30) -> Iterator[Questions]:
    from maskwise.probes.answers.decoded import solve

    seed = setup.settings.seed
    try:
        drawn = draw_puzzles(setup.asker.tokenizer, setup.asker.mask, setup.words, puzzles, seed)
    except UserError as problem:
        setup.note(f"{NAME} was not run: {problem}")
        return
    rules = [strategy.name for strategy in STRATEGIES if not strategy.adaptive]
    for name, asked in drawn.items():

        def prompt(point: int, condition: Mapping[str, Any], asked=asked) -> Prompt:
            one = asked[point]
            return Prompt(one.ids, len(one.ids) - ITEMS, one.puzzle.items[0], ITEMS)

        def answer(point: int, asked=asked) -> str:
            return str(setup.asker.tokenizer.decode(min(asked[point].puzzle.answers)).strip())

        source = Points(name, range(puzzles))
        for rule, (speed, tokens) in product(rules, SPEEDS.items()):
            solved = partial(solve, rule=rule, tokens=tokens, puzzles=asked, seed=seed)
            condition = {"puzzle": name, "rule": rule, "speed": speed}
            passes = ITEMS // tokens
            yield Questions(source, [condition], prompt, answer, solved, DECODING_COST, passes=passes)


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


def by_speed(table: Table, others: Tables) -> Table:
    """Of the strategy random, and as further series what perfect marginals reach."""
    import pandas as pd

    drawn = curve(table[table.rule == "random"], ["puzzle", "speed"], {"correct": SHARE})
    if drawn.empty:  # an unfinished run
        return drawn
    drawn = drawn.assign(tokens=drawn.speed.map(SPEEDS))
    perfect = [
        {"puzzle": f"{name}, perfect", "tokens": tokens, "value": value, "low": None, "high": None, "unit": SHARE}
        for name, values in PERFECT.items()
        for tokens, value in zip(SPEEDS.values(), values, strict=True)
    ]
    return pd.concat([drawn.drop(columns="speed"), pd.DataFrame(perfect)], ignore_index=True)


def by_rule(table: Table, others: Tables) -> Table:
    return curve(table[table.speed.isin(SPEEDS)], ["puzzle", "rule", "speed"], {"correct": SHARE})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(by_speed, "tokens", "Tokens per step", "Puzzles solved", series="puzzle"),
        Figure(by_rule, "rule", "Strategy", "Puzzles solved", series="speed", panel="puzzle", kind="points"),
    ],
    condition={"puzzle": str, "rule": str, "speed": str},
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"puzzles": 6}},
)
