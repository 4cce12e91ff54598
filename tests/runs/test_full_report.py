"""Every probe of `maskwise diagnose --full`, at its smallest settings, from the run to the page and the card."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from markupsafe import escape
from typer.testing import CliRunner

import maskwise as mw
from helpers.known import larger_of_two, shipped_tokenizer, with_parameters
from helpers.page_reader import Sections
from helpers.tiny import tiny_dream, tiny_sdar
from maskwise.cli import app
from maskwise.probes import PROBES
from maskwise.report.card import card_of, escaped
from maskwise.report.chart import minus
from maskwise.report.page import sections_of
from maskwise.report.screen import PROBE_OF
from maskwise.report.section import rows_of
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL
from maskwise.scoring.estimates import SHARE, Estimate
from maskwise.tasks.datasets import read_dataset

CHROMIUM = shutil.which("chromium")
ENDS = ["value", "low", "high", "n"]
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


@pytest.fixture(scope="module", params=MODELS)
def full_run(request, data, tmp_path_factory):
    """The model, its run of all probes, and what `maskwise report` prints of it."""
    model = MODELS[request.param]()
    folder = diagnose(model, SMALLEST, tmp_path_factory.mktemp("full") / "run", data=data)
    done = CliRunner().invoke(app, ["report", str(folder), "--verbose"], env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return model, mw.read_run(folder), done.stdout


@pytest.mark.slow  # up to a minute per model: all probes and their figures
def test_the_full_set_of_probes_runs_through_to_the_page(full_run):
    model, run, _ = full_run
    assert run.tables.keys() == set(FULL.probes) - not_applicable(model)
    page = Sections((run.folder / "report.html").read_text())
    assert set(page.rows) == {"", "settings", *run.tables}
    empty = {name for name in run.tables if not page.rows[name] or not run.measured[name]}
    assert empty <= {"block-offset"}, empty


@pytest.mark.slow
def test_no_two_places_give_different_numbers_for_one_quantity(full_run):
    """The page, the terminal and the card against result.json: estimates, the first screen, the tables of figures."""
    _, run, printed = full_run
    lines, page = printed.splitlines(), Sections((run.folder / "report.html").read_text())
    result, card = json.loads((run.folder / "result.json").read_text()), card_of(run)
    fields = Estimate.__dataclass_fields__
    listed = [(one["probe"], Estimate(**{k: v for k, v in one.items() if k in fields})) for one in result["estimates"]]
    told = {(probe, one.name): one for probe, one in listed}
    assert len(told) == len(listed)
    for key, row in run.screen.rows.items():
        of_probe = {one.name: one for probe, one in listed if probe == PROBE_OF[key]}
        change, levels = of_probe[row.change.name], [of_probe[one.name] for _, one in row.levels]
        assert replace(change, claim="") == row.change and levels == [one for _, one in row.levels]
        shown = next(cells for cells in page.rows[""] if cells[-3:-2] and minus(change.text(change.value)) in cells[-3])
        assert shown[-4] == " → ".join(one.text(one.value) for one in levels) + " %"
        assert any(change.brackets(tasks=True) in line and levels[-1].text(levels[-1].value) in line for line in lines)
    for section in sections_of([run]):
        own = [one for probe, one in listed if probe == section.probe.name and one in run.measured[probe]]
        assert len(own) == len(run.measured[section.probe.name])
        assert page.items[section.probe.name] == [minus(str(one)) for one in own]
        at = lines.index(f"{section.probe.name}, {section.runs and next(iter(section.runs))}")
        assert [line.strip() for line in lines[at + 1 : at + 1 + len(own)]] == list(map(str, own))
        assert all(f"| {escaped(one.name)} | {escaped(one.short)} |" in card for one in own)
        tables = [(figure, table) for figure, _, table in section.figures]
        cells = [row for figure, table in tables for row in rows_of(figure, table)[1]]
        assert [row for row in page.rows[section.probe.name] if row] == [list(map(minus, row)) for row in cells]
        plain = [" ".join(line.split()) for line in lines]
        assert all(" ".join(" ".join(row).split()) in plain for row in cells)
        ends = [tuple(row) for _, table in tables for row in table.reindex(columns=ENDS).itertuples(index=False)]
        for one in own:
            if one.name.startswith("accuracy") and one.unit == SHARE and one.value is not None:
                same = [row for row in ends if row[0] == pytest.approx(one.value, abs=1e-12)]
                assert (one.value, one.low, one.high, one.n) in same, (section.probe.name, one.name)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no browser here: apt-get install chromium")
def test_the_page_of_a_default_run_fits_a_telephone_and_five_sheets(tmp_path):
    """Each probe has a few questions here, and so as many figures; opened all sections, nothing scrolls sideways."""
    folder = diagnose(MODELS["tiny-llada"](), replace(SMALLEST, probes=DEFAULT.probes), tmp_path / "run")
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    page = folder / "report.html"
    browser = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
    subprocess.run([*browser, f"--print-to-pdf={tmp_path / 'page.pdf'}", f"file://{page}"], check=True)
    assert 1 <= len(re.findall(rb"/Type /Page\b", (tmp_path / "page.pdf").read_bytes())) <= 5
    opened = escape(page.read_text().replace("<details", "<details open"))
    frames = [f'<iframe width="{width}" height="900" srcdoc="{opened}"></iframe>' for width in (390, 1280)]
    measure = "[...document.querySelectorAll('iframe')].map(f => f.contentDocument.documentElement.scrollWidth)"
    script = f"<script>onload = () => document.title = {measure}.join()</script>"
    (tmp_path / "frames.html").write_text(f"<title></title>{''.join(frames)}{script}")
    command = [*browser, "--dump-dom", f"file://{tmp_path / 'frames.html'}"]
    dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    widths = list(map(int, re.search("<title>(.*?)</title>", dom)[1].split(",")))
    assert widths[0] <= 390 and widths[1] <= 1280
