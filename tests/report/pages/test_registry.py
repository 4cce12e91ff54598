"""Many runs in one table, on the terminal and as a page that sorts without a script; the part of a model card."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.report_runs import AUTOREGRESSIVE, DIFFUSION, GUESSING, KNOWN, mask_probes, write_run
from maskwise.cli import app
from maskwise.report.pages.registry import (
    RunTable,
    TableCell,
    TableColumn,
    print_tables,
    run_table,
    runs_in,
    sort_tables,
    write_tables,
)
from maskwise.report.readings import read_all

TAX = 1 - (0.5 - 1 / 3) / (0.8 - 1 / 3)  # of KNOWN


def named(name: str) -> dict:
    return DIFFUSION | {"name": f"lab/{name}"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs whose mask taxes are known: 0, TAX, unfinished with no skill, and a model without masks."""
    home = tmp_path_factory.mktemp("runs")
    write_run(home / "a", KNOWN, named("taxed"), seed=3)
    write_run(home / "b", mask_probes([9, 9, 8, 8], [9, 9, 8, 8]), named("level"))
    write_run(home / "c", GUESSING, named("guesser"), complete=False)
    write_run(home / "d", KNOWN[:2], AUTOREGRESSIVE)
    return home


class Rows(HTMLParser):
    """The texts of the cells of each row, with the row's ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[str]]] = []
        self.cell = False
        self.scripts = 0

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.scripts += tag == "script"
        if tag == "tr":
            self.rows.append((dict(attributes).get("style", ""), []))
        self.cell = tag in ("td", "th") or (self.cell and tag in ("b", "small"))
        if tag in ("td", "th"):
            self.rows[-1][1].append("")

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.rows[-1][1][-1] += data


def page_rows(page: Path) -> Rows:
    reader = Rows()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader


def test_runs_are_one_table_with_scores_intervals_settings_and_versions(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_tables(sort_tables([run_table(read_all(runs_in([runs])))], "mask_tax", reverse=True))
    lines = capsys.readouterr().out.replace("\u00a0", " ").splitlines()
    firsts = [line.split()[0] for line in lines if line.startswith(("taxed", "level", "guesser", "tiny-qwen"))]
    assert firsts[:4] == ["taxed", "level", "guesser", "tiny-qwen"]  # those without a value come last
    assert "64 %" in next(line for line in lines if line.startswith("taxed"))
    output = " ".join(" ".join(lines).split())
    assert "taxed: quick, 10 points, seed 3, float32; maskwise 0.1.0 torch 2.13.0" in output
    assert "unfinished" in output and "These runs differ in seed" in output


def test_the_page_needs_no_script_and_its_ranks_sort_by_every_column(runs: Path, tmp_path: Path) -> None:
    readings = read_all(runs_in([runs]))
    file = write_tables([run_table(readings)], tmp_path)
    page = page_rows(file)
    (_, head), *rows = page.rows
    assert page.scripts == 0 and "http" not in file.read_text(encoding="utf-8")
    assert head[0].startswith("Model") and head[-2].startswith("Settings") and len(rows) == 4
    column = next(place for place, name in enumerate(head) if name.startswith("Mask tax"))
    scores = [reading.summary["scores"]["mask_tax"] for reading in readings]
    assert [score["value"] for score in scores] == [pytest.approx(TAX), 0, None, None]
    for letter, wanted in (("u", ["level", "taxed"]), ("d", ["taxed", "level"])):
        ranks = {cells[0]: int(re.search(rf"--{letter}{column}:(\d+)", style)[1]) for style, cells in rows}
        assert sorted(ranks.values()) == [0, 1, 2, 3]
        assert sorted(ranks, key=ranks.__getitem__)[:2] == wanted
    tax = next(cells for _, cells in rows if cells[0] == "taxed")[column]
    assert f"{100 * scores[0]['low']:.0f} to {100 * scores[0]['high']:.0f}".replace("-", "−") in tax


def test_rows_without_a_value_are_last_in_either_direction() -> None:
    rows = tuple(
        (TableCell(name), TableCell("", "", order)) for name, order in zip("abcd", (2.0, None, 1.0, 2.0), strict=True)
    )
    table = RunTable("", (TableColumn("name", ""), TableColumn("x", "")), rows)
    assert [row[0].text for row in table.sorted_by("x", False).rows] == ["c", "a", "d", "b"]
    assert [row[0].text for row in table.sorted_by("x", reverse=True).rows] == ["a", "d", "c", "b"]


def test_a_run_of_version_0_1_has_one_number_of_examples(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / str(n), relevant=n, distractors=40) for n in (5, [1, 10])]
    texts = [[cell.text for cell in row] for row in run_table(read_all(folders)).rows]
    assert any("5 of 40" in text for text in texts[0]) and any("1/10 of 40" in text for text in texts[1])


def test_a_wrong_column_or_folder_is_one_line(runs: Path, tmp_path: Path) -> None:
    for given, wanted in (
        ([str(runs), "--sort", "mask_taxx"], "did you mean mask_tax"),
        ([str(tmp_path)], "is not a run folder, nor does it hold any"),
        ([str(runs / "a"), "--sort", "mask_tax"], "for several runs"),
    ):
        done = CliRunner().invoke(app, ["report", *given])
        assert done.exit_code == 2 and wanted in done.stderr and done.stderr.count("\n") == 1


def test_the_card_states_every_score_with_its_settings_and_no_path(tmp_path: Path) -> None:
    model = DIFFUSION | {"name": str(tmp_path / "my_model"), "planted": "a fault"}
    (tmp_path / "my_model").mkdir()
    command = f"maskwise diagnose {tmp_path / 'my_model'} --quick"
    folder = write_run(tmp_path / "run", KNOWN, model, command=command, filler="<b>|")
    done = CliRunner().invoke(app, ["report", str(folder), "--card"])
    assert done.exit_code == 0, done.stderr
    card = done.stdout
    assert "| Mask tax | 64 %" in card.replace("\u00a0", " ")
    assert "| 100 | 40 | 50.0 %" in card.replace("\u00a0", " ")  # masks, answers, accuracy
    for setting in ("| points | 10 |", "| seed | 0 |", "| maskwise version | 0.1.0 |", "| model dtype | float32 |"):
        assert setting in card
    assert str(tmp_path) not in card and "maskwise diagnose my_model --quick" in card
    assert "**Planted**" in card and r"\<b\>\|" in card  # a stranger's text is escaped
    tables = [part.splitlines() for part in card.split("\n\n") if part.startswith("|")]
    assert len(tables) == 3 and all(len({len(re.split(r"(?<!\\)\|", line)) for line in one}) == 1 for one in tables)


def test_a_backtick_does_not_end_the_code_of_a_card(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", KNOWN, DIFFUSION, command="maskwise diagnose '```\n# mine'")
    card = CliRunner().invoke(app, ["report", str(folder), "--card"]).stdout
    fence, line, last = card[card.index("````bash") :].split("\n")[:3]
    assert fence == "````bash" and "# mine" in line and last == "````"
