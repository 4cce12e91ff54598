"""Decoding in steps, shots, points, data sets and likelihood: on models whose answers are known, or against a plain
reference."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from transformers import PretrainedConfig

import maskwise as mw
from helpers.known import (
    CORE_PROBES,
    accuracies,
    diagnosed,
    known_model,
    larger_of_two,
    reader_model,
    shipped_tokenizer,
    truth,
    with_parameters,
)
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada
from maskwise.probes import PROBES, labelled
from maskwise.probes.answers.decoded import first_token
from maskwise.probes.answers.passage_nelbo import noised, score
from maskwise.probes.answers.plain import ask
from maskwise.probes.library import attribution, datasets, mask_count, points
from maskwise.probes.questions import units_of_questions
from maskwise.probes.setup import Asker, Setup
from maskwise.records.upgrade import upgrade
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import FULL
from maskwise.support.errors import UserError
from maskwise.support.randomness import torch_generator
from maskwise.tasks.datasets import read_dataset
from maskwise.tasks.point_clouds import LABELS, ORDERS, SHAPES
from maskwise.tasks.prompts import Prompt

ORDERED = {"orderings": 2, "questions": 2, "near": 5}
STEP_MASKS, SHARES = (2, 12), (0.0, 0.2)
LITTLE = with_parameters(
    replace(CORE_PROBES, questions=4),
    attribution=ORDERED | {"masks": 6},
    steps={"masks": STEP_MASKS, "random": (2, 5), "confident": (5,)},
    mitigations={"masks": 40, "points": 2},
    points={
        "clouds": 1,
        "examples": 12,
        "points": 6,
        "counts": (0, 4, 12),
        "masked_examples": 4,
        "shares": (0.0, 0.2),
    },
    datasets={"shares": SHARES, "shots": 2},
    own_task={"masks": (0, 4), "canvases": (32,), "questions": 1},
    nelbo={"draws": 3},
    templates={"tasks": 1, "points": 2, "mask_counts": (2, 8), "contrast_tasks": 1, "contrast_questions": 1},
)
SLOW = ("coherence", "confidence", "trajectory", "templates")  # with tests of their own
SHOTS = {"mask_counts": (), "shots": (1, 3), "extra": (1, 8), "clouds": 2}


def only(*probes):
    return replace(LITTLE, probes=probes)


def little(make=tiny_llada, **more):
    tokenizer = shipped_tokenizer()
    masked = {} if make is tiny_ar else {"mask_token_id": tokenizer.mask_token_id}
    return make(tokenizer=tokenizer, vocab=len(tokenizer), window=2048, **masked, **more)


# All of them


@pytest.mark.slow
@pytest.mark.parametrize("make", [tiny_llada, tiny_dream, tiny_ar])
def test_full_runs_every_probe_and_says_what_it_did_not_run(make, tmp_path):
    model = little(make)
    probes = tuple(probe.name for probe in PROBES if probe.name not in SLOW)
    settings = replace(LITTLE, probes=probes, tasks=("country-smallest",), questions=2, passages=2)
    settings = settings.changed("mask-count", **SHOTS | {"mask_counts": (2, 20)})
    assert set(settings.probes) <= set(FULL.probes)
    run = diagnosed(model, settings, tmp_path / "run")
    notes, found = run.manifest.notes, run.tables.keys()
    for probe in settings.probes:
        said = any(note.startswith(f"{probe} was not run") for note in notes)
        assert (probe in found) != (said or probe == "block-offset"), probe  # this model has no blocks
    assert sum("want of data" in note for note in notes) == 1
    assert {"attribution", "points", "nelbo"} <= found
    assert model.causal == ("steps" not in found)
    assert {probe for probe in found if not run.measured[probe]} == set()
    assert diagnosed(model, settings, tmp_path / "run").records == run.records


def test_evidence_becomes_curves(tmp_path):
    table = diagnosed(little(), only("attribution"), tmp_path).table("attribution")
    left = table[(table["of"] == "examples") & (table["question"] == "left")]
    assert len(left) == 2 * 4 and set(left["examples"].map(len)) == {6}
    by_hand = np.mean([own["examples"].tolist() for _, own in left.groupby("task", observed=True)], axis=(0, 1))
    curve = attribution.by_example(table, {})
    curve = curve[curve["question"] == "left"]
    assert curve["place"].tolist() == [1, 2, 3, 4, 5, 6]
    assert curve["value"].tolist() == pytest.approx(by_hand.tolist())
    assert (curve["low"] <= curve["value"]).all() and (curve["value"] <= curve["high"]).all() and set(curve["n"]) == {8}
    assert attribution.by_tokens(table, {})["tokens"].tolist() == list(attribution.TOKENS.values())
    layers = attribution.by_layer(table, {})
    assert set(layers["place"]) == {1, 2} and len(layers) == 8
    assert layers.groupby("place")["value"].sum().tolist() == pytest.approx([1, 1], abs=1e-3)
    assert set(table["masks_seen"][table["of"] == "attention"]) == {7}


def test_a_part_is_asked_alone(tmp_path):
    settings = only("attribution").changed("attribution", of=("masks",))
    assert set(diagnosed(little(), settings, tmp_path).table("attribution")["of"]) == {"masks"}


# Decoding


def test_decoding_the_answer_is_what_the_decoder_wrote_and_its_confidence_that_of_its_step():
    """Every step of a random order is replayed by hand from the model's own predictions."""
    model = tiny_llada(vocab=64)
    prompts = [Prompt((*range(3, 3 + n), *[63] * 6), n, 7, 6) for n in (8, 5, 11)]
    answers = first_token(model, prompts, steps=3, rule="random", seed=5)
    chance = [torch_generator("steps", 5, 3, prompt.ids) for prompt in prompts]
    done = mw.generate(model, [p.ids[: p.row] for p in prompts], 6, 3, rule="random", generator=chance)
    for prompt, answer, generation in zip(prompts, answers, done, strict=True):
        assert answer.token == generation.ids[0]
        canvas = list(prompt.ids)
        for step in range(3):
            if step == generation.order[0]:
                probabilities = model.predict([canvas], [[prompt.row]])[0][0].softmax(-1)
                assert int(probabilities.argmax()) == answer.token
                assert answer.confidence == pytest.approx(float(probabilities.max()), abs=1e-5)
                assert answer.nll == pytest.approx(-float(probabilities[7].log()), abs=1e-4)
            for place, when in enumerate(generation.order):
                if when == step:
                    canvas[prompt.row + place] = generation.ids[place]


def test_one_step_of_decoding_is_plain_asking():
    model = tiny_dream(vocab=64)
    prompts = [Prompt((*range(3, 3 + n), *[63] * 4), n, 7, 4) for n in (6, 9)]
    in_one = first_token(model, prompts, 1, rule="low-confidence")
    for decoded, plain in zip(in_one, ask(model, prompts), strict=True):
        assert decoded.token == plain.token and decoded.confidence == pytest.approx(plain.confidence, abs=1e-6)


def test_unmasking_recovers_what_masks_cost_when_the_answer_waits(tmp_path):
    """Right with few masks in sight, else "A"; it fills the tail with letters, all equally sure."""

    def reply(text):
        options = re.findall(r"Options: (\(A\) .*)\n", text)[-1]
        return truth()[options] if text.count("<|mask|>") <= 6 else "A"

    model = reader_model(reply)
    model.net.config = PretrainedConfig(eos_token_id=None)  # the decoder asks what ends a text
    run = diagnosed(model, replace(only("steps"), questions=30), tmp_path)
    right = accuracies(run, "steps", "order", "steps", "masks")
    assert right["confidence", 5, 2] == right["random", 5, 2] == right["random", 2, 2] == 1.0
    # Ties go to the left, so by confidence the answer is written first, while all 12 are masked: "A" it is.
    assert right["confidence", 5, 12] == pytest.approx(1 / 3, abs=1e-6)
    # In a random order of 5 steps (3, 3, 2, 2, 2 tokens), the answer waits until 6 or fewer are masked half the time.
    assert 0.5 < right["random", 5, 12] < 0.85
    assert right["confidence", 5, 12] < right["random", 2, 12] < 0.85
    assert set(run.table("steps").masks_seen) == {2, 12}


# Shots


def test_shots_are_relevant_examples_alone(tmp_path):
    seen = []

    def counting(questions, asked, text):
        seen.append((len(questions) - 1, text.count("<|mask|>")))
        return truth()[questions[asked][0]]

    run = diagnosed(known_model(counting), only("mask-count").changed("mask-count", **SHOTS), tmp_path)
    assert set(seen) == {(1, 2), (1, 9), (3, 2), (3, 9)}
    assert set(accuracies(run, "mask-count", "shots", "extra")) == {(1, 1), (1, 8), (3, 1), (3, 8)}
    together, apart = run.measured["mask-count"]
    assert together.value is apart.value is None  # two tasks, all right


def test_points_and_data_sets_are_tasks_of_shots_against_masks(tmp_path):
    """A reader that copies the last label with few masks and always says the first label with many."""
    rows = [{"text": f"number {n}", "label": "even" if n % 2 == 0 else "odd"} for n in range(60)]
    (tmp_path / "parity.json").write_text(json.dumps(rows))
    data = {"parity": read_dataset("parity", tmp_path / "parity.json")}
    seen = set()

    def reply(text):
        examples, masks = re.findall(r"Answer:\[(\w+)\]", text), text.count("<|mask|>")
        kind = re.match(r"\w+", text)[0]
        seen.add((kind, len(examples), masks))
        if kind == "Options":
            return "A"
        if masks > 9:
            return "Above" if kind == "Point" else "odd"
        return examples[-1]

    settings = replace(only("mask-count"), questions=12).changed("mask-count", **SHOTS)
    run = diagnosed(reader_model(reply), settings, tmp_path / "run", data=data)
    table = run.table("mask-count")
    tasks = mask_count.by_task(table, {})
    assert set(tasks.task) == {*settings.tasks, "nonlinear", "swiss-roll", "moons", "circles", "parity"}
    for shape in ("nonlinear", "swiss-roll", "moons", "circles"):
        of_shape = table[table.task == shape]
        masked = of_shape[(of_shape.shots == 3) & (of_shape.extra == 8)].correct
        assert len(of_shape) == 12 * 4 and masked.sum() == 6  # balanced, and "Above" is said
    for kind in ("Point", "Text", "Options"):
        shown = {(shots, masks) for found, shots, masks in seen if found == kind}
        fewest = min(masks for _, masks in shown)
        assert shown == {(shots, fewest + more) for shots in (1, 3) for more in (0, 7)}
    (note,) = run.manifest.notes
    assert all(name in note for name in ("ag-news", "sst2", "rotten-tomatoes", "mrpc", "rte", "qnli"))


def shot_table(accuracies, points=40):
    """accuracies: task -> right answers (few, many, masked) of the points."""
    return pd.DataFrame(
        {"task": task, "point": point, "shots": shots, "extra": extra, "correct": float(point < right)}
        for task, counts in accuracies.items()
        for (shots, extra), right in zip([(5, 1), (25, 1), (25, 200)], counts, strict=True)
        for point in range(points)
    )


def test_the_correlation_is_pearsons():
    counts = {"a": (10, 20, 18), "b": (10, 30, 24), "c": (12, 16, 16), "d": (8, 38, 20), "e": (20, 24, 22)}
    together, apart = mask_count.of_shots(shot_table(counts))
    gain = np.array([many - few for few, many, _ in counts.values()]) / 40
    change = np.array([masked - many for _, many, masked in counts.values()]) / 40
    r = float(np.corrcoef(gain, change)[0, 1])
    assert together.value == pytest.approx(r) and r < -0.9 and (together.n, together.unit) == (5, "r")
    width = 1.959964 / np.sqrt(len(counts) - 3)
    assert together.low == pytest.approx(np.tanh(np.arctanh(r) - width), abs=1e-5)
    assert together.high == pytest.approx(np.tanh(np.arctanh(r) + width), abs=1e-5)
    assert apart.value == pytest.approx(r, abs=0.1)  # all counts are even, so both halves agree
    tasks = mask_count.by_task(shot_table(counts), {}).set_index("task")
    assert (tasks.gain["b"], tasks.value["b"], tasks.n["b"]) == pytest.approx((0.5, -0.15, 40))


def test_noise_alone_correlates_together_but_not_apart():
    table = shot_table({f"task {n}": (0, 0, 0) for n in range(900)}, points=6)
    table["correct"] = np.random.default_rng(0).integers(2, size=len(table)).astype(float)
    together, apart = mask_count.of_shots(table)
    assert together.value == pytest.approx(-1 / 2, abs=0.1)  # both sides share one accuracy
    assert apart.value == pytest.approx(0, abs=0.1)


# Points and data sets


def nearest_label(text):
    """The label next to the masked one, whichever side it stands on; "Above" where there is none."""
    before, after = re.split(r"Answer:\[(?:<\|mask\|>)+", text, maxsplit=1)
    found = re.findall(r"Answer:\[(\w+)\]", before)[-1:] or re.findall(r"Answer:\[(\w+)\]", after)[:1]
    return found[0] if found else "Above"


@pytest.mark.slow
def test_copying_the_nearest_label_is_best_with_the_nearest_point_next_to_the_question(tmp_path):
    settings = with_parameters(
        replace(only("points"), questions=12),
        points={"examples": 40, "points": 12, "counts": (0, 40), "masked_examples": 40, "shares": (0.0, 0.2)},
    )
    model = reader_model(nearest_label)
    table = diagnosed(model, settings, tmp_path).table("points")
    found = table.groupby(points.BY).correct.mean()
    for share in (0.0, 0.2):
        for near, away, place in (
            ("nearest last", "nearest first", "right"),
            ("nearest first", "nearest last", "left"),
        ):
            assert found[near, place, 40, share] > 0.8 > 0.7 > found["random", place, 40, share]
            assert found[away, place, 40, share] < 0.7
    assert {found[order, place, 0, 0.0] for order in ORDERS for place in ("right", "left")} == {0.5}  # balanced
    assert set(table.task) == {f"{shape}-0" for shape in SHAPES}
    tokenizer = model.tokenizer
    assert set(table.answer) == {tokenizer.decode(tokenizer(label)["input_ids"][:1]) for label in LABELS}
    assert table[table.share == 0].masks_seen.nunique() == 1
    assert [one.verdict for one in points.metrics(table, {})] == ["holds", "holds"]
    assert set(points.by_share(table, {}).examples) == {40}


def test_points_use_as_many_examples_as_the_window_holds(tmp_path):
    model = little()
    model.window = 150
    run = diagnosed(model, only("points"), tmp_path / "a")
    assert len(run.manifest.notes) == 1 and set(run.table("points").examples) == {0, 4}
    with pytest.raises(UserError, match="nothing to ask: datasets was not run for want of data"):
        diagnose(model, only("datasets"), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_records_of_points_of_version_0_1_are_still_judged():
    """They say the order alone: the question came last, without masks at the end."""
    right = {"random": 24, "nearest first": 22, "nearest last": 38}
    old = [
        {"task": "moons-0", "point": n, "correct": float(n < most), **upgrade("points", {"order": order})[1]}
        for order, most in right.items()
        for n in range(40)
    ]
    found = points.metrics(pd.DataFrame(old), {})
    assert [(one.value, one.verdict) for one in found] == [(14 / 40, "holds"), (16 / 40, "holds")]
    assert set(points.by_examples(pd.DataFrame(old), {}).examples) == {100}
    guessed = [{**one, "correct": float(one["point"] < 20)} for one in old]
    assert {one.low for one in points.metrics(pd.DataFrame(guessed), {})} == {None}


def by_share(run):
    """{share: accuracy}"""
    drawn = datasets.by_share(run.table("datasets"), {})
    return drawn[drawn.measure == "correct"].set_index("share")["value"]


def test_hotpotqa_is_asked_as_the_paper_writes_it(tmp_path):
    data = {"hotpotqa": read_dataset("hotpotqa", larger_of_two(tmp_path / "hotpot.json"))}
    seen = []

    def reads_facts(text):
        """Right by the fact with few masks, "A" with many."""
        seen.append(text)
        larger = re.findall(r"\*\*Context\*\*:\n'(\w+) is larger", text)[-1]
        first = re.findall(r"\[A\] (\w+)\n", text)[-1]
        return "A" if larger == first or text.count("<|mask|>") > 5 else "B"

    settings = replace(only("datasets"), questions=20)
    run = diagnosed(reader_model(reads_facts), settings, tmp_path / "run", data=data)
    found = by_share(run)
    a_is_right = (run.table("datasets").answer == "A").mean()
    assert found[0.0] == 1.0 and found[0.2] == pytest.approx(a_is_right) and 0.2 < a_is_right < 0.8
    question = (
        r"\*\*Context\*\*:\n'\w+ is larger\.'\.\n\n\*\*Question\*\*: 'Which is larger, \w+ or \w+\?' "
        r"\[A\] \w+\n \[B\] \w+\n\*\*Answer\*\*:\["
    )
    system = r"Which of the following answers is true\? Respond with \[A\] or \[B\]\."
    asked = rf"{system}\n\n{question}[AB]\]\n\n{question}(<\|mask\|>)+"
    assert all(re.fullmatch(asked, text) for text in seen)


def test_a_file_sorted_by_label_is_asked_about_both(tmp_path):
    """As the hub's rotten_tomatoes is: all positive texts, then all negative ones."""
    for part in ("train", "validation"):
        rows = [{"text": f"text {n}", "label": int(n < 50)} for n in range(100)]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data, asker = read_dataset("rotten-tomatoes", tmp_path), Asker(shipped_tokenizer(), 1, 0)
    first, again, other = (labelled.tests_that_fit(asker, data, data.shown[:2], 20, 1000, seed) for seed in (0, 0, 1))
    assert first == again != other and len(first) == 20
    assert 4 <= sum(test.label == "positive" for test in first) <= 16


def test_pieces_of_characters_are_not_taken_for_each_other(tmp_path):
    labels = ("\u6b63\u9762", "\u8d1f\u9762")
    rows = [{"text": f"number {n}", "label": labels[n % 2]} for n in range(40)]
    (tmp_path / "sides.json").write_text(json.dumps(rows))
    data = {"sides": read_dataset("sides", tmp_path / "sides.json")}
    model, settings = reader_model(lambda text: labels[0]), replace(only("datasets"), questions=20)
    run = diagnosed(model, settings, tmp_path / "run", data=data)
    assert set(run.table("datasets").answer) == {"\ufffd"}  # both labels begin with a byte
    assert 0.2 < by_share(run)[0.0] < 0.8


def test_another_seed_draws_other_clouds():
    def prompts(seed):
        asker, settings = Asker(shipped_tokenizer(), 1, 0), replace(only("points"), seed=seed)
        setup = Setup(little(), asker, settings, words={}, text="", data={}, notes=[])
        asked = points.ask(setup, **LITTLE.parameters["points"] | {"clouds": 3})
        units = units_of_questions(setup, [("points", one) for one in asked])
        return {item.prompt.ids for unit in units for item in unit.items(unit.points, set())}

    assert prompts(0) and not prompts(0) & prompts(1)


def test_data_sets_are_asked_with_a_share_of_masks(tmp_path):
    rows = [{"text": f"number {n}", "label": "even" if n % 2 == 0 else "odd"} for n in range(40)]
    (tmp_path / "parity.json").write_text(json.dumps(rows))
    data = {"parity": read_dataset("parity", tmp_path / "parity.json")}

    def parity(text):
        asked = int(re.findall(r"number (\d+)", text)[-1])
        return "even" if asked % 2 == 0 or text.count("<|mask|>") > 8 else "odd"

    run = diagnosed(reader_model(parity), replace(only("datasets"), questions=10), tmp_path / "r", data=data)
    found, table = by_share(run), run.table("datasets")
    odd = table.answer.str.startswith("o").mean()
    assert found[0.0] == 1.0 and found[0.2] == pytest.approx(1 - odd) and 0 < odd < 1
    lost, nats, before, own = datasets.metrics(table, {})
    assert (lost.value, lost.n, before.value) == (pytest.approx(-odd), 10, 1) and own.value == lost.value
    assert nats.value < 0 and lost.low < -odd < lost.high
    assert set(table.task) == run.manifest.settings.data.keys() == {"parity"}
    few, many = ({*table.masks_seen[table.share == share]} for share in (0.0, 0.2))
    assert len(few) == 1 and min(many) > 8 > max(few)
    with pytest.raises(UserError, match="no probe of this run asks about parity: add"):
        diagnose(reader_model(parity), only("contrast"), tmp_path / "unasked", data=data)
    assert not (tmp_path / "unasked").exists()


# Likelihood


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
def test_the_nelbo_is_the_weighted_surprise_at_hidden_tokens(make):
    model = make(vocab=64)
    ids = [tuple(range(5, 5 + n)) for n in (20, 13)]
    found = score(model, [Prompt(i, 0, i[0], 0) for i in ids], draws=4, seed=1)
    for answer, clean in zip(found, ids, strict=True):
        total = 0.0
        for draw in noised(clean, model.mask_id, 4, 1):
            logp = model.predict([draw.ids.tolist()], [draw.rows.tolist()])[0].log_softmax(-1)
            total += float(-(draw.weights * logp.gather(1, draw.targets[:, None])[:, 0]).sum())
        assert answer.nll == pytest.approx(total / 4 / len(clean), rel=1e-4)
    assert noised(ids[0], 63, 4, 1)[0].ids.tolist() == noised(ids[0], 63, 4, 1)[0].ids.tolist()


def test_a_model_that_knows_nothing_has_the_entropy_of_its_vocabulary():
    """Uniform predictions over 63 tokens: the NELBO is log 63 a token, up to the noise of the draws."""
    model = tiny_llada(vocab=64)
    model.net.get_output_embeddings().weight.data.zero_()
    answer = score(model, [Prompt(tuple(range(1, 41)), 0, 1, 0)], draws=2000, seed=0)[0]
    assert answer.nll == pytest.approx(np.log(63), rel=0.08)
    assert answer.entropy == pytest.approx(np.log(63), rel=1e-4)


def test_an_autoregressive_models_likelihood_is_exact():
    model = tiny_ar(vocab=64)
    ids = (3, 9, 4, 27, 5)
    answer = score(model, [Prompt(ids, 1, 9, 0)], draws=3, seed=0)[0]
    logp = model.predict([ids], [[1, 2, 3, 4]])[0].log_softmax(-1)
    assert answer.nll == pytest.approx(-float(logp[range(4), ids[1:]].mean()), rel=1e-5)
