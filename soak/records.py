"""Run folders cut at every byte, commands without sockets, memory over many prompts, time over a million records."""

import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from maskwise.records.folder import read_run
from maskwise.support.errors import UserError
from soak.commands import ROOT, finished, start
from soak.readers import _run as write_small_run

MILLION = 1_000_000  # records that must be reported in 30 s of CPU time, figures included, and 0.6 GB


def cut_everywhere() -> dict[str, Any]:
    """records.jsonl cut after every byte is read up to its last whole line; manifest.json cut anywhere is refused."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_small_run(folder)
        lines, manifest = (
            (folder / "records.jsonl").read_bytes().splitlines(True),
            (folder / "manifest.json").read_bytes(),
        )
        records = b"".join(lines[::6])  # of each probe
        for length in range(len(records) + 1):
            (folder / "records.jsonl").write_bytes(records[:length])
            assert len(read_run(folder).records) == records[:length].count(b"\n"), length
        for length in range(len(manifest)):
            (folder / "manifest.json").write_bytes(manifest[:length])
            try:
                read_run(folder)
            except UserError:
                continue
            raise AssertionError(f"a manifest of {length} bytes was taken for whole")
    return {"cuts": len(records) + 1 + len(manifest)}


NO_SOCKETS = """
import socket
def refused(*_, **__):
    raise AssertionError("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refused
from maskwise.start import main
main()
"""


def without_sockets() -> dict[str, Any]:
    """Commands on local files open no connection, whatever the environment says of being offline."""
    with tempfile.TemporaryDirectory() as made:
        run = Path(made) / "run"
        lines = (
            f"diagnose tiny-llada --quick --probes location --points 1 --out {run}",
            f"report {run}",
            "generate tiny-llada+ma hello -n 4",
            f"export tiny-llada+ma --out {made}/merged",
            f"models {made}/merged",
        )
        for line in lines:
            command = [sys.executable, "-c", NO_SOCKETS, *line.split()]
            done = subprocess.run(command, capture_output=True, text=True, env=_environment(), cwd=made)
            assert done.returncode == 0, f"{line}: {done.stderr[-1000:]}"
    return {"commands": len(lines)}


def _environment() -> dict[str, str]:
    import os

    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def many_prompts(number: int) -> dict[str, Any]:
    """Generating from many prompts, in many calls and in one, takes the memory of a batch; sampled often."""
    import maskwise as mw

    model = mw.open("tiny-llada", device="cpu")
    draw, memory, most = random.Random(0), [], 0.0
    for tenth in range(10):
        for _ in range(0, number // 10, 8):
            prompts = [[draw.randrange(5, 1000) for _ in range(draw.randrange(4, 40))] for _ in range(8)]
            mw.generate(model, prompts, 4, steps=1)
            most = max(most, _resident())
        memory.append(_resident())
        assert tenth == 0 or most < 1.1 * memory[0] + 0.02, memory
    prompts = [[draw.randrange(5, 1000) for _ in range(20)] for _ in range(number)]
    mw.generate(model, prompts, 64, steps=1, batch=8)  # in one call: bounded by the batch
    most = max(most, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    assert most < 1.1 * memory[0] + 0.1, f"{most:.2f} GB in one call of {number} prompts, {memory[0]} of 8"
    return {"prompts": 2 * number, "gb_after_each_tenth": memory, "gb": most}


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e9, 3)


def many_records(number: int) -> dict[str, Any]:
    """A run of many records is reported; the time and memory of the whole command."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "run"
        written = write_large_run(folder, number)
        code = (
            "import resource, sys, time; from maskwise.start import main\n"
            "try: main()\nexcept SystemExit as stop: assert not stop.code\n"
            "used = resource.getrusage(resource.RUSAGE_SELF)\n"
            "sys.stderr.write(f'USED {used.ru_maxrss / 1e6:.2f} {used.ru_utime + used.ru_stime:.1f}')"
        )
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code, "report", str(folder)], capture_output=True, text=True, env=_environment()
        )
        seconds = time.monotonic() - began
        assert done.returncode == 0, done.stderr[-1000:]
        memory, processor = map(float, done.stderr.rsplit("USED ", 1)[1].split())
        assert number < MILLION or (processor < 30 and memory < 0.6), f"{processor} s of CPU time, {memory} GB"
        shutil.rmtree(folder)
    return {"records": written, "wall_seconds": round(seconds, 1), "cpu_seconds": processor, "gb": memory}


def write_large_run(folder: Path, number: int) -> int:
    """About so many records of five probes, 16 tasks and two numbers of examples; returns how many."""
    folder.mkdir(parents=True)
    draw = random.Random(0)
    tasks = [f"task{n}-{end}" for n in range(8) for end in ("largest", "smallest")]
    plain: list[tuple[str, dict[str, Any]]] = [
        *(("location", {"location": place}) for place in (0, 10, 20, 30, 40)),
        *(("mask-count", {"masks": masks}) for masks in (2, 10, 50, 100, 200)),
        *(("location-masks", {"location": a, "masks": b}) for a in (0, 20, 40) for b in (2, 50, 200)),
        *(("question-position", {"question": q, "location": k}) for q in ("left", "right") for k in (0, 20, 40)),
        *(("filler", {"filler": ".", "fillers": count}) for count in (0, 10, 100)),
    ]
    conditions = plain + [(probe, condition | {"relevant": 1}) for probe, condition in plain]
    points = max(1, number // (len(tasks) * len(conditions)))
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for probe, condition in conditions:
            for task in tasks:
                for point in range(points):
                    form, content, right = draw.random(), draw.random(), draw.random() < 0.6
                    file.write(json.dumps({
                        "model": "lab/model", "probe": probe, "task": task, "point": point, "condition": condition,
                        "masks": condition.get("masks", 1), "predicted": "A" if right else "B", "answer": "A",
                        "correct": right, "confidence": round(draw.random(), 6), "entropy": round(form, 6),
                        "nll": round(form + content, 6), "nll_allowed": round(form, 6), "nll_choice": round(content, 6),
                    }) + "\n")  # fmt: skip
    model = {
        "name": "lab/model",
        "kind": "llada",
        "parameters": 1,
        "window": 1024,
        "mask_id": 7,
        "shift": False,
        "causal": False,
        "dtype": "float32",
    }
    settings = {
        "preset": "full",
        "probes": list(dict.fromkeys(probe for probe, _ in conditions)),
        "tasks": tasks,
        "points": points,
        "seed": 0,
        "chat": False,
        "relevant": [1, 10],
        "distractors": 40,
    }
    manifest = {"model": model, "settings": settings, "versions": {}, "complete": True, "notes": [], "command": None}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return points * len(tasks) * len(conditions)


def parquet_bombs() -> dict[str, Any]:
    """Small parquet files that hold gigabytes of text: one text a million times over, and long texts compressed.

    Each is refused in one line, in under 2 GB.
    """
    from pyarrow import DictionaryArray, array, parquet, table

    with tempfile.TemporaryDirectory() as made:
        home, sizes = Path(made), []
        repeated = DictionaryArray.from_arrays(array([0] * 4000, "int32"), array(["word " * 100_000]))
        parquet.write_table(table({"prompt": repeated, "answer": repeated}), home / "repeated.parquet")
        part = table({"prompt": ["x" * (1 << 24)] * 2, "answer": ["y"] * 2})
        with parquet.ParquetWriter(
            home / "long.parquet", part.schema, compression="zstd", use_dictionary=False
        ) as writer:
            for _ in range(80):
                writer.write_table(part)
        for file in sorted(home.glob("*.parquet")):
            sizes.append(file.stat().st_size)
            ended = finished(start(["score", "tiny-llada", "--data", str(file)], home))
            assert ended.status == 2 and ended.in_one_line, f"{file.name}: {ended.status} {ended.said[-800:]}"
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    assert memory < 2, f"{memory:.2f} GB"
    return {"files": len(sizes), "bytes": max(sizes), "gigabytes": round(memory, 2)}
