"""What the embedded models are examined for: near against far, the paper's mixture, and recall, by number of masks.

- one example: the 12 tasks that need context (all but country and capitalised), one relevant example right before the
  question (near) or before all distractors (far), both with the same examples, distractors and question, which are
  drawn anew for each question;
- mixed: all 16 tasks, the paper's 10 relevant examples and 40 distractors in random order, one context a task;
- recall: n pairs `Key: otter\\nValue:[ copper].`, each used once, and one key asked again: one of the last five pairs
  but never the last (near), one of the five in the middle, or the first. No two values begin with the same token.

All with the words kept for test questions: no few-shot or recall document has them. The answer is right if its (first)
token is the most probable of all. Format B: k masks from the answer's place on. An autoregressive model has no masks,
so each of its exams is taken once.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean
from typing import Any

from transformers import PreTrainedModel

from maskwise.tasks.episodes import Episode, blocked, draw, mixed
from maskwise.tasks.prompts import Encoded, encode_question, opened
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.words import load_words, split_words
from task_accuracy import answers

MASKS = (2, 20, 200)
PLACES = ("near", "middle", "first")
FREE = ("country", "capitalised")  # word rules that are answered without an example, as the odd one out


@dataclass(frozen=True)
class Sizes:
    """How many examples and pairs an exam has, and how many questions: a task, or a place of recall."""

    relevant: int = 10
    distractors: int = 40
    pairs: tuple[int, ...] = (30, 60)
    questions: int = 50
    recalls: int = 240


Exams = dict[str, list[Encoded]]
Found = dict[str, dict[str, list[float]]]  # exam, number of masks, [accuracy, nats]


def make_exams(tokenizer: Any, sizes: Sizes, seed: int) -> Exams:
    """Encoded questions by the exam's name; another seed draws other examples, distractors and questions."""
    exams: Exams = {"one near": [], "one far": [], "mixed": []}
    for task in TASKS:
        exams["mixed"] += mixed_questions(tokenizer, task, sizes, seed)
        if task.word.name not in FREE:
            near, far = one_example_questions(tokenizer, task, sizes, seed)
            exams["one near"] += near
            exams["one far"] += far
    for pairs in sizes.pairs:
        for place in PLACES:
            exams[f"recall {pairs} {place}"] = recall_questions(tokenizer, pairs, place, sizes.recalls, seed)
    return exams


def mixed_questions(tokenizer: Any, task: Task, sizes: Sizes, seed: int) -> list[Encoded]:
    episode = draw(task, load_words(), sizes.relevant, sizes.distractors, sizes.questions, seed)
    return [encode_question(tokenizer, mixed(episode), test) for test in episode.tests]


def one_example_questions(tokenizer: Any, task: Task, sizes: Sizes, seed: int) -> tuple[list[Encoded], list[Encoded]]:
    words = load_words()
    episodes = [draw(task, words, 1, sizes.distractors, 1, 10_000 * seed + q) for q in range(sizes.questions)]

    def encoded(episode: Episode, before: int) -> Encoded:
        return encode_question(tokenizer, blocked(episode, before), episode.tests[0])

    return [encoded(e, sizes.distractors) for e in episodes], [encoded(e, 0) for e in episodes]


def recall_questions(tokenizer: Any, pairs: int, place: str, count: int, seed: int) -> list[Encoded]:
    draws = random.Random(f"recall {seed} {pairs} {place}")
    words = sorted({word for listed in split_words(load_words())[1].values() for word in listed})
    first_tokens = dict(
        zip(words, (ids[0] for ids in tokenizer([f" {word}" for word in words])["input_ids"]), strict=True)
    )
    return [recall_question(tokenizer, first_tokens, pairs, place, draws) for _ in range(count)]


def recall_question(
    tokenizer: Any, first_tokens: dict[str, int], pairs: int, place: str, draws: random.Random
) -> Encoded:
    shuffled = draws.sample(list(first_tokens), len(first_tokens))
    by_first_token = {first_tokens[word]: word for word in shuffled}
    values = draws.sample(list(by_first_token.values()), pairs)
    keys = [word for word in shuffled if word not in set(values)][:pairs]
    asked = place_of(place, pairs, draws)
    lines = [f"Key: {key}\nValue:[ {value}].\n\n" for key, value in zip(keys, values, strict=True)]
    given = tokenizer("".join(lines) + f"Key: {keys[asked]}\nValue:[")["input_ids"]
    return Encoded((*given, first_tokens[values[asked]]), len(given))


def place_of(place: str, pairs: int, draws: random.Random) -> int:
    """The asked pair's number, counted from the far end."""
    if place == "near":
        return pairs - draws.randint(2, min(5, pairs))
    return 0 if place == "first" else max(0, pairs // 2 - draws.randint(-2, 2))


def take(
    net: PreTrainedModel, exams: Exams, mask_id: int | None, shift: bool, causal: bool, masks: Iterable[int] = MASKS
) -> Found:
    """Accuracy and nats of each exam with each number of masks; an autoregressive model's number is 0."""
    return {
        name: {
            str(count): [
                round(float(part.mean()), 4)
                for part in answers(net, [opened(question, mask_id, count) for question in questions], shift, causal)
            ]
            for count in (masks if mask_id is not None else [0])
        }
        for name, questions in exams.items()
    }


def short(found: Found) -> dict[str, float]:
    """Accuracies for the log: with the fewest masks, recall over all numbers of pairs."""
    first = {name: next(iter(by_masks.values()))[0] for name, by_masks in found.items()}
    shares = {name: share for name, share in first.items() if not name.startswith("recall")}
    for place in PLACES:
        recalled = [share for name, share in first.items() if name.startswith("recall") and name.endswith(place)]
        if recalled:
            shares[f"recall {place}"] = mean(recalled)
    return shares


def cell(found: list[float] | None) -> str:
    return f"{100 * found[0]:.1f} ({found[1]:.2f})" if found else ""


def table(results: dict[str, Found]) -> str:
    """Markdown: one row an exam and number of masks, accuracy in % and nats for each model."""
    keys = list(dict.fromkeys((exam, k) for found in results.values() for exam, by in found.items() for k in by))
    lines = ["| exam | masks | " + " | ".join(results) + " |", "|---|---|" + "---|" * len(results)]
    for exam, masks in keys:
        cells = [cell(found.get(exam, {}).get(masks)) for found in results.values()]
        lines.append(f"| {exam} | {masks} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table_by_masks(found: Found) -> str:
    """Markdown of one model: one row an exam, one column a number of masks."""
    masks = list(next(iter(found.values())))
    lines = ["| exam | " + " | ".join(masks) + " |", "|---|" + "---|" * len(masks)]
    lines += [f"| {exam} | " + " | ".join(cell(by[k]) for k in masks) + " |" for exam, by in found.items()]
    return "\n".join(lines)
