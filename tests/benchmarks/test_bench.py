"""`python -m benchmarks` at toy shapes: every row compares its results with plain code and prints its lines."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = ["a", "c", "d", "f", "j", "l", "m", "n"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    command = [sys.executable, "-m", "benchmarks", "--out", str(out)]
    toy = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # with a card it would take the full shapes
    done = subprocess.run(command, cwd=ROOT, env=toy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text()), done.stdout


@pytest.mark.slow  # with the others on `everything`: half a minute
def test_every_row_runs_and_none_fails(everything):
    found, _ = everything
    assert found["failed"] == []
    assert sorted({line["row"] for line in found["lines"]}) == sorted(ROWS)
    assert all(name in found["machine"] for name in ("device", "python", "torch", "transformers"))


@pytest.mark.slow
def test_every_row_measures_against_plain_code(everything):
    found, _ = everything
    for row in ROWS:
        lines = [line for line in found["lines"] if line["row"] == row and line["ratio"] is not None]
        assert lines, row
        for line in lines:
            better = line["ours"] / line["plain"] if line["unit"] == "1/s" else line["plain"] / line["ours"]
            assert math.isclose(line["ratio"], better)
    for row in ("a", "c", "d", "l"):
        assert any(line["mfu"] is not None and line["mfu"] > 0 for line in found["lines"] if line["row"] == row), row


@pytest.mark.slow
def test_dream_is_measured_where_the_table_asks_for_it(everything):
    found, _ = everything
    for row in ("c", "f"):
        cases = [line["case"] for line in found["lines"] if line["row"] == row]
        assert any("llada" in case for case in cases) and any("dream" in case for case in cases)


@pytest.mark.slow
def test_the_table_is_printed_last(everything):
    found, printed = everything
    machine, ceilings, seconds, *table = printed.splitlines()
    assert machine.startswith("device") and ceilings.startswith("matrix") and seconds.startswith("seconds")
    assert table[0].split()[:3] == ["row", "case", "ours"]
    assert [line.split()[0] for line in table[1:]] == [line["row"] for line in found["lines"]]


def test_an_unknown_row_is_refused(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--rows", "a,z"])
    from benchmarks.__main__ import main

    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2 and "no row z" in capsys.readouterr().err
