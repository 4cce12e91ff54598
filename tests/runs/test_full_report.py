"""Every probe of `maskwise diagnose --full`, at its smallest settings, from the run to the page and the card."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.known import larger_of_two, shipped_tokenizer, with_parameters
from helpers.tiny import tiny_dream, tiny_sdar
from maskwise.cli import app
from maskwise.probes import PROBES
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL
from maskwise.tasks.datasets import read_dataset

CHROMIUM = shutil.which("chromium")
LOCATIONS, MASKS, SHARES = (0, 2), (2, 8), (0.0, 0.2)
GAP = {"pieces": 1, "before": 8, "masks": 6, "after": 4}
ORDERED = {"orderings": 1, "questions": 1, "near": 5}
SMALLEST = with_parameters(
    replace(
        FULL, tasks=("country-smallest",), questions=2, relevant=(1, 2), distractors=2, passages=2, passage_words=12
    ),
    location={"locations": LOCATIONS, "mask_counts": MASKS},
    mask_count={"mask_counts": MASKS, "shots": (1, 2), "extra": (1, 4), "clouds": 1},
    filler={"filler_counts": (0, 5), "after_two_masks": ()},
    context_length={"distractors": (0, 2)},
    recall={
        "pairs": 6,
        "distances": ("near", "far"),
        "mask_counts": MASKS,
        "filler_counts": (3,),
        "lists_per_point": 1,
    },
    contrast={"tasks": 2, "questions": 1, "mask_counts": MASKS, "among": 2},
    natural_text={"counts": (0, 3)},
    mechanism={"mask_counts": (8,), "points": 1},
    attribution=ORDERED | {"masks": 4},
    steps={"masks": MASKS, "random": (2,), "confident": (2,)},
    mitigations={"masks": 40, "points": 1},
    points={"clouds": 1, "examples": 4, "points": 2, "counts": (0, 4), "masked_examples": 4, "shares": SHARES},
    datasets={"shares": SHARES, "shots": 1},
    own_task={"masks": (0, 4), "canvases": (32,), "questions": 1},
    nelbo={"draws": 2},
    confidence={"questions": 2},
    trajectory={"questions": 1, "canvas": 4, "data_canvas": 4},
    marginals=GAP | {"distances": (1, 3, 6)},
    total_correlation=GAP | {"distances": (1, 4), "samples": 2},
    order=GAP | {"tokens": 4},
    coherence={"puzzles": 1},
    templates={"tasks": 1, "points": 2, "mask_counts": MASKS, "contrast_tasks": 1, "contrast_questions": 1},
)


def untrained(make):
    """A small random network: the same path through the code as a trained model of its kind, at a third of the cost."""
    tokenizer = shipped_tokenizer()
    return make(tokenizer=tokenizer, vocab=2056, window=2048, mask_token_id=tokenizer.mask_token_id)


MODELS = {
    "tiny-llada": lambda: mw.open("tiny-llada"),
    "tiny-qwen": lambda: mw.open("tiny-qwen"),
    "dream": lambda: untrained(tiny_dream),
    "block diffusion": lambda: untrained(tiny_sdar),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One data set of each kind that `--data` takes, so that no probe is left out for want of one."""
    folder = tmp_path_factory.mktemp("data")
    rows = [{"text": f"number {n}", "label": "even" if n % 2 == 0 else "odd"} for n in range(40)]
    (folder / "parity.json").write_text(json.dumps(rows))
    return {
        "parity": read_dataset("parity", folder / "parity.json"),
        "hotpotqa": read_dataset("hotpotqa", larger_of_two(folder / "hotpot.json")),
    }


def not_applicable(model):
    """The probes of `--full` that say of themselves that a model of this kind is not asked."""
    return {
        probe.name
        for probe in PROBES
        if (model.causal and "masks" in probe.needs)
        or (model.block is not None and "whole sequences" in probe.needs)
        or (model.block is None and "blocks" in probe.needs)
    }


@pytest.mark.slow  # up to a minute per model: 31 probes and their figures
@pytest.mark.parametrize("name", MODELS)
def test_the_full_set_of_probes_runs_through_to_the_page_and_the_card(name, data, tmp_path):
    model = MODELS[name]()
    folder = diagnose(model, SMALLEST, tmp_path / "run", data=data)
    ran = {record["probe"] for record in read_run(folder).records}
    assert ran == set(FULL.probes) - not_applicable(model)

    reported = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path), "--json"])
    assert reported.exit_code == 0, reported.stderr
    output = json.loads(reported.stdout)
    (summary,) = output["runs"]
    told = {probe for part in ("probes", "estimates") for probe, content in summary[part].items() if content}
    assert told <= ran and len(told) > len(ran) - 3

    page = Path(output["report"]).read_text()
    shown = {re.sub(r", \d+ examples?$", "", name) for name in re.findall(r'<span class="kicker">([^<]+)</span>', page)}
    for probe in PROBES:
        wanted = {section.name or probe.name for section in probe.sections if not section.side_by_side}
        assert wanted <= shown if probe.name in ran else not wanted & shown, probe.name

    card = CliRunner().invoke(app, ["report", str(folder), "--card"])
    assert card.exit_code == 0 and card.stdout.startswith("#"), card.output


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no browser here: apt-get install chromium")
def test_the_page_of_a_default_run_prints_on_at_most_six_sheets(tmp_path):
    """The real default run of tiny-llada takes five; here each probe has a few questions, and so as many figures."""
    folder = diagnose(MODELS["tiny-llada"](), replace(SMALLEST, probes=DEFAULT.probes), tmp_path / "run")
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
    pdf = tmp_path / "page.pdf"
    subprocess.run([CHROMIUM, *options, f"--print-to-pdf={pdf}", f"file://{folder / 'report.html'}"], check=True)
    assert 3 <= len(re.findall(rb"/Type /Page\b", pdf.read_bytes())) <= 6
