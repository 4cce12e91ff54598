"""The one law of seeds: what is drawn depends on the parts that name the draw, and on nothing else.

A draw is named by its parts: the seed the user gave, what is drawn, and for what, such as the token ids of a prompt.
`seed_of` makes a 64-bit seed of them, and each library's generator starts from it. Batch sizes, the order of the work
and the number of processes therefore change nothing, and different parts give independent draws: among a million
different parts the chance that any two share a seed is 3e-8.

Torch and numpy are imported inside the functions, so that listing and help do not wait for them.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b, shake_256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch

Part = int | float | str | None | Sequence["Part"]

LAW = 2  # stands in the settings of every run: what another law drew is not continued or compared

# torch's CPU generator keeps its Mersenne Twister in bytes: 24 of counters, then 624 words of 8 bytes each.
_STATE_BYTES, _COUNTER_BYTES, _WORDS = 5056, 24, 624


def seed_of(*parts: Part) -> int:
    """A seed of 64 bits, the same on every machine: the BLAKE2b hash of the parts written as JSON.

    JSON keeps apart what differs: 1 and "1", (1, 23) and (12, 3), ((1, 2), 3) and (1, (2, 3)). A tuple and a list of
    the same values are the same part.
    """
    written = json.dumps(parts, separators=(",", ":"))
    return int.from_bytes(blake2b(written.encode(), digest_size=8).digest(), "little")


def python_random(*parts: Part) -> random.Random:
    return random.Random(seed_of(*parts))


def numpy_generator(*parts: Part) -> "np.random.Generator":
    import numpy as np

    return np.random.default_rng(seed_of(*parts))


def torch_generator(*parts: Part, device: "torch.device | str" = "cpu") -> "torch.Generator":
    """A torch generator for these parts.
    On the CPU the draws are the same on every machine; on the model's own device large draws need not be copied."""
    import torch

    seed = seed_of(*parts)
    generator = torch.Generator(device).manual_seed(seed)
    if generator.device.type == "cpu":
        _use_the_whole_seed(generator, seed)
    return generator


def _use_the_whole_seed(generator: "torch.Generator", seed: int) -> None:
    """Fills the state of a CPU generator by hashing all bits of the seed; torch's `manual_seed` reads the lowest 32."""
    import torch

    state = generator.get_state()
    if len(state) != _STATE_BYTES:
        raise RuntimeError(f"torch {torch.__version__} keeps its CPU generator in {len(state)} bytes: not known here")
    words = torch.frombuffer(bytearray(state_words(seed)), dtype=torch.int32).to(torch.int64) & 0xFFFFFFFF
    state[_COUNTER_BYTES : _COUNTER_BYTES + 8 * _WORDS] = words.view(torch.uint8)
    generator.set_state(state)


def state_words(seed: int) -> bytes:
    """The 624 words of 32 bits from which the Mersenne Twister of this seed starts: SHAKE-256 of the seed."""
    return shake_256(seed.to_bytes(8, "little")).digest(4 * _WORDS)


def number_repeats(prompts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """For each prompt the number of equal prompts before it, followed by its token ids.
    As parts of a seed these give every repetition of a prompt draws of its own, which depend on no other prompt."""
    seen: Counter[tuple[int, ...]] = Counter()
    numbered = []
    for ids in map(tuple, prompts):
        numbered.append((seen[ids], *ids))
        seen[ids] += 1
    return numbered
