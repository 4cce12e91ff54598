"""The exams ask what their names say."""

import math
import random
import re

import torch

from corpus import load_zoo_tokenizer
from exams import Sizes, make_exams, place_of, short, table, table_by_masks, take
from maskwise.tasks.words import load_words, split_words
from tiny_step import TOY, make_net

TOKENIZER = load_zoo_tokenizer()
SIZES = Sizes(relevant=2, distractors=5, pairs=(12,), questions=2, recalls=30)
EXAMS = make_exams(TOKENIZER, SIZES, seed=3)
PAIR = re.compile(r"Key: (.+)\nValue:\[ (.+)\]\.\n\n")
_, HELD = split_words(load_words())
KEPT = {word.casefold() for listed in HELD.values() for word in listed}


def questions_of(text: str) -> list[str]:
    return text.split("\n\n")


def test_one_example_near_and_far_differ_in_its_place_alone():
    assert len(EXAMS["one near"]) == len(EXAMS["one far"]) == 12 * 2 and len(EXAMS["mixed"]) == 16 * 2
    contexts = set()
    for near, far in zip(EXAMS["one near"], EXAMS["one far"], strict=True):
        left, right = (questions_of(TOKENIZER.decode(one.ids)) for one in (near, far))
        assert len(left) == len(right) == 7
        assert left[-1] == right[-1] and left[-2] == right[0] and left[:-2] == right[1:-1]
        assert not re.search(r"\(A\) \d", left[-2]) and all(re.search(r"\(A\) \d", line) for line in left[:-2])
        contexts.add(tuple(left[:-1]))
    assert len(contexts) == 24  # drawn anew for each question


def test_recall_asks_a_pair_at_its_place():
    for place, numbers in {"near": {7, 8, 9, 10}, "middle": {4, 5, 6, 7, 8}, "first": {0}}.items():
        found = set()
        for question in EXAMS[f"recall 12 {place}"]:
            text = TOKENIZER.decode(question.ids[: question.row])
            assert tuple(TOKENIZER.encode(text)) == question.ids[: question.row]
            pairs, asked = PAIR.findall(text), text.rsplit("Key: ", 1)[1].removesuffix("\nValue:[")
            words = [word for pair in pairs for word in pair]
            assert len(set(words)) == 24 and {word.casefold() for word in words} <= KEPT
            firsts = [TOKENIZER.encode(f" {value}")[0] for _, value in pairs]
            assert len(set(firsts)) == 12
            number = [key for key, _ in pairs].index(asked)
            assert question.ids[question.row] == firsts[number] and len(question.ids) == question.row + 1
            found.add(number)
        assert found == numbers


def test_smallest_recall_has_its_places():
    for place in ("near", "middle", "first"):
        assert all(0 <= place_of(place, 5, random.Random(seed)) <= 4 for seed in range(20))


def test_results_of_a_net_to_which_all_tokens_are_alike():
    net = make_net("tiny-llada", TOY, TOKENIZER, 512)
    with torch.no_grad():
        net.model.transformer["ln_f"].weight.fill_(0)
    exams = {"one near": EXAMS["one near"], "recall 12 near": EXAMS["recall 12 near"]}
    found = take(net, exams, TOKENIZER.mask_token_id, shift=False, causal=False, masks=[2, 5])
    assert set(found["one near"]) == {"2", "5"}
    assert found["one near"]["2"] == [0.0, round(math.log(len(TOKENIZER)), 4)]
    again = {"recall 6 near": {"2": [0.5, 1.0]}}
    assert short(found | again) == {"one near": 0.0, "recall near": 0.25}
    assert "| one near | 2 | 0.0 (7.62) |" in table({"tiny": found})
    assert "| exam | 2 | 5 |" in table_by_masks(found) and "| one near | 0.0 (7.62) | 0.0" in table_by_masks(found)
