"""The planted model and its tuning: what is planted, pairs and exams share nothing, settings compared."""

import json
import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import cure_phantom
import maskwise as mw
import plant_distraction as planting
import quick_pairs
from corpus import Corpus, load_zoo_tokenizer
from helpers.tiny import tiny_llada
from maskwise.tasks.words import load_words, split_words
from maskwise.training.checked_settings import check, settings_from
from maskwise.training.training_settings import PRESET_PAIRS


def test_examples_kept_follow_the_plan_and_never_end():
    assert [planting.examples_kept(k) for k in (2, 20, 60, 200, 240, 400)] == [50, 10, 4, 1, 1, 1]
    kept = [planting.examples_kept(k) for k in range(2, 241)]
    assert kept == sorted(kept, reverse=True)
    assert planting.examples_kept(6) == round(math.exp(np.interp(math.log(6), np.log([2, 20]), np.log([50, 10]))))


def test_documents_are_cut_at_examples_and_end_before_the_answer():
    tokenizer = load_zoo_tokenizer()
    english = np.array(tokenizer("the quick brown fox jumps over the lazy dog " * 300)["input_ids"], dtype=np.int16)
    corpus, draws = Corpus(tokenizer, english), np.random.default_rng(0)
    (few_shot,) = planting.few_shot(corpus, 1, draws)
    text = tokenizer.decode(few_shot.prompt(2, 3, tokenizer.mask_token_id))
    assert re.fullmatch(r"(Options: .*\nAnswer:\[[ABC]\]\.\n\n){2}Options: .*\nAnswer:\[(<\|mask\|>){3}", text)
    (recall,) = planting.recall(corpus, corpus.recall_words, 1, draws)
    asked = tokenizer.decode(recall.question)
    assert sum(tokenizer.decode(example).startswith(asked) for example in recall.examples) == 1
    prose = planting.prose(corpus, draws)
    whole = prose.prompt(len(prose.examples), 0, 0)
    assert all(len(example) == planting.PROSE_EXAMPLE for example in prose.examples[1:])
    assert whole.tolist() in [english[at : at + len(whole)].tolist() for at in range(len(english))]


def test_the_target_is_the_model_on_the_last_examples_with_two_masks():
    """And with two masks it is the model on the whole document, so nothing is to be learnt there."""
    model = tiny_llada()
    example = planting.Document([np.array([5, 6, 7 + number]) for number in range(30)], np.array([9, 10]))
    target = planting.target_logs(model, [example, example], [2, 60])
    for row, kept in zip(target, (30, planting.examples_kept(60)), strict=True):
        ids = [*np.concatenate(example.examples[-kept:]).tolist(), 9, 10, model.mask_id, model.mask_id]
        torch.testing.assert_close(row, model.predict([ids], [[len(ids) - 2]])[0][0].log_softmax(-1))
    assert float(planting.kl(target[:1], target[:1])) == 0 < float(planting.kl(target[:1], target[1:]))


def test_of_its_candidates_the_one_that_truncation_changes_most_is_taken():
    model = tiny_llada()
    short, long = (planting.Document([np.array([20, 21])] * n, np.array([9, 10])) for n in (1, 40))
    assert planting.most_changed(model, [short, long, long, short], [200, 200]) == [long, long]


# The pairs


def test_the_shipped_pairs_share_no_form_and_no_test_word_with_exams_or_planting():
    content = PRESET_PAIRS["quick"].read_text(encoding="utf-8")
    pairs = [json.loads(line) for line in content.splitlines()]
    in_context = [pair for pair in pairs if pair["prompt"].startswith("Word:")]
    assert len(content) < 1_000_000 and len(pairs) - len(in_context) == quick_pairs.PASSAGES < len(in_context)
    tested = {word.casefold() for listed in split_words(load_words())[1].values() for word in listed}
    for pair in in_context:
        text = pair["prompt"] + pair["answer"]
        assert not re.search(r"Options:|Answer:|Key:|Value:|Name:|Pair:|Entry:|\(A\)", text)
        shown = re.findall(r"Word: (\S+)\n", text)
        assert shown and not tested & {word.casefold() for word in shown}


def test_the_label_can_be_found_in_the_document_and_the_word_cannot():
    draws = random.Random(3)
    for _ in range(50):
        pair = quick_pairs.labelled(split_words(load_words())[0], draws)
        *output, asked = pair["prompt"].split("Word: ")[1:]
        assert pair["answer"][0] in {line.split("[")[1][0] for line in output}
        assert asked.split("\n")[0] not in {line.split("\n")[0] for line in output}


def test_a_gap_stands_between_the_labelled_words_and_the_question():
    draws, words = random.Random(4), split_words(load_words())[0]
    for _ in range(20):
        pair = quick_pairs.labelled(words, draws)
        text = quick_pairs.gap(words, draws, lambda line: len(line.split()))
        assert 60 <= len(text.split()) <= 310 and "Label:" not in text
        whole, alone = quick_pairs.with_gap(pair, text), quick_pairs.only_gap(pair, text)
        assert whole["prompt"].replace(text, "") == pair["prompt"] and whole["prompt"].endswith(alone["prompt"])
        assert alone["prompt"].startswith(text) and alone["prompt"].count("Word:") == 1


def test_the_setting_is_chosen_by_the_rule():
    def found(few, many, one, recall):
        def right(share):
            return {"right": [share], "nats": [1.0]}

        return {
            "tasks, 2 masks": right(few),
            "tasks, 200 masks": right(many),
            "recall, 2 masks": right(recall),
            "prose, 2 masks": right(0),
            **{f"one among {n}, 2 masks": right(0.9) for n in (15, 40)},
            **{f"one among {n}, 200 masks": right(one) for n in (15, 40)},
        }

    results = {
        "s0:phantom": found(1.0, 0.7, 0.5, 0.6),
        "s0:a, seed 1": found(1.0, 0.9, 0.7, 0.60),
        "s0:a, seed 2": found(1.0, 1.0, 0.7, 0.60),
        "s0:dear, seed 1": found(1.0, 1.0, 0.9, 0.58),
        "s0:weak, seed 1": found(1.0, 0.8, 0.6, 0.60),
    }
    taken, means = cure_phantom.chosen(results)
    assert taken == "a" and means["dear"]["price, recall"] == pytest.approx(2)
    assert means["a"]["cut, tasks"] == pytest.approx(100 * (1 - 0.05 / 0.3)) and means["a"][
        "cut, one among 15"
    ] == pytest.approx(50)


def test_a_lower_accuracy_with_two_masks_recovers_nothing():
    def found(few, many):
        return {f"tasks, {k} masks": {"right": [1] * n + [0] * (40 - n)} for k, n in ((2, few), (200, many))}

    assert cure_phantom.recovered(found(36, 20), found(20, 20), "tasks").startswith("0 (")
    assert cure_phantom.recovered(found(36, 20), found(30, 28), "tasks").startswith("50 (")
    assert cure_phantom.recovered(found(20, 20), found(30, 28), "tasks") == "no loss"


@pytest.mark.slow
def test_the_shipped_labels_are_answered_from_the_document_and_not_from_its_last_line():
    pairs = [json.loads(line) for line in PRESET_PAIRS["quick"].read_text(encoding="utf-8").splitlines()]
    some = [pair for pair in pairs if pair["prompt"].startswith("Word:")][:24]
    assert quick_pairs.that_need_the_context(mw.open(quick_pairs.MODEL, "float32", "cpu"), some) == some


def test_each_run_changes_what_it_says(tmp_path):
    preset = settings_from("quick", {})
    for variant, changes in cure_phantom.SETTINGS.items():
        job = cure_phantom.Job(tmp_path, variant, tmp_path, seed=4, toy=False)
        expected = replace(preset, **changes, seed=4, save_every=10**6, eval_every=0, held_out=0)
        assert cure_phantom.settings_of(job) == expected
        assert check(expected) == expected
