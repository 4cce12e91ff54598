"""The coherence probes as part of a run: asked, recorded, resumed, measured and drawn."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.known import diagnosed, shipped_tokenizer, with_parameters
from helpers.same_records import assert_same_records
from helpers.tiny import tiny_llada
from maskwise.decoding.strategies import STRATEGIES
from maskwise.probes.library import marginals, order, total_correlation
from maskwise.records.folder import RECORDS
from maskwise.runs.settings import QUICK, fit_to_model
from maskwise.support.errors import UserError

COHERENCE_PROBES = ("marginals", "total-correlation", "order", "coherence")
GAP = {"pieces": 2, "before": 8, "masks": 6, "after": 4}
SMALL = with_parameters(
    replace(QUICK, probes=COHERENCE_PROBES),
    marginals=GAP | {"distances": (1, 3, 6)},
    total_correlation=GAP | {"distances": (1, 4, 9), "samples": 3},
    order=GAP | {"tokens": 5},
    coherence={"puzzles": 2},
)


pytestmark = pytest.mark.slow  # one run of every coherence probe: a quarter of a minute


@pytest.fixture(scope="module")
def model():
    tokenizer = shipped_tokenizer()
    return tiny_llada(tokenizer=tokenizer, vocab=len(tokenizer), mask_token_id=tokenizer.mask_token_id)


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    return diagnosed(model, SMALL, tmp_path_factory.mktemp("run"))


def test_every_probe_leaves_a_record_a_point_and_condition(run):
    counts = {probe: sum(record["probe"] == probe for record in run.records) for probe in COHERENCE_PROBES}
    assert counts == {
        "marginals": 2 * 2 * 3,
        "total-correlation": 2 * 2,
        "order": 2 * 4,
        "coherence": 2 * 3 * 3 * sum(not one.adaptive for one in STRATEGIES),
    }
    assert run.manifest.complete


def test_a_torn_run_goes_on_and_ends_the_same(run, model, tmp_path):
    settings = replace(SMALL, probes=COHERENCE_PROBES[:-1])  # the puzzles take the longest
    whole = diagnosed(model, settings, tmp_path)
    whole_records = [*whole.records]
    lines = (tmp_path / RECORDS).read_text().splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines) if '"rule": "random"' in line)
    assert first + 1 < len(lines)
    (tmp_path / RECORDS).write_text("".join(lines[: first + 1]))  # in the middle of the random orders
    assert_same_records(diagnosed(model, settings, tmp_path).records, whole_records)
    assert_same_records(whole_records, [record for record in run.records if record["probe"] != "coherence"])


def test_drawn_orders_depend_on_the_seed_and_not_on_the_batch(run, model, tmp_path):
    def orders(found):
        return [r["evidence"] for r in found.records if r["probe"] == "order" and r["condition"]["rule"] == "random"]

    settings = replace(SMALL, probes=("order",))
    alone = diagnosed(model, settings, tmp_path / "alone", batch_tokens=1)
    other = diagnosed(model, replace(settings, seed=1), tmp_path / "other")
    assert orders(alone) == orders(run) and len(orders(run)) == 2
    assert orders(run)[0] != orders(run)[1] and orders(other) != orders(run)


def test_figures_are_means_of_what_was_recorded(run):
    named = {"tv_unigram": marginals.DRAWN["tv_unigram"], "tau": order.MEASURES["tau"], "tc": "tc"}
    for probe, name in ((marginals, "tv_unigram"), (total_correlation, "tc"), (order, "tau")):
        table = run.table(probe.NAME)
        assert probe.metrics(table, {})
        (figure,) = probe.PROBE.figures
        drawn = figure.data(table, {})
        assert {"value", "low", "high", "n", figure.x, figure.series or "n", figure.panel or "n"} <= {*drawn.columns}
        after = {said: suffix for suffix, said in marginals.AFTER.items()}
        for row in drawn[drawn.measure == named[name]].to_dict("records"):
            row["suffix"] = after.get(row.get("after"))
            key = {entry: row[entry] for entry in probe.PROBE.condition}
            own = [r["evidence"][name] for r in run.records if r["probe"] == probe.NAME and r["condition"] == key]
            assert row["value"] == pytest.approx(np.mean(own)) and row["low"] <= row["value"] <= row["high"]


def test_what_cannot_be_asked_is_said(model, tmp_path):
    settings = replace(SMALL, probes=("marginals", "mask-count"), tasks=QUICK.tasks[:1], questions=1, distractors=2)
    settings = settings.changed("mask-count", mask_counts=(2,))
    short = diagnosed(model, settings, tmp_path / "short", text="Too short.")
    said = "marginals was not run: it needs a text of 18 tokens; give one with --text"
    assert said in short.manifest.notes
    with pytest.raises(UserError, match="no mask token"):
        fit_to_model(SMALL, causal=True)
