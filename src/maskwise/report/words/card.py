"""The part of a model card that states what a run measured, in Markdown: every number with its settings.

It holds no path of this machine, only the names of folders.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import UnsetType

from maskwise.models.checkpoints.cards import public_name
from maskwise.probes.probe import ScoreRule
from maskwise.probes.summary import probes_giving
from maskwise.report.pages.figure_table import cell
from maskwise.report.pages.registry import runs_in
from maskwise.report.readings import Reading, read_all, records_as_strangers_wrote_them
from maskwise.report.words.sentences import score_sentence, with_conditions
from maskwise.report.words.task_skill import about_skill, in_short, limit_of_run, limit_of_score
from maskwise.scoring.numbers import NBSP, between, percent, score_interval, score_value, task_count
from maskwise.scoring.scores import Score
from maskwise.support.errors import UserError

PAPER = "Piskorz et al., *Masks Can Be Distracting* (arXiv 2511.21338)"
LEFT_OUT = ("probes", "parameters", "tasks")  # in tables of their own, or too long
LONGEST_COMMAND = 20_000  # characters: splitting a longer one takes the square of its length


def run_card_of(folder: Path) -> str:
    """The model card section of a run."""
    found = runs_in([folder])
    if len(found) > 1:
        raise UserError(f"{folder} holds {len(found)} runs: name one of them, such as {found[0]}")
    (folder,) = found
    (reading,) = read_all([folder])
    with records_as_strangers_wrote_them([folder]):
        return card_of_run(reading)


def card_of_run(reading: Reading) -> str:
    manifest = reading.manifest
    version = manifest.versions.get("maskwise", "of an unknown version")
    limit = limit_of_run(reading)
    rules = [(rule, reading.score(rule.name)) for rule in reading.rules]
    said = [score_sentence(rule, reading) for rule, score in rules if rule.sentences and score.value is not None]
    parts = [
        "## Sensitivity to appended masks and context locality",
        "" if limit is None else f"**{_text(about_skill(limit))}**",
        f"Measured with maskwise {_text(version)}; the measures are described by {PAPER}. Intervals are 95{NBSP}% "
        "intervals for these tasks with questions drawn afresh.",
        "" if manifest.complete else "**The run is unfinished**: the numbers rest on the records so far.",
        _planted(manifest.model.planted),
        "\n".join(f"- **{_text(one.claim)}** {_text(one.evidence)}" for one in said),
        *_score_table(reading, rules),
        *_condition_tables(reading),
        "### Settings of these numbers",
        _table(("setting", "value"), _setting_rows(reading)),
        _command(manifest.command or ""),
        "\n".join(f"- {_text(note)}" for note in manifest.notes),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _planted(fault: str | UnsetType | None) -> str:
    return f"**Planted**: this model has a fault put into it on purpose, {_text(fault)}." if fault else ""


def _score_table(reading: Reading, scores: Sequence[tuple[ScoreRule, Score]]) -> Iterator[str]:
    """The scores that say something, then the others with the reason why they do not."""
    rows, without = [], []
    for rule, score in scores:
        limit = limit_of_score(rule, reading)
        why = in_short(limit) if limit is not None else score.why
        if why:
            without.append(f"{rule.title} ({why})")
        if limit is None and score.value is not None:
            value = (score_value(score, rule.unit), score_interval(score, rule.unit), f"{score.n:,}")
            rows.append((rule.title, *value, with_conditions(rule.meaning, score.over)))
    yield _table(("score", "value", "95 % interval", "questions", "what it is"), rows)
    yield f"Without a value: {_text('; '.join(without))}." if without else ""


def _condition_tables(reading: Reading) -> Iterator[str]:
    """A table per probe that a score comes from: the accuracy under every condition, with its masks."""
    for name in dict.fromkeys(one.name for rule in reading.rules for one in probes_giving(rule.name, reading.probes)):
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
            yield f"### Accuracy, probe {_code(name)}: {task_count(len(asked.tasks))}, {asked.most:,} points"
            yield _table((*keys, "masks", "answers", "accuracy", "95 % interval"), rows)


def _setting_rows(reading: Reading) -> list[tuple[str, str]]:
    manifest = reading.manifest
    model = {**manifest.model, "name": public_name(manifest.model.name)}
    model.pop("planted", None)
    settings = {name: value for name, value in manifest.settings.items() if name not in LEFT_OUT}
    settings |= {"tasks": ", ".join(manifest.settings.tasks), "probes": ", ".join(manifest.settings.probes)}
    own = manifest.settings.parameters or {}
    settings |= {f"parameters of {probe}": values for probe, values in own.items()}
    versions = {f"{name} version": value for name, value in manifest.versions.items()}
    named = {f"model {name}".replace("model name", "model"): value for name, value in model.items()}
    every = {**named, **settings, **versions}
    return [(name.replace("_", " "), cell(value, missing="none", colon="")) for name, value in every.items()]


def _command(command: str) -> str:
    """The command line, with the names of folders instead of their paths; empty where it is no command of ours."""
    try:
        words = shlex.split(command) if len(command) <= LONGEST_COMMAND else []
    except ValueError:
        return ""
    if not words:
        return ""
    line = _one_line(shlex.join(public_name(word) if "/" in word or "\\" in word else word for word in words))
    fence = "`" * max(3, _longest_run(line) + 1)
    return f"{fence}bash\n{line}\n{fence}"


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
