"""Damaged files of strangers, given to every reader: each ends in a result or in one line, in time."""

import faulthandler
import json
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import maskwise as mw
from helpers.checkpoints import save
from maskwise.models.checkpoints.catalog import describe_checkpoint
from maskwise.models.checkpoints.locations import ZOO
from maskwise.tasks.words import load_words
from maskwise.training.data.pairs import read_pairs
from robust.damage import KINDS, damage

SECONDS_A_CASE = 60  # most take milliseconds


class Reader(NamedTuple):
    """`make` writes a sound folder, `files` are damaged one at a time, `read` is called with the damaged folder."""

    make: Callable[[Path], Any]
    files: tuple[str, ...]
    read: Callable[[Path], Any]
    cases: int = 500


def run_folder(folder: Path) -> None:
    mw.diagnose("tiny-llada", ["mask-count"], preset="quick", questions=1, out=folder)


def words(folder: Path) -> None:
    (folder / "words.json").write_text(json.dumps({kind: load_words()[kind][:12] for kind in ("animal", "colour")}))


def pairs(folder: Path) -> None:
    (folder / "pairs.jsonl").write_text('{"prompt": "Größe, 北京", "answer": "it"}\n' * 6)
    (folder / "text.txt").write_text("One paragraph of words.\n\nAnother.\fA second document, 北京.\n" * 4)


CHECKPOINT = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
READERS = {
    "run": Reader(run_folder, ("records.jsonl", "manifest.json"), mw.read_run),
    "description": Reader(save, CHECKPOINT[:1], lambda folder: describe_checkpoint(str(folder))),
    "checkpoint": Reader(save, CHECKPOINT, lambda folder: mw.open(folder, device="cpu").predict([[1, 2]], [[1]])),
    "adapter": Reader(
        lambda folder: shutil.copytree(ZOO / "tiny-llada+distracted", folder, dirs_exist_ok=True),
        ("adapter_config.json", "adapter_model.safetensors"),
        lambda folder: mw.open("tiny-llada", device="cpu", adapter=folder),
        80,
    ),
    "pairs": Reader(pairs, ("pairs.jsonl",), lambda folder: read_pairs(folder / "pairs.jsonl")),
    "text": Reader(pairs, ("text.txt",), lambda folder: read_pairs(folder / "text.txt")),
    "words": Reader(words, ("words.json",), lambda folder: load_words(folder / "words.json")),
}


@pytest.mark.slow
@pytest.mark.timeout(600, method="thread")  # the alarm is the cases'
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_a_result_or_one_line(name, tmp_path):
    reader, sound, damaged = READERS[name], tmp_path / "sound", tmp_path / "damaged"
    sound.mkdir()
    reader.make(sound)
    reader.read(sound)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    cases = [(file, kind) for file in reader.files for kind in KINDS]
    cases += [(reader.files[n % len(reader.files)], f"change {n}") for n in range(reader.cases)]
    refusals = 0
    for file, kind in cases:
        shutil.copytree(sound, damaged)
        damage(damaged / file, kind, random.Random(f"{name} {kind}"))
        signal.alarm(SECONDS_A_CASE)
        faulthandler.dump_traceback_later(2 * SECONDS_A_CASE, exit=True)  # for what waits outside of Python
        try:
            reader.read(damaged)
        except mw.UserError as problem:
            assert "\n" not in str(problem), (file, kind)
            refusals += 1
        except BaseException as problem:  # a panic of Rust is no Exception
            raise AssertionError(f"{file}, {kind}") from problem
        finally:
            signal.alarm(0)
            faulthandler.cancel_dump_traceback_later()
            shutil.rmtree(damaged)
    assert refusals > len(cases) // 10
