"""The toy experiment's table, figure and sentences, and the command."""

import json

import pytest
from typer.testing import CliRunner

from helpers.oracle import perfect_toy
from helpers.outputs import problem_of_output
from maskwise.cli import app
from maskwise.cli.outputs import OUTPUTS
from maskwise.decoding.strategies import STRATEGIES
from maskwise.experiments.toy import read_toy
from maskwise.report.pages.toy_page import distance, lines_of, three_sentences, toy_result
from maskwise.scoring.experiment_results import Toy

DATA = [0.55, 0.0, 0.14, 0.31]
PRODUCT = [0.3795, 0.1705, 0.3105, 0.1395]
TOY = Toy(
    marginals={"A": 0.55, "B": 0.69},
    data=DATA,
    parallel=PRODUCT,
    sequential=DATA,
    rules={"low-confidence": [0.72, 0, 0.18, 0.1], "random": DATA},
    forwards={"low-confidence": 3.0, "random": 3.0, "left-to-right": 3.0},
)
NAMED = {strategy.name for strategy in STRATEGIES}


def test_the_distance_is_total_variation():
    assert distance(DATA, DATA) == 0
    assert distance(PRODUCT, DATA) == pytest.approx(0.341)


def test_three_sentences_say_what_was_measured():
    first, second, third = three_sentences(TOY)
    assert "17 %" in first and "0.55" in first and "0.000" in second
    assert "72 %" in third and "random comes nearest" in third


def test_figure_and_table_name_every_decoding():
    result = toy_result(TOY)
    svg, png = result.chart.files()
    assert png.startswith(b"\x89PNG")
    names = list(lines_of(TOY))
    for drawing in (svg, result.chart.for_page("toy")["narrow"]):
        assert all(name in drawing for name in names)
    assert [row[0] for row in result.rows] == names and result.table().row_count == len(names)
    assert names == ["data", "left to right, one token per step", "random", "low-confidence", "one parallel step"]
    distances = [float(row[5]) for row in result.rows[1:]]
    assert distances == sorted(distances) and distances[-1] == pytest.approx(0.341)
    parallel = dict(zip(result.head, result.rows[-1], strict=True))
    assert parallel["A, not B\n(share)"] == "17.1 %"  # 0.1705
    assert "total variation" in result.notes[0] and "total variation" in result.chart.caption


@pytest.mark.slow
def test_the_command_trains_a_model_that_agrees_within_two_hundredths_and_writes_the_figure(tmp_path):
    done = CliRunner().invoke(app, ["toy", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert problem_of_output(found, OUTPUTS["toy (also toy.json)"]) is None
    assert list(found) == ["marginals", "data", "parallel", "sequential", "rules", "forwards"]
    assert found["marginals"] == pytest.approx({"A": 0.55, "B": 0.69}, abs=0.02)
    assert found["data"] == pytest.approx(DATA)
    assert found["parallel"] == pytest.approx(PRODUCT, abs=0.02)
    assert found["sequential"] == pytest.approx(DATA, abs=0.02)
    perfect = read_toy(perfect_toy())
    assert set(found["rules"]) == NAMED
    for rule in NAMED:
        assert found["rules"][rule] == pytest.approx(perfect.rules[rule], abs=0.03), rule
    assert json.loads((tmp_path / "toy.json").read_text()) == found
    assert {path.name for path in tmp_path.iterdir()} == {"toy.json", "toy.svg", "toy.png", "toy.html"}
    page = (tmp_path / "toy.html").read_text()
    assert "one parallel step" in page and "http" not in page.replace("http://www.w3.org", "") and "<script" not in page


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["toy", "--json", "--out", str(tmp_path / "file")])
    assert done.exit_code == 2 and "cannot write into" in done.stderr
