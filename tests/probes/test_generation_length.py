"""generation-length and likelihood-masks: models with a flood of end tokens planted and without; their questions."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from transformers import PretrainedConfig

import maskwise as mw
from helpers.known import hand_made, shipped_tokenizer, with_parameters
from maskwise.models.generation import Generation
from maskwise.probes.answers.canvas_answers import end_evidence, write
from maskwise.probes.checked import AskedSet, CanvasLayout, CheckedQuestion, layouts
from maskwise.probes.library import likelihood_masks
from maskwise.probes.library.generation_length import advice, by_canvas, ends, metrics
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import QUICK, chosen_settings
from maskwise.support.errors import UserError
from maskwise.tasks import checkable
from maskwise.tasks.checkable import EXACT, LAST_NUMBER, is_right
from maskwise.tasks.datasets import read_dataset
from maskwise.tasks.prompts import Prompt

QUESTIONS = {f"Say {word} twice:": f" {word} and {word} again" for word in ("otter", "zebra", "lemon", "tiger")}
SMALL = with_parameters(
    replace(QUICK, probes=("generation-length", "likelihood-masks")),
    generation_length={"canvases": (16, 32, 64), "blocks": (16,), "tokens_per_step": 4},
    likelihood_masks={"mask_counts": (0, 64), "samples": 4},
)
MANY = 48  # places after the prompt from which on the planted model writes end tokens


def writer(floods: bool):
    """Writes the right answer and end tokens after it; the planted one, surer still, ends after two tokens where the
    canvas is long."""
    tokenizer = shipped_tokenizer()
    known = {
        tuple(tokenizer(prompt)["input_ids"]): tokenizer(answer, add_special_tokens=False)["input_ids"]
        for prompt, answer in QUESTIONS.items()
    }

    def body(net, batch, layout):
        hidden = torch.zeros(batch.tokens, len(tokenizer))
        for start, end in pairwise(batch.offsets.tolist()):
            ids = tuple(batch.ids[start:end].tolist())
            prompt = next(prompt for prompt in known if ids[: len(prompt)] == prompt)
            room = len(ids) - len(prompt)
            tokens = [*known[prompt], *[tokenizer.eos_token_id] * room][:room]
            for place, token in enumerate(tokens):
                hidden[start + len(prompt) + place, token] = 40.0
                if floods and room >= MANY and place >= 2:
                    hidden[start + len(prompt) + place, tokenizer.eos_token_id] = 50.0
        return hidden

    return with_config(hand_made(body, name="flooding" if floods else "writer"))


def with_config(model):
    """What decoding asks a network for: its end token, which the tokenizer names here."""
    model.net.config = PretrainedConfig(eos_token_id=None)
    return model


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    lines = [json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in QUESTIONS.items()]
    file.write_text("\n".join(lines))
    return {"prompts": read_dataset("prompts", file)}


@pytest.fixture(scope="module")
def tables(data, tmp_path_factory):
    """{planted: the tables of its run}"""
    home = tmp_path_factory.mktemp("runs")
    return {
        floods: mw.read_run(diagnose(writer(floods), SMALL, home / str(floods), data=data)).tables
        for floods in (False, True)
    }


def by_layout(tables, key):
    """{layout: {canvas: mean}}"""
    means = tables["generation-length"].groupby(["layout", "canvas"])[key].mean().unstack("layout")
    return {layout: column.dropna().to_dict() for layout, column in means.items()}


def test_a_planted_flood_is_found_and_a_growing_canvas_is_seen_to_be_the_remedy(tables):
    found = tables[True]
    accuracy, length, share = (by_layout(found, key) for key in ("correct", "length", "end_share"))
    assert accuracy["one block"] == {16: 1, 32: 1, 64: 0} and length["one block"][64] == 2
    assert accuracy["blocks of 16"][64] == 0  # it sees all masks too
    assert accuracy["growing by 16"] == {32: 1, 64: 1}
    assert share["one block"][64] == pytest.approx(62 / 64)
    sooner, right = metrics(found["generation-length"], {})
    assert sooner.verdict == "holds" and sooner.value == 2 - length["one block"][16] and sooner.n == 4
    assert right.value == -1 and advice([sooner, right])
    curve = by_canvas(found["generation-length"], {}).set_index(["measure", "layout", "canvas"])
    assert curve.change["correct", "one block", 64] == -1 and curve.change["correct", "growing by 16", 64] == 0


def test_empty_and_cut_answers_are_counted_by_canvas(tables):
    table = tables[False]["generation-length"]
    lengths = {len(shipped_tokenizer()(answer, add_special_tokens=False)["input_ids"]) for answer in QUESTIONS.values()}
    assert max(lengths) < 16
    unusable = ends(table, {}).set_index("measure").loc[["empty", "cut"]]
    assert set(unusable.value) == {0.0} and (unusable.high > 0).all()
    old = ends(table.drop(columns=["empty", "cut"]), {})
    assert set(old.measure) == {"end_share", "end_step"}


@pytest.mark.parametrize(("canvas", "empty", "cut"), [(2, 0.0, 1.0), (16, 0.0, 0.0)])
def test_a_canvas_shorter_than_the_answer_cuts_it_off(canvas, empty, cut):
    tokenizer = shipped_tokenizer()
    prompt, answer = next(iter(QUESTIONS.items()))
    ids, right = (tuple(tokenizer(text, add_special_tokens=text is prompt)["input_ids"]) for text in (prompt, answer))
    asked = AskedSet("prompts", (CheckedQuestion(ids, right, answer),))
    masked = Prompt((*ids, *[tokenizer.mask_token_id] * canvas), len(ids), right[0], canvas)
    found = write(writer(False), [masked], CanvasLayout(canvas), asked, 4)[0].evidence
    assert (found["empty"], found["cut"]) == (empty, cut)


def test_without_the_flood_none_is_found_and_every_canvas_gives_the_same_answer(tables):
    found = tables[False]
    sooner, right = metrics(found["generation-length"], {})
    assert sooner.value == right.value == 0 and sooner.low < 0 < sooner.high and advice([sooner, right]) is None
    assert {value for sizes in by_layout(found, "correct").values() for value in sizes.values()} == {1.0}
    lengths = by_layout(found, "length")
    assert {value for sizes in lengths.values() for value in sizes.values()} == {lengths["one block"][16]}
    table = found["generation-length"]
    assert set(table.answer) == {answer.strip() for answer in QUESTIONS.values()}
    assert set(table[table.layout == "growing by 16"].masks_seen) == {16}
    assert metrics(table[table.canvas == 16], {}) == []


def test_a_score_moves_with_the_masks_after_it_only_where_they_are_read(tables):
    for floods, moves in ((False, False), (True, True)):
        table = tables[floods]["likelihood-masks"]
        changed, moved = likelihood_masks.metrics(table, {})
        assert (changed.value > 1) == (moved.value > 1) == moves
        last = likelihood_masks.by_masks(table, {}).iloc[-1]
        assert last.masks == 64 and last.moved == moved.value and last.moved_most >= last.moved
        assert last.change == pytest.approx(changed.value)


def test_where_end_tokens_stand_and_when_they_came():
    made = Generation([5, 9, 7, 9], "", 4, [0, 3, 1, 2], [])
    assert end_evidence(made, {9}) == {"length": 1, "ended": 1.0, "end_share": 0.5, "end_step": 0.5}
    assert end_evidence(made, {8}) == {"length": 4, "ended": 0.0, "end_share": 0.0}


def test_layouts_cut_the_canvas_and_take_the_same_steps_in_every_block():
    found = layouts((16, 48, 50), (16,))
    assert [(one.canvas, one.block, one.grows) for one in found] == [
        (16, 0, False),
        (48, 0, False),
        (50, 0, False),
        (48, 16, False),
        (48, 16, True),
    ]
    assert CanvasLayout(48).steps(8) == 6 and CanvasLayout(48, 16).steps(8) == 6 and CanvasLayout(48, 16).steps(32) == 3


def test_canvases_that_do_not_fit_are_noted_and_embedded_questions_are_asked_without_data(tmp_path):
    tokenizer = shipped_tokenizer()

    def body(net, batch, layout):
        hidden = torch.zeros(batch.tokens, len(tokenizer))
        hidden[:, tokenizer.eos_token_id] = 50.0
        return hidden

    settings = with_parameters(
        replace(QUICK, probes=("generation-length",), questions=2),
        generation_length={"canvases": (16, 100_000), "blocks": (), "tokens_per_step": 16},
    )
    run = read_run(diagnose(with_config(hand_made(body, name="ends")), settings, tmp_path))
    assert {record["task"] for record in run.records} == {"embedded"} and len(run.records) == 2
    assert any("leave no room for canvases of 100000 masks" in note for note in run.manifest["notes"])


def test_both_probes_are_left_out_of_all_presets_but_full():
    for preset, asked in (("quick", False), ("default", False), ("paper", False), ("full", True)):
        probes = chosen_settings(preset).probes
        assert ("generation-length" in probes) == ("likelihood-masks" in probes) == asked


def test_gsm8k_is_read_as_published_and_its_last_number_counts(tmp_path):
    lines = [
        {"question": "A crate holds 3 rows of 4 jars. How many jars?", "answer": "3*4 = <<3*4=12>>12 jars.\n#### 12"},
        {"question": "A mill grinds 1,200 sacks. How many?", "answer": "It is 1200.\n#### 1,200"},
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for path in (tmp_path, tmp_path / "test.jsonl"):
        data = read_dataset("gsm8k", path)
        assert [one.label for one in data.tests] == [" 12", " 1200"] and data.check == LAST_NUMBER
        assert data.tests[0].asked.startswith("Question: A crate") and data.tests[0].asked.endswith("\nAnswer:")
    assert is_right("3 rows of 4 are 12.", " 12", LAST_NUMBER) and is_right("#### 1,200", " 1200", LAST_NUMBER)
    assert not is_right("12 of 13", " 12", LAST_NUMBER) and not is_right("none", " 12", LAST_NUMBER)
    (tmp_path / "test.jsonl").write_text('{"question": "How many?", "answer": "twelve"}\n')
    with pytest.raises(UserError, match=r"line 1 should hold a question, and an answer that ends in #### and a number"):
        read_dataset("gsm8k", tmp_path)
    with pytest.raises(UserError, match="is it gsm8k as published"):
        read_dataset("gsm8k", tmp_path.parent)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([{"prompt": "x"}], "line 1 has the keys prompt: write prompt and answer"),
        ([{"prompt": "x", "answer": " "}], "line 1 should hold a prompt and an answer"),
        ([{"prompt": "x", "answer": "y", "pattern": "("}], "does not compile"),
        ([{"prompt": "x", "answer": "y", "pattern": None}], "does not compile"),
        ([{"prompt": "x", "answer": "y", "pattern": EXACT}], "does not compile"),
        ([{"prompt": "x", "answer": "y", "pattern": "x{99999999999}"}], "does not compile"),
        ([{"prompt": "x", "answer": "a" * 60 + "!", "pattern": "(a+)+$"}], "takes more than 0.2 s on one text"),
        ([{"prompt": "x", "answer": "y", "pattern": "z"}], "line 1 should hold an answer that its pattern matches"),
        (
            [{"prompt": "x", "answer": "y"}, {"prompt": "x", "answer": "y", "pattern": "y"}],
            "line 2 should hold the pat",
        ),
        ([], "line 1 should hold one JSON object"),
    ],
)
def test_a_file_of_prompts_that_cannot_be_checked_is_refused(tmp_path, monkeypatch, lines, problem):
    monkeypatch.setattr(checkable, "MOST_SECONDS", 0.2)
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(UserError, match=problem):
        read_dataset("prompts", file)


def test_answers_are_checked_as_said():
    assert is_right(" otter\n", "otter", EXACT) and not is_right("otters", "otter", EXACT)
    assert is_right("so: 7", "it is: 7", r": (\d)") and not is_right("so 7", "it is: 7", r": (\d)")
    assert is_right("an exact one", "exact", "exact") and is_right("the last number", "last number", "last number")
