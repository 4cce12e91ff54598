"""Models whose answers are known: hand-made bodies behind the model interface, and small settings to ask them with.

Each reads its prompt as text and answers with certainty. They know the right answer of every test question (the truth
is drawn with the same seed), so that what they do with it is the only thing a probe can find.
"""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer

from maskwise.models.attention.ragged import attend
from maskwise.models.families import WRAPPED
from maskwise.models.model import Model
from maskwise.probes.setup import Settings
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import Run, read_run
from maskwise.runs.settings import QUICK
from maskwise.scoring.estimates import Estimate
from maskwise.tasks.episodes import draw
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

TASK_NAMES = ("country-smallest", "verb-largest")
PLACES = ("right", "middle", "left")


def with_parameters(settings: Settings, **changes: dict) -> Settings:
    """The settings with other parameters of some probes, their names written with underscores."""
    for probe, parameters in changes.items():
        settings = settings.changed(probe.replace("_", "-"), **parameters)
    return settings


LOCATIONS = (0, 2, 4)
FIRST_PROBES = ("location", "mask-count", "filler", "natural-text")
SMALL = with_parameters(
    replace(
        QUICK,
        probes=FIRST_PROBES,
        tasks=TASK_NAMES,
        questions=6,
        relevant=(2,),
        distractors=4,
        passages=4,
        passage_words=12,
    ),
    location={"locations": LOCATIONS, "places": PLACES, "mask_counts": ()},
    mask_count={"mask_counts": (1, 2, 5, 20)},
    filler={"filler_counts": (0, 5, 20), "after_two_masks": ()},
    context_length={"distractors": (0, 4)},
    recall={
        "pairs": 8,
        "distances": ("near", "far"),
        "mask_counts": (2, 20),
        "filler_counts": (3,),
        "lists_per_point": 1,
    },
    natural_text={"counts": (0, 3)},
    attribution={"places": PLACES},
)
CORE_PROBES = with_parameters(
    replace(SMALL, probes=(*FIRST_PROBES[:3], "context-length", "natural-text")), location={"mask_counts": (2, 20)}
)
DECODED = with_parameters(
    replace(SMALL, probes=(*SMALL.probes, "steps")),
    steps={"masks": (2, 12), "random": (3, 5), "confident": (5,)},
)


def diagnosed(model: Model, settings: Settings, folder: Path, **more: Any) -> Run:
    """The run of these settings, opened."""
    return read_run(diagnose(model, settings, folder, **more))


def measured(run: Run, probe: str) -> dict[str, Estimate]:
    return {one.name: one for one in run.measured[probe]}


def accuracies(run: Run, probe: str, *by: str, **fixed: Any) -> dict[Any, float]:
    """{value, or values, of these columns: accuracy} of the answers that have the values of `fixed`."""
    table = run.table(probe)
    for name, value in fixed.items():
        table = table[table[name] == value]
    return table.groupby([*by] if len(by) > 1 else by[0]).correct.mean().to_dict()


QUESTION = re.compile(r"Options: (\(A\) .*)\nAnswer:\[(?:([ABC])\]|<\|mask\|>)")


@functools.cache
def shipped_tokenizer():
    return AutoTokenizer.from_pretrained(str(resources.files("maskwise.models").joinpath("zoo/tokenizer")))


@functools.cache
def truth() -> dict[str, str]:
    """The letter of every test question of the tasks asked."""
    tasks = [task for task in TASKS if task.name in TASK_NAMES]
    episodes = [draw(task, load_words(), 0, 0, points=400) for task in tasks]
    return {q.asked.removeprefix("Options: "): q.letter for episode in episodes for q in episode.tests}


def read_questions(text: str) -> tuple[list[tuple[str, str]], int]:
    """(options, letter) of each question, and which of them is masked."""
    questions = QUESTION.findall(text)
    return questions, next((place for place, (_, letter) in enumerate(questions) if not letter), 0)


def known_model(reply: Callable[[list[tuple[str, str]], int, str], str], name: str = "known") -> Model:
    """A model that answers the masked question with reply(questions, which of them is masked, the whole text).

    questions are (options, letter), the masked one's letter empty.
    """
    tokenizer = shipped_tokenizer()
    width = len(tokenizer)
    letters = {letter: tokenizer.convert_tokens_to_ids(letter) for letter in "ABC"}

    def body(net, batch, layout):
        bounds = batch.offsets.tolist()
        hidden = torch.zeros(batch.tokens, width)
        for start, end in pairwise(bounds):
            text = tokenizer.decode(batch.ids[start:end])
            questions, asked = read_questions(text)
            if questions:
                hidden[start:end, letters[reply(questions, asked, text)]] = 50.0
        return hidden

    return hand_made(body, name=name)


def reader_model(reply: Callable[[str], str]) -> Model:
    """Reads its prompt as text and answers reply(text) with certainty, at every place."""
    tokenizer = shipped_tokenizer()

    def body(net, batch, layout):
        hidden = torch.zeros(batch.tokens, len(tokenizer))
        for start, end in pairwise(batch.offsets.tolist()):
            token = tokenizer(reply(tokenizer.decode(batch.ids[start:end])), add_special_tokens=False)["input_ids"][0]
            hidden[start:end, token] = 50.0
        return hidden

    return hand_made(body, name="reader")


def hand_made(body: Callable[..., torch.Tensor], **more: Any) -> Model:
    """A model of the shipped tokenizer whose hidden states, body(net, batch, layout), are its logits."""
    tokenizer = shipped_tokenizer()
    net = nn.Module()
    net.embedding = nn.Embedding(len(tokenizer), 1)
    net.get_input_embeddings = net.get_output_embeddings = lambda: net.embedding
    usual = {"window": 4096, "shift": False, "mask_id": tokenizer.mask_token_id, "tokenizer": tokenizer}
    return Model(net, body, head=lambda rows: rows.clone(), **(usual | more))


def known_path(act):
    """A model that knows the right answer and is misled where act(direct, through_context) exceeds a threshold.

    direct: the share of masks among what the answer's row sees. through_context: each row measures that share, and the
    answer's row averages what the rows of the text have measured. Both go through the real attention.
    """
    tokenizer, threshold, scale = shipped_tokenizer(), 0.05, 100.0
    letters = [tokenizer.convert_tokens_to_ids(letter) for letter in "ABC"]

    def body(net, batch, layout):
        is_mask = (batch.ids == tokenizer.mask_token_id).float()
        zero, one = torch.zeros(batch.tokens, 1, 8), torch.ones(batch.tokens, 1, 8)
        direct = attend(zero, zero, one * is_mask[:, None, None], layout, 1.0)
        indirect = attend(one, -1e4 * one * is_mask[:, None, None], direct, layout, 1.0)
        misled = act(direct, indirect)[:, 0, 0]
        hidden = torch.zeros(batch.tokens, len(tokenizer))
        for start, end in pairwise(batch.offsets.tolist()):
            text = tokenizer.decode([i for i in batch.ids[start:end].tolist() if i != tokenizer.mask_token_id])
            right = "ABC".index(truth()[re.findall(r"Options: (.*)\nAnswer:", text)[-1]])
            hidden[start:end, letters[right]] = scale * threshold
            hidden[start:end, letters[(right + 1) % 3]] = scale * misled[start:end]
        return hidden

    return hand_made(body, name="known path", family=replace(WRAPPED, attention_readable=True))


def is_word_example(options: str) -> bool:
    return not any(character.isdigit() for character in options)


def rule_is_near(questions, asked):
    """Whether the example nearest to the masked question is a word example."""
    nearest = min((place for place in range(len(questions)) if place != asked), key=lambda place: abs(place - asked))
    return is_word_example(questions[nearest][0])


def nearest_rule(questions, asked, text):
    """Follows the rule of the nearest example: right if that is a word example, else a constant guess."""
    return truth()[questions[asked][0]] if rule_is_near(questions, asked) else "A"


def uniform(questions, asked, text):
    """Weighs all examples alike: right about two questions in three, wherever the examples stand."""
    right = truth()[questions[asked][0]]
    return right if sum(map(ord, questions[asked][0])) % 3 else "A"


def distracted(questions, asked, text):
    """Right with few masks, a constant guess with more than ten."""
    return truth()[questions[asked][0]] if text.count("<|mask|>") <= 10 else "A"


def confused_by_length(questions, asked, text):
    """Right unless many tokens of any kind follow the answer."""
    after = text.split("Answer:[<|mask|>")[1]
    return truth()[questions[asked][0]] if len(after.replace("<|mask|>", ".")) <= 10 else "A"


def larger_of_two(file: Path) -> Path:
    """HotpotQA's published form: questions that one supporting fact answers."""
    entries = [
        {
            "question": f"Which is larger, Item{n} or Thing{n}?",
            "answer": f"Thing{n}" if n % 3 else f"Item{n}",
            "type": "comparison",
            "supporting_facts": [["Both", 0]],
            "context": [["Both", [f"{f'Thing{n}' if n % 3 else f'Item{n}'} is larger."]]],
        }
        for n in range(40)
    ]
    file.write_text(json.dumps(entries))
    return file
