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
    is_word_example,
    known_model,
    larger_of_two,
    read_questions,
    reader_model,
    rule_is_near,
    shipped_tokenizer,
    truth,
    with_parameters,
)
from helpers.recalling import recalling_model, recalls_what_it_sees
from maskwise.probes import FEW_SHOT_PROBES
from maskwise.probes.examples import unlabelled
from maskwise.probes.library import natural_text
from maskwise.probes.library.filler import END
from maskwise.probes.summary import summarise
from maskwise.probes.text import load_text, passages
from maskwise.records.folder import read_run, tables_of
from maskwise.records.record import condition_text
from maskwise.runs.diagnose import diagnose
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
    settings = replace(CORE_PROBES, relevant=(1,))
    return read_run(diagnose(known_model(sees_only(50)), settings, tmp_path_factory.mktemp("near")))


@pytest.fixture(scope="module")
def near_sighted(near_run):
    return summarise(near_run)


def accuracies(summary, probe, **fixed):
    return {
        tuple(value for name, value in unlabelled(entry["condition"]).items() if name not in fixed): entry["accuracy"]
        for entry in summary["probes"][probe]
        if fixed.items() <= entry["condition"].items()
    }


def test_location_finds_full_locality_with_and_without_masks(near_run, near_sighted):
    assert near_sighted["scores"]["locality"]["value"] == pytest.approx(1)
    right = tables_of(near_run, FEW_SHOT_PROBES)["location"].groupby(["question", "masks", "location"]).correct.mean()
    asked = [("right", 0, 4), ("middle", 0, 2), ("left", 0, 0), ("right", 2, 4), ("right", 20, 4)]
    for question, masks, nearest in asked:
        found = right[question, masks].to_dict()
        assert found == pytest.approx({at: 1 if at == nearest else CHANCE for at in (0, 2, 4)})


def test_masks_and_fillers_change_nothing_of_it(near_sighted):
    assert near_sighted["scores"]["mask_tax"]["value"] in (0, None)
    assert len(set(accuracies(near_sighted, "mask-count").values())) == 1
    assert len(set(accuracies(near_sighted, "filler").values())) == 1


def test_a_longer_context_hides_the_example_and_masks_do_not(near_run):
    table = tables_of(near_run, FEW_SHOT_PROBES)["context-length"]
    found = table.groupby(["masks", "distractors"]).correct.mean()
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


# Of each probe, where the model loses its format, and the same of a record or an entry of the summary.
BY_MASKS = many_masks, lambda asked: asked["masks"] > MANY
BY_FILLERS = many_fillers, lambda asked: asked["condition"]["fillers"] > MANY
BY_DISTANCE = distant_rule, lambda asked: asked["condition"]["location"] != NEAREST[asked["condition"].get("question")]
NEAREST = {None: 4, "right": 4, "middle": 2, "left": 0}
FORMAT = {
    **dict.fromkeys(("mask-count", "context-length", "contrast", "recall",
                     "shots-masks", "points", "datasets"), BY_MASKS),
    "filler": BY_FILLERS,
    "location": BY_DISTANCE,
}  # fmt: skip
ASKED = with_parameters(
    replace(SMALL, questions=4),
    mask_count={"mask_counts": (2, 20)},
    filler={"after_two_masks": (".", END), "mask_counts": (2, 20)},
    contrast={"tasks": 1, "questions": 2, "mask_counts": (2, 20), "among": None},
    recall={"mask_counts": (2, 20), "filler_counts": ()},
    shots_masks={"shots": (1, 3), "masks": (1, 30), "clouds": 1},
    points={"clouds": 1, "examples": 8, "points": 4, "counts": (0,), "masked_examples": 8, "shares": (0.0, 0.2)},
    datasets={"shares": (0.0, 0.4), "shots": 2},
)


def data_for(probe, folder):
    if probe != "datasets":
        return {}
    rows = [{"text": f"number {n} of forty in all", "label": "even" if n % 2 == 0 else "odd"} for n in range(40)]
    (folder / "parity.json").write_text(json.dumps(rows))
    files = {"hotpotqa": larger_of_two(folder / "hotpot.json"), "parity": folder / "parity.json"}
    return {name: read_dataset(name, file) for name, file in files.items()}


@pytest.mark.parametrize("probe", FORMAT)
def test_a_change_of_format_is_no_change_of_content(probe, tmp_path):
    """The choice among the allowed answers is the same, and what is lost is lost in the format: in every record, and in
    the differences from the baseline."""
    (where, is_lost), settings, data = FORMAT[probe], replace(ASKED, probes=(probe,)), data_for(probe, tmp_path)

    def run(changed):
        model = recalling_model(recalls_what_it_sees) if probe == "recall" else known_model(blind)
        model = reader_model(by_the_text) if data else model
        model = loses_format(model, where) if changed else model
        return read_run(diagnose(model, settings, tmp_path / f"{changed}", data=data))

    kept, lost = run(False).records, run(True)
    assert len({is_lost(record) for record in kept}) == 2
    for before, after in zip(kept, lost.records, strict=True):
        assert after["nll_choice"] == pytest.approx(before["nll_choice"], abs=1e-4)
        more = after["nll_allowed"] - before["nll_allowed"]
        assert more > 1 and not after["correct"] if is_lost(before) else more == pytest.approx(0, abs=1e-5)
    summary = summarise(lost)
    entries = {condition_text(entry["condition"]): entry for entry in summary["probes"].get(probe, [])}
    changes = []
    for entry in (entry for entry in entries.values() if "paired" in entry):
        paired = entry["paired"]
        changes.append(is_lost(entry) and not is_lost(entries[condition_text(paired["baseline"])]))
        assert paired["nll_choice"]["difference"] == pytest.approx(0, abs=1e-4)
        more = paired["nll_allowed"]["difference"]
        assert more > 1 if changes[-1] else more == pytest.approx(0, abs=1e-4)
    assert any(changes) == (
        bool(changes) and probe not in ("recall", "points")
    )  # these compare distances, at equal masks
    if where is distant_rule:
        assert summary["scores"]["distance_nats"]["value"] == pytest.approx(LOST, abs=1e-3)


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
    table = tables_of(read_run(diagnose(model, settings, tmp_path)), ())["natural-text"]
    guessing = torch.tensor(float(len(tokenizer) - 1)).log().item()  # anything but the mask
    assert set(table.masks_seen) == {1, 21}
    assert table.nll.tolist() == pytest.approx([guessing * (masks == 21) for masks in table.masks_seen], abs=1e-3)
    masks, wrong, stops, *_ = natural_text.metrics(table, {})
    assert (masks.value, stops.value) == pytest.approx((-guessing, 0), abs=1e-3)
    assert wrong.value == wrong.side == -1
