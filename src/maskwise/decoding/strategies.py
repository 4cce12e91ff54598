"""Unmasking strategies as values: which tokens a step commits. LLaDA calls this `remasking`, Dream `alg`.

This file lists names, parameters and papers without torch; the tensor functions are in rules.py and are imported when
a strategy is first used. To add a strategy, write its function and a `Strategy` value, in any module, and pass the
value as `rule=` to `mw.generate`; one more line in STRATEGIES makes it known by name everywhere.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maskwise.support.errors import UserError
from maskwise.support.imports import imported
from maskwise.support.nearest import did_you_mean

if TYPE_CHECKING:
    from maskwise.decoding.state import Choice, Parameters, Rows, State

Pick = Callable[["Rows", "State", "Parameters"], "Choice"]
Counts = Callable[[int, int, "Parameters"], list[int]]
Times = Callable[[int, "Parameters"], list[float]]


@dataclass(frozen=True)
class Parameter:
    """A number that tunes a strategy. None is negative: outside its range a strategy would leave masks unfilled."""

    name: str
    default: float
    largest: float = sys.float_info.max
    published: str = ""  # what the authors' code calls it, where that is another name

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.published) if self.published else (self.name,)

    def check(self, value: float, strategy: str) -> None:
        if not 0 <= value <= self.largest:
            within = "a number, 0 or more" if self.largest == sys.float_info.max else f"between 0 and {self.largest:g}"
            raise UserError(f"{self.name} of the strategy {strategy} is {value}: it must be {within}")


@dataclass(frozen=True)
class Strategy:
    """An unmasking strategy and what it needs. Functions are given as such or as "module:name".

    pick_function(rows, state, parameters) says which rows a step commits; see rules.py for the types and shapes.
    count_function(masks, steps, parameters) gives the number of rows each step commits. time_function(steps,
    parameters) gives the noise levels of a strategy that decides each row by a random draw of its own. A strategy with
    neither is adaptive: it decides itself how many rows to commit, and ends when no mask is left.
    """

    name: str
    title: str  # which tokens a step commits, in one line
    pick_function: str | Pick
    count_function: str | Counts | None = None
    time_function: str | Times | None = None
    parameters: tuple[Parameter, ...] = ()
    paper: str = ""  # authors, title, arXiv number; empty where no paper introduces it
    draws: bool = False  # does it need random numbers of its own
    filtered: bool = False  # does it judge by the distribution after temperature, top-k and top-p, as Dream does

    @property
    def pick(self) -> Pick:
        return _function(self.pick_function)

    @property
    def counts(self) -> Counts | None:
        return None if self.count_function is None else _function(self.count_function)

    @property
    def times(self) -> Times | None:
        return None if self.time_function is None else _function(self.time_function)

    @property
    def adaptive(self) -> bool:
        return self.count_function is None and self.time_function is None

    def complete(self, given: "Parameters | None") -> dict[str, float]:
        """The given parameters, by our names or the published ones, checked, and the defaults of the others."""
        known = {name: parameter for parameter in self.parameters for name in parameter.names}
        found = {parameter.name: parameter.default for parameter in self.parameters}
        for name, value in (given or {}).items():
            if name not in known:
                raise UserError(f"the strategy {self.name} has no parameter {name!r}{did_you_mean(name, known)}")
            known[name].check(value, self.name)
            found[known[name].name] = value
        return found


def _function(reference: Any) -> Any:
    return imported(reference) if isinstance(reference, str) else reference


_LLADA = "Nie et al., Large Language Diffusion Models, arXiv 2502.09992"
_DREAM = "Ye et al., Dream 7B: Diffusion Large Language Models, arXiv 2508.15487"
_MARGIN = "Kim et al., Train for the Worst, Plan for the Best, arXiv 2502.06768"
_FAST_DLLM = "Wu et al., Fast-dLLM, arXiv 2505.22618"
_EB_SAMPLER = (
    "Ben-Hamu et al., Accelerated Sampling from Masked Diffusion Models via Entropy Bounded Unmasking, arXiv 2505.24857"
)
_KLASS = "Kim et al., KLASS: KL-Guided Fast Inference in Masked Diffusion Models, arXiv 2511.05664"
_REMDM = "Wang et al., Remasking Discrete Diffusion Models with Inference-Time Scaling, arXiv 2503.00307"

_RULES = "maskwise.decoding.rules"
_EVEN = f"{_RULES}:even_counts"
_DREAM_COUNTS = f"{_RULES}:dream_counts"
_DREAM_PARAMETERS = (Parameter("eps", 1e-3, 1), Parameter("alg_temp", 0.0))

STRATEGIES: tuple[Strategy, ...] = (
    Strategy("random", "tokens at random", f"{_RULES}:random", _EVEN, paper=_LLADA, draws=True),
    Strategy("low-confidence", "the most probable tokens", f"{_RULES}:low_confidence", _EVEN, paper=_LLADA),
    Strategy("margin", "the largest margin between the two best tokens", f"{_RULES}:margin", _EVEN, paper=_MARGIN),
    Strategy("entropy", "the smallest entropy", f"{_RULES}:certainty", _EVEN),
    Strategy("left-to-right", "the leftmost masks", f"{_RULES}:left_to_right", _EVEN),
    Strategy(
        "threshold", "every token with probability tau or more", f"{_RULES}:threshold",
        parameters=(Parameter("tau", 0.9, 1, "threshold"),), paper=_FAST_DLLM,
    ),
    Strategy(
        "factor", "the n most probable tokens, n by their confidence", f"{_RULES}:factor",
        parameters=(Parameter("f", 1.0, published="factor"),), paper=_FAST_DLLM,
    ),
    Strategy(
        "entropy-bound", "tokens in order of entropy, up to a bound of their sum", f"{_RULES}:entropy_bound",
        parameters=(Parameter("gamma", 0.1),), paper=_EB_SAMPLER,
    ),
    Strategy(
        "klass", "probable tokens whose prediction no longer changes", f"{_RULES}:klass",
        parameters=(Parameter("tau", 0.9, 1, "conf_threshold"), Parameter("eps", 0.01, 1, "kl_threshold")),
        paper=_KLASS,
    ),
    Strategy(
        "remdm", "each mask at random; committed tokens may be masked again", f"{_RULES}:remdm",
        time_function=f"{_RULES}:remdm_times", parameters=(Parameter("eta", 0.02, 1),), paper=_REMDM, draws=True,
    ),
    Strategy(
        "dream-origin", "each mask at random (Dream's alg origin)", f"{_RULES}:dream_origin",
        time_function=f"{_RULES}:dream_times", parameters=(Parameter("eps", 1e-3, 1),), paper=_DREAM,
        draws=True, filtered=True,
    ),
    Strategy(
        "dream-maskgit-plus", "the most probable tokens (Dream's alg maskgit_plus)", f"{_RULES}:dream_maskgit_plus",
        _DREAM_COUNTS, parameters=_DREAM_PARAMETERS, paper=_DREAM, draws=True, filtered=True,
    ),
    Strategy(
        "dream-topk-margin", "the largest margins (Dream's alg topk_margin)", f"{_RULES}:dream_topk_margin",
        _DREAM_COUNTS, parameters=_DREAM_PARAMETERS, paper=_DREAM, draws=True, filtered=True,
    ),
    Strategy(
        "dream-entropy", "the smallest entropies (Dream's alg entropy)", f"{_RULES}:dream_entropy",
        _DREAM_COUNTS, parameters=_DREAM_PARAMETERS, paper=_DREAM, draws=True, filtered=True,
    ),
)  # fmt: skip


def find_strategy(rule: str | Strategy, strategies: Sequence[Strategy] = STRATEGIES) -> Strategy:
    """The strategy of this name; a Strategy value is taken as it is."""
    if isinstance(rule, Strategy):
        return rule
    for strategy in strategies:
        if strategy.name == rule:
            return strategy
    raise UserError(f"unknown unmasking strategy {rule!r}{did_you_mean(rule, [one.name for one in strategies])}")


def strategy_named_by(parameters: "Parameters | None", rule: str | Strategy) -> str | Strategy:
    """The strategy of parameters that only one has, such as threshold or gamma, in place of one that has none.

    So `threshold=0.8` means Fast-dLLM's strategy, as it does in its authors' code, where the rule is left out.
    """
    if not parameters or find_strategy(rule).parameters:
        return rule
    having = [
        strategy
        for strategy in STRATEGIES
        if parameters.keys() <= {name for parameter in strategy.parameters for name in parameter.names}
    ]
    return having[0].name if len(having) == 1 else rule


def parse_parameters(settings: Sequence[str]) -> dict[str, float]:
    """["tau=0.8"] -> {"tau": 0.8}"""
    parameters = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            parameters[name] = float(value)
        except ValueError:
            raise UserError(f"{setting!r} is not a parameter and its value: write it like tau=0.8") from None
    return parameters
