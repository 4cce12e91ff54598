"""The scores of given answers with masks after them."""

from collections.abc import Sequence

from maskwise.decoding.likelihood import log_likelihoods
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, Written
from maskwise.probes.checked import AskedSet
from maskwise.tasks.prompts import Prompt


def score_answers(
    model: Model, prompts: Sequence[Prompt], asked: AskedSet, masks: int, samples: int, seed: int
) -> list[Answer]:
    """nll in nats per token. Nothing is predicted: the answer itself is written, and counts as right where greedy
    decoding gives it, as far as that is known."""
    lengths = {one.ids + one.answer_ids: len(one.ids) for one in asked.questions}
    whole = [prompt.ids[: len(prompt.ids) - masks] for prompt in prompts]
    pairs = [(ids[: lengths[ids]], ids[lengths[ids] :]) for ids in whole]
    found = log_likelihoods(model, pairs, samples=samples, masks=masks, seed=seed)
    answers = []
    for (_, answer), one in zip(pairs, found, strict=True):
        written = Written(model.tokenizer.decode(answer).strip(), bool(one.greedy))
        answers.append(Answer(answer[0], 0.0, 0.0, -one.log_likelihood / one.tokens, written=written))
    return answers
