"""`python -m benchmarks.peers` as far as it goes without other software's code."""

import json
import subprocess
import sys
import time

import pytest
import torch
from benchmarks.measure import Bench
from benchmarks.peers.__main__ import main, wait_for_all
from benchmarks.peers.harness import between_passes, window
from benchmarks.peers.llada import padded
from benchmarks.peers.report import Report, ready_file, show
from torch import nn

from benchmarks import peer_code

BENCH = Bench(torch.device("cpu"), False, 1.0)


def test_a_run_is_stopped_after_the_passes_that_are_timed():
    net, seen = nn.Linear(2, 2), []

    def run():
        for number in range(10):
            seen.append(number)
            net(torch.zeros(1, 2))

    assert between_passes(BENCH, net, run, 2, 5) > 0
    assert seen == [0, 1, 2, 3, 4, 5] and not net._forward_pre_hooks


def test_a_run_that_ends_too_early_is_no_measurement():
    net = nn.Linear(2, 2)
    with pytest.raises(AssertionError, match="only 1 passes"):
        between_passes(BENCH, net, lambda: net(torch.zeros(1, 2)), 0, 3)
    assert not net._forward_pre_hooks


@pytest.mark.parametrize(
    ("cache", "at_once", "batch", "block", "steps"),
    [
        ("dual", 1, 1, 1, (8, 16)),
        ("prefix", 4, 2, 1, (2, 4)),
        ("dual", 2, 1, 0, (0, 4)),
        ("none", 1, 1, 1, (1, 9)),
        ("none", 1, 2, 1, (1, 5)),
    ],
)
def test_a_cached_block_is_timed_with_the_pass_that_fills_its_cache(cache, at_once, batch, block, steps):
    assert window(BENCH, cache, at_once, batch, block) == steps


def test_prompts_are_padded_at_the_left_and_need_no_mask_where_they_are_equal():
    ids, seen = padded([[1, 2, 3], [4]], 9, torch.device("cpu"))
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]] and seen.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert padded([[1], [2]], 9, torch.device("cpu"))[1] is None


def test_a_file_is_imported_without_running_its_package(tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "__init__.py").write_text("raise RuntimeError('everything')")
    (inner / "__init__.py").write_text("raise RuntimeError('everything')")
    (tmp_path / "other.py").write_text("NUMBER = 7")
    (inner / "file.py").write_text("from ..other import NUMBER")
    try:
        assert peer_code.load(tmp_path, "a_peer", "inner.file", ("inner",)).NUMBER == 7
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "a_peer"]:
            monkeypatch.delitem(sys.modules, name)


def test_a_part_that_fails_is_said_and_shown_next_to_the_others(tmp_path, capsys):
    report = Report(BENCH, tmp_path, tmp_path / "out.jsonl", turns=False)
    with report.attempt("one"):
        raise ImportError("no module named flash")
    report.add("step", "ours", 0.002, "s", batch=1, cache="dual", at_once=4)
    report.add("step", "theirs", 0.004, "s", batch=1, cache="dual", at_once=4)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    capsys.readouterr()
    show(found)
    assert capsys.readouterr().out.splitlines() == [
        "step, batch 1, cache dual, tokens 4, ms: ours 2, theirs 4",
        "failed: one: ImportError: no module named flash",
    ]


def test_measuring_begins_when_all_have_compiled_or_are_over(tmp_path):
    ready = ready_file(tmp_path / "out.jsonl")
    compiling = f"import os, time; time.sleep(0.5); open({str(ready)!r}, 'a').write(f'{{os.getpid()}}'); input()"
    parts = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for code in (compiling, "")]
    try:
        wait_for_all(parts, ready, time.monotonic() + 60)
        assert ready.read_text() == str(parts[0].pid) and parts[0].poll() is None
        ready.unlink()
        wait_for_all(parts, ready, time.monotonic() + 0.3)  # not for ever
    finally:
        for one in parts:
            one.communicate(b"go\n")


def test_an_unknown_part_is_refused(tmp_path, monkeypatch, capsys):
    given = ["benchmarks.peers", "--peers", str(tmp_path), "--out", str(tmp_path / "out"), "--parts", "vllm"]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit):
        main()
    assert "no part vllm: there are llada, " in capsys.readouterr().err
