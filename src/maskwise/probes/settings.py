"""What a run asks: every number of it in one frozen object, and the three presets."""

from dataclasses import dataclass, replace

from maskwise.errors import UserError
from maskwise.probes import masks, position
from maskwise.probes.variants import Variant
from maskwise.tasks.prompts import Place
from maskwise.tasks.rules import TASKS

PROBES = (
    "location",
    "question-position",
    "mask-count",
    "filler",
    "context-length",
    "location-masks",
    "natural-text",
)
# Asked for by name or by --full; the paper's number 9, tuning, needs two models: `maskwise compare`.
MORE_PROBES = (
    "attribution",
    "mask-attribution",
    "attention",
    "unmasking",
    "few-steps",
    "shots-masks",
    "hotpotqa",
    "points",
    "labelled-text",
    "nelbo",
)
# The second paper's questions: distant masks, coupled tokens, decoding order; asked for by name or by --full.
COHERENCE_PROBES = ("marginals", "total-correlation", "order", "coherence")
EVERY_PROBE = PROBES + MORE_PROBES + COHERENCE_PROBES
# Why a probe is left out for a model that reads from left to right and has no mask token.
NOT_CAUSAL = {
    "question-position": "an autoregressive model reads only what stands before the question, so it is always last",
    "mask-count": "an autoregressive model has no mask token",
    "filler": "an autoregressive model never sees what follows its answer",
    "location-masks": "an autoregressive model has no mask token",
    "mask-attribution": "an autoregressive model has no mask token",
    "unmasking": "an autoregressive model has no mask token",
    "few-steps": "an autoregressive model has no mask token",
    "shots-masks": "an autoregressive model has no mask token",
    **{probe: "an autoregressive model has no mask token" for probe in COHERENCE_PROBES},
}


@dataclass(frozen=True)
class Evidence:
    """The numbers of the probes in MORE_PROBES; none asks more than `Settings.points` points a task,
    nelbo `Settings.passages`."""

    orderings: int = 30
    questions: int = 20
    masks: int = 50
    near: int = 50
    unmasking_steps: int = 40
    few_steps: tuple[int, ...] = (2, 4, 6)
    step_masks: tuple[int, ...] = (2, 10, 20, 50, 100, 200)
    step_points: int = 100
    shots: tuple[int, ...] = (5, 25)
    shot_masks: tuple[int, ...] = (1, 200)
    clouds: int = 5
    cloud_examples: int = 100
    cloud_points: int = 1000
    data_shots: int = 8
    data_shares: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2)
    longest_prompt: int = 1000
    nelbo_draws: int = 8


ITEMS = 4  # words in a puzzle: few enough to enumerate what a perfect model would do
ORDER_RULES = ("low-confidence", "margin", "entropy", "random")  # random: what no preference looks like


@dataclass(frozen=True)
class Coherence:
    """The numbers of COHERENCE_PROBES: pieces of text with a gap of masks, pairs of masks in it, puzzles of words."""

    pieces: int = 20
    before: int = 64
    masks: int = 64
    after: int = 32
    distances: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 60, 62, 63, 64)
    pair_distances: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    samples: int = 32
    order_tokens: int = 32
    puzzles: int = 30


@dataclass(frozen=True)
class Settings:
    """The default asks 100 points of each of the 16 tasks, with 10 relevant examples among 40 distractors."""

    preset: str = "default"
    probes: tuple[str, ...] = PROBES
    tasks: tuple[str, ...] = tuple(task.name for task in TASKS)
    points: int = 100
    seed: int = 0
    relevant: int = 10
    distractors: int = 40
    locations: tuple[int, ...] = (0, 10, 20, 30, 40)
    places: tuple[Place, ...] = ("right", "middle", "left")
    mask_counts: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200)
    location_mask_counts: tuple[int, ...] = (2, 50, 100, 200)
    filler_counts: tuple[int, ...] = (0, 5, 10, 20, 50, 100, 200)
    filler: str = "."
    context_distractors: tuple[int, ...] = (0, 10, 20, 30)
    mask_share: float = 0.2
    text_counts: tuple[int, ...] = (0, 1, 5, 10, 20, 50, 100, 200)
    passages: int = 200
    passage_words: int = 100
    held_out: float = 0.5
    chat: bool = False
    evidence: Evidence = Evidence()
    coherence: Coherence = Coherence()


DEFAULT = Settings()
FULL = replace(DEFAULT, preset="full", probes=EVERY_PROBE, points=1000, passages=1000)
QUICK = Settings(
    preset="quick",
    probes=("location", "question-position", "mask-count", "filler", "natural-text"),
    tasks=("country-smallest", "capitalised-largest", "animal-smallest", "verb-largest"),
    points=9,
    relevant=5,
    distractors=15,
    locations=(0, 7, 15),
    places=("right", "left"),
    mask_counts=(2, 20, 100),
    location_mask_counts=(2, 20, 100),
    filler_counts=(0, 20, 100),
    context_distractors=(0, 5, 15),
    text_counts=(0, 20, 100),
    passages=40,
    passage_words=50,
    evidence=Evidence(
        orderings=5,
        questions=4,
        few_steps=(2, 4),
        step_masks=(2, 20, 100),
        shot_masks=(1, 100),
        clouds=2,
        cloud_examples=40,
        data_shots=4,
        data_shares=(0.0, 0.1, 0.2),
        nelbo_draws=4,
    ),
    coherence=Coherence(pieces=6, before=32, masks=32, after=16, samples=8, order_tokens=16, puzzles=6),
)


def few_shot_variants(settings: Settings, causal: bool) -> list[Variant]:
    """The variants of the few-shot probes asked for, in the probes' order."""
    by_probe = {
        "location": position.location(settings.locations),
        "question-position": position.question_position(settings.locations, settings.places),
        "mask-count": masks.mask_count(settings.mask_counts),
        "filler": masks.filler(settings.filler_counts, settings.filler),
        "context-length": masks.context_length(settings.context_distractors, settings.mask_share, causal),
        "location-masks": position.location_masks(settings.locations, settings.location_mask_counts),
    }
    return [variant for probe in settings.probes for variant in by_probe.get(probe, [])]


def fit_to_model(settings: Settings, causal: bool) -> tuple[Settings, list[str]]:
    """The settings without the probes that make no sense for the model, and a note on each."""
    left_out = [probe for probe in settings.probes if causal and probe in NOT_CAUSAL]
    kept = tuple(probe for probe in settings.probes if probe not in left_out)
    if not kept:
        raise UserError(f"no probe to run: {left_out[0]} does not apply, {NOT_CAUSAL[left_out[0]]}")
    return replace(settings, probes=kept), [f"{probe} was not run: {NOT_CAUSAL[probe]}" for probe in left_out]


def check(settings: Settings) -> None:
    """Refuses unknown probes and impossible numbers."""
    for probe in settings.probes:
        if probe not in EVERY_PROBE:
            raise UserError(f"unknown probe {probe!r}: choose among {', '.join(EVERY_PROBE)}")
    if not settings.probes:
        raise UserError(f"no probe named: choose among {', '.join(EVERY_PROBE)}")
    if min(settings.points, settings.passages) < 1:
        raise UserError(f"--points must be at least 1, not {min(settings.points, settings.passages)}")
