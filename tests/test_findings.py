"""Numbers in README, findings and benchmarks stand in a study or a benchmark table; each study has a command.

A number may be rounded on the page: 26 points stands for 25.7 in a study.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STUDIES = sorted((ROOT / "docs" / "studies").glob("*.md"))
PAGES = ["README.md", "docs/findings.md", "docs/benchmarks.md"]
NUMBER = r"[-+−]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?!\w)"
LIST = rf"{NUMBER}(?:(?:, | and | or | to | ± ){NUMBER})*"
UNIT = r"(?:%|points|nats|ms|s|GiB|GB|TFLOP/s|times)"
MEASURED = re.compile(rf"(?<![\w.])({LIST}) {UNIT}(?!\w)")
COMMAND = re.compile(r"\bmaskwise [a-z]+ |\bpython (?:-m \w|recipes/|benchmarks/|tests/)|\bmake [a-z]+")
HISTORY = re.compile(r"^- .*\(commit [0-9a-f]{8}\)\.$", re.MULTILINE)  # its study is in the history
OTHER = {"95"}  # the level of the intervals
LONGEST_PAGE, LONGEST_LINE = 80, 160
CURED = re.compile(r"recovered|loss cut|\b(?:un)?tuned\b|\btuning\b", re.IGNORECASE)
CARDS = sorted((ROOT / "src" / "maskwise" / "models" / "zoo").glob("*/README.md"))


def as_number(text: str) -> float:
    """Its size without a sign: a loss of 29.7 points is a change of -29.7."""
    return abs(float(text.replace("−", "-").replace(",", "")))


def intervals(text: str) -> set[frozenset[float]]:
    return {frozenset(map(as_number, ends)) for ends in re.findall(rf"(?<![\w.])({NUMBER}) to ({NUMBER})", text)}


def without_code(text: str) -> str:
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", prose)


def evidence() -> str:
    tables = [line for line in (ROOT / "docs" / "benchmarks.md").read_text().splitlines() if line.startswith("|")]
    return "\n".join([*tables, *(page.read_text() for page in STUDIES)])


def missing(text: str, known: str) -> list[object]:
    """Numbers with a unit that no known one equals or rounds to, and intervals that are not known.

    Shares may be written as percentages.
    """
    text = HISTORY.sub("", text)
    sizes = [as_number(number) for number in re.findall(rf"(?<![\w.]){NUMBER}", known)]
    sizes += [100 * size for size in sizes if size < 1]
    prose = without_code(text)
    numbers = [n for given in MEASURED.findall(prose) for n in re.findall(NUMBER, given) if n not in OTHER]
    absent = [n for n in numbers if not any(rounds_to(size, n) for size in sizes)]
    in_brackets = "; ".join(re.findall(r"\(([^()]*)\)", prose))
    return [*absent, *map(sorted, intervals(in_brackets) - intervals(known))]


def rounds_to(size: float, text: str) -> bool:
    return abs(as_number(text) - size) <= 0.5001 * 10 ** -len(text.partition(".")[2])


@pytest.mark.parametrize("page", PAGES)
def test_every_measured_number_stands_in_a_study_or_a_table(page):
    text = (ROOT / page).read_text()
    if page == "docs/benchmarks.md":
        text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    assert missing(text, evidence()) == []


def test_a_number_without_evidence_is_found():
    assert missing("loses 26 points (6.3 to 44.0) in 4.7 s", "-25.7 (-44.0 to -6.3)") == ["4.7"]
    assert missing("loses 26 points (6.3 to 45.0)", "-25.7 (-44.0 to -6.3)") == [[6.3, 45.0]]
    assert missing("- a loss of 9 points (commit cc8a75cd).\n- of 8 points", "7") == ["8"]
    assert missing("17 % of the pairs", ".1705") == [] and missing("19 %", ".1705") == ["19"]


@pytest.mark.parametrize("page", STUDIES, ids=lambda page: page.stem)
def test_a_study_is_short_and_has_a_command_and_a_verdict(page):
    text = page.read_text()
    lines = text.splitlines()
    assert COMMAND.search(text) and "Question." in text and "Method." in text and "erdict" in text
    assert len(lines) <= LONGEST_PAGE
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
    assert [line for line in prose if len(line) > LONGEST_LINE and not line.startswith(("|", "!"))] == []


def test_every_study_is_cited_by_the_findings_or_the_benchmarks():
    text = "".join((ROOT / page).read_text() for page in PAGES[1:])
    assert [page.stem for page in STUDIES if f"studies/{page.name}" not in text] == []


def one_ended(text: str) -> list[str]:
    """Heads of the tables of a cure without accuracies at both ends (2 and 200 masks), or with derived ones."""
    found = []
    for table in re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE):
        head, _, *rows = table.splitlines()
        names = " ".join([head, *(row.split("|")[1] for row in rows)])
        ends = (re.search(r"\b2 masks", names) and re.search(r"\b200\b", names)) or all("->" in row for row in rows)
        if CURED.search(names) and (not ends or re.search(r"loss cut|about", head)):
            found.append(head)
    return found


def test_every_table_of_a_cure_has_both_ends():
    pages = [ROOT / "docs" / "findings.md", *STUDIES, *CARDS]
    assert {
        page.parent.name + "/" + page.stem: one_ended(page.read_text()) for page in pages if one_ended(page.read_text())
    } == {}
    assert one_ended("| loss | recovered |\n|---|---|\n| KL | 96 % |\n") == ["| loss | recovered |"]
    assert one_ended("| model | 200 masks |\n|---|---|\n| tuned | 96 |\n") == ["| model | 200 masks |"]
    assert one_ended("| model | 2 masks | 200 masks |\n|---|---|---|\n| tuned | 97 | 96 |\n") == []
    assert one_ended("| model | accuracy |\n|---|---|\n| tuned | 97 -> 96 |\n") == []
