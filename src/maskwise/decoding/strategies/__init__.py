"""Unmasking strategies: which tokens a step commits. LLaDA calls this `remasking`, Dream `alg`.

One file per method, with its values and functions. To add a strategy, write its file and its line here; a strategy
outside the package is passed as `rule=` to `mw.generate`. Nothing here imports torch before a strategy is used.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module

from maskwise.decoding.strategies.strategy import Parameter, Strategy
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean

__all__ = ["STRATEGIES", "Parameter", "Strategy", "find_strategy", "parse_parameters", "strategy_named_by"]

# In the order in which they are listed and compared.
_FILES = ["llada_remasking", "margin", "unpublished", "fast_dllm_parallel", "entropy_bound", "klass", "remdm"]
_MODULES = [import_module(f"{__name__}.{name}") for name in (*_FILES, "dream_alg")]
STRATEGIES: tuple[Strategy, ...] = tuple(strategy for module in _MODULES for strategy in module.STRATEGIES)


def find_strategy(rule: str | Strategy, strategies: Sequence[Strategy] = STRATEGIES) -> Strategy:
    """The strategy of this name; a Strategy value is taken as it is."""
    if isinstance(rule, Strategy):
        return rule
    by_name = {strategy.name: strategy for strategy in strategies}
    if (found := by_name.get(str(rule))) is None:
        raise UserError(f"unknown unmasking strategy {rule!r}{did_you_mean(str(rule), by_name)}")
    return found


def strategy_named_by(parameters: Mapping[str, float] | None, rule: str | Strategy) -> str | Strategy:
    """The strategy of parameters that only one has, such as threshold or gamma, in place of one that has none.
    So `threshold=0.8` means Fast-dLLM's strategy, as it does in its authors' code, where the rule is left out."""
    if not parameters or find_strategy(rule).parameters:
        return rule
    names = {one: {name for parameter in one.parameters for name in parameter.names} for one in STRATEGIES}
    having = [one for one in STRATEGIES if parameters.keys() <= names[one]]
    return having[0].name if len(having) == 1 else rule


def parse_parameters(settings: Sequence[str]) -> dict[str, float]:
    """["tau=0.8"] -> {"tau": 0.8}"""
    parameters = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name in parameters:
            raise UserError(f"parameter {name} is given twice: leave one out")
        try:
            parameters[name] = float(value)
        except ValueError:
            raise UserError(f"{setting!r} is not a parameter and its value: write it like tau=0.8") from None
    return parameters
