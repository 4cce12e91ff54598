"""Lists of pairs: which words, which tokens, where the asked pair stands, and what the prompts look like."""

import re

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from helpers.known import shipped_tokenizer
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import encode_answers
from maskwise.tasks.recall_pairs import (
    DISTANCES,
    RecallPair,
    asked_first,
    asked_last,
    list_of_point,
    pairs_between,
    recall_words,
)
from maskwise.tasks.words import load_words, split_words

TOKENIZER = shipped_tokenizer()
MASK = TOKENIZER.mask_token_id
PAIRS = (
    RecallPair("otter", "copper"),
    RecallPair("lamp", "Germany"),
    RecallPair("brave", "tennis"),
    RecallPair("under", "violet"),
)


@pytest.fixture(scope="module")
def words():
    return recall_words(TOKENIZER, load_words(), 0.5, 60)


def test_every_list_is_made_of_different_held_out_words_and_its_values_of_different_first_tokens(words):
    held = {word for listed in split_words(load_words())[1].values() for word in listed}
    lists = [list_of_point(words, 60, 0, point) for point in range(20)]
    for pairs in lists:
        used = [word for pair in pairs for word in (pair.key, pair.value)]
        assert set(used) <= held and len({word.casefold() for word in used}) == 120
        prompt = asked_last(TOKENIZER, pairs, 3, MASK, 2)
        assert len(set(prompt.allowed)) == 60
        # in the text as it is asked, the tokens of the values are what the prompt says
        text = "".join(f"{pair.asked}\n{pair.answered}\n\n" for pair in pairs)
        encoding = TOKENIZER(text, return_offsets_mapping=True)
        at = {start: token for (start, _), token in zip(encoding["offset_mapping"], encoding["input_ids"], strict=True)}
        assert prompt.allowed == tuple(at[one.end() - 1] for one in re.finditer(r"\[ ", text))
    assert len(set(lists)) == 20 and list_of_point(words, 60, 0, 3) == lists[3] != list_of_point(words, 60, 1, 3)


def test_all_values_have_as_many_tokens_so_that_masks_tell_nothing(words):
    for pair in list_of_point(words, 60, 0, 0):
        assert len(TOKENIZER(f" {pair.value}")["input_ids"]) == words.tokens == 2


@pytest.mark.parametrize("pairs", [30, 60])
def test_near_is_one_of_the_last_five_but_never_the_last(pairs):
    near = [pairs_between("near", pairs, 0, point) for point in range(100)]
    assert set(near) == {1, 2, 3, 4}
    others = [pairs_between(distance, pairs, 0, 0) for distance in DISTANCES if distance != "near"]
    assert others == sorted(others) and others[-1] == pairs - 1 and min(others) > 5


def test_the_question_last_is_cut_before_its_value():
    prompt = asked_last(TOKENIZER, PAIRS, 2, MASK, 3, [5, 5])
    output = "".join(f"Key: {pair.key}\nValue:[ {pair.value}].\n\n" for pair in PAIRS)
    assert TOKENIZER.decode(prompt.ids) == f"{output}Key: lamp\nValue:[" + "<|mask|>" * 3 + TOKENIZER.decode([5, 5])
    assert prompt.ids[prompt.row] == MASK != prompt.ids[prompt.row - 1] and prompt.masks == prompt.ids.count(MASK) == 3
    assert TOKENIZER.decode([prompt.answer_id]) == " Ger" and prompt.allowed[prompt.asked] == prompt.answer_id
    assert (prompt.asked, prompt.between) == (1, 2)


def test_the_question_first_hides_all_tokens_of_its_value():
    prompt = asked_first(TOKENIZER, PAIRS, 2, MASK)
    output = "".join(f"Key: {pair.key}\nValue:[ {pair.value}].\n\n" for pair in PAIRS)
    length = len(TOKENIZER(" tennis")["input_ids"])
    asked = "Key: brave\nValue:[" + "<|mask|>" * length + "].\n\n"
    assert TOKENIZER.decode(prompt.ids) == asked + output.rstrip("\n")
    assert prompt.masks == length > 1 and prompt.row == prompt.ids.index(MASK)
    assert prompt.allowed[prompt.asked] == prompt.answer_id == TOKENIZER(" tennis")["input_ids"][0]


def test_an_autoregressive_prompt_ends_where_the_value_begins():
    prompt = asked_last(TOKENIZER, PAIRS, 3, None, 0)
    assert TOKENIZER.decode(prompt.ids).endswith("Key: otter\nValue:[") and prompt.masks == 0
    assert prompt.row == len(prompt.ids) and TOKENIZER.decode([prompt.answer_id]) == " co"


def test_the_answers_of_a_chat_are_found_in_their_turns():
    tokenizer = shipped_tokenizer()
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, chat_template=template)
    ids, rows = encode_answers(chat, PAIRS, PAIRS[0], "right", chat=True)
    assert [chat.decode([ids[row] for row in one]) for one in rows] == [
        " copper",
        " Germany",
        " tennis",
        " violet",
        " copper",
    ]


def test_words_that_cannot_make_a_list_are_refused_in_one_line():
    few = {category: listed[:6] for category, listed in load_words().items()}
    with pytest.raises(UserError, match=r"recall needs 120 different words, and \d+ are kept .* \(words\)") as refusal:
        recall_words(TOKENIZER, few, 0.5, 60)
    assert "\n" not in str(refusal.value)
    alike = {"animal": [f"b{first}{second}" for first in "aeiou" for second in "klmnprstv"]}
    letters = letter_tokenizer()
    with pytest.raises(UserError, match=r"10 values that begin with different tokens, .* only 1 of the 45 words do"):
        recall_words(letters, alike, 0, 10)
    with pytest.raises(UserError, match="at least 6 pairs, not 5"):
        recall_words(TOKENIZER, load_words(), 0.5, 5)


def letter_tokenizer():
    characters = {chr(code): code for code in range(128)}
    made = Tokenizer(models.WordLevel(characters, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made)


def test_a_space_that_is_a_token_of_its_own_belongs_to_the_value():
    letters = letter_tokenizer()
    ids, (rows,) = encode_answers(letters, [], RecallPair("a", "bc"))
    assert letters.convert_ids_to_tokens([ids[row] for row in rows]) == [" ", "b", "c"]


def test_a_tokenizer_that_joins_the_bracket_to_the_word_is_refused():
    made = Tokenizer(models.WordLevel({"Key:": 0, "Value:[": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(UserError, match=r"'Value:\[ b\]\.' has no token boundaries at its brackets"):
        encode_answers(PreTrainedTokenizerFast(tokenizer_object=made), [], RecallPair("a", "b"))
