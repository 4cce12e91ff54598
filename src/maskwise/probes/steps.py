"""Does decoding in several steps undo what masks do? The real decoder, many steps (unmasking) or few of them.

The answer is the token the decoder wrote in the answer's place. Its confidence, entropy and surprise are those of the
step in which it was written: the canvas of that step is laid out again from the order of the commits and read once.

A random order depends on the seed, the question, its masks and the number of steps, and on nothing else.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from maskwise.decoding.generate import Generation, generate
from maskwise.models.base import Model
from maskwise.probes.records import Condition, Key, still_to_ask
from maskwise.probes.runner import Answer, ask, own_generator
from maskwise.probes.variants import Asker, Item
from maskwise.tasks.episodes import Episode, mixed
from maskwise.tasks.prompts import Prompt, encode_question, opened

UNMASKING, FEW_STEPS = "unmasking", "few-steps"
ORDERS = {"random": "random", "confidence": "low-confidence"}  # what the paper calls them, and the decoder's rule


def step_items(
    asker: Asker, episode: Episode, probe: str, condition: Condition, points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    """Format B, mixed examples, as in the mask-count probe; `condition` names the masks."""
    examples = mixed(episode)
    for key, point, _ in still_to_ask(probe, episode.task.name, points, [condition], done):
        test = episode.tests[point]
        encoded = encode_question(asker.tokenizer, examples, test, "right", asker.chat)
        yield Item(key, condition, opened(encoded, asker.mask_id, int(condition["masks"])), test.letter)


def decode(model: Model, prompts: Sequence[Prompt], steps: int, order: str, seed: int) -> list[Answer]:
    """All prompts end in the same number of masks, which are filled in `steps` steps, or one each if they are fewer."""
    masks = prompts[0].masks
    assert all(prompt.masks == masks for prompt in prompts)
    chance = [own_generator(seed, steps, *prompt.ids) for prompt in prompts]
    texts = [prompt.ids[: prompt.row] for prompt in prompts]
    done = generate(model, texts, masks, min(steps, masks), rule=ORDERS[order], generator=chance)
    answers = ask(model, [before_commit(p, g) for p, g in zip(prompts, done, strict=True)])
    return [replace(answer, token=g.ids[0]) for answer, g in zip(answers, done, strict=True)]


def before_commit(prompt: Prompt, generation: Generation) -> Prompt:
    """The canvas the answer was read from: what was written in earlier steps stands, the rest is masks."""
    when = generation.order[0]
    mask = prompt.ids[prompt.row]
    seen = [token if step < when else mask for token, step in zip(generation.ids, generation.order, strict=True)]
    return replace(prompt, ids=(*prompt.ids[: prompt.row], *seen))
