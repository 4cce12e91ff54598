"""The ways to decode, on models whose weakness is known and against plain decoding, and what they win back."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from transformers import PretrainedConfig

from helpers.known import SMALL, distracted, known_model, known_path, shipped_tokenizer
from helpers.tiny import tiny_llada
from maskwise.decoding.generate import generate
from maskwise.probes.answers.decoded import first_token
from maskwise.probes.library.mitigations import BIASED_KEYS, ONE_STEP, PROBE, WAYS, counting, metrics
from maskwise.probes.probe import FIRST, estimates
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import read_run
from maskwise.tasks.prompts import Prompt

MASKS = 200
DECODED = [way for way in WAYS if way != BIASED_KEYS]


def small_llada(seed=0):
    tokenizer = shipped_tokenizer()
    return tiny_llada(
        seed, tokenizer=tokenizer, vocab=len(tokenizer), window=1200, mask_token_id=tokenizer.mask_token_id
    )


def prompts_of(model, texts, masks=MASKS, right=12):
    return [Prompt((*text, *[model.mask_id] * masks), len(text), right, masks) for text in texts]


@pytest.mark.parametrize("way", DECODED)
def test_leaving_early_reads_what_the_whole_decoding_would_have_written(way):
    model, texts = small_llada(), [[5, 6, 7, 8], [9, 10, 11]]
    whole = generate(model, texts, MASKS, **WAYS[way])
    answers = first_token(model, prompts_of(model, texts), **WAYS[way])
    assert [one.token for one in answers] == [one.ids[0] for one in whole]
    assert whole[0].forwards == WAYS[way]["steps"]


def test_the_likelihood_is_that_of_the_right_answer_in_the_step_that_commits_it():
    """In one step that of a plain prediction; in several that of the canvas before the step."""
    model, texts, right = small_llada(), [[5, 6, 7, 8], [9, 10, 11]], 12

    def plain(text, canvas):
        (logits,) = model.predict([[*text, *canvas]], [[len(text)]])
        return -logits[0].double().log_softmax(-1)[right].item()

    for masks in (2, MASKS):
        found = first_token(model, prompts_of(model, texts, masks), steps=1)
        assert [one.nll for one in found] == pytest.approx(
            [plain(text, [model.mask_id] * masks) for text in texts], abs=1e-4
        )
    before = []  # the canvas that the committing step saw, from a decoding of one prompt alone
    generate(model, texts[:1], MASKS, on_step=lambda seen: before.append(list(seen.canvases[0][4:])), steps=40)
    committed = next(step for step, canvas in enumerate(before) if canvas[0] != model.mask_id)
    seen = before[committed - 1] if committed else [model.mask_id] * MASKS
    (found,) = first_token(model, prompts_of(model, texts[:1]), steps=40)
    assert found.nll == pytest.approx(plain(texts[0], seen), abs=1e-4)


def table(**answered):
    """Of ten questions: {way or "two_masks": (how many are right, nats by point)}."""
    rows = []
    for name, (right, nats) in answered.items():
        way = {"two_masks": ONE_STEP}.get(name, name.replace("_", " "))
        rows += [
            {"task": "t", "point": n, "way": way, "masks": 2 if name == "two_masks" else MASKS}
            | {"correct": float(n < right), "nll": nats(n)}
            for n in range(10)
        ]
    return pd.DataFrame(rows)


def test_a_tuned_model_is_compared_with_one_step_of_the_first():
    """200 masks cost 2 nats, of which the adapter takes back 1.5, more or less by turns."""
    first = table(two_masks=(9, lambda n: 0.5), one_step=(4, lambda n: 2.5), window=(9, lambda n: np.nan))
    tuned = table(two_masks=(8, lambda n: 0.6), one_step=(7, lambda n: 1.0 + 0.1 * (-1) ** n))
    found = {one.name: one for one in metrics(tuned, {FIRST: first})}
    half = stats.t.ppf(0.975, 9) * np.std([0.1, -0.1] * 5, ddof=1) / np.sqrt(10)
    nats = found["one step: nats less one step of the first model"]
    assert (nats.value, nats.low, nats.high) == pytest.approx((-1.5, -1.5 - half, -1.5 + half))
    rise = found["one step: accuracy less one step of the first model"]
    assert rise.value == pytest.approx(0.3) and rise.low < 0.3 < rise.high
    # The accuracy of the tuned model with two masks does not count: lowering it is no gain.
    assert found["one step: loss won back"].value == pytest.approx((7 - 4) / (9 - 4))
    own = {one.name: one for one in metrics(first, {})}
    assert not any(name.startswith("one step:") for name in own)
    assert own["window: loss won back"].value == pytest.approx(1)
    assert own["window: nats less one step"].value is None  # it was never finite
    level = table(two_masks=(4, lambda n: 0.5), one_step=(4, lambda n: 2.5), window=(9, lambda n: 0.5))
    assert {one.name: one for one in metrics(level, {})}["window: loss won back"].value is None  # nothing was lost


def test_a_way_counts_only_where_accuracy_and_likelihood_both_rise():
    level = {"two_masks": (10, lambda n: 0.1), "one_step": (0, lambda n: 2.0 + 0.01 * n)}
    for nats, right, counts in ((0.5, 10, True), (2.5, 10, False), (0.5, 0, False)):
        own = table(**level, growing_canvas=(right, lambda n, nats=nats: nats + 0.01 * (n % 2)))
        assert (counting(metrics(own, {})) == ["growing canvas"]) == counts
        assert (PROBE.advice(metrics(own, {})) is not None) == counts


def diagnosed(model, folder, **parameters):
    settings = replace(SMALL, probes=("mitigations",), relevant=(1,), distractors=1).changed(
        "mitigations", **parameters
    )
    run = read_run(diagnose(model, settings, folder))
    return run, run.tables


def test_a_model_distracted_by_more_than_ten_masks_is_right_on_a_canvas_that_never_shows_more(tmp_path):
    model = known_model(distracted)
    model.net.config = PretrainedConfig(eos_token_id=None)
    model.net.get_output_embeddings = lambda: model.net.embedding
    ways = (ONE_STEP, "growing canvas", "small blocks", "window", BIASED_KEYS)
    run, tables = diagnosed(model, tmp_path, ways=ways, points=4)
    assert any("cannot be biased" in note for note in run.manifest.notes)  # a wrapped model
    right = tables["mitigations"].groupby(["way", "masks"]).correct.mean()
    assert right[ONE_STEP, 2] == 1 and set(tables["mitigations"].point) == set(range(4))
    assert right[ONE_STEP, MASKS] == right["small blocks", MASKS] == right["window", MASKS] < 1  # 200 or 30 are shown
    assert right["growing canvas", MASKS] == 1  # ten are
    first, *_ = estimates(PROBE, tables)
    assert first.name == "growing canvas: accuracy less one step" and first.value == 1 - right[ONE_STEP, MASKS]


def test_biased_keys_weigh_as_much_as_one_mask(tmp_path):
    """A model that follows the share of masks it sees: misled by 200 masks, not where 198 of them count as one."""
    model = known_path(lambda direct, context: direct)
    model.net.config = PretrainedConfig(eos_token_id=None)
    _, tables = diagnosed(model, tmp_path, ways=(BIASED_KEYS,))
    own = tables["mitigations"]
    assert own[own.way == BIASED_KEYS].correct.all() and own[own.way == ONE_STEP].correct.all()
