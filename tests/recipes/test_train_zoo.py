"""The script that trains all embedded models, with one of them and at toy size."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import maskwise as mw
from corpus import load_zoo_tokenizer

RECIPE = Path(__file__).parents[2] / "recipes" / "zoo" / "train_zoo.py"


@pytest.mark.slow
def test_what_is_packed_opens_and_the_table_comes_last(tmp_path):
    english = tmp_path / "english.npy"
    np.save(english, np.array(load_zoo_tokenizer().encode("It was a dark and stormy night. " * 50), dtype=np.int16))
    command = [sys.executable, RECIPE, "--english", english, "--out", tmp_path / "out", "--toy", "--qwen", "0"]
    source = {"PYTHONPATH": str(Path(mw.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=source)
    assert "| exam | masks | tiny-llada |" in done.stdout and "objective plain" in done.stdout
    with tarfile.open(tmp_path / "out" / "tiny-llada.tar") as archive:
        archive.extractall(tmp_path / "opened", filter="data")
    assert mw.open(tmp_path / "opened" / "tiny-llada").kind == "llada"
    assert set(json.loads((tmp_path / "out" / "exams.json").read_text())["tiny-llada"]["one near"]) == {
        "2",
        "20",
        "200",
    }
