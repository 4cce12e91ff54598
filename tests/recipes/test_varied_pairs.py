"""The pairs that vary: their form, their words, and right answers where the truth is known."""

import random
import re

from maskwise.tasks.word_sources import UNFAMILIAR, load_sets
from varied_pairs import MOST_TOKENS, few_shot, load_kinds, question, recall

KINDS = load_kinds()
OPTIONS = re.compile(r"Options: \(A\) (\S.*?), \(B\) (\S.*?), \(C\) (\S.*?)\nAnswer:\[([ABC])\]\.")


def test_the_forty_kinds_share_no_word_with_each_other_or_the_sets():
    words = [word for listed in KINDS.values() for word in listed]
    assert len(KINDS) == 40 and len(set(words)) == len(words) == 480
    sets = [one for name in UNFAMILIAR for one in load_sets(name)]
    assert len(sets) == 24
    assert not {*words} & {word for one in sets for word in one.targets + one.others}
    assert not {*KINDS} & {kind for one in sets for kind in (one.target, one.other)}


def test_few_shot_pairs_are_word_and_number_questions_cut_before_the_last_answer():
    kind_of = {word: kind for kind, listed in KINDS.items() for word in listed}
    for pair in few_shot(KINDS, 60, random.Random(0)):
        examples = OPTIONS.findall(pair["prompt"] + pair["answer"])
        text = pair["prompt"] + pair["answer"]
        assert text == "\n\n".join(match[0] for match in OPTIONS.finditer(text)) and pair["prompt"].endswith("Answer:[")
        words = [one for one in examples if one[0] in kind_of]
        assert words[-1] == examples[-1] and len(examples) * 19 <= MOST_TOKENS + 19
        assert len({tuple(sorted({kind_of[word] for word in one[:3]})) for one in words}) == 1  # of the same two kinds
        for *options, letter in examples:
            right = options["ABC".index(letter)]
            if right in kind_of:
                assert [kind_of[word] for word in options].count(kind_of[right]) == 1  # the odd one out
                assert kind_of[right] == kind_of[words[-1]["ABC".index(words[-1][3])]]
            else:
                assert int(right) == min(map(int, options))


def test_recall_pairs_ask_one_of_their_words():
    for pair in recall(KINDS, 40, random.Random(1)):
        known = dict(re.findall(r"Key: (.+)\nValue:\[ (\d+)\]\.", pair["prompt"]))
        asked = re.fullmatch(r".*Key: (.+)\nValue:\[", pair["prompt"], re.DOTALL)
        assert asked and 5 <= len(known) <= 40 and pair["answer"] == f" {known[asked[1]]}]."


def test_the_right_option_stands_in_every_place():
    draws = random.Random(2)
    assert {question(draws, (["ash"], ["oak", "elm"]))[1] for _ in range(30)} == {"A", "B", "C"}
