"""Settings that should not matter: each differs from the float32 reference in one thing, or is drawn at random.

Related: arXiv 2604.13413, on the numerical noise of evaluations. No torch.
"""

from dataclasses import dataclass

from maskwise.support.randomness import python_random

FLOAT32, BFLOAT16, FLOAT16 = "float32", "bfloat16", "float16"
EMULATED = ", emulated"  # after the name of a dtype: computed in float32 with rounded results
ONE_PASS, GENERATIONS = "one pass", "generations"
REFERENCE, EXACT, REPEATED = "reference", "exact", "repeated"
BATCH, ORDER, ATTENTION, CACHE, COMPILED, WEIGHTS = "batch", "order", "attention", "cache", "compiled", "weights"
AGAIN = "again"  # the same requests to a model that gives text alone
SUMS_ONLY = (BATCH, ORDER, ATTENTION, CACHE, COMPILED)  # float32 settings that change the order of sums alone
# Of the figure, from what changes the order of sums to what changes the numbers.
SINGLE = (*SUMS_ONLY, BFLOAT16, FLOAT16, WEIGHTS, AGAIN)
IN_WORDS = {
    BATCH: "one question at a time",
    ORDER: "questions in reversed order",
    ATTENTION: "plain attention",
    CACHE: "cache refreshed at every step",
    COMPILED: "compiled layers",
    BFLOAT16: "bfloat16",
    FLOAT16: "float16",
    WEIGHTS: "quantised weights",
    AGAIN: "the same requests again",
}


@dataclass(frozen=True)
class NumericSetting:
    """How the same questions are asked. order: 0 as given, 1 reversed, else the seed of a permutation.

    sizes: the batches have random sizes, drawn with the order. plain: attention without fused kernels.
    """

    name: str
    dtype: str = FLOAT32
    one_at_a_time: bool = False
    order: int = 0
    sizes: bool = False
    plain: bool = False
    compiled: bool = False
    cache: bool = False
    weights: bool = False


@dataclass(frozen=True)
class Machine:
    """What decides which settings there are: the model's own dtype, and what the device can do."""

    dtype: str
    compiles: bool = False
    weights: str | None = None

    @property
    def half(self) -> str:
        """The dtype of the repeated runs: the model's own, bfloat16 where that is float32."""
        return BFLOAT16 if self.dtype == FLOAT32 else self.dtype


def single_settings(machine: Machine, generated: bool) -> list[NumericSetting]:
    """The reference, what differs from it in one thing, and the deterministic path (`--exact`) twice."""
    found = [
        NumericSetting(REFERENCE),
        NumericSetting(BATCH, one_at_a_time=True),
        NumericSetting(ORDER, order=1),
        NumericSetting(ATTENTION, plain=True),
        *([NumericSetting(CACHE, cache=True)] if generated else []),
        *([NumericSetting(COMPILED, compiled=True)] if machine.compiles else []),
        NumericSetting(BFLOAT16, BFLOAT16),
        NumericSetting(FLOAT16, FLOAT16),
        *([NumericSetting(WEIGHTS, machine.dtype, weights=True)] if machine.weights else []),
    ]
    exact = NumericSetting(EXACT, machine.dtype, one_at_a_time=True)
    first = [] if machine.dtype == FLOAT32 else [exact]  # in float32 it is the setting `batch`
    return [*found, *first, NumericSetting(REPEATED, machine.dtype, one_at_a_time=True, order=1)]


def drawn_settings(machine: Machine, draws: int, seed: int, generated: bool) -> list[NumericSetting]:
    """Repeated runs in half precision, each with an order, batches and an attention drawn at random."""
    random, found = python_random("numerics", seed), []
    for number in range(1, draws + 1):
        plain = random.random() < 0.5
        cache = generated and random.random() < 0.5
        found.append(
            NumericSetting(f"draw {number}", machine.half, order=2 + number, sizes=True, plain=plain, cache=cache)
        )
    return found


def compared_with(setting: str, asked: frozenset[str]) -> str:
    """The setting that another is compared with: the reference, or the first run of the deterministic path."""
    if setting == REPEATED:
        return EXACT if EXACT in asked else BATCH
    return REFERENCE


def every_numeric_setting(machine: Machine, draws: int, seed: int, generated: bool) -> list[NumericSetting]:
    return [*single_settings(machine, generated), *drawn_settings(machine, draws, seed, generated)]


def where_run(dtype: str) -> str:
    emulated = " (a CPU: emulated)" if dtype.endswith(EMULATED) else ""
    return f"in {dtype.removesuffix(EMULATED)} on this machine{emulated}"
