"""Passages: where they end, what is masked, and what follows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.known import shipped_tokenizer
from maskwise.probes.library.natural_text import conditions, text_items
from maskwise.probes.probe import Asker
from maskwise.probes.text import load_text, passages
from maskwise.support.errors import UserError


@settings(max_examples=30)
@given(count=st.integers(1, 300), words=st.integers(15, 200))
def test_passages_end_in_a_word_and_are_spread_over_the_text(count, words):
    text = load_text()
    found = passages(text, count, words)
    assert len(found) == len(set(found)) == count
    flat = " ".join(text.split())
    for passage, word_at in found:
        assert passage in flat and len(passage.split()) == words
        word = passage[word_at:]
        assert word.isalpha() and len(word) >= 3 and (word_at == 0 or passage[word_at - 1] == " ")
    if count >= 10:
        half = [flat.index(passage) > len(flat) / 2 for passage, _ in found]
        assert 0.2 < sum(half) / len(half) < 0.8


def test_a_short_text_gives_fewer_passages_or_a_plain_refusal(tmp_path):
    assert passages("one two three four five", 10, 3) == [
        ("one two three", 8),
        ("two three four", 10),
        ("three four five", 11),
    ]
    assert passages("He said: “stop”, or so.", 9, 2) == [("He said", 3)]
    with pytest.raises(UserError, match="the text has 2 words, a passage needs 3"):
        passages("one two", 1, 3)
    with pytest.raises(UserError, match=r"cannot read .*none\.txt: No such file"):
        load_text(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        load_text(tmp_path / "binary")


def test_items_hold_masks_or_fillers_after_the_masked_word():
    tokenizer = shipped_tokenizer()
    dot = tokenizer.convert_tokens_to_ids(".")
    asker = Asker(tokenizer, tokenizer.mask_token_id, dot)
    passage = "The lamp stood on the table"
    items = list(text_items(asker, [(passage, 22)], conditions([0, 3], causal=False))([0], set()))
    ends = {(i.condition["after"], i.condition["count"]): i.prompt.ids[i.prompt.row :] for i in items}
    mask = tokenizer.mask_token_id
    assert ends == {
        ("masks", 0): (mask,),
        ("masks", 3): (mask,) * 4,
        ("full stops", 0): (mask,),
        ("full stops", 3): (mask, dot, dot, dot),
    }
    for item in items:
        assert tokenizer.decode(item.prompt.ids[: item.prompt.row]).rstrip() == "The lamp stood on the"
        assert item.answer == tokenizer.decode([item.prompt.answer_id]) and "table".startswith(item.answer.strip())
        assert item.prompt.masks == item.prompt.ids.count(mask)
    done = {item.key for item in items[1:]}
    assert [i.key for i in text_items(asker, [(passage, 22)], conditions([0, 3], False))([0], done)] == [items[0].key]
