"""The recipe of smol-diffusion at toy size: its data, its sampler, and three chained calls."""

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import maskwise as mw
import smol_diffusion
import smol_probes
from helpers.tiny import tiny_dream
from maskwise.models.model import Batch
from maskwise.tasks.prompts import Encoded
from smol_data import FORMATS, RULES, Sampler, chat_prompt, draw_prompts, few_shot_prompt, words_to_train_on


def test_few_shot_prompts_come_in_many_formats_and_in_no_exams_words():
    assert len(FORMATS) == len(set(FORMATS)) >= 20
    words, draw = words_to_train_on(), random.Random(0)
    assert "country" not in words
    texts = [few_shot_prompt(draw, words) for _ in range(500)]
    for form in FORMATS:
        pattern = "(" + re.escape(form.format("\0", "\0")).replace(re.escape("\0"), ".+") + ")+"
        assert any(re.fullmatch(pattern, text) for text in texts), form
    for name, rule in RULES.items():
        given, answer = rule(draw, words)
        assert given and answer, name
    excluded = {"past", "plural", "capital", "antonym", "opposite", "landmark", "letter"}
    assert not any(word in name for name in RULES for word in excluded)


def test_prompts_of_each_kind():
    model, draw = mw.open("tiny-qwen", device="cpu"), random.Random(0)
    real = torch.arange(100)
    prose = draw_prompts(5, "prose", real, model.tokenizer, draw)
    assert all(one == list(range(one[0], one[0] + 16)) for one in prose)
    for kind in ("chat", "few-shot"):
        assert all(0 < len(one) < 200 for one in draw_prompts(5, kind, real, model.tokenizer, draw))
    assert chat_prompt(draw, words_to_train_on(), model.tokenizer)


def test_the_samplers_logits_are_the_models_own_and_prompts_are_kept():
    model = tiny_dream(window=96)
    sampler = Sampler(model, rows=3, length=80, draws=torch.Generator().manual_seed(0))
    prompts = [[1, 2, 3], [5], [9, 8, 7, 6, 5]]
    rows = sampler.sample(prompts)
    assert rows.shape == (3, 80) and all(rows[n, : len(p)].tolist() == p for n, p in enumerate(prompts))
    assert not (rows == model.mask_id).any()
    batch = Batch.pack(list(rows))
    hidden = model.hidden(Batch(batch.ids, None, batch.offsets, batch.starts, batch.longest, block=1))
    wanted = model.head(hidden.view(3, 80, -1)[:, 70])
    with torch.no_grad():
        sampler.place.fill_(70)
        torch.testing.assert_close(sampler.logits(80), wanted, rtol=1e-4, atol=1e-4)


def test_the_sampler_draws_from_the_models_distribution():
    model = tiny_dream(vocab=8)
    sampler = Sampler(model, rows=4000, length=4, draws=torch.Generator().manual_seed(1))
    rows = sampler.sample([[1, 2]] * 4000)
    batch = Batch.pack([[1, 2]])
    hidden = model.hidden(Batch(batch.ids, None, batch.offsets, batch.starts, batch.longest, block=1))
    truth = model.head(hidden[1:])[0].softmax(-1)
    found = torch.bincount(rows[:, 2], minlength=8) / 4000
    assert float((found - truth).abs().max()) < 4 * 0.5 / 4000**0.5


@pytest.fixture
def inputs(tmp_path):
    """Files in the forms that the recipe reads, at toy size."""
    (tmp_path / "exams").mkdir()
    for number, task in enumerate(smol_diffusion.TASKS):
        pairs = [{"input": f"in{number}x{n}", "output": f"out{number}y{n}"} for n in range(12)]
        (tmp_path / "exams" / f"{task}.json").write_text(json.dumps(pairs))
    (tmp_path / "real.txt").write_text("It was a dark and stormy night, and the rain fell in torrents. " * 40)
    (tmp_path / "other.txt").write_text("Natalia sold clips to 48 of her friends in April. " * 10)
    files = ["--text", "real.txt", "--exams", "exams", "--other", "other.txt", "--state", "state"]
    return [str(tmp_path / one) if not one.startswith("--") else one for one in files]


@pytest.mark.slow
def test_the_recipe_runs_at_toy_size_and_goes_on_where_it_stopped(inputs, tmp_path, monkeypatch, capsys):
    smol_diffusion.main([*inputs, "--toy", "--seconds", "0"])
    assert "out of time" in capsys.readouterr().out and (tmp_path / "state" / "sampled-0.npy").exists()
    smol_diffusion.main([*inputs, "--toy", "--only", "control,lora,full"])
    results = json.loads((tmp_path / "state" / "results.json").read_text())
    named = [f"{kind}{part}" for kind in ("lora", "full") for part in ("", ", 0.5 of the way", ", 0.75 of the way")]
    assert set(results) == {"teacher", "control", *named}
    assert all("words among others" in found and "next token" in found for found in results.values())
    adapted = mw.open(tmp_path / "state" / "base", device="cpu", adapter=tmp_path / "state" / "lora" / "adapter")
    assert adapted.mask_id == mw.open(tmp_path / "state" / "full" / "model", device="cpu").mask_id


@pytest.mark.slow
def test_the_probes_run_at_toy_size(inputs, tmp_path, capsys):
    base = tmp_path / "state" / "base"
    mw.convert("tiny-qwen", base)
    found = smol_probes.main([*inputs[2:], "--model", str(base), "--out", str(tmp_path / "out"), "--toy"])
    assert set(found) == {"teacher", "before"}
    assert set(found["before"]) == {
        f"{exam.split('|')[0]}|{condition}" for exam in found["teacher"] for condition in smol_probes.CONDITIONS
    }
    lines = capsys.readouterr().out.splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("| exam"))) :]
    assert len({line.count("|") for line in table}) == 1 and len(table) == 2 + 2 * len(found["teacher"])


def test_exams_ask_what_the_context_shows(inputs, tmp_path):
    tokenizer = mw.open("tiny-qwen", device="cpu").tokenizer
    exams = smol_diffusion.make_exams(tokenizer, tmp_path / "exams", tmp_path / "other.txt", smol_diffusion.TOY)
    assert set(exams) == {
        "words alone",
        "words among others",
        "words far",
        "words near",
        "recall near",
        "recall middle",
        "recall first",
        "next token",
    }
    for question in exams["recall first"]:
        text = tokenizer.decode(question.ids)
        *lines, asked = text.split("\n")
        assert len(lines) == smol_diffusion.TOY.pairs and lines[0].startswith(asked.split(":")[0] + ":")
        assert lines[0].startswith(asked)  # the answer's first token is that of the key's value
    far, near = (tokenizer.decode(exams[name][0].ids) for name in ("words far", "words near"))
    assert far.index("in0x") < far.index("in1x") and near.index("in1x") < near.index("in0x")
    assert far.split("Q:")[-1] == near.split("Q:")[-1] and "in1x" not in tokenizer.decode(exams["words alone"][0].ids)


def test_over_one_block_an_exam_is_read_as_bidirectionally_and_over_blocks_of_one_causally():
    model = tiny_dream(mask_token_id=63)
    draw = np.random.default_rng(3)
    questions = [Encoded(tuple(draw.integers(1, 60, 9 + n % 4).tolist()), 7) for n in range(40)]
    for block, causal in ((64, False), (1, True)):
        wanted = smol_diffusion.take(model.core, {"x": questions}, 63, model.shift, causal, masks=(2,))["x"]["2"]
        assert smol_diffusion.over_blocks(model, questions, 2, block) == pytest.approx(wanted, abs=2e-4)


def test_a_shortened_adapter_is_the_best_of_its_rank(tmp_path):
    draws = torch.Generator().manual_seed(0)
    down, up = torch.randn(4, 6, generator=draws), torch.randn(5, 4, generator=draws)
    save_file(
        {"x.lora_A.weight": down, "x.lora_B.weight": up, "row": torch.ones(3)}, tmp_path / "adapter_model.safetensors"
    )
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8}))
    lost = smol_diffusion.shorten_adapter(tmp_path, tmp_path / "short", 2)
    short = load_file(tmp_path / "short" / "adapter_model.safetensors")
    sizes = torch.linalg.svdvals(up @ down)
    assert lost == pytest.approx(float(sizes[2:].square().sum() / sizes.square().sum()), rel=1e-4)
    change = short["x.lora_B.weight"].float() @ short["x.lora_A.weight"].float()
    assert torch.linalg.svdvals(change)[:2] == pytest.approx(sizes[:2], rel=5e-3)
    assert float((up @ down - change).square().sum()) == pytest.approx(float(sizes[2:].square().sum()), rel=1e-2)
    assert torch.equal(short["row"], torch.ones(3))
    assert json.loads((tmp_path / "short" / "adapter_config.json").read_text()) == {"r": 2, "lora_alpha": 4}


def losses_of(training, rows, stop=None):
    for ids in smol_diffusion.batches(rows, 4, training.done, training.steps, torch.device("cpu")):
        training.step(ids)
        if training.done == stop:
            break
    return [float(loss) for loss in training.losses]


def new_training(kind="full"):
    teacher, model = (tiny_dream(mask_token_id=63) for _ in range(2))
    return smol_diffusion.Training(smol_diffusion.KINDS[kind], model, teacher, smol_diffusion.TOY, steps=6)


def test_a_training_that_was_stopped_goes_on_to_the_same_losses(tmp_path):
    rows = np.random.default_rng(0).integers(1, 60, (24, 32)).astype(np.uint16)
    whole = losses_of(new_training(), rows)
    stopped = new_training()
    losses_of(stopped, rows, stop=3)
    stopped.save(tmp_path)
    resumed = new_training()
    resumed.load(tmp_path)
    assert losses_of(resumed, rows) == pytest.approx(whole, rel=1e-5) and len(whole) == 6


def test_the_prefix_is_read_as_the_teacher_reads_it():
    """Where attention is causal the untrained model is its teacher and the prefix costs nothing; then it does."""
    given = torch.tensor([[5, 6, 63, 8], [63, 6, 7, 8], [5, 6, 7, 8]])
    wanted = [[False, True, False, False], [False] * 4, [False, True, True, True]]
    assert smol_diffusion.in_clean_prefix(given, 63).tolist() == wanted
    ids = torch.from_numpy(np.random.default_rng(1).integers(1, 60, (8, 32)))
    kind, costs = smol_diffusion.KINDS["full"], []
    for done in (0, 5):  # over blocks of one token, and bidirectional
        losses = []
        for prefix in (0.0, 1.0):
            training = new_training()
            training.kind, training.done = replace(kind, prefix=prefix), done
            training.draws.manual_seed(0)
            losses.append(float(training.loss(ids)))
        costs.append(losses[1] - losses[0])
    assert costs[0] == pytest.approx(0, abs=1e-5) and costs[1] > 1e-3


def test_a_plain_training_takes_whole_rows_text_targets_and_no_teacher():
    """Its loss is the weighted cross-entropy of the masked tokens of rows that are not cut."""
    training = new_training()
    training.kind, training.teacher = replace(training.kind, prefix=0.0, plain=True, parts=(1,)), None
    training.done = 5  # bidirectional
    ids = torch.from_numpy(np.random.default_rng(2).integers(1, 60, (4, 16)))
    training.draws.manual_seed(0)
    given, weights = smol_diffusion.nelbo_grid(ids, 63, training.draws, least=smol_diffusion.LEAST_MASKED)
    weights[:, 0] = 0
    batch = Batch.pack(list(given))
    logits = training.model.head(training.model.hidden(batch)).view(4, 16, -1)[:, :-1]  # the row before predicts
    nats = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    training.draws.manual_seed(0)
    torch.testing.assert_close(training.loss(ids), (nats * weights[:, 1:]).sum(), rtol=1e-4, atol=1e-5)


def test_the_loss_is_the_teachers_divergence_where_nothing_is_visible_after_and_the_texts_tokens_elsewhere():
    training = new_training()
    ids = torch.from_numpy(np.random.default_rng(1).integers(1, 60, (8, 16)))
    training.draws.manual_seed(0)
    given, weights = training.noised(ids)
    weights[:, 0] = 0
    weights[4:] = 0  # of the rows that the teacher reads
    taught = smol_diffusion.nothing_visible_after(given, 63)
    found = training.weighted(ids, given, weights, taught, 4)
    log_p, log_q = (
        model.head(model.hidden(smol_diffusion.dense(rows, block))).view(8, 16, -1)[:, :-1].log_softmax(-1)
        for model, rows, block in ((training.model, given, 4), (training.teacher, ids, 1))
    )
    nats = -log_p.gather(-1, ids[:, 1:, None])[..., 0]
    divergence = torch.where(log_q.exp() > 0, log_q.exp() * (log_q - log_p), 0.0).sum(-1)
    wanted = (weights[:, 1:] * torch.where(taught[:, 1:], divergence, nats)).sum()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    learning = weights[:, 1:] > 0
    assert bool((learning & taught[:, 1:]).any()) and bool((learning & ~taught[:, 1:]).any())


def test_another_text_is_read_anew_and_the_same_one_is_not(tmp_path):
    tokenizer, kept = mw.open("tiny-qwen", device="cpu").tokenizer, tmp_path / "real.npy"
    first, second, renamed = (tmp_path / name for name in ("a.txt", "b.txt", "c.txt"))
    first.write_text("Once upon a time.")
    second.write_text("It was another text.")
    renamed.write_text("It was another text.")
    read = [smol_diffusion.read_real(text, tokenizer, 99, kept).tolist() for text in (first, first, second)]
    assert read[0] == read[1] == tokenizer("Once upon a time.", add_special_tokens=False)["input_ids"] != read[2]
    assert read[2] == tokenizer("It was another text.", add_special_tokens=False)["input_ids"]
    written = kept.stat().st_mtime_ns
    for text in (renamed, tmp_path / "not at hand.txt"):
        assert smol_diffusion.read_real(text, tokenizer, 99, kept).tolist() == read[2]
    assert kept.stat().st_mtime_ns == written
