"""What CONTRIBUTING.md shows is what the files hold, and what it names is there."""

import re

import pytest
import yaml

from helpers.wheel import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
DIFFS = [
    diff
    for block in re.findall(r"```diff\n(.*?)```", TEXT, re.DOTALL)
    for diff in re.split(r"^--- ", block, flags=re.M)
    if diff
]


@pytest.mark.parametrize("diff", DIFFS, ids=lambda diff: re.search(r"\+\+\+ b/(.*)", diff)[1])
def test_a_diff_shows_lines_of_the_file_as_it_is(diff):
    """What is added and what surrounds it stand in the file, in this order."""
    header, *hunks = re.split(r"^@@.*@@\n", diff, flags=re.MULTILINE)
    content = (ROOT / re.search(r"\+\+\+ b/(.*)", header)[1]).read_text()
    assert hunks and any(line.startswith("+") for hunk in hunks for line in hunk.splitlines())
    for hunk in hunks:
        after = "".join(line[1:] + "\n" for line in hunk.splitlines() if not line.startswith("-"))
        assert after in content


def test_the_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    assert set(re.findall(r"make (\w+)", TEXT + workflow)) <= targets


def test_the_paths_that_make_quick_runs_exist():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    paths = re.search(r"^QUICK := (.*)$", makefile, re.MULTILINE)[1].split()
    assert paths and all((ROOT / path).exists() for path in paths)


def test_the_citation_names_the_licence_and_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["title"] == "maskwise" and citation["license"] == "Apache-2.0"
    papers = [paper["identifiers"][0]["value"] for paper in citation["references"]]
    assert papers == ["arXiv:2511.21338", "arXiv:2510.03289"]
