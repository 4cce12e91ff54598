"""`advise`: which settings to decode a model with, by its answers to your own questions.

A setting is a condition: options of `generate`. All settings answer one half of the questions, drawn by the seed. By
these answers at most four are chosen: the first of the list, the most accurate, the two cheapest that may be as good,
and the cheapest. They answer the other half, and only those answers count, so that the choice does not bias them.
The best is the cheapest that is shown to be non-inferior (certain): its paired change from each other one lies above
-3 points. Where none is, it is the cheapest within 3 points of the highest mean. The intervals of all changes hold
together in 95 % of runs (Bonferroni); tests/test_advise_guarantees.py simulates it.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import scipy
from msgspec import Meta, to_builtins

from maskwise.decoding.known_names import listed_options
from maskwise.decoding.options import DecodingOptions
from maskwise.records.folder import read_run, write_into
from maskwise.records.manifest import FORMAT, Manifest, RunSettings
from maskwise.records.record import RecordFields, struct_of
from maskwise.records.table import Table
from maskwise.scoring.estimates import LEVEL, Estimate, change, mean, share, wide
from maskwise.scoring.intervals import SAME
from maskwise.support.errors import UserError
from maskwise.support.files import Records, short_json, to_json
from maskwise.support.randomness import numpy_generator, torch_generator
from maskwise.support.typed import Count, Typed
from maskwise.tasks import checkable
from maskwise.tasks.episodes import LETTERS
from maskwise.tasks.tables import located_rows

if TYPE_CHECKING:
    from maskwise.models.model import Model

ADVISE, QUESTIONS, FINALISTS, FEWEST = "advise", "questions", 4, 8  # settings that are confirmed; questions
MARGIN = 0.03  # of quality, that may be given up for speed
POWER = 0.8  # chance that the stated number of questions makes the best certain
SECONDS = 1e-6  # weight of a second next to a forward pass: it decides between equal numbers of passes
PER_TASK, EMBEDDED_TOKENS = 8, 192  # a text stops at the bracket after its letter; the masks after it distract
EMBEDDED = "steps=24 steps=12 steps=4 canvas=growing,block=8,steps=24 canvas=growing,block=32,steps=24"
WORDS = {"steps": "{} steps", "canvas": "{} canvas", "cache": "{} cache", "rule": "{}"}
FIELDS = RecordFields(struct_of({"setting": str}), struct_of({"quality": float, "passes": Count, "seconds": float}))


class ConfirmedSetting(Typed, frozen=True, kw_only=True):
    """A setting that answered the confirming half of the questions."""

    setting: Annotated[str, Meta(description="the options in which the settings differ")]
    quality: Annotated[Estimate, Meta(description="mean over the questions")]
    change: Annotated[Estimate | None, Meta(description="quality less that of the best; null of the best")]
    passes: Annotated[float, Meta(description="forward passes per question")]
    seconds: Annotated[float, Meta(description="of decoding per question")]

    def __str__(self) -> str:
        return f"{self.setting}: {(self.change or self.quality).short}; {self.passes:.3g} passes, {self.seconds:.2g} s"


class Advice(Typed, frozen=True, kw_only=True):
    """Settings to decode with."""

    model: Annotated[str, Meta(description="the model's name")]
    measure: Annotated[str, Meta(description="what a good answer is")]
    chosen_on: Annotated[Count, Meta(description="questions that all settings answered")]
    questions: Annotated[Count, Meta(description="others, that the confirmed settings answered")]
    best: Annotated[str, Meta(description="the setting to use")]
    certain: Annotated[bool, Meta(description="is it shown to be within 3 points of all other confirmed ones?")]
    why: Annotated[str, Meta(description="why it is not certain")]
    options: Annotated[dict[str, Any], Meta(description="the best as options of mw.generate")]
    command: Annotated[str, Meta(description="the best as a command line")]
    confirmed: Annotated[list[ConfirmedSetting], Meta(description="the best first, then by cost")]
    others: Annotated[dict[str, float], Meta(description="settings that were not chosen: quality on the first half")]
    wrong: Annotated[list[list[str]], Meta(description="where all are wrong, two answers: expected and generated")]
    folder: Annotated[str, Meta(description="with every text, in records.jsonl")]

    def __str__(self) -> str:
        (best, *others), tried = self.confirmed, len(self.confirmed) + len(self.others)
        asked = f"{tried} settings on {self.chosen_on} questions, {len(self.confirmed)} on {self.questions} others"
        sure = "certain" if self.certain else f"not yet certain: {self.why}"
        lines = [f"{self.model}: {asked}; quality: {self.measure}", f"{best}, {sure}"]
        lines += [f"  {one}" for one in others]
        lines += [f"  expected {short_json(one)}, generated {short_json(text, 200)}" for one, text in self.wrong]
        return "\n".join([*lines, self.command, f"folder: {self.folder}"])


def advise(
    model: "str | Path | Model",
    data: Records | None = None,
    *,
    exact: bool = False,
    pattern: str | None = None,
    function: str | checkable.Judge | None = None,
    settings: str | Sequence[Mapping[str, Any]] | None = None,
    questions: int | None = None,
    max_new_tokens: int | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    **opening: Any,
) -> Advice:
    """Finds the settings to decode a model with, by its answers to your questions. Called again, it resumes.

    Arguments:
        model: a name, or an opened masked model. opening: options of `mw.open`, of a model given by name.
        data: a .jsonl file or a list of dicts, each with prompt and answer; else embedded questions.
        exact, pattern, function: what a good answer is; one of them must be given with data. exact: the text is the
            answer. pattern: a regular expression whose first group finds the same in text and answer. function:
            f(text, answer) gives a number, such as 1 for right; a function or "module:name".
        settings: what is tried, as options of `mw.generate`: dicts, or a text such as "steps=64 steps=16
            canvas=growing,block=32,rule=threshold,tau=0.9". The first is always confirmed.
        questions: how many are asked, half of them to choose and half to confirm; else all.
        max_new_tokens: the masks appended to each prompt, where a setting does not say it; else 128.
        out: the folder of the answers; else one under runs/. seed: the order of the questions.

    Returns:
        The best setting (`best`, `options`, `command`), whether it is certain and else why, and the others that were
        confirmed, each with its change from the best. Printed, it is what the command shows.

    >>> import maskwise as mw
    >>> kinds = [{"prompt": f"Word: {word}\\nKind:[", "answer": "animal"} for word in ["otter", "zebra"] * 8]
    >>> found = mw.advise("tiny-llada", kinds, pattern="a", max_new_tokens=4, settings="steps=4 steps=2", out="runs/ad")
    >>> found.questions, found.certain, sorted(row.setting for row in found.confirmed)
    (8, False, ['2 steps', '4 steps'])
    """
    measure, quality, guessing = checkable.measured_by(exact, pattern, function, embedded=data is None)
    pairs = _questions(data, quality, seed)
    new = max_new_tokens or (EMBEDDED_TOKENS if data is None else 128)
    tried = EMBEDDED if settings is None and data is None else settings
    options = [] if tried is None else listed_options(tried, new)
    asked = len(pairs) if questions is None else questions
    if not FEWEST <= asked <= len(pairs):
        raise UserError(f"{asked} of {len(pairs)} questions: give {FEWEST} or more, and no more than there are")
    from maskwise.decoding.checks import check_request, for_model
    from maskwise.decoding.prompt_ids import encode_prompts
    from maskwise.models.checkpoints.opening import opened_model
    from maskwise.runs.runner import join_crew, own_device

    if isinstance(model, str | Path):
        opening["device"] = own_device(opening.get("device"))
    opened = opened_model(model, **opening)
    options = [for_model(opened, one) for one in options or listed_options(_usual(new, opened), new)]
    if data is None:
        options = [replace(one, early_stop=True, end_ids=_brackets(opened)) for one in options]
    for one in options:
        check_request(opened, [max(encode_prompts(opened, [text for text, _ in pairs], one.chat), key=len)], one)
    named = _named(options)
    if len(named) < max(2, len(options)):
        raise UserError("advise compares two or more settings, each different from the others")
    order = numpy_generator(ADVISE, seed, "order").permutation(len(pairs))[:asked].tolist()
    first, second = order[::2], order[1::2]  # where more are asked later, each stays in its half
    ask, folder = _asking(opened, pairs, measure, quality, named, seed, out)
    table = ask(list(named), first)
    chosen = choose(wide(table, "setting", "quality")[list(named)], _costs(table))
    confirming = ask(chosen, second)
    cost, costs = _costs(confirming), confirming.groupby("setting")[["passes", "seconds"]].mean()
    own, changes, best, why = confirm(wide(confirming, "setting", "quality")[chosen], cost, guessing)
    advice = Advice(
        model=opened.name,
        measure=measure,
        chosen_on=len(first),
        questions=len(second),
        best=best,
        certain=not why,
        why=why,
        options=named[best].given,
        command=named[best].command(opened.name if opened is model else str(model), opening.get("adapter")),
        confirmed=[
            ConfirmedSetting(setting=one, quality=own[one], change=changes.get((one, best)), **costs.loc[one].to_dict())
            for one in sorted(chosen, key=lambda one: (one != best, cost[one]))
        ],
        others=table[~table.setting.isin(chosen)].groupby("setting").quality.mean().to_dict(),
        wrong=confirming[["answer", "predicted"]][:2].to_numpy().tolist() if not confirming.quality.any() else [],
        folder=str(folder),
    )
    if join_crew().is_first:
        write_into(folder, "advice.json", [to_json(to_builtins(advice), indent=2) + "\n"])
    return advice


# Questions and settings


def _questions(data: Records | None, quality: checkable.Judge, seed: int) -> list[tuple[str, str]]:
    if data is None:
        pairs = [(one.asked, one.label) for one in checkable.embedded_questions(seed, PER_TASK)]
    else:
        pairs = [checkable.texts_of(row, where) for where, row in located_rows(data)]
    for number, (_, answer) in enumerate(pairs, 1):
        if not answer.strip():
            raise UserError(f"question {number} has an empty answer: give what a right answer is")
        quality(answer, answer)  # refuses a pattern that does not find it
    return pairs


def _usual(new: int, model: "Model") -> str:
    """Fewer steps, a strategy that decides itself, and blocks: the model's own halved, or with no masks after them."""
    paces = [f"steps={new // part}" for part in (1, 2, 4) if new % part == 0] + ["rule=threshold,tau=0.9"]
    half = model.block // 2 if model.block else 0
    block = next((size for size in (half, 32, 16, 8, 4) if size and new % size == 0 and size < new), None)
    blocks = [f"canvas={'blocks' if half else 'growing'},block={block},{pace}" for pace in paces if block]
    cached = [f"canvas=blocks,block={block},cache=dual,{paces[-1]}"] if block and model.family.canvas_cache else []
    return " ".join(paces + blocks + cached)


def _brackets(model: "Model") -> tuple[int, ...]:
    """The tokens that close the bracket of an embedded question's answer."""
    texts = (f"Answer:[{letter}].\n\nOptions" for letter in LETTERS)
    ids = [one for text in texts for one in model.tokenizer(text, add_special_tokens=False)["input_ids"]]
    return tuple(dict.fromkeys(one for one in ids if model.tokenizer.decode([one]).startswith("]")))


def _named(options: Sequence[DecodingOptions]) -> dict[str, DecodingOptions]:
    """The settings by what not all of them have."""
    given = [one | one.pop("parameters", {}) for one in (one.given for one in options)]
    differing = [{k: v for k, v in one.items() if any(other.get(k) != v for other in given)} for one in given]
    names = [", ".join(WORDS.get(k, k + " {}").format(v) for k, v in one.items()) for one in differing]
    usual = [f"{one.chosen_canvas} canvas, {one.steps or one.max_new_tokens} steps" for one in options]
    return {name or whole: one for name, whole, one in zip(names, usual, options, strict=True)}


# Answers, choice and confirmation


def _asking(
    model: "Model",
    pairs: Sequence[tuple[str, str]],
    measure: str,
    quality: checkable.Judge,
    settings: Mapping[str, DecodingOptions],
    seed: int,
    out: str | Path | None,
) -> tuple[Callable[[Sequence[str], Sequence[int]], Table], Path]:
    """A function that asks some settings some questions and gives a row for each, and where its answers are kept.

    What is on file is not asked again, each batch is kept as it is answered; other settings are refused."""
    from maskwise.decoding.checks import end_tokens, text_before_end
    from maskwise.decoding.generate import decode
    from maskwise.decoding.prompt_ids import encode_prompts
    from maskwise.probes.answers.plain import Answer, Written
    from maskwise.probes.setup import Item, Unit
    from maskwise.records.record import Key, make_key
    from maskwise.runs.diagnose import described, run_units, versions_used
    from maskwise.runs.runner import batch_budget
    from maskwise.tasks.prompts import Prompt

    def hashed(value: Any) -> str:
        return blake2b(to_json(value).encode(), digest_size=6).hexdigest()

    tried = {"measure": measure} | {name: one.given for name, one in settings.items()}
    stated: Any = {"preset": ADVISE, "probes": [ADVISE], "tasks": [QUESTIONS], "questions": len(pairs), "chat": False}
    asked = RunSettings(**stated, seed=seed, parameters={ADVISE: tried}, data={QUESTIONS: hashed(pairs)})
    about: Any = {"format": FORMAT, "model": described(model), "versions": versions_used(), "notes": []}
    manifest = Manifest(settings=asked, complete=False, **about)
    folder = Path(out or f"runs/{ADVISE}-{Path(model.name).name}-{hashed([manifest.model, asked])}")
    budget = batch_budget(model, None) if model.device.type == "cuda" else 1  # one by one: a batch saves no time

    def prompt(number: int, name: str) -> tuple[Prompt, str]:
        options, (text, answer) = settings[name], pairs[number]
        ids, masks = tuple(encode_prompts(model, text, options.chat)[0]), options.max_new_tokens
        return Prompt((*ids, *[int(model.mask_id or 0)] * masks), len(ids), answer_id=number, masks=masks), answer

    def items(name: str, numbers: Sequence[int], done: Collection[Key]) -> Iterator[Item]:
        for number in numbers:
            if (key := make_key(ADVISE, QUESTIONS, number, {"setting": name})) not in done:
                yield Item(key, {"setting": name}, *prompt(number, name))

    def answers(_: Any, prompts: Sequence[Prompt], name: str) -> list[Answer]:
        start, numbers = time.perf_counter(), [one.answer_id for one in prompts]
        draws = [torch_generator(ADVISE, seed, name, number, device=model.device) for number in numbers]
        made = decode(model, [list(one.ids[: one.row]) for one in prompts], settings[name], draws)
        seconds, found = round((time.perf_counter() - start) / len(prompts), 6), []
        for number, one in zip(numbers, made, strict=True):
            text = text_before_end(model, one.ids, set(end_tokens(model)))
            value = quality(text, pairs[number][1])
            evidence = {"quality": value, "passes": one.forwards, "seconds": seconds}
            found.append(Answer(one.ids[0], 0.0, 0.0, 0.0, evidence, Written(text, value == 1)))
        return found

    def ask(names: Sequence[str], numbers: Sequence[int]) -> Table:
        units = [Unit(numbers, 1, partial(items, name), partial(answers, name=name)) for name in names]
        run_units(model, units, folder, manifest, budget, ())
        table = read_run(folder, {ADVISE: FIELDS}).tables[ADVISE]
        return table[table.setting.isin(names) & table.point.isin(numbers)]

    return ask, folder


def _costs(table: Table) -> dict[str, float]:
    return (table.passes + SECONDS * table.seconds.clip(upper=1e3)).groupby(table.setting).mean().to_dict()


def choose(quality: Table, cost: Mapping[str, float]) -> list[str]:
    """The settings to confirm, by the quality [questions, settings]. One may be as good as the best where its mean, a
    standard error of the paired difference more, is within the margin: with few questions that is nearly all."""
    means, names = quality.mean(), list(quality)
    best = min(names, key=lambda one: (-means[one], cost[one]))
    error = quality.sub(quality[best], axis=0).std() / len(quality) ** 0.5
    cheap = sorted(names, key=lambda one: (cost[one], -means[one]))
    near = [one for one in cheap if means[one] + error[one] >= means[best] - MARGIN - SAME]
    return list(dict.fromkeys([names[0], best, *near[:2], *cheap[:2]]))[:FINALISTS]


def confirm(
    quality: Table, cost: Mapping[str, float], guessing: float = 0.0
) -> tuple[dict[str, Estimate], dict[tuple[str, str], Estimate], str, str]:
    """The mean of each setting, each one's change from each other, the best, and why it is not certain."""
    names, shares = list(quality), bool(quality.isin((0.0, 1.0)).all(axis=None))
    pairs = list(combinations(names, 2))
    level = LEVEL / len(pairs)
    if shares:
        own = {one: share(one, quality[one]) for one in names}
        found = {(one, other): change(one, quality[one], quality[other], level=level) for one, other in pairs}
    else:
        own = {one: mean(one, quality[one], unit="") for one in names}
        found = {(one, other): mean(one, quality[one] - quality[other], "", level=level) for one, other in pairs}
    changes = found | {(other, one): -pair for (one, other), pair in found.items()}
    if shares and max(one.low or 0 for one in own.values()) <= guessing:
        return own, changes, names[0], f"none is shown to do better than guessing ({guessing:.0%} right)"
    beyond = {one for (one, _), pair in changes.items() if pair.low is None or pair.low <= -MARGIN}
    near = [one for one in names if quality[one].mean() >= quality.mean().max() - MARGIN - SAME]
    best = min(set(names) - beyond or near, key=lambda one: (cost[one], -quality[one].mean()))
    needed = 2 * questions_to_decide(quality, best, shares, level)
    return own, changes, best, f"about {needed:,} questions in all would decide" if best in beyond else ""


def questions_to_decide(quality: Table, best: str, shares: bool, level: float) -> int:
    """Confirming questions after which the best is certain in 80 % of runs, if it is truly equal to the others and
    answers differ as often as in these, one gain and one loss added (Bonett and Price 2012); two significant digits."""
    count = len(quality)
    variance = quality.drop(columns=best).rsub(quality[best], axis=0).var(ddof=0).max()
    variance = (count * variance + 2) / (count + 2) if shares else variance
    reach = float(scipy.special.ndtri(1 - level / 2) + scipy.special.ndtri(POWER))
    needed = max(math.ceil(variance * (reach / MARGIN) ** 2), count + 1)
    return round(needed, 1 - math.floor(math.log10(needed)))
