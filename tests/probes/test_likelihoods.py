"""The likelihood of an answer in two parts: that of an allowed answer, and that of the right one among them."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from helpers.known import SMALL, accuracies, diagnosed, known_model, measured, shipped_tokenizer, uniform
from helpers.tiny import tiny_dream
from maskwise.probes.answers.plain import answers_of, answers_to
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import read_run
from maskwise.tasks.episodes import Question
from maskwise.tasks.prompts import Prompt, closed, encode_question, letter_ids, opened

FEW_SHOT = replace(
    SMALL, questions=2, probes=("location", "mask-count", "recall", "contrast", "attribution", "natural-text", "points")
)


def tiny():
    return tiny_dream(tokenizer=shipped_tokenizer(), vocab=2048, window=2048, mask_token_id=1)


def test_the_parts_are_those_of_a_plain_softmax():
    logits = torch.randn(3, 11, generator=torch.Generator().manual_seed(0)) * 4
    prompts = [Prompt((0,), 0, 5, 1, allowed=(5, 2, 7)), Prompt((0,), 0, 1, 1), Prompt((0,), 0, 9, 1, allowed=(4, 9))]
    first, none, last = answers_to(prompts, logits)
    for answer, row, prompt in ((first, 0, prompts[0]), (last, 2, prompts[2])):
        share = logits[row].double().softmax(0)[list(prompt.allowed)]
        right = share[prompt.allowed.index(prompt.answer_id)]
        assert answer.nll_allowed == pytest.approx(float(-share.sum().log()), abs=1e-5)
        assert answer.nll_choice == pytest.approx(float(-(right / share.sum()).log()), abs=1e-5)
        assert answer.nll == pytest.approx(answer.nll_allowed + answer.nll_choice, abs=1e-5)
    assert none.nll_allowed is None and none.nll_choice is None
    plain = answers_of(logits, torch.tensor([5, 1, 9]))
    assert [(a.token, a.confidence, a.entropy, a.nll) for a in plain] == [
        (a.token, a.confidence, a.entropy, a.nll) for a in (first, none, last)
    ]


def test_prompts_know_the_letters_where_they_stand():
    tokenizer = shipped_tokenizer()
    assert letter_ids(tokenizer) == tuple(tokenizer.convert_tokens_to_ids(list("ABC")))
    for place in range(3):
        encoded = encode_question(tokenizer, [], Question(("one", "two", "three"), place, relevant=True))
        for prompt in (closed(encoded, 1), opened(encoded, 1, 5), opened(encoded, None)):
            assert prompt.allowed == letter_ids(tokenizer) and prompt.allowed[place] == prompt.answer_id


@pytest.mark.slow
def test_records_of_few_shot_questions_hold_both_parts_and_add_up(tmp_path):
    run = diagnosed(tiny(), FEW_SHOT.changed("points", points=2), tmp_path)
    for probe, table in run.tables.items():
        parts = table[["nll_allowed", "nll_choice"]]
        assert (parts.isna() if probe == "natural-text" else parts >= 0).all(axis=None)
        if probe != "natural-text":
            assert table.nll.tolist() == pytest.approx(parts.sum(axis=1).tolist(), abs=3e-5)


def format_lost(reply):
    """A model whose choice among the letters never changes, but which puts its probability elsewhere once more than
    ten masks stand in the text."""
    model = known_model(reply)
    elsewhere, certain = 7, 50.0

    def body(net, batch, layout, asked=model._body):
        hidden = asked(net, batch, layout)
        bounds = batch.offsets.tolist()
        for start, end in pairwise(bounds):
            if int((batch.ids[start:end] == model.mask_id).sum()) > 10:
                hidden[start:end, elsewhere] = certain + 3.0
        return hidden

    model._body = body
    return model


def test_a_change_of_format_is_distinguished_from_a_change_of_content(tmp_path):
    run = diagnosed(format_lost(uniform), replace(SMALL, probes=("mask-count",)), tmp_path)
    means = run.table("mask-count").groupby("masks")[["nll_allowed", "nll_choice"]].mean()
    assert means.nll_allowed.to_dict() == pytest.approx({1: 0, 2: 0, 5: 0, 20: 3.0486}, abs=1e-3)
    assert means.nll_choice[20] == pytest.approx(means.nll_choice[2], abs=1e-4)
    right = accuracies(run, "mask-count", "masks")
    assert right[20] == 0 and right[2] > 0.5
    lost = measured(run, "mask-count")["nats lost to masks"]
    assert lost.value == pytest.approx(3.0486 / 2, abs=1e-3)  # none at 5 masks, all of it at 20


def test_records_of_earlier_versions_are_read(tmp_path):
    folder = diagnose(tiny(), replace(SMALL, probes=("location", "mask-count")), tmp_path)
    old = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for record in old:
        del record["nll_allowed"], record["nll_choice"]
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in old))
    run = read_run(folder)
    assert measured(run, "mask-count")["nats lost to masks"].value is not None  # nll itself was always recorded
    assert run.table("mask-count").nll_choice.isna().all() and run.table("mask-count").nll.notna().all()
