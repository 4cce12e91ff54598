"""Row m: short generations one after another, with CUDA graphs kept with the model against graphs recorded anew."""

from collections.abc import Iterator

from benchmarks.measure import Bench, Line, bound, timed
from benchmarks.shapes import make_model, random_ids
from maskwise.decoding.generate import generate
from maskwise.models.model import Model

CACHES = ("none", "dual")


def answers(model: Model, prompts: list[list[int]], new: int, cache: str) -> list[list[int]]:
    """New tokens, two per step."""
    made = generate(model, prompts, new, new // 2, block=new // 2, canvas="blocks", cache=cache)
    return [one.ids for one in made]


def recorded_anew(model: Model, prompts: list[list[int]], new: int, cache: str) -> list[list[int]]:
    model.recordings = None
    return answers(model, prompts, new, cache)


def short_generations(bench: Bench) -> Iterator[Line]:
    model = make_model(bench, "llada")
    length, new = (1000, 32) if bench.full else (20, 8)
    several = [random_ids([length], model, seed=number) for number in range(4)]
    for cache in CACHES:
        expected = [recorded_anew(model, prompts, new, cache) for prompts in several]
        found = [answers(model, prompts, new, cache) for prompts in several]
        others = sum(
            a != b for mine, plain in zip(found, expected, strict=True) for a, b in zip(mine[0], plain[0], strict=True)
        )
        kept = timed(bench.device, lambda c=cache: [answers(model, prompts, new, c) for prompts in several])
        anew = timed(bench.device, lambda c=cache: [recorded_anew(model, prompts, new, c) for prompts in several])
        case = f"{model.name}, {new} tokens in {new // 2} steps, cache {cache}"
        yield Line(
            "m",
            f"{case}, a generation",
            "s",
            kept.seconds / len(several),
            anew.seconds / len(several),
            peak=kept.peak,
            plain_peak=anew.peak,
        )
        yield bound(bench, "m", f"{case}, tokens that differ", "tokens", others, 0)
