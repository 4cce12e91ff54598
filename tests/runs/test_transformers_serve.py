"""`transformers serve` in a process of its own: greedy answers equal those of the opened model."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from transformers import AutoTokenizer

import maskwise as mw
from maskwise.runs.endpoint import Endpoint
from maskwise.support.errors import UserError

START = 180  # seconds that importing torch and opening the model may take


@contextmanager
def transformers_serve(checkpoint: Path, log: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(checkpoint), "--device", "cpu"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ})
    try:
        for _ in range(START):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()[-2000:]
                time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_greedy_answers_equal_those_of_the_opened_model(tmp_path: Path) -> None:
    missing = [name for name in ("fastapi", "uvicorn", "openai") if find_spec(name) is None]
    if missing:
        pytest.skip(f"`pip install transformers[serving]` brings what is missing: {', '.join(missing)}")
    opened = mw.open("tiny-qwen")
    opened.save_pretrained(tmp_path / "checkpoint")
    options = {"probes": "location,context-length,question-position", "preset": "quick", "points": 1}
    with transformers_serve(tmp_path / "checkpoint", tmp_path / "log") as url:
        model = Endpoint(url, str(tmp_path / "checkpoint"), requests=2)
        run = mw.diagnose(model, out=tmp_path / "served", **options)
        (first,) = mw.generate(opened, ["The days of the week are"], 12)
        assert model.write("The days of the week are", "", 12, 0.0, 0).text == first.text
        with pytest.raises(UserError, match="status 400"):  # another model than the one it serves
            Endpoint(url, "another").write("a", "", 1, 0.0, 0)
    # The server makes other tokens of a text than mw.open: AutoTokenizer builds Qwen2Tokenizer for any Qwen2 network.
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    prompts = [run.prompt(record).partition("<|gap|>")[0] for record in run.records]
    direct = mw.generate(opened, [tokenizer(prompt)["input_ids"] for prompt in prompts], 2)
    texts = [tokenizer.decode(one.ids) for one in direct]
    assert {record.probe for record in run.records} == {"location", "context-length"}
    assert [text[: len(one.predicted)] for text, one in zip(texts, run.records, strict=True)] == [
        one.predicted for one in run.records
    ]
    assert any("question-position was not run" in note for note in run.manifest.notes)  # it only appends the suffix
