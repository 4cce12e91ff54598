"""The toy experiment: a perfect model and a trained one give the closed form's shares; its table, files and command."""

import json
import math

import pytest
import torch
from typer.testing import CliRunner

import maskwise as mw
from helpers.oracle import perfect_toy
from helpers.outputs import departures
from maskwise.cli import app
from maskwise.decoding.strategies import STRATEGIES
from maskwise.diffusion import nelbo_call
from maskwise.toy import COUNTS, PARALLEL, PARTS, SEQUENTIAL, TOTAL, Toy, every_noise, figure, read_toy

DATA = [0.55, 0.0, 0.14, 0.31]
PRODUCT = [0.3795, 0.1705, 0.3105, 0.1395]
NAMED = {strategy.name for strategy in STRATEGIES}


@pytest.fixture(scope="module")
def perfect():
    return read_toy(perfect_toy())


def test_a_perfect_model_gives_the_closed_form(perfect):
    assert perfect.marginals == pytest.approx({"A": 0.55, "B": 0.69}, abs=1e-6)
    assert perfect.data == pytest.approx(DATA)
    assert perfect.parallel == pytest.approx(PRODUCT, abs=1e-6)
    assert perfect.sequential == pytest.approx(DATA, abs=1e-6)
    # Confidence picks by what was drawn: B (.69) goes first if drawn, else x1, and AB comes out too often.
    assert perfect.rules["low-confidence"][0] == pytest.approx(0.55 + 0.31 * 0.55, abs=1e-6)
    # Dream's schedule truncates: with three steps for three masks its last step takes two at once.
    assert perfect.rules["dream-entropy"] == pytest.approx(PRODUCT, abs=1e-6)
    assert set(perfect.rules) == set(perfect.forwards) == NAMED


def test_the_loss_without_chance_is_the_entropy_of_the_data_at_best():
    """The exact NELBO of a perfect model is the data's entropy (any order factorises it)."""
    model, examples = perfect_toy(), every_noise()
    call = nelbo_call(model, examples)
    p = model.head(model.hidden(call.batch)[call.index]).log_softmax(dim=-1)
    targets = torch.cat([one.targets for one in examples])
    weights = torch.cat([one.weights for one in examples]) / len(examples)
    loss = -(weights * p.gather(1, targets[:, None])[:, 0]).sum()
    assert TOTAL == 100
    assert float(loss) == pytest.approx(-sum(n / 100 * math.log(n / 100) for n in COUNTS.values()), abs=1e-5)


def test_the_table_has_every_decoding_by_its_total_variation_from_the_data():
    found = Toy(
        marginals={"A": 0.55, "B": 0.69},
        data=DATA,
        parallel=PRODUCT,
        sequential=DATA,
        rules={"low-confidence": [0.72, 0, 0.18, 0.1], "random": DATA, "left-to-right": DATA},
        forwards={"low-confidence": 3.0, "random": 2.5, "left-to-right": 3.0},
    )
    rows = found.table()
    assert list(rows.index) == ["data", SEQUENTIAL, "random", "low-confidence", PARALLEL]
    assert rows.distance.tolist() == pytest.approx([0, 0, 0, 0.21, 0.341])
    assert rows.loc[PARALLEL, PARTS].tolist() == PRODUCT
    assert rows.passes.tolist()[1:] == [3.0, 2.5, 3.0, 1.0]
    assert all(one in str(found) for one in (*rows.index, *PARTS, "17.1%", "0.341", "2.50"))


def test_the_figure_has_a_bar_for_each_row_and_part(perfect):
    (axis,) = figure(perfect).axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == list(perfect.table().index)
    bars = {bars.get_label(): [bar.get_width() for bar in bars] for bars in axis.containers}
    for part, widths in perfect.table()[PARTS].items():
        assert bars[part] == pytest.approx(widths.tolist())


@pytest.mark.slow
def test_the_command_trains_a_model_that_agrees_within_two_hundredths_and_writes_its_numbers(perfect, tmp_path):
    done = CliRunner().invoke(app, ["toy", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert departures(found, "toy") == []
    assert found["marginals"] == pytest.approx({"A": 0.55, "B": 0.69}, abs=0.02)
    assert found["data"] == pytest.approx(DATA)
    assert found["parallel"] == pytest.approx(PRODUCT, abs=0.02)
    assert found["sequential"] == pytest.approx(DATA, abs=0.02)
    assert set(found["rules"]) == NAMED
    for rule in NAMED:
        assert found["rules"][rule] == pytest.approx(perfect.rules[rule], abs=0.03), rule
    assert json.loads((tmp_path / "toy.json").read_text()) == found
    assert {path.name for path in tmp_path.iterdir()} == {"toy.json", "toy.svg"}
    assert PARALLEL in (tmp_path / "toy.svg").read_text()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["toy", "--json", "--out", str(tmp_path / "file")])
    assert done.exit_code == 2 and "cannot write into" in done.stderr
    with pytest.raises(mw.UserError, match="cannot write into"):
        mw.toy(out=tmp_path / "file")
