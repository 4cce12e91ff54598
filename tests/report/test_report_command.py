"""`maskwise report`: the page, what the terminal and --json say of it, the table of several runs, the card."""

import io
import json
import resource
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.report_runs import DIFFUSION, KNOWN, mask_probes, write_run
from maskwise.cli import app
from maskwise.report.page import write_page
from maskwise.report.result import table_of_runs
from maskwise.support.errors import UserError

MASKS = mask_probes([8, 9, 7, 8], [5, 6, 4, 5])[:2]


def report(*given: object):
    return CliRunner().invoke(app, ["report", *map(str, given)], env={"COLUMNS": "200"})


def test_one_run_is_drawn_into_its_own_folder(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", MASKS)
    done = report(folder)
    assert done.exit_code == 0, done.output
    assert {"report.html", "result.json", "figures"} <= {file.name for file in folder.iterdir()}
    assert str(mw.read_run(folder)) in done.stdout and str(folder / "report.html") in done.stdout.splitlines()[-1]
    assert json.loads(report(folder, "--json").stdout) == json.loads((folder / "result.json").read_text())


def test_several_runs_are_one_table_and_one_page_next_to_the_first(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, MASKS, DIFFUSION | {"name": f"lab/{name}"}) for name in ("a", "b")]
    printed = json.loads(report(*folders, "--json").stdout)
    page = Path(printed["report"])
    assert (page.name, page.parent.parent) == ("report.html", tmp_path) and page.parent.name.startswith("side-by-side-")
    assert printed["runs"] == [json.loads((folder / "result.json").read_text()) for folder in folders]
    heads, rows = table_of_runs({folder.name: mw.read_run(folder) for folder in folders})
    shown = " ".join(report(tmp_path).stdout.split())  # all runs below a folder; the page's is none
    assert all(" ".join(cell.split()) in shown for row in [heads, *rows] for cell in row)


@pytest.mark.slow
def test_verbose_prints_every_estimate_and_table_and_names_are_no_markup(tmp_path: Path) -> None:
    name = "[bold]not markup[/bold] [/]"
    asked = [*KNOWN, ("filler", {"filler": "[red]", "fillers": 7, "format": "B"}, 1, [1, 1, 1, 1])]
    folder = write_run(tmp_path / "run", asked, model=DIFFUSION | {"name": name})
    lines = [" ".join(line.split()) for line in report(folder, "--verbose").stdout.splitlines()]
    assert any(line.startswith(name) for line in lines)
    assert all(str(one) in lines for found in mw.read_run(folder).measured.values() for one in found)
    assert any("[red]” 9 10.0 %" in line for line in lines)


def test_the_card_states_every_estimate_and_no_path(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", KNOWN, command="maskwise diagnose /home/me/models/mine --out /home/me/runs")
    card = report(folder, "--card")
    assert card.exit_code == 0 and card.stdout.startswith("## ") and "/home" not in card.stdout
    for found in mw.read_run(folder).measured.values():
        assert all(one.name in card.stdout and one.short in card.stdout for one in found)
    assert not (folder / "report.html").exists()
    assert report(folder, write_run(tmp_path / "b", MASKS), "--card").exit_code == 2


@pytest.mark.slow
def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # what pytest puts in its place is a file that may not grow
    run = mw.read_run(write_run(tmp_path / "run", KNOWN[-2:]))  # one probe: the page is drawn five times
    page = write_page([run], run.folder)
    before = {file: file.read_bytes() for file in sorted(run.folder.rglob("*")) if file.is_file()}
    for room in (0, 100, 20_000):
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
        try:
            with pytest.raises(UserError, match="cannot write the report"):
                write_page([run], run.folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert {file: file.read_bytes() for file in before} == before
    page.unlink()
    assert write_page([run], run.folder).read_bytes() == before[page]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("order", {"masks": 3}, 3, [1, 1, 1, 1]), "condition has an unknown field"),
        (("mask-count", {"location": 3}, 3, [1, 1, 1, 1]), "condition has an unknown field"),
        (("mask-count", {"masks": -3}, 3, [1, 1, 1, 1]), "line 1 is not a record of this run"),
        (("mask-count", {"masks": "3"}, 3, [1, 1, 1, 1]), "line 1 is not a record of this run"),
    ],
)
def test_records_without_what_their_probe_measures_are_one_line(tmp_path: Path, asked, said) -> None:
    folder = write_run(tmp_path / "run", [asked])
    done = report(folder)
    assert done.exit_code == 2 and said in done.stderr, done.output
    assert done.stderr.count("\n") == 1 and str(folder) in done.stderr and not (folder / "report.html").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"nll": 1e308},
        {"entropy": 1e308},
        {"point": 2**63 - 1},
        {"masks": 2**63 - 1},
        {"condition": {"masks": 2**63 - 1}},
        {"confidence": 0.0, "nll": 0.0},
    ],
)
def test_huge_numbers_of_strangers_are_a_page_or_one_line(tmp_path: Path, changed) -> None:
    folder = write_run(tmp_path / "run", MASKS)
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    lines[0] |= changed
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = report(folder)
    assert done.exit_code in (0, 2) and done.stderr.count("\n") <= 1, done.output
    assert done.exit_code == 2 or not {"nan", "inf"} & set((folder / "report.html").read_text().split())


def test_bad_folders_end_with_status_two(tmp_path: Path) -> None:
    for given in (tmp_path / "nowhere", tmp_path):
        done = report(given)
        assert done.exit_code == 2 and not done.stdout
        assert done.stderr.startswith("maskwise: ") and done.stderr.count("\n") == 1
