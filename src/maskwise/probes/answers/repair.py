"""Wrong tokens put into right sequences: does the model see them, and does masking and filling again repair them?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maskwise.decoding.generate import decode
from maskwise.decoding.options import DecodingOptions
from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, Written
from maskwise.probes.known_tokens import KnownPrompt, KnownSequence, wrong_tokens
from maskwise.records.record import Evidence
from maskwise.support.randomness import python_random, torch_generator
from maskwise.tasks.prompts import Prompt

UNIFORM, MODEL = "uniform", "model"
RANDOM, LEAST = "random", "least"  # what is masked again: positions at random, or the least likely tokens
EDIT = 0.9  # probability above which another token replaces the visible one: `--edit 0.9`, as LLaDA2.1's code has it
REMASKED = 0.25  # of the answer's tokens
OneMasked = dict[tuple[int, ...], Tensor]  # logits [V] of sequences with one position masked


@dataclass(frozen=True)
class Corrupted:
    """A known sequence with one wrong token. sites: the wrong position first, then some of the right ones."""

    known: KnownSequence
    ids: tuple[int, ...]
    sites: tuple[int, ...]

    @property
    def wrong(self) -> int:
        return self.sites[0]

    def hidden(self, places: Sequence[int], mask_id: int) -> list[int]:
        """The sequence with these positions masked."""
        return [mask_id if place in places else token for place, token in enumerate(self.ids)]


def self_correct(model: Model, prompts: Sequence[Prompt], kind: str, right_places: int, seed: int) -> list[Answer]:
    """The record is right where the error was repaired by masking and filling that position alone."""
    known = [prompt for prompt in prompts if isinstance(prompt, KnownPrompt)]
    seen: OneMasked = {}
    spoiled = corrupt(model, known, kind, right_places, seed, seen)
    evidence = look(model, spoiled, seen)
    for policy in (RANDOM, LEAST):
        _refill(model, spoiled, evidence, policy, seed, seen)
    answers = []
    for found in evidence:
        del found["order"]
        token = found.pop("filled")
        text = "" if model.tokenizer is None else model.tokenizer.decode([token])
        answers.append(Answer(token, 0.0, 0.0, 0.0, found, Written(text, bool(found["refilled"][0]))))
    return answers


def corrupt(
    model: Model, prompts: Sequence[KnownPrompt], kind: str, right_places: int, seed: int, seen: OneMasked
) -> list[Corrupted]:
    """One wrong token per sequence: drawn uniformly, or from the model's prediction with its position masked; never one
    that could be right (known_tokens.wrong_tokens)."""
    assert model.mask_id is not None
    chosen = []
    for prompt in prompts:
        assert prompt.known is not None
        draws = python_random("self-correction", seed, prompt.number, prompt.known.ids)
        places = draws.sample(prompt.known.asked, min(len(prompt.known.asked), 1 + right_places))
        chosen.append(Corrupted(prompt.known, prompt.known.ids, tuple(places)))
    drawn = _uniform(model, chosen, seed) if kind == UNIFORM else _from_model(model, chosen, seed, seen)
    return [
        replace(one, ids=tuple(token if place == one.wrong else old for place, old in enumerate(one.ids)))
        for one, token in zip(chosen, drawn, strict=True)
    ]


def _uniform(model: Model, chosen: Sequence[Corrupted], seed: int) -> list[int]:
    """Of a Markov source among its own words."""
    found = []
    for one in chosen:
        wrong = [token for token in wrong_tokens(one.known, one.wrong, model.vocab) if token != model.mask_id]
        among = [token for token in wrong if token in one.known.states] or wrong
        found.append(python_random("uniform error", seed, one.wrong, one.known.ids).choice(among))
    return found


def _from_model(model: Model, chosen: Sequence[Corrupted], seed: int, seen: OneMasked) -> list[int]:
    found = []
    for one, logits in zip(chosen, _one_masked(model, [(one, one.wrong) for one in chosen], seen), strict=True):
        wrong = torch.zeros(logits.shape[-1], dtype=torch.bool)
        wrong[list(wrong_tokens(one.known, one.wrong, model.vocab))] = True
        p = logits.double().masked_fill(~wrong.to(logits.device), -torch.inf).softmax(-1).cpu()
        generator = torch_generator("model error", seed, one.wrong, one.known.ids)
        found.append(int(torch.multinomial(p, 1, generator=generator)))
    return found


def _logits(model: Model, sequences: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> list[Tensor]:
    """Of the asked rows of each sequence, [rows, V]."""
    batch = Batch.pack([list(ids) for ids in sequences], model.device)
    index = model.flat_rows(batch, [list(listed) for listed in rows])
    return list(model.head(model.hidden(batch)[index]).split([len(listed) for listed in rows]))


@torch.no_grad()
def _one_masked(model: Model, asked: Sequence[tuple[Corrupted, int]], seen: OneMasked) -> list[Tensor]:
    """The logits of each sequence at the one position that is masked, [V]; no sequence is computed twice."""
    assert model.mask_id is not None
    keys = [tuple(one.hidden([place], model.mask_id)) for one, place in asked]
    new = {key: place for key, (_, place) in zip(keys, asked, strict=True) if key not in seen}
    if new:
        computed = _logits(model, list(new), [[place] for place in new.values()])
        seen.update((key, logits[0]) for key, logits in zip(new, computed, strict=True))
    return [seen[key] for key in keys]


@torch.no_grad()
def look(model: Model, spoiled: Sequence[Corrupted], seen: OneMasked) -> list[Evidence]:
    """The probability of the visible token at each site, masked and left visible; what one refill and one edit make."""
    evidence: list[Evidence] = []
    everything = _logits(model, [one.ids for one in spoiled], [one.known.asked for one in spoiled])
    for one, logits in zip(spoiled, everything, strict=True):
        p = logits.softmax(-1)
        shown = p.gather(1, torch.tensor([[one.ids[place]] for place in one.known.asked], device=p.device))[:, 0]
        best, token = (listed.tolist() for listed in p.max(-1))
        at = {place: number for number, place in enumerate(one.known.asked)}
        written = {place: token[n] if best[n] > EDIT else one.ids[place] for place, n in at.items()}
        chances = shown.tolist()
        found: Evidence = {
            "wrong": [int(place == one.wrong) for place in one.sites],
            "visible": [round(chances[at[place]], DIGITS) for place in one.sites],
            "edited": [int(written[place] == one.known.ids[place]) for place in one.sites],
            "masked": [],
            "refilled": [],
            "order": sorted(one.known.asked, key=lambda place: (chances[at[place]], place)),
        }
        evidence.append(found)
    for turn in range(max(len(one.sites) for one in spoiled)):
        here = [(one, found) for one, found in zip(spoiled, evidence, strict=True) if turn < len(one.sites)]
        filled = _one_masked(model, [(one, one.sites[turn]) for one, _ in here], seen)
        for (one, found), logits in zip(here, filled, strict=True):
            place = one.sites[turn]
            found["masked"].append(round(float(logits.softmax(-1)[one.ids[place]]), DIGITS))
            filled_in = int(logits.argmax())
            found["refilled"].append(int(filled_in == one.known.ids[place]))
            found.setdefault("filled", filled_in)  # at the wrong position, which comes first
    return evidence


def _refill(
    model: Model, spoiled: Sequence[Corrupted], evidence: Sequence[Evidence], policy: str, seed: int, seen: OneMasked
) -> None:
    """Masks the same number of tokens under each policy and fills them in as many steps, the most confident first."""
    remasked = []
    for one, found in zip(spoiled, evidence, strict=True):
        count = max(1, round(REMASKED * len(one.known.asked)))
        draws = python_random("remask", seed, one.known.ids)
        places = draws.sample(one.known.asked, count) if policy == RANDOM else found["order"][:count]
        remasked.append((one, places))
    for one, found, ids in zip(spoiled, evidence, _filled(model, remasked, seen), strict=True):
        right = {place: ids[place] == one.known.ids[place] for place in one.known.asked}
        found[f"{policy}_repaired"] = int(right[one.wrong])
        found[f"{policy}_damaged"] = sum(not fine for place, fine in right.items() if place != one.wrong)
        found["others"] = len(right) - 1


def _filled(model: Model, remasked: Sequence[tuple[Corrupted, Sequence[int]]], seen: OneMasked) -> list[Sequence[int]]:
    """The sequences after greedy decoding; one mask is filled with the likeliest token, which is often known."""
    assert model.mask_id is not None
    single = [(one, places[0]) for one, places in remasked if len(places) == 1]
    one_step = iter(zip(single, _one_masked(model, single, seen), strict=True))
    canvases = [one.hidden(places, model.mask_id) for one, places in remasked if len(places) > 1]
    decoded = iter(decode(model, canvases, DecodingOptions(max_new_tokens=0)) if canvases else ())
    found: list[Sequence[int]] = []
    for _, places in remasked:
        if len(places) > 1:
            found.append(next(decoded).sequence)
        else:
            (one, place), logits = next(one_step)
            found.append((*one.ids[:place], int(logits.argmax()), *one.ids[place + 1 :]))
    return found
