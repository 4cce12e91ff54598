"""Passages: where they end, what is masked, and what follows."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.known import shipped_tokenizer
from maskwise.probes.library import natural_text
from maskwise.probes.questions import units_of_questions
from maskwise.probes.setup import Asker, Settings, Setup
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


def items_of(tokenizer, causal=False, **parameters):
    """The items of one passage, "The lamp stood on the table", and the maker of those not done."""
    asker = Asker(tokenizer, tokenizer.mask_token_id, tokenizer.convert_tokens_to_ids("."))
    settings = Settings("quick", (natural_text.NAME,), (), passages=1, passage_words=6)
    model = SimpleNamespace(block=None, causal=causal)
    setup = Setup(model, asker, settings, None, "The lamp stood on the table", {}, [])
    questions = natural_text.ask(setup, **parameters)
    (unit,) = units_of_questions(setup, ((natural_text.NAME, one) for one in questions))
    assert unit.one_pass
    return list(unit.items(unit.points, set())), unit.items


def test_items_hold_masks_or_fillers_after_the_masked_word():
    tokenizer = shipped_tokenizer()
    items, made = items_of(tokenizer, counts=(0, 3))
    ends = {(i.condition["after"], i.condition["count"]): i.prompt.ids[i.prompt.row :] for i in items}
    mask, dot = tokenizer.mask_token_id, tokenizer.convert_tokens_to_ids(".")
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
    assert [i.key for i in made([0], {item.key for item in items[1:]})] == [items[0].key]
    assert [i.condition for i in items_of(tokenizer, causal=True)[0]] == [{"after": "masks", "count": 0}]
