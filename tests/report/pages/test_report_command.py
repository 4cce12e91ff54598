"""`maskwise report`, and the table it prints."""

import io
import json
import resource
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.outputs import problem_of_output
from helpers.report_runs import DIFFUSION, KNOWN, mask_probes, write_run
from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.words.printed_summary import print_summary
from maskwise.support.errors import UserError


def test_one_run_is_drawn_into_its_own_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(write_run(tmp_path / "run"))])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "report.html").exists()
    assert result.stdout.splitlines()[-1] == str(tmp_path / "run" / "report.html")
    assert "Mask tax" in result.stdout


@pytest.mark.slow
def test_several_runs_go_next_to_the_first_and_json_is_one_object(tmp_path: Path) -> None:
    folders = [str(write_run(tmp_path / name, mask_probes([8, 9, 7, 8], [5, 6, 4, 5])[:2])) for name in ("a", "b")]
    result = CliRunner().invoke(app, ["report", *folders, "--json"])
    printed = json.loads(result.stdout)
    page = Path(printed["report"])
    assert (page.name, page.parent.parent) == ("report.html", tmp_path) and page.parent.name.startswith("side-by-side-")
    again, turned = (
        json.loads(CliRunner().invoke(app, ["report", *named, "--json"]).stdout)["report"]
        for named in (folders, folders[::-1])
    )
    assert again == printed["report"] != turned
    assert [run["out"] for run in printed["runs"]] == folders
    assert printed["runs"][0]["scores"]["mask_tax"]["value"] == pytest.approx(1 - (0.5 - 1 / 3) / (0.8 - 1 / 3))
    assert Path(printed["report"]).exists()
    assert Path(printed["table"]).read_text(encoding="utf-8").count('scope="row"') == 2
    assert problem_of_output(printed, OUTPUTS["diagnose (several models), report"]) is None


def test_bad_folders_end_with_status_two(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert result.stderr.startswith("maskwise: ") and result.stderr.count("\n") == 1
    assert not result.stdout


def test_the_table_has_scores_curves_and_mask_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "[bold]not markup[/bold] [/]"
    asked = [*KNOWN, ("filler", {"filler": "[red]", "fillers": 7}, 1, [1, 1, 1, 1])]
    (reading,) = read_all([write_run(tmp_path / "run", asked, model=DIFFUSION | {"name": name})])
    print_summary(reading)
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert name in printed
    assert any(line.startswith("Mask tax 64 %") for line in printed)
    assert any(line.startswith("100 40 50.0 %") for line in printed)
    assert any(line.startswith("[red] 7 1 40 10.0 %") for line in printed)


@pytest.mark.slow
def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # what pytest puts in its place is a file that may not grow
    folder = write_run(tmp_path / "run", KNOWN[-4:-2])  # one probe: the page is drawn five times
    readings = read_all([folder])
    page = write_page(readings, folder)
    before = {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
    for room in (0, 100, 30_000):
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
        try:
            with pytest.raises(UserError, match="cannot write the report"):
                write_page(readings, folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert {file: file.read_bytes() for file in before} == before
    page.unlink()
    assert write_page(readings, folder).read_bytes() == before[page]


def test_records_without_what_their_probe_measures_are_one_line(tmp_path: Path) -> None:
    strange = [("order", {"masks": 3}, 3, [1, 1, 1, 1]), ("mask-count", {"location": 3}, 3, [1, 1, 1, 1])]
    for number, asked in enumerate(strange):
        folder = write_run(tmp_path / str(number), [asked])
        result = CliRunner().invoke(app, ["report", str(folder)])
        assert (
            result.exit_code == 2
            and "line 1 is not a record of this run: condition has an unknown field" in result.stderr
        )
        assert result.stderr.count("\n") == 1 and str(folder) in result.stderr
