"""Two models of which every probe's answer is known: one sees only the nearest tokens, one changes its format alone."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from helpers.known import (
    CORE_PROBES,
    QUESTION,
    SMALL,
    accuracies,
    diagnosed,
    is_word_example,
    known_model,
    larger_of_two,
    measured,
    read_questions,
    reader_model,
    rule_is_near,
    shipped_tokenizer,
    truth,
    with_parameters,
)
from helpers.recalling import recalling_model, recalls_what_it_sees
from maskwise.probes.library import natural_text
from maskwise.probes.library.filler import END
from maskwise.probes.text import load_text, passages
from maskwise.tasks.datasets import read_dataset
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import encode_last_word

MASK = "<|mask|>"
MANY, LOST = 10, 12.0  # masks beyond which the format goes, and by how many nats the other token is ahead


# Seeing only what is near


def sees_only(count):
    """Right where an example of the rule is among the `count` tokens on either side of the answer, else "A"."""
    tokenizer = shipped_tokenizer()

    def reply(questions, asked, text):
        before, after = (tokenizer(side, add_special_tokens=False)["input_ids"] for side in text.split(MASK, 1))
        seen = tokenizer.decode(before[-count:]) + MASK + tokenizer.decode(after[:count])
        examples = [options for options, letter in QUESTION.findall(seen) if letter and is_word_example(options)]
        return truth()[questions[asked][0]] if examples else "A"

    return reply


@pytest.fixture(scope="module")
def near_run(tmp_path_factory):
    return diagnosed(known_model(sees_only(50)), replace(CORE_PROBES, relevant=(1,)), tmp_path_factory.mktemp("near"))


def test_location_finds_full_locality_with_and_without_masks(near_run):
    assert measured(near_run, "location")["locality"].value == pytest.approx(1)
    right = accuracies(near_run, "location", "question", "masks", "location")
    places = [("right", 0, 4), ("middle", 0, 2), ("left", 0, 0), ("right", 2, 4), ("right", 20, 4)]
    for question, masks, nearest in places:
        found = {at: right[question, masks, at] for at in (0, 2, 4)}
        assert found == pytest.approx({at: 1 if at == nearest else CHANCE for at in (0, 2, 4)})


def test_masks_and_fillers_change_nothing_of_it(near_run):
    assert measured(near_run, "mask-count")["mask tax"].value in (0, None)
    assert len(set(accuracies(near_run, "mask-count", "masks").values())) == 1
    assert len(set(accuracies(near_run, "filler", "fillers").values())) == 1


def test_a_longer_context_hides_the_example_and_masks_do_not(near_run):
    found = accuracies(near_run, "context-length", "masks", "distractors")
    for masks in ("2 masks", "20% masks"):
        assert found[masks, 0] == 1 > 0.8 > found[masks, 4] >= CHANCE


# Changing the format alone


def blind(questions, asked, text):
    """A letter that the question's own words decide."""
    return "ABC"[sum(map(ord, questions[asked][0])) % 3]


def by_the_text(text):
    """A label of the data set that the text without its masks decides."""
    labels = ("A", "B") if "[A]" in text else ("even", "odd")
    return labels[sum(map(ord, text.replace(MASK, ""))) % 2]


def loses_format(model, where):
    """The same model, but another token is ahead of whatever it would have answered where(ids)."""
    plain, elsewhere = model._body, 7

    def body(net, batch, layout):
        hidden = plain(net, batch, layout)
        for start, end in pairwise(batch.offsets.tolist()):
            if where(batch.ids[start:end].tolist()):
                hidden[start:end, elsewhere] = hidden[start:end].max() + LOST
        return hidden

    model._body = body
    return model


def many_masks(ids):
    return ids.count(shipped_tokenizer().mask_token_id) > MANY


def many_fillers(ids):
    """After the last mask: what closes the bracket, if it is closed, and the fillers."""
    return ids[::-1].index(shipped_tokenizer().mask_token_id) > MANY


def distant_rule(ids):
    return not rule_is_near(*read_questions(shipped_tokenizer().decode(ids)))


# Of each probe, where the model loses its format, and the same of a row of its table.
BY_MASKS = many_masks, lambda row: row["masks_seen"] > MANY
BY_FILLERS = many_fillers, lambda row: row["fillers"] > MANY
BY_DISTANCE = distant_rule, lambda row: row["location"] != {"right": 4, "middle": 2, "left": 0}[row["question"]]
BY_SHOTS = "mask-count with shots"
FORMAT = {
    **dict.fromkeys(("mask-count", "context-length", "contrast", "recall", BY_SHOTS, "points", "datasets"), BY_MASKS),
    "filler": BY_FILLERS,
    "location": BY_DISTANCE,
}
LOSSES = {"mask-count": "nats lost to masks", "location": "nats lost to distance"}
ASKED = with_parameters(
    replace(SMALL, questions=4),
    mask_count={"mask_counts": (2, 20)},
    filler={"after_two_masks": (".", END), "mask_counts": (2, 20)},
    contrast={"tasks": 1, "questions": 2, "mask_counts": (2, 20), "among": None},
    recall={"mask_counts": (2, 20), "filler_counts": ()},
    points={"clouds": 1, "examples": 8, "points": 4, "counts": (0,), "masked_examples": 8, "shares": (0.0, 0.2)},
    datasets={"shares": (0.0, 0.4), "shots": 2},
)


WITH_SHOTS = {"mask_counts": (), "shots": (1, 3), "extra": (1, 30), "clouds": 1}


def data_for(probe, folder):
    if probe != "datasets":
        return {}
    rows = [{"text": f"number {n} of forty in all", "label": "even" if n % 2 == 0 else "odd"} for n in range(40)]
    (folder / "parity.json").write_text(json.dumps(rows))
    files = {"hotpotqa": larger_of_two(folder / "hotpot.json"), "parity": folder / "parity.json"}
    return {name: read_dataset(name, file) for name, file in files.items()}


@pytest.mark.parametrize("name", FORMAT)
def test_a_change_of_format_is_no_change_of_content(name, tmp_path):
    """The choice among the allowed answers is the same, and what is lost is lost in the format: in every answer, and in
    the changes."""
    (where, is_lost), probe = FORMAT[name], name.split()[0]
    settings, data = replace(ASKED, probes=(probe,)), data_for(probe, tmp_path)
    settings = settings.changed(probe, **WITH_SHOTS) if name == BY_SHOTS else settings

    def run(changed):
        model = recalling_model(recalls_what_it_sees) if probe == "recall" else known_model(blind)
        model = reader_model(by_the_text) if data else model
        model = loses_format(model, where) if changed else model
        return diagnosed(model, settings, tmp_path / f"{changed}", data=data)

    kept, lost = run(False).table(probe), run(True)
    is_less = [is_lost(row) for row in kept.to_dict("records")]
    assert {*is_less} == {True, False}
    more = (lost.table(probe).nll_allowed - kept.nll_allowed).to_numpy()
    assert lost.table(probe).nll_choice.tolist() == pytest.approx(kept.nll_choice.tolist(), abs=1e-4)
    assert all(one > 1 if less else abs(one) < 1e-5 for one, less in zip(more, is_less, strict=True))
    assert not lost.table(probe).correct[is_less].any()
    if name in LOSSES:
        assert measured(lost, probe)[LOSSES[name]].value == pytest.approx(LOST, abs=1e-3)


# Prose


def test_natural_text_tells_masks_from_full_stops(tmp_path):
    """A model that knows the next word, and nothing once more than ten masks follow."""
    model, settings = (
        known_model(blind),
        replace(SMALL, probes=("natural-text",)).changed("natural-text", counts=(0, 20)),
    )
    tokenizer, words = model.tokenizer, {}
    for text, word_at in passages(load_text(), settings.passages, settings.passage_words):
        encoded = encode_last_word(tokenizer, text, word_at)
        words[encoded.ids[: encoded.row]] = encoded.ids[encoded.row]

    def body(net, batch, layout):
        hidden = torch.zeros(batch.tokens, len(tokenizer))
        for start, end in pairwise(batch.offsets.tolist()):
            ids = batch.ids[start:end].tolist()
            if ids.count(model.mask_id) <= MANY:
                hidden[start:end, words[tuple(ids[: ids.index(model.mask_id)])]] = 50.0
        return hidden

    model._body = body
    table = diagnosed(model, settings, tmp_path).table("natural-text")
    guessing = torch.tensor(float(len(tokenizer) - 1)).log().item()  # anything but the mask
    assert set(table.masks_seen) == {1, 21}
    assert table.nll.tolist() == pytest.approx([guessing * (masks == 21) for masks in table.masks_seen], abs=1e-3)
    masks, wrong, stops, *_ = natural_text.metrics(table, {})
    assert (masks.value, stops.value) == pytest.approx((-guessing, 0), abs=1e-3)
    assert wrong.value == wrong.side == -1
