"""What `maskwise advise` prints: the settings confirmed, the finding, the settings to use and what is not decided."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from maskwise.report.pages.advice import Search, reworded_lines, spent
from maskwise.support.terminal import one_line


def advice_text(search: Search, page: Path) -> str:
    """The whole text, in lines of 80 columns but for what is meant to be copied."""
    return "\n".join(_lines(search, page))


def _lines(search: Search, page: Path) -> Iterator[str]:
    found = search.found
    asked = found["questions"]
    if not search.able:
        yield f"{_wrapped(found['sentence'])}\n"
    yield _wrapped(f"{found['model']}: quality is {found['quality']}")
    yield (
        f"{asked['searched']} questions searched, {asked['held_back']} held back, {spent(search)}\n\n"
        f"On the questions held back:\n"
        f"    {'quality':24} {'difference from reference':26} {' passes'} {'seconds':>8}"
    )
    for row in found["confirmed"]:
        is_reference = row["setting"] == found["reference"]
        difference = "reference" if is_reference else search.with_ends(row["to_reference"], signed=True)
        yield f"{'*' if row['frontier'] else ' '} {one_line(row['setting'])}"
        yield f"    {search.with_ends(row['quality']):24} {difference:26} {row['passes']:7.1f} {row['seconds']:8.2g}"
    frontier, sentence = "* on the frontier: none is as good with fewer passes.\n", f"\n\n{_wrapped(found['sentence'])}"
    yield f"{frontier * search.able}  All differences together hold in 95 % of runs.{sentence * search.able}"
    for setting in dict.fromkeys(row["setting"] for row in found["advice"]):
        same = [row for row in found["advice"] if row["setting"] == setting]
        goals, row = ", ".join(row["goal"] for row in same), same[0]
        yield "\n" + _wrapped(f"{goals}: {setting}")
        for written in (row["command"], row["python"], f"lm_eval {row['lm_eval']}"):
            yield f"  {one_line(written)}"
    for number, line in enumerate([*reworded_lines(search), *search.undecided]):
        yield ("" if number else "\n") + _wrapped(line)
    yield f"\ndropped in the search: {len(found['dropped'])} settings (--json lists them)"
    yield _wrapped(f"not tried: {'; '.join(found['not_tried'])}")
    yield f"folder: {one_line(search.folder)}\npage: {one_line(page)}"


def _wrapped(text: str) -> str:
    return textwrap.fill(one_line(text), 80, break_long_words=False, break_on_hyphens=False)
