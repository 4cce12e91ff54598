"""A search of `maskwise advise` as a person sees it: read from its folder, drawn as a page of one file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any, TypeVar

from msgspec import UNSET

from maskwise.records.folder import ADVISE, MANIFEST
from maskwise.records.search import Advice, ConfirmedSetting, DroppedSetting, MeanInterval, SearchManifest
from maskwise.report.figures import drawing
from maskwise.report.figures.frontier import Frontier, Spot
from maskwise.report.pages.jinja_environment import render
from maskwise.scoring import numbers
from maskwise.support.errors import UserError
from maskwise.support.files import OTHER_FOLDER, read_json, read_text, replace_file, writing
from maskwise.support.typed import InvalidJson, decode

T = TypeVar("T")

RESULT, PAGE = "advice.json", "advice.html"
GOALS = 3  # best quality, fastest within 1 point, fastest within 3


@dataclass(frozen=True)
class Search:
    """What a search found (advice.json) and what it was asked (manifest.json)."""

    folder: Path
    manifest: SearchManifest
    found: Advice

    @property
    def is_share(self) -> bool:
        return self.found.unit == "share"

    def costs(self, row: ConfirmedSetting | DroppedSetting) -> tuple[float, ...]:
        """Forward passes and seconds per question."""
        return float(row.passes), float(row.seconds)

    def costs_in_words(self, row: ConfirmedSetting | DroppedSetting) -> tuple[str, ...]:
        return f"{row.passes:.3g}", f"{row.seconds:.2g}"

    @property
    def able(self) -> bool:
        """Whether the questions can tell settings apart (not too hard, not too easy); else none is on the frontier."""
        return any(row.frontier for row in self.found.confirmed)

    @property
    def undecided(self) -> list[str]:
        """`best quality: not decided; about 1,400 questions held back would decide`"""
        lines = []
        for row in self.found.undecided if self.able else ():
            more = "" if row.questions is None else f"; about {row.questions:,} questions held back would decide"
            lines.append(f"{row.goal}: not decided{more}")
        return lines

    def number(self, value: float, signed: bool = False) -> str:
        """In percent or points where the quality is a share."""
        in_words = numbers.signed if signed else numbers.number
        return in_words(100 * value, 1) if self.is_share else in_words(value, 3)

    def ends(self, interval: MeanInterval) -> str:
        """`79.2 to 99.2`; empty where nothing varied, or where something is compared with itself."""
        low, high = interval.low, interval.high
        return "" if low is None or high is None or low == high else f"{self.number(low)} to {self.number(high)}"

    def with_ends(self, interval: MeanInterval, signed: bool = False) -> str:
        """`93.8 (79.2 to 99.2)`"""
        ends = self.ends(interval)
        return self.number(interval.mean, signed) + (f" ({ends})" if ends else "")


def reworded_lines(search: Search) -> list[str]:
    """Of each setting that is named, whether its difference from the reference stays under a new template."""
    lines, unit = [], " points" if search.is_share else ""
    for one in search.found.rewordings or ():
        mean = f"{search.number(one.difference, True)}{unit} from the reference over {len(one.templates)} templates"
        if one.new_low is None or one.new_high is None or one.sd_high is None:
            lines.append(f"{one.setting}, reworded: {mean}; no template changed it")
            continue
        crosses = one.new_low <= 0 <= one.new_high
        new = f"{search.number(one.new_low, True)} to {search.number(one.new_high, True)}{unit}"
        verdict = "so a new template may turn it round" if crosses else "so it holds under a new template"
        lines.append(
            f"{one.setting}, reworded: {mean}, {new} under a new one (95 % predictive interval), {verdict}; standard "
            f"deviation over templates {search.number(one.sd)}{unit}, {one.questions} questions"
        )
    return lines


def is_search(folder: Path) -> bool:
    """Is it a folder of advise, whatever state it is in?"""
    manifest = read_json(folder / MANIFEST, "choose another folder")
    return isinstance(manifest, dict) and manifest.get("command") == ADVISE


def read_search(folder: Path) -> Search:
    """A search that has ended; refuses files that advise did not write."""
    manifest = _read(folder / MANIFEST, SearchManifest)
    if manifest.identity.model.served is not UNSET:
        raise UserError(f"{folder} holds answers of --endpoint, which was removed in 0.3: commit cc8a75cd reads it")
    if not (folder / RESULT).exists():
        raise UserError(f"the search in {folder} has not ended: run the same maskwise advise again")
    found = _read(folder / RESULT, Advice)
    if problem := _problem(found):
        raise UserError(f"{folder / RESULT} is not what maskwise advise writes: {problem}")
    return Search(folder, manifest, found)


def _read(file: Path, kind: type[T]) -> T:
    remedy = "run the same maskwise advise again"
    try:
        return decode(read_text(file, remedy), kind)
    except InvalidJson as problem:
        raise UserError(f"{file} is not valid JSON ({problem}): {remedy}") from None
    except ValueError as problem:
        raise UserError(f"{file} is not what maskwise advise writes: {problem}") from None


def _problem(found: Advice) -> str | None:
    """Pages, tables and cards trust what advise writes; in a stranger's file any of it may be something else."""
    settings = [row.setting for row in found.confirmed]
    goals = len(found.advice) + len(found.undecided)
    if goals != GOALS or not settings or not {row.setting for row in found.advice} <= set(settings):
        return f"it does not decide {GOALS} goals among the settings that were confirmed"
    if len(settings) > len(ascii_uppercase):
        return f"{len(settings)} settings were confirmed, and at most {len(ascii_uppercase)} are"
    return None


def write_search(search: Search, out: Path) -> Path:
    """advice.html; advice.svg and advice.png where the model can answer; returns the page's path."""
    chart = frontier_of(search) if search.able else None
    drawn = {} if chart is None else chart.for_page(f"{chart.title}. {search.found.sentence}")
    page = render("advice.html.jinja", **_view(search) | {"drawn": drawn})
    with writing(f"into {out}", OTHER_FOLDER):
        out.mkdir(parents=True, exist_ok=True)
        if chart is not None:
            svg, png = chart.files()
            replace_file(out / "advice.svg", [svg])
            replace_file(out / "advice.png", png)
        replace_file(out / PAGE, [page])
    return out / PAGE


def frontier_of(search: Search) -> Frontier:
    found = search.found
    spots = [Spot(search.costs(one), float(one.quality)) for one in found.dropped]
    for letter, row in zip(ascii_uppercase, found.confirmed, strict=False):
        low, high = row.quality.low, row.quality.high
        ends = None if low is None or high is None else (float(low), float(high))
        spots.append(Spot(search.costs(row), float(row.quality.mean), ends, letter, bool(row.frontier)))
    costs = ("Forward passes per question", "Seconds per question")
    title = f"{drawing.pretty(found.model, 60)}: quality against cost"
    return Frontier(tuple(spots), costs, "Quality", search.is_share, title)


def _view(search: Search) -> dict[str, Any]:
    found, identity = search.found, search.manifest.identity
    letters = {row.setting: letter for row, letter in zip(found.confirmed, ascii_uppercase, strict=False)}
    fewest, most = (pick((row.questions for row in found.dropped), default=0) for pick in (min, max))
    return {
        "title": f"{'How to decode' if search.able else 'Decoding'} {found.model}",
        "planted": search.manifest.planted or None,
        "facts": [
            f"quality: {found.quality}",
            f"{found.questions.searched} questions searched, {found.questions.held_back} held back",
            spent(search),
            str(identity.model.dtype),
        ],
        "sentence": found.sentence,
        "picks": [_pick(search, setting, letters) for setting in dict.fromkeys(r.setting for r in found.advice)],
        "undecided": [*reworded_lines(search), *search.undecided],
        "confirmed": [_confirmed(search, row, letters) for row in found.confirmed],
        "dropped": [
            (row.setting, f"{row.questions}", search.number(row.quality), *search.costs_in_words(row))
            for row in found.dropped
        ],
        "asked_of_dropped": f"{fewest}" if fewest == most else f"{fewest} to {most}",
        "unit": " (%)" if search.is_share else "",
        "points": " (points)" if search.is_share else "",
        "not_tried": list(map(str, found.not_tried)),
        "settings": [(name.replace("_", " "), in_words(value)) for name, value in settings_of(search).items()],
    }


def _pick(search: Search, setting: str, letters: Mapping[str, str]) -> dict[str, Any]:
    """One setting under all the goals that it meets."""
    rows = [row for row in search.found.advice if row.setting == setting]
    row = rows[0]
    gained = search.with_ends(row.to_reference, signed=True)
    gain = "" if setting == search.found.reference else f", {gained} from the reference"
    passes = f"{row.passes:.3g} forward pass{'' if row.passes == 1 else 'es'}"
    quality = f"quality {search.with_ends(row.quality)}{' %' if search.is_share else ''}{gain}"
    lm_eval = f"lm_eval {row.lm_eval} --tasks ..."
    return {
        "goals": ", ".join(one.goal for one in rows),
        "letter": letters[setting],
        "setting": setting,
        "numbers": f"{quality}; per question {passes} and {row.seconds:.2g} s",
        "code": (("command line", row.command), ("Python", row.python), ("lm-eval", lm_eval)),
    }


def _confirmed(search: Search, row: ConfirmedSetting, letters: Mapping[str, str]) -> tuple[str, ...]:
    is_reference = row.setting == search.found.reference
    return (
        letters[row.setting],
        row.setting + (" (reference)" if is_reference else ""),
        search.with_ends(row.quality),
        "" if is_reference else search.with_ends(row.to_reference, signed=True),
        *search.costs_in_words(row),
        "yes" if row.frontier else "",
    )


def spent(search: Search) -> str:
    """`1,234 forward passes in 56 s on cpu`"""
    found = search.found
    return f"{found.passes:,} forward passes in {found.seconds:.0f} s on {found.device}"


def settings_of(search: Search) -> dict[str, Any]:
    """What was searched, and what every number depends on."""
    identity = search.manifest.identity
    questions, budget = identity.questions, identity.budget
    return {
        "model": search.found.model,
        "fingerprint": identity.model.fingerprint,
        "type": identity.model.dtype,
        "questions": f"{questions.count}, hash {questions.hash}",
        "quality": search.found.quality,
        **identity.space,
        "ranked by": identity.cost,
        "budget": "none" if budget is None else f"{budget / 60:g} minutes of decoding",
        "seed": identity.seed,
        **{f"{name} version": value for name, value in search.manifest.versions.items()},
    }


def in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{name} {in_words(one)}" for name, one in value.items()) or "none"
    return "default" if value is None else str(value)
