"""Kills and full disks at writes of `diagnose` and `tune`: nothing half is taken for whole, and the result is equal."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import maskwise as mw
from helpers.tiny import llada_net

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(("name", "every"), [("diagnose", 7), ("tune", 10)])
def test_a_command_disturbed_at_its_writes_goes_on_to_the_same_result(name, every, tmp_path):
    tokenizer = mw.open("tiny-llada").tokenizer
    tokenizer.save_pretrained(tmp_path / "small")
    net = llada_net(vocab=len(tokenizer), window=2048, mask_token_id=tokenizer.mask_token_id)
    net.save_pretrained(tmp_path / "small")
    lines = [{"prompt": f"Say the word {n}:", "answer": f"word {n}"} for n in range(16)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(HERE / "kills.py"), name, str(every), str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | quiet,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] > 3 and found["refused"] > 3


@pytest.mark.parametrize("kind", ["kill", "torn", "refused", "full"])
def test_a_fault_comes_at_its_write_and_not_before(kind, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    code = (
        f"import pathlib, sys; sys.path.insert(0, {str(HERE)!r}); from faults import Fault\n"
        f"Fault({str(folder)!r}, {kind!r}, at=1).install()\n"
        f"for n in range(3): pathlib.Path({str(folder)!r}, str(n)).write_bytes(b'x' * 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    ends = {"kill": -signal.SIGKILL, "torn": -signal.SIGXFSZ, "refused": 1, "full": 1}
    assert done.returncode == ends[kind], done.stderr
    left = {"kill": [9], "torn": [9, 1], "refused": [9], "full": [9, 0]}
    assert [file.stat().st_size for file in sorted(folder.iterdir())] == left[kind]
