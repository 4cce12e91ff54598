"""own-task: answers read in one pass and decoded, against plain forward passes and `mw.generate`; a planted flood."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from transformers import PretrainedConfig
from typer.testing import CliRunner

import maskwise as mw
from helpers.known import hand_made, shipped_tokenizer, with_parameters
from helpers.tiny import tiny_ar, tiny_dream, tiny_fast_dllm, tiny_llada, tiny_sdar
from maskwise.cli import app
from maskwise.decoding.checks import end_tokens
from maskwise.probes.answers.own_answers import read, write
from maskwise.probes.checked import CheckedPrompt, CheckedQuestion
from maskwise.probes.library.own_task import PASSES, advice, metrics, own_table
from maskwise.report.own_task_view import own_lines, own_view
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import Sources
from maskwise.runs.settings import QUICK, chosen_settings, with_own_task
from maskwise.tasks.checkable import EXACT
from maskwise.tasks.datasets import read_own

WORDS = ("otter", "zebra", "lemon", "tiger")
QUESTIONS = {f"Say {word} twice:": f" {word} and {word} again" for word in WORDS}
ONLY = replace(QUICK, probes=("own-task",))
SMALL = with_parameters(ONLY, own_task={"masks": (0, 8, 40), "canvases": (32, 64)})
MANY = 48  # places after the prompt from which on the planted model writes end tokens


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "mine.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": q, "answer": a}) for q, a in QUESTIONS.items()))
    return {"mine": read_own(str(file))}


def checked(prompt, answer, after=()):
    """A prompt whose answer is masked; `after`: what follows it."""
    ids = [
        tuple(shipped_tokenizer()(text, add_special_tokens=text is prompt)["input_ids"]) for text in (prompt, answer)
    ]
    tail = (*[shipped_tokenizer().mask_token_id] * len(ids[1]), *after)
    return CheckedPrompt((*ids[0], *tail), len(ids[0]), ids[1][0], len(tail), question=CheckedQuestion(*ids, answer))


def random_model(make):
    tokenizer = shipped_tokenizer()
    masked = {} if make is tiny_ar else {"mask_token_id": tokenizer.mask_token_id}
    return make(tokenizer=tokenizer, vocab=len(tokenizer), window=2048, **masked)


def writer(floods, questions=QUESTIONS):
    """Writes the right answer, if it knows the question, and end tokens; the planted one, surer still, ends after two
    tokens where the canvas is long."""
    tokenizer = shipped_tokenizer()
    known = {checked(*pair).question.ids: checked(*pair).question.answer_ids for pair in questions.items()}

    def body(net, batch, layout):
        hidden = torch.zeros(batch.tokens, len(tokenizer))
        for start, end in pairwise(batch.offsets.tolist()):
            ids = tuple(batch.ids[start:end].tolist())
            prompt = next((prompt for prompt in known if ids[: len(prompt)] == prompt), ())
            room = len(ids) - len(prompt)
            tokens = [*known.get(prompt, ()), *[tokenizer.eos_token_id] * room][:room]
            for place, token in enumerate(tokens):
                hidden[start + len(prompt) + place, token] = 40.0
                if floods and room >= MANY and place >= 2:
                    hidden[start + len(prompt) + place, tokenizer.eos_token_id] = 50.0
        return hidden

    model = hand_made(body, name="flooding" if floods else "writer")
    model.net.config = PretrainedConfig(eos_token_id=None)  # what decoding asks a network for
    return model


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """{planted: its run}"""
    home = tmp_path_factory.mktemp("runs")
    return {one: mw.read_run(diagnose(writer(one), SMALL, home / str(one), data=data)) for one in (False, True)}


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream, tiny_sdar, tiny_fast_dllm, tiny_ar])
def test_nats_are_those_of_one_plain_pass(make):
    model = random_model(make)
    asked = [checked(*pair, after=[model.mask_id] * more) for pair in QUESTIONS.items() for more in (0, 5)]
    if model.causal:
        asked = [replace(one, ids=(*one.question.ids, *one.question.answer_ids)) for one in asked[::2]]
    for prompt, answer in zip(asked, read(model, asked), strict=True):
        right = prompt.question.answer_ids
        rows = range(prompt.row, prompt.row + len(right))
        logp = model.predict([list(prompt.ids)], [list(rows)])[0].double().log_softmax(-1)
        assert answer.evidence["nats"] == pytest.approx(-float(logp[range(len(right)), right].sum()), abs=1e-4)
        assert answer.token == int(logp[0].argmax()) and answer.nll == pytest.approx(
            -float(logp[0, right[0]]), abs=1e-4
        )


@pytest.mark.parametrize("make", [tiny_llada, tiny_sdar, tiny_fast_dllm, tiny_ar])
def test_what_is_decoded_is_what_generate_writes(make, data, tmp_path):
    """Blocks of 32, or the model's own; the most tokens that an autoregressive model may write."""
    model = random_model(make)
    masked = {} if model.causal else {"rule": "threshold", "tau": 0.9, "block": model.block or 32}
    run = mw.read_run(diagnose(model, SMALL, tmp_path, data=data))
    table = run.table("own-task")
    by_blocks = model.causal or model.block is not None
    assert {*table[table.how == "one pass"].masks} == ({0} if by_blocks else {0, 8, 40})
    ends = end_tokens(model)
    for canvas, own in table[table.how == "decoded"].groupby("masks"):
        asked = [checked(*pair).question for pair in QUESTIONS.items()]
        made = mw.generate(model, [list(one.ids) for one in asked], int(canvas), **masked)
        for row, one in zip(own.sort_values("point").itertuples(), made, strict=True):
            length = next((place for place, token in enumerate(one.ids) if token in ends), canvas)
            assert row.predicted == model.tokenizer.decode(one.ids[:length], skip_special_tokens=True)
            assert (row.length, row.cut) == (length, length == canvas) and row.masks_seen == (
                0 if model.causal else canvas
            )
    run = replace(run, sources=Sources(model.tokenizer, data=data))
    assert (
        run.prompt(table[table.how == "decoded"].iloc[0]) == "Say otter twice:" + "<|mask|>" * (not model.causal) * 32
    )


def test_a_planted_flood_is_found_where_the_canvas_is_long(runs):
    table = runs[True].table("own-task")
    found = {one.name: one for one in metrics(table, {})}
    assert next(iter(found)) == "change of accuracy, decoded on a canvas of 64 instead of 32"
    changed = next(iter(found.values()))
    assert changed.value == -1 and changed.n == 4 and changed.side < 0 and advice([changed])
    lengths = [len(checked(*pair).question.answer_ids) for pair in QUESTIONS.items()]
    assert found["tokens before the end token, decoded on a canvas of 64"].value == 2
    assert found["tokens before the end token, decoded on a canvas of 32"].value == sum(lengths) / 4
    nats = [found[f"nats of the answer, one pass with {masks} more masks"].value for masks in (0, 8, 40)]
    assert nats[0] == nats[1] == pytest.approx(0, abs=1e-3)
    flooded = [10 * (n - 2) for n in lengths if n + 40 >= MANY]  # the end token is 10 nats likelier
    assert nats[2] == pytest.approx(sum(flooded) / 4, abs=1e-2) and flooded
    assert found["change of accuracy, one pass with 40 more masks instead of 0"].value == 0
    drawn = own_table(table, how="decoded").set_index(["measure", "masks"])
    assert drawn.change["correct", 64] == -1 and set(drawn.index.get_level_values("measure")) == {
        *("correct", "length", "empty", "cut")
    }


def test_without_the_flood_every_canvas_gives_the_same_answers(runs):
    table = runs[False].table("own-task")
    changed = metrics(table, {})[0]
    assert changed.value == 0 and advice([changed]) is None and table.correct.all()
    assert set(table.answer) == {answer.strip() for answer in QUESTIONS.values()}
    assert set(table[table.how == "decoded"].predicted) == set(QUESTIONS.values())
    assert metrics(table[(table.how == "one pass") & (table.masks == 0)], {})[0].name.startswith("accuracy, one pass")


def test_cut_and_empty_answers():
    """An answer of more tokens than the canvas has, and a model that ends at once."""
    long = ("Say otter often:", " otter" * 20)
    model, prompt = writer(False, dict([long])), checked(*long)
    tokens = len(prompt.question.answer_ids)
    assert 32 < tokens < 64
    for canvas, length in ((32, 32), (64, tokens)):
        (found,) = write(model, [prompt], canvas, EXACT)
        cut = canvas == 32
        assert found.evidence == {"length": length, "empty": 0.0, "cut": float(cut)} and found.written.right == (
            not cut
        )
    (found,) = write(model, [checked("Say nothing:", "x")], 32, EXACT)
    assert found.evidence == {"length": 0, "empty": 1.0, "cut": 0.0} and not found.written.right


def test_the_table_of_the_first_screen_has_the_numbers_of_the_estimates(runs):
    run = runs[True]
    found = {one.name: one for one in run.measured["own-task"]}
    rows = own_view(run.tables)["rows"]
    assert [row["right"] for row in rows] == ["100.0 %"] * 4 + ["0.0 %"] and [bool(row["change"]) for row in rows] == [
        *(False, True, True, False, True)
    ]
    changed = found["change of accuracy, decoded on a canvas of 64 instead of 32"]
    assert rows[-1]["change"] == changed.text(changed.value) + changed.brackets()
    assert rows[-1]["said"] == "2 tokens, 0.0 % empty, 0.0 % cut" and own_view({}) == {} and own_lines({}) == []
    lines = own_lines(run.tables)
    assert len(lines) == 6 and all(row["right"] in line for row, line in zip(rows, lines[1:], strict=True))
    assert set(lines) <= set(str(run).splitlines())
    assert f"&gt;{rows[-1]['said']}&lt;" in run._repr_html_()


def test_a_run_with_a_users_questions_asks_own_task(data):
    sets = list(data.values())
    for preset, asked in (("quick", False), ("default", False), ("paper", False), ("full", True)):
        settings = chosen_settings(preset)
        assert ("own-task" in settings.probes) == asked
        assert with_own_task(settings, sets).probes == settings.probes + (() if asked else ("own-task",))
        assert with_own_task(settings, []) == settings
    for name, expected in (("trajectory", ("trajectory",)), ("mask-count", ("mask-count", "own-task"))):
        assert with_own_task(chosen_settings(probes=name), sets).probes == expected
    assert chosen_settings(questions=5).parameters["own-task"]["questions"] == 5
    assert chosen_settings().parameters["own-task"]["questions"] == 64 > chosen_settings().questions


def test_what_does_not_fit_is_noted_and_embedded_questions_are_asked_without_data(tmp_path):
    model = writer(False, {})
    model.window = 400
    settings = with_parameters(ONLY, own_task={"masks": (0, 500), "canvases": (32, 1024), "questions": 2})
    run = mw.read_run(diagnose(model, settings, tmp_path))
    table = run.table("own-task")
    assert {*table.task} == {"embedded"} and {*zip(table.how, table.masks, strict=True)} == {
        ("one pass", 0),
        ("decoded", 32),
    }
    assert table["empty"].dropna().all() and len(run.manifest.notes) == 3
    assert any("--relevant" in note for note in run.manifest.notes)


def test_a_file_is_asked_from_the_command_line_and_a_broken_one_is_refused(tmp_path):
    file = tmp_path / "sums.jsonl"
    file.write_text(json.dumps({"question": "How many?", "answer": "So 3.\n#### 3"}) + "\n")
    given = ["diagnose", "tiny-llada", "--quick", "--probes", "own-task", "--data", str(file), "--json"]
    done = CliRunner().invoke(app, [*given, "--dry-run"])
    found = json.loads(done.stdout)["tiny-llada"]
    asked = checked("Question: How many?\nAnswer:", " 3").question
    length, answer = len(asked.ids), len(asked.answer_ids)
    assert found["prompts"] == 4 and found["tokens"] == 2 * (length + answer) + 64 + PASSES * (2 * length + 64 + 256)
    file.write_text(file.read_text() + '{"question": "How many?"}\n')
    done = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "other")])
    assert done.exit_code == 2 and "line 2" in done.stderr and not (tmp_path / "other").exists()
