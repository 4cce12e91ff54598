"""The part of a model card that states what a run measured, in Markdown: every number with its settings.

It holds no path of this machine, only the names of folders.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from maskwise.models.checkpoints.cards import public_name
from maskwise.probes.probe import ScoreRule
from maskwise.probes.summary import probes_giving, scores_shown
from maskwise.report.pages.advice import Search, in_words, is_search, read_search, settings_of
from maskwise.report.pages.registry import runs_in
from maskwise.report.readings import Reading, read_all, records_as_strangers_wrote_them
from maskwise.report.words.sentences import Sentence, meaning_of, score_sentence
from maskwise.report.words.task_skill import about_skill, in_short, limit_of_run, limit_of_score
from maskwise.scoring.numbers import NBSP, between, percent, score_interval, score_value, task_count
from maskwise.scoring.scores import Score
from maskwise.support.errors import UserError

PAPER = "Piskorz et al., *Masks Can Be Distracting* (arXiv 2511.21338)"
LEFT_OUT = ("probes", "parameters", "tasks")  # in tables of their own, or too long
LONGEST_COMMAND = 20_000  # characters: splitting a longer one takes the square of its length


def run_card_of(folder: Path) -> str:
    """The model card section of a run of diagnose or a search of advise."""
    found = runs_in([folder])
    if len(found) > 1:
        raise UserError(f"{folder} holds {len(found)} runs: name one of them, such as {found[0]}")
    (folder,) = found
    if is_search(folder):
        return card_of_search(read_search(folder))
    (reading,) = read_all([folder])
    with records_as_strangers_wrote_them([folder]):
        return card_of_run(reading)


def card_of_run(reading: Reading) -> str:
    manifest = reading.manifest
    version = manifest.versions.get("maskwise", "of an unknown version")
    planted = manifest.model.planted
    limit = limit_of_run(reading)
    parts = [
        "## Sensitivity to appended masks and context locality",
        *([f"**{_text(about_skill(limit))}**"] if limit is not None else []),
        f"Measured with maskwise {_text(version)}; the measures are described by {PAPER}. Intervals are 95{NBSP}% "
        "intervals for these tasks with questions drawn afresh.",
        *(["**The run is unfinished**: the numbers rest on the records so far."] if not manifest.complete else []),
        *([f"**Planted**: this model has a fault put into it on purpose, {_text(planted)}."] if planted else []),
        "\n".join(f"- **{_text(s.claim)}** {_text(s.evidence)}" for s in _sentences(reading)),
        _table(("score", "value", "95 % interval", "questions", "what it is"), _score_rows(reading)),
        _unmeasured(reading),
        *_condition_tables(reading),
        "### Settings of these numbers",
        _table(("setting", "value"), _setting_rows(reading)),
        *_command(manifest.command or None),
        *_notes(manifest.notes),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def card_of_search(search: Search) -> str:
    found = search.found
    unit, points = (" (%)", " (points)") if search.is_share else ("", "")
    rows = [
        (
            row.setting + (" (reference)" if row.setting == found.reference else ""),
            search.with_ends(row.quality),
            search.with_ends(row.to_reference, signed=True),
            *search.costs_in_words(row),
        )
        for row in found.confirmed
    ]
    costs = () if search.served else ("forward passes",)
    device = "http://SERVER/v1" if search.served else found.device  # a card is published: no address of a server
    picks = [f"- {_text(row.goal)}: {_code(row.python.replace(found.device, device))}" for row in found.advice]
    picks += [f"- {_text(line)}" for line in search.undecided]
    planted = search.manifest.planted
    settings = settings_of(search) | {"model": public_name(found.model), "device": device}
    measure, under, judge = str(settings["quality"]).rpartition(" under ")  # a judge may be a folder
    settings["quality"] = f"{measure}{under}{public_name(judge)}" if under else judge
    parts = [
        "## Decoding settings",
        f"Found by `maskwise advise` on {found.questions.held_back} questions held back from the search.",
        *([f"**Planted**: this model has a fault put into it on purpose, {_text(planted)}."] if planted else []),
        _text(found.sentence),
        "\n".join(picks),
        _table(("setting", f"quality{unit}", f"difference from reference{points}", *costs, "seconds"), rows),
        "In brackets: quality with its 95 % interval; differences are paired, and all of them together hold in 95 % of "
        f"runs. {'Seconds' if search.served else 'Passes and seconds'} are per question.",
        "Not tried: " + _text("; ".join(map(str, found.not_tried))) + ".",
        "### Settings of these numbers",
        _table(("setting", "value"), [(name.replace("_", " "), in_words(value)) for name, value in settings.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def _score_rows(reading: Reading) -> list[tuple[str, ...]]:
    return [
        (
            rule.title,
            score_value(score, rule.unit),
            score_interval(score, rule.unit),
            f"{score.n:,}",
            meaning_of(rule, score),
        )
        for rule, score in _scores(reading)
        if score.value is not None and not _without_skill(rule, reading)
    ]


def _without_skill(rule: ScoreRule, reading: Reading) -> str:
    """Why a score that has a value says nothing; empty where it says something."""
    limit = limit_of_score(rule, reading)
    return in_short(limit) if limit is not None else ""


def _unmeasured(reading: Reading) -> str:
    reasons = [(rule, _without_skill(rule, reading) or score.why) for rule, score in _scores(reading)]
    listed = [f"{rule.title} ({why})" for rule, why in reasons if why]
    return f"Without a value: {_text('; '.join(listed))}." if listed else ""


def _scores(reading: Reading) -> list[tuple[ScoreRule, Score]]:
    rules = scores_shown(reading.summary, reading.probes)
    return [(rule, reading.summary.scores[rule.name]) for rule in rules]


def _sentences(reading: Reading) -> list[Sentence]:
    """The sentences of the scores that have a value."""
    return [
        score_sentence(rule, reading)
        for rule, score in _scores(reading)
        if rule.sentences is not None and score.value is not None
    ]


def _condition_tables(reading: Reading) -> list[str]:
    """A table per probe that a score comes from: the accuracy under every condition, with its masks."""
    names = dict.fromkeys(
        probe.name for rule, _ in _scores(reading) for probe in probes_giving(rule.name, reading.probes)
    )
    parts = []
    for name in names:
        entries = reading.entries(name)
        keys = list(dict.fromkeys(key for entry in entries for key in entry.condition if key != "masks"))
        rows = [
            (
                *(str(entry.condition.get(key, "")) for key in keys),
                str(entry.masks),
                f"{entry.n:,}",
                percent(entry.accuracy, 1),
                between(entry.low, entry.high, 1),
            )
            for entry in entries
        ]
        if rows:
            asked = reading.asked[name]
            parts.append(f"### Accuracy, probe {_code(name)}: {task_count(len(asked.tasks))}, {asked.most:,} points")
            parts.append(_table((*keys, "masks", "answers", "accuracy", "95 % interval"), rows))
    return parts


def _setting_rows(reading: Reading) -> list[tuple[str, str]]:
    manifest = reading.manifest
    model = {**manifest.model, "name": public_name(manifest.model.name)}
    model.pop("planted", None)
    settings = {name: value for name, value in manifest.settings.items() if name not in LEFT_OUT}
    settings |= {"tasks": ", ".join(manifest.settings.tasks), "probes": ", ".join(manifest.settings.probes)}
    own = manifest.settings.parameters or {}
    settings |= {f"parameters of {probe}": _inner(values) for probe, values in own.items()}
    versions = {f"{name} version": value for name, value in manifest.versions.items()}
    named = {f"model {name}".replace("model name", "model"): value for name, value in model.items()}
    return [(name.replace("_", " "), _inner(value)) for name, value in {**named, **settings, **versions}.items()]


def _inner(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name} {_inner(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_inner, value)) or "none"
    return {None: "none", True: "yes", False: "no"}.get(value, str(value)) if not _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _command(command: str | None) -> list[str]:
    """The command line, with the names of folders instead of their paths; none where it is no command of ours."""
    if not command or len(command) > LONGEST_COMMAND:
        return []
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    line = _one_line(shlex.join(public_name(word) if "/" in word or "\\" in word else word for word in words))
    fence = "`" * max(3, _longest_run(line) + 1)
    return [f"{fence}bash\n{line}\n{fence}"]


def _notes(notes: Iterable[str]) -> list[str]:
    return ["\n".join(f"- {_text(note)}" for note in notes)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text))


def _longest_run(text: str) -> int:
    """The longest run of backticks: code is fenced by more of them than it holds."""
    return max(map(len, re.findall("`+", text)), default=0)


def _code(text: str) -> str:
    """As inline code, also if it holds backticks."""
    line = _one_line(text)
    fence = "`" * (_longest_run(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def _text(text: str) -> str:
    """On one line, with the characters escaped that Markdown or HTML would read."""
    line = _one_line(text)
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", line) if line != "---" else line
