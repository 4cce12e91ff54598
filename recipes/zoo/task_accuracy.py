"""Accuracy on the 16 tasks while a model trains: two masks, the relevant examples next to the question."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from maskwise.models.attention.ragged import Layout
from maskwise.tasks.episodes import blocked, draw
from maskwise.tasks.prompts import Prompt, encode_question, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words, split_words

ROWS_A_PASS = 32


@dataclass(frozen=True)
class Exam:
    """Prompts of all tasks, task after task, `points` each."""

    prompts: tuple[Prompt, ...]
    points: int


def make_exam(
    tokenizer: PreTrainedTokenizerFast,
    mask_id: int | None,
    points: int,
    relevant: int,
    distractors: int,
    unseen_words: bool = True,
) -> Exam:
    """`unseen_words=False` asks about words of the training documents instead of those kept for test questions."""
    words = load_words() if unseen_words else split_words(load_words())[0]
    prompts = []
    for task in TASKS:
        episode = draw(task, words, relevant, distractors, points, seed=1, held_out=0.5 if unseen_words else 0)
        examples = blocked(episode, distractors)
        prompts += [opened(encode_question(tokenizer, examples, test), mask_id, 2) for test in episode.tests]
    return Exam(tuple(prompts), points)


def hidden_states(net: PreTrainedModel, ids: Tensor, causal: bool, key_mask: Tensor | None = None) -> Tensor:
    """The dense call of a LLaDA or Dream network, causal if asked: ids [B, L] -> [B * L, d]."""
    rows, length = ids.shape
    offsets = torch.arange(0, (rows + 1) * length, length, dtype=torch.int32, device=ids.device)
    layout = Layout(offsets, offsets, length, length, causal=causal, flash=False, key_mask=key_mask)
    positions = torch.arange(length, device=ids.device).repeat(rows)
    return net.model.run(net.get_input_embeddings()(ids).flatten(0, 1), positions, layout)


def padded(prompts: Sequence[Prompt], length: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(ids [n, length], which of them are real [n, length], the row asked for [n], the right token [n])."""
    ids = torch.tensor([[*prompt.ids, *[0] * (length - len(prompt.ids))] for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt.ids) for prompt in prompts], device=device)
    rows = torch.tensor([prompt.row for prompt in prompts], device=device)
    wanted = torch.tensor([prompt.answer_id for prompt in prompts], device=device)
    return ids, torch.arange(length, device=device) < lengths[:, None], rows, wanted


@torch.no_grad()
def answers(net: PreTrainedModel, prompts: Sequence[Prompt], shift: bool, causal: bool) -> tuple[Tensor, Tensor]:
    """(right, nats), each [n]: is the right token the most probable of all, and its -log probability."""
    device = net.get_input_embeddings().weight.device
    right, nats = [], []
    for first in range(0, len(prompts), ROWS_A_PASS):
        part = prompts[first : first + ROWS_A_PASS]
        longest = max(len(prompt.ids) for prompt in part)
        ids, exists, place, wanted = padded(part, longest, device)
        hidden = hidden_states(net, ids, causal, None if causal else exists[:, None, None, :])
        asked = hidden[torch.arange(len(part), device=device) * longest + place - int(shift)]
        logits = asked.float() @ net.get_output_embeddings().weight.float().t()
        right.append(logits.argmax(-1) == wanted)
        nats.append(F.cross_entropy(logits, wanted, reduction="none"))
    return torch.cat(right).float().cpu(), torch.cat(nats).cpu()


def accuracies(net: PreTrainedModel, exam: Exam, shift: bool, causal: bool) -> list[float]:
    """The share of right answers, task by task."""
    right, _ = answers(net, exam.prompts, shift, causal)
    return right.view(-1, exam.points).mean(1).tolist()
