"""The rules of the few-shot training documents: which there are, which are held out, how often each is drawn."""

from collections import Counter
from itertools import combinations

import numpy as np
import numpy.typing as npt

from maskwise.tasks.rules import CAPITALISED, WORD_RULES, WordRule
from maskwise.tasks.words import Words

Array = npt.NDArray[np.int64]

LARGEST = 1000
NUMBER_RULES = ("smallest", "largest", "middle", "even", "odd")
POOL_SIZES = (1, 2, 3)
RANKS = (0, 2, 1, -1, -1)  # of the right number among the three, where the rule is about size


def training_rules(words: Words) -> list[WordRule]:
    """Every target category with 1 to 3 others as its pool, and capitals in 1 to 3 categories, less the evaluated."""
    categories = sorted(words)
    plain = [category for category in categories if words[category][0].islower()]
    rules = [
        WordRule(target, (target,), pool)
        for target in categories
        for size in POOL_SIZES
        for pool in combinations([other for other in categories if other != target], size)
    ]
    cased = [WordRule(CAPITALISED, group, group, True) for size in POOL_SIZES for group in combinations(plain, size)]
    return [rule for rule in rules + cased if rule_key(rule) not in EVALUATED]


def rule_key(rule: WordRule) -> tuple[bool, frozenset[str], frozenset[str]]:
    return rule.name == CAPITALISED, frozenset(rule.target), frozenset(rule.pool)


EVALUATED = frozenset(rule_key(rule) for rule in WORD_RULES)


def rule_odds(rules: list[WordRule], largest_pool: int) -> npt.NDArray[np.float64]:
    """Probability of each rule: every target as likely as another, capitals twice, and every size of pool alike."""
    groups = Counter((rule.name, len(rule.pool)) for rule in rules)
    odds = np.array([(1 + (rule.name == CAPITALISED)) / groups[rule.name, len(rule.pool)] for rule in rules])
    odds *= [len(rule.pool) <= largest_pool for rule in rules]
    return odds / odds.sum()


def number_options(rule: Array, draws: np.random.Generator) -> Array:
    """Three different numbers of 1..1000 a question, the right one by NUMBER_RULES[rule] first. [n] -> [n, 3]."""
    ordered = np.sort(draws.integers(1, LARGEST - 1, (len(rule), 3)), axis=1) + np.arange(3)
    rank = np.take(RANKS, rule)
    by_size = np.take_along_axis(ordered, (rank[:, None] + np.arange(3)) % 3, axis=1)
    halves = np.sort(draws.integers(1, LARGEST // 2 - 1, (len(rule), 3)), axis=1) + np.arange(3)
    # Doubled they are even and different; less one, odd: the right one is of one parity and the others of the other.
    right_is_even = rule == NUMBER_RULES.index("even")
    parity = np.stack([~right_is_even, right_is_even, right_is_even], axis=1)
    by_parity = draws.permuted(2 * halves, axis=1) - parity
    options = np.where((rank >= 0)[:, None], by_size, by_parity)
    swap = draws.random(len(rule)) < 0.5
    options[swap, 1:] = options[swap, :0:-1]
    return options
