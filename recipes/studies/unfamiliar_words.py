"""Do appended masks change answers on questions outside the training distribution?

1. Every question has a context of its own: 5 examples of a word rule (the one word of kind X among two of kind Y) and
   10 number questions (the smallest), shuffled; then a question of the word rule. The six orders of the three options
   are drawn evenly. Words come from tasks/unfamiliar-1.json and -2.json, or from tasks/words.json.
2. The same questions are asked under every condition: k masks from the answer's place on (k = 2, 20, ...), or 198 other
   tokens in the masks' place, or the masks somewhere else. One forward pass, logits of the answer row only.
3. Of each answer: is the right letter the most probable token; format = -log P(a letter); choice = -log P(the right
   letter | a letter), in nats. OUT/NAME.npz holds them as [sets, questions, 3], float16, one array a condition.
4. unfamiliar_tables.py makes the tables: means over sets, paired differences, intervals over sets (Student's t) first,
   over questions second. Primary outcome, fixed beforehand: `choice` at 200 masks less at 2, study "sets", set I.

Hardware: one GPU, 1 to 2 minutes a model (float32 storage, TF32 products); several models at a time. CPU: `--small`.

    python recipes/studies/unfamiliar_words.py tiny-llada --out OUT
    python recipes/studies/unfamiliar_words.py runs/seed1 --name seed1 --out OUT --studies sets controls
    python recipes/studies/unfamiliar_words.py tiny-llada --out OUT --small
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maskwise as mw
from maskwise.models.batch import Batch, passes
from maskwise.models.model import Model
from maskwise.probes.text import load_text
from maskwise.tasks.episodes import LETTERS, Question, number_question, render
from maskwise.tasks.rules import WORD_RULES
from maskwise.tasks.words import load_words, split_words
from unfamiliar_sets import load_sets
from unfamiliar_two_by_two import CELLS, UNLISTED

TOKENS_A_PASS = {"cuda": 131072, "cpu": 8192}
MASKS = (2, 20, 100, 200, 400)
FILL = 198  # tokens in the masks' place: 2 masks and so many tokens are as long as 200 masks
E1_MASKS, DIVERSITIES = (2, 20, 60, 200), (5, 10, 20, 115)
ORDERS = tuple(permutations(range(3)))  # which option stands in each place; 0 is the right one


@dataclass(frozen=True)
class Source:
    """Where a set's words come from: (targets, others) of the examples and of the question.

    Three lists are those of the right option, of one wrong option and of the other.
    """

    name: str
    shown: tuple[Sequence[str], ...]
    asked: tuple[Sequence[str], ...]


@dataclass(frozen=True)
class Item:
    """A question in its context as token ids up to the answer: ids [n], the right letter's number, and the question
    alone, without context."""

    ids: tuple[int, ...]
    answer: int
    alone: tuple[int, ...]


@dataclass(frozen=True)
class Given:
    """What the model is given, the answer's place in it, and the position of its first token."""

    ids: tuple[int, ...]
    row: int
    start: int = 0


# Questions


def ordered_question(words: tuple[Sequence[str], ...], order: tuple[int, ...], draws: random.Random) -> Question:
    """A question of the word rule with its options in this order."""
    others = draws.sample(list(words[1]), 2) if len(words) == 2 else [draws.choice(listed) for listed in words[1:]]
    options = (draws.choice(words[0]), *others)
    return Question(tuple(options[number] for number in order), order.index(0), relevant=True)


def orders(draws: random.Random) -> Iterator[tuple[int, ...]]:
    """The six orders, each once in every six, in random order."""
    while True:
        yield from draws.sample(ORDERS, len(ORDERS))


def draw_texts(source: Source, count: int, relevant: int, distractors: int, number: bool, seed: str) -> list[Any]:
    """(context, question) of so many questions; `number` asks the number rule in the same contexts."""
    draws = random.Random(f"{seed} {source.name} {relevant} {distractors}")
    made = []
    for order in islice(orders(draws), count):
        each = orders(draws)
        examples = [ordered_question(source.shown, next(each), draws) for _ in range(relevant)]
        examples += [number_question("smallest", draws.randrange(3), draws) for _ in range(distractors)]
        draws.shuffle(examples)
        question = ordered_question(source.asked, order, draws)
        if number:
            question = number_question("smallest", order.index(0), draws)
        made.append(("".join(map(render, examples)), question))
    return made


def encode(tokenizer: Any, drawn: Sequence[Any]) -> list[Item]:
    """Whole texts are tokenised with the answer in place and cut before it."""
    closing = len(tokenizer("A].")["input_ids"])
    letters = {letter: tokenizer(f"[{letter}].")["input_ids"][-closing] for letter in LETTERS}

    def cut(texts: list[str]) -> list[tuple[int, ...]]:
        found = tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for one, (_, question) in zip(found, drawn, strict=True):
            assert one.ids[-closing] == letters[question.letter]
        return [tuple(one.ids[:-closing]) for one in found]

    tests = [render(question).rstrip("\n") for _, question in drawn]
    whole = cut([context + test for (context, _), test in zip(drawn, tests, strict=True)])
    return [Item(ids, q.answer, alone) for ids, (_, q), alone in zip(whole, drawn, cut(tests), strict=True)]


# Conditions


class Tails:
    """Tokens that stand in the masks' place: prose, number questions, end tokens. One draw a question."""

    def __init__(self, tokenizer: Any):
        self.tokenizer, self.end = tokenizer, tokenizer.eos_token_id
        self.close, self.gap = tokenizer("].")["input_ids"], tokenizer("\n\n")["input_ids"]
        self.prose = tokenizer(load_text())["input_ids"]

    def draw(self, kind: str, seed: str) -> list[int]:
        """FILL tokens: what closes the question's paragraph, then text of this kind."""
        draws = random.Random(f"{kind} {seed}")
        if kind == "end":
            text = [self.end] * FILL
        elif kind == "prose":
            first = draws.randrange(len(self.prose) - FILL)
            text = self.prose[first : first + FILL]
        else:
            questions = [number_question("smallest", draws.randrange(3), draws) for _ in range(FILL // 16)]
            text = self.tokenizer("".join(map(render, questions)))["input_ids"]
        return [*self.gap, *text][:FILL]


def arrange(condition: str, item: Item, mask: int, tails: Tails, seed: str) -> Given:
    """The item under a condition: `masks 200`, `prose`, `closed`, `closed masks`, `before`, `shifted`, `alone 200`."""
    ids, row = item.ids, len(item.ids)
    kind, _, rest = condition.partition(" ")
    if kind == "masks":
        return Given((*ids, *[mask] * int(rest)), row)
    if kind == "alone":
        return Given((*item.alone, *[mask] * int(rest)), len(item.alone))
    if kind == "before":
        return Given((*[mask] * FILL, *ids, mask, mask), row + FILL)
    if kind == "shifted":
        return Given((*ids, mask, mask), row, FILL)
    if kind == "closed":
        closed = (*ids, mask, *tails.close)
        if rest == "masks":
            return Given((*closed, *tails.gap, *[mask] * (FILL - 1)), row)
        return Given((*closed, *(tails.draw(rest, seed) if rest else ())), row)
    return Given((*ids, mask, mask, *tails.draw(kind, seed)), row)


@torch.inference_mode()
def measure(model: Model, given: Sequence[Given], answers: Sequence[int]) -> np.ndarray:
    """[n, 3]: right or not, format and choice in nats."""
    letters = torch.tensor(
        [model.tokenizer(f"[{letter}].")["input_ids"][-2] for letter in LETTERS], device=model.device
    )
    order = sorted(range(len(given)), key=lambda number: len(given[number].ids))
    found = np.empty((len(given), 3), dtype=np.float32)
    for first, last in passes([len(given[number].ids) for number in order], TOKENS_A_PASS[model.device.type]):
        numbers = order[first:last]
        part = [given[number] for number in numbers]
        batch = Batch.spans([one.ids for one in part], [one.start for one in part], model.device)
        rows = torch.tensor([one.start + one.row for one in part], device=model.device)
        index = model.locate(batch, torch.arange(len(part), device=model.device), rows)
        logp = model.head(model.asked_rows(batch, index)).log_softmax(-1)
        right = torch.tensor([answers[number] for number in numbers], device=model.device)
        of_letters = logp[:, letters]
        any_letter = of_letters.logsumexp(1)
        choice = any_letter - of_letters.gather(1, right[:, None])[:, 0]
        hit = logp.argmax(-1) == letters[right]
        found[numbers] = torch.stack([hit.float(), -any_letter, choice], 1).cpu().numpy()
    return found


# Studies


@dataclass(frozen=True)
class Study:
    """Questions of some sources, and the conditions under which all of them are asked."""

    name: str
    sources: tuple[Source, ...]
    conditions: tuple[str, ...]
    questions: int  # a source
    relevant: int = 5
    distractors: int = 10
    number: bool = False


def at(*counts: int) -> tuple[str, ...]:
    return tuple(f"masks {count}" for count in counts)


def set_sources(part: str, new: bool) -> tuple[Source, ...]:
    """Sets I or II; `new`: examples are made of one half of the words and questions of the other."""
    sources = []
    for one in load_sets(part):
        whole = (one.targets, one.others)
        halves = tuple((one.targets[side::2], one.others[side::2]) for side in (0, 1))
        sources.append(Source(one.name, *halves) if new else Source(one.name, whole, whole))
    return tuple(sources)


def listed_sources(new: bool) -> tuple[Source, ...]:
    """The six rules of the project's tasks that need context; `new`: questions of held-out words, as in its exam."""
    words = load_words()
    shown, held = split_words(words)
    rules = [rule for rule in WORD_RULES if rule.name not in ("country", "capitalised")]
    if new:
        return tuple(Source(rule.name, rule.lists(shown), rule.lists(held)) for rule in rules)
    return tuple(Source(rule.name, rule.lists(words), rule.lists(words)) for rule in rules)


def diversity_sources(size: int, new: bool, draws_a_pair: int) -> tuple[Source, ...]:
    """E1: so many words a kind out of tasks/words.json, drawn anew for each source; `new`: as many others are asked.

    Lists with fewer than twice as many words are cut in halves.
    """
    words, sources = load_words(), []
    for pair in (("animal", "object"), ("object", "animal"), ("verb", "adjective"), ("adjective", "verb")):
        for number in range(draws_a_pair):
            draws = random.Random(f"E1 {pair} {number}")
            mixed = [draws.sample(words[kind], len(words[kind])) for kind in pair]
            sizes = [min(size, len(kind) // 2) if new else min(size, len(kind)) for kind in mixed]
            shown = tuple(kind[:n] for kind, n in zip(mixed, sizes, strict=True))
            other = tuple(kind[n : 2 * n] for kind, n in zip(mixed, sizes, strict=True))
            sources.append(Source(f"{pair[0]} among {pair[1]} {number}", shown, other if new else shown))
    return tuple(sources)


def mixed_sources(new: str) -> tuple[Source, ...]:
    """Kind pairs of training, examples of listed words; `new` says which options of the question are unlisted words."""
    words, sources = load_words(), []
    for target, other in permutations(UNLISTED, 2):
        (known, fresh), (known_other, fresh_other) = ((words[kind], UNLISTED[kind].split()) for kind in (target, other))
        asked = {
            "none": (known, known_other),
            "target": (fresh, known_other),
            "one other": (known, fresh_other, known_other),
            "both others": (known, fresh_other),
        }
        shown = (known, known_other)
        if new == "lead":  # ten words a kind, one of them new, in examples and question alike
            draws = random.Random(f"lead {target} {other}")
            shown = asked[new] = tuple(
                [*draws.sample(listed, 9), draws.choice(unlisted)]
                for listed, unlisted in ((known, fresh), (known_other, fresh_other))
            )
        sources.append(Source(f"{target} among {other}", shown, asked[new]))
    return tuple(sources)


def mixed_studies(questions: int) -> list[Study]:
    """Where models have room: some options are words whose kind they do not know."""
    more = (*at(*MASKS), "numbers", "before", "shifted", "closed", "closed masks", "closed numbers")
    made = [
        Study(f"mixed {new}", mixed_sources(new), more, questions) for new in ("target", "one other", "both others")
    ]
    made += [Study(f"mixed {new}", mixed_sources(new), at(2, 200), questions) for new in ("none", "lead")]
    screens = [replace(study, name=f"screen {study.name}", conditions=at(2)) for study in made]
    return made + screens


def cell_study(name: str, questions: int) -> Study:
    """A cell of the two by two of words and kind pairs."""
    sources = [Source(f"{x} / {y}", (listed, others), (listed, others)) for (x, listed), (y, others) in CELLS[name]]
    return Study(f"cell {name}", tuple(sources), at(2, 200), questions)


def diversity_study(size: int, new: bool, questions: int) -> Study:
    name = f"E1 {size} {'new' if new else 'repeated'}"
    return Study(name, diversity_sources(size, new, draws_a_pair=10), at(*E1_MASKS), questions)


def studies(part: str, questions: int) -> dict[str, list[Study]]:
    """All studies by group; `questions` a set of unfamiliar words."""
    far = at(2, 200)
    repeated = Study("sets", set_sources(part, new=False), at(*MASKS), questions)
    others = ("prose", "numbers", "end", "before", "shifted", "closed", "closed masks", "closed prose",
              "closed numbers", "closed end", "alone 2", "alone 200")  # fmt: skip
    listed = listed_sources(new=True)
    return {
        "screen": [replace(repeated, name="screen", conditions=at(2), questions=questions // 2)],
        "sets": [repeated, Study("sets new", set_sources(part, new=True), far, questions)],
        "controls": [
            replace(repeated, conditions=others),
            replace(repeated, name="numbers asked", conditions=far, number=True),
        ],
        "format": [
            Study("listed 5+10", listed, far, 2 * questions),
            Study("listed 10+40", listed, far, questions, 10, 40),
            Study("listed all 5+10", listed_sources(new=False), far, 2 * questions),
            Study("sets 10+40", repeated.sources, far, questions // 2, 10, 40),
            Study("sets 1+4", repeated.sources, far, questions, 1, 4),
        ],
        "cells": [cell_study(name, questions) for name in CELLS],
        "mixed": mixed_studies(questions // 2),
        "E1": [diversity_study(size, new, questions // 4) for size in DIVERSITIES for new in (False, True)],
    }


def run_study(model: Model, study: Study, tails: Tails) -> dict[str, np.ndarray]:
    """{condition: [sets, questions, 3]}; the questions depend on the study's numbers and sources alone."""
    seed = "screen" if study.name.startswith("screen") else "asked"
    items = [
        item
        for source in study.sources
        for item in encode(
            model.tokenizer, draw_texts(source, study.questions, study.relevant, study.distractors, study.number, seed)
        )
    ]
    answers = [item.answer for item in items]
    found = {}
    for condition in study.conditions:
        given = [arrange(condition, item, model.mask_id, tails, f"{seed} {n}") for n, item in enumerate(items)]
        longest = max(len(one.ids) + one.start for one in given)
        if longest > model.window:
            raise SystemExit(f"{study.name}, {condition}: {longest} tokens exceed the context length {model.window}")
        found[condition] = measure(model, given, answers).reshape(len(study.sources), study.questions, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="embedded model or folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", help="name of the results; default: the model's")
    parser.add_argument("--part", choices=["I", "II"], default="I", help="II is for confirmation: look at it once")
    parser.add_argument("--studies", nargs="+", default=["screen", "sets", "controls", "format", "cells", "E1"])
    parser.add_argument("--questions", type=int, default=200, help="a set")
    parser.add_argument("--small", action="store_true", help="4 questions of 2 sets: a check on a CPU")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # TF32: exact for weights stored in bf16
    model = mw.open(options.model, dtype="float32")
    tails, name = Tails(model.tokenizer), options.name or Path(options.model).name
    results: dict[str, np.ndarray] = {}
    sources: dict[str, list[str]] = {}
    chosen = studies(options.part, 4 if options.small else options.questions)
    options.out.mkdir(parents=True, exist_ok=True)
    for study in (study for group in options.studies for study in chosen[group]):
        study = replace(study, sources=study.sources[:2]) if options.small else study
        sources[study.name] = [source.name for source in study.sources]
        for condition, found in run_study(model, study, tails).items():
            results[f"{study.name}|{condition}"] = found.astype(np.float16)
            accuracy, form, choice = found.mean((0, 1))
            print(f"{name} {study.name}, {condition}: {accuracy:.3f} {form:.3f} {choice:.3f}", flush=True)
        np.savez_compressed(options.out / f"{name}.npz", **results)
        (options.out / f"{name}.json").write_text(json.dumps({"model": name, "part": options.part, "sources": sources}))


if __name__ == "__main__":
    main()
