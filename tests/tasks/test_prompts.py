"""Prompts: the answer row holds the mask, decoding gives the text back, distances are what the condition says.

The tokenizers are real byte-level BPE ones, trained here: one splits like GPT-2, one makes `].` and the blank line
after it one token (as Qwen does), one merges `[` with the letter (and must be refused).
"""

import functools
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from maskwise.support.errors import UserError
from maskwise.tasks.episodes import LETTERS, Question, blocked, draw, mixed, render
from maskwise.tasks.prompts import (
    closed,
    encode_last_word,
    encode_question,
    filler_id,
    letter_ids,
    mask_count,
    opened,
)
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

WORDS = load_words()
SPLITS = {
    "gpt2": None,
    "qwen": r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    "merging": r"\[\p{L}\]?| ?\p{L}+|\p{N}+|[^\s\p{L}\p{N}]|\s+",
}
# The second opens an assistant turn after a finished conversation, whatever it is asked: LLaDA's does.
TEMPLATES = {
    "gpt2": "{% for m in messages %}<|turn|>{{ m.role }}\n\n{{ m.content | trim }}<|end|>{% endfor %}",
    "qwen": "<|turn|>system\nHelp.<|end|>\n{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|end|>\n"
    "{% endfor %}<|turn|>assistant\n",
}
TOKENIZERS = ["gpt2", "qwen", "shipped"]


@functools.cache
def tokenizer_named(name):
    if name == "shipped":
        return AutoTokenizer.from_pretrained(str(resources.files("maskwise.models").joinpath("zoo/tokenizer")))
    tokenizer = Tokenizer(models.BPE())
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=SPLITS[name] is None)
    split = [] if SPLITS[name] is None else [pre_tokenizers.Split(Regex(SPLITS[name]), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    questions = [question for task in TASKS for question in mixed(draw(task, WORDS, 20, 20, 1))]
    documents = ["".join(map(render, questions)), *(render(question).rstrip() for question in questions)]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|mask|>", "<|turn|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<|mask|>", name_or_path=f"{name}-like")
    wrapped.chat_template = TEMPLATES.get(name)
    return wrapped


def restored(tokenizer, prompt):
    """The text of a prompt with its answer put back."""
    ids = list(prompt.ids)
    ids[prompt.row : prompt.row + 1] = [prompt.answer_id]
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def relevance_by_place(text, episode):
    """Which of the episode's examples stand where in a text, and where the test question stands: True, False, None."""
    relevant = {question.asked for question in episode.relevant}
    return [
        None if line == episode.tests[0].asked else line in relevant
        for line in text.splitlines()
        if line.startswith("Options")
    ]


@settings(max_examples=40)
@given(
    name=st.sampled_from(TOKENIZERS),
    task=st.sampled_from(TASKS),
    place=st.sampled_from(["right", "middle", "left"]),
    counts=st.tuples(st.integers(0, 6), st.integers(0, 8)),
    location=st.integers(0, 8),
    masks=st.one_of(st.integers(1, 30), st.floats(0, 0.5)),
    fillers=st.integers(0, 20),
)
def test_format_a(name, task, place, counts, location, masks, fillers):
    tokenizer, (relevant, distractors) = tokenizer_named(name), counts
    episode = draw(task, WORDS, relevant, distractors, points=1)
    examples = blocked(episode, min(location, distractors))
    mask, dot = tokenizer.mask_token_id, filler_id(tokenizer, ".")
    encoded = encode_question(tokenizer, examples, episode.tests[0], place)
    prompt = closed(encoded, mask, masks, tail=[dot] * fillers)

    assert prompt.ids[prompt.row] == mask and prompt.ids.count(mask) == prompt.masks
    assert tokenizer.decode([prompt.answer_id]) == episode.tests[0].letter
    length = len(prompt.ids) - (prompt.masks - 1) - fillers
    assert prompt.masks == (max(1, round(masks * length)) if isinstance(masks, float) else masks)
    text = restored(tokenizer, prompt)
    end = tokenizer.mask_token * (prompt.masks - 1) + "." * fillers
    assert text.endswith("]." + end)
    text = text[: len(text) - len(end)] + "\n\n"
    before = {"left": 0, "middle": len(examples) // 2, "right": len(examples)}[place]
    assert text == "".join(map(render, [*examples[:before], episode.tests[0], *examples[before:]]))

    order = relevance_by_place(text, episode)
    assert order.index(None) == before
    flags = [flag for flag in order if flag is not None]
    at = min(location, distractors)
    assert flags == [False] * at + [True] * relevant + [False] * (distractors - at)


@settings(max_examples=20)
@given(
    name=st.sampled_from(TOKENIZERS),
    task=st.sampled_from(TASKS),
    masks=st.one_of(st.integers(1, 30), st.floats(0, 0.5)),
)
def test_format_b_ends_in_masks(name, task, masks):
    tokenizer = tokenizer_named(name)
    episode = draw(task, WORDS, 3, 4, points=1)
    encoded = encode_question(tokenizer, mixed(episode), episode.tests[0])
    prompt = opened(encoded, tokenizer.mask_token_id, masks)
    assert prompt.ids[prompt.row :] == (tokenizer.mask_token_id,) * prompt.masks
    assert prompt.masks == (max(1, round(masks * prompt.row)) if isinstance(masks, float) else masks)
    text = tokenizer.decode(prompt.ids[: prompt.row], clean_up_tokenization_spaces=False)
    assert text == "".join(map(render, mixed(episode))) + episode.tests[0].asked + "\nAnswer:["


@pytest.mark.parametrize("name", TOKENIZERS)
def test_two_open_masks_hide_what_format_a_shows(name):
    """The closing `].` at the end of a prompt is one token in each of these tokenizers."""
    tokenizer = tokenizer_named(name)
    episode = draw(TASKS[0], WORDS, 2, 2, points=1)
    encoded = encode_question(tokenizer, mixed(episode), episode.tests[0])
    a, b = closed(encoded, 0), opened(encoded, 0, 2)
    assert (a.row, a.answer_id, len(a.ids)) == (b.row, b.answer_id, len(b.ids))
    assert a.ids[:-1] == b.ids[:-1] and tokenizer.decode(a.ids[-1]) == "]."


def test_pieces_joined_would_differ_from_the_whole():
    """Why the text is tokenised whole: with a tokenizer like Qwen's, `].` and the blank line are one token."""
    tokenizer = tokenizer_named("qwen")
    assert len(tokenizer("].\n\n")["input_ids"]) == 1
    episode = draw(TASKS[0], WORDS, 2, 2, points=1)
    prompt = closed(encode_question(tokenizer, mixed(episode), episode.tests[0], "left"), tokenizer.mask_token_id)
    assert tokenizer.decode(prompt.ids[prompt.row + 1]) == "].\n\n"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_autoregressive_prompt_ends_at_the_bracket(name):
    tokenizer = tokenizer_named(name)
    episode = draw(TASKS[3], WORDS, 2, 3, points=1)
    encoded = encode_question(tokenizer, mixed(episode), episode.tests[0])
    for prompt in (closed(encoded, None, 5), opened(encoded, None, 9)):
        assert prompt.row == len(prompt.ids) and prompt.masks == 0
        assert tokenizer.decode(prompt.ids).endswith("\nAnswer:[")
        assert tokenizer.decode([prompt.answer_id]) == episode.tests[0].letter


@pytest.mark.parametrize("name", ["gpt2", "qwen"])
@pytest.mark.parametrize("place", ["right", "middle", "left"])
def test_a_chat_is_turns_and_ends_with_the_last_answer(name, place):
    tokenizer = tokenizer_named(name)
    episode = draw(TASKS[5], WORDS, 2, 2, points=1)
    examples = mixed(episode)
    encoded = encode_question(tokenizer, examples, episode.tests[0], place, chat=True)
    text = restored(tokenizer, closed(encoded, tokenizer.mask_token_id))
    before = {"left": 0, "middle": 2, "right": 4}[place]
    asked = [*examples[:before], episode.tests[0], *examples[before:]]
    messages = [
        {"role": role, "content": said}
        for question in asked
        for role, said in (("user", question.asked), ("assistant", question.answered))
    ]
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert whole.startswith(text) and text.endswith(asked[-1].answered)
    assert whole[len(text) :].count("<|turn|>") == (1 if name == "qwen" else 0)
    up_to_answer = tokenizer.decode(encoded.ids[: encoded.row])
    assert up_to_answer.endswith("Answer:[") and up_to_answer.count("Answer:[") == before + 1


def test_a_template_that_rewrites_messages_is_refused():
    rewriting = PreTrainedTokenizerFast(tokenizer_object=tokenizer_named("gpt2").backend_tokenizer, name_or_path="odd")
    with pytest.raises(UserError, match="odd has no chat template"):
        encode_question(rewriting, [], draw(TASKS[0], WORDS, points=1).tests[0], chat=True)
    rewriting.chat_template = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
    with pytest.raises(UserError, match="odd rewrites"):
        encode_question(rewriting, [], draw(TASKS[0], WORDS, points=1).tests[0], chat=True)


def test_a_tokenizer_that_merges_the_letter_is_refused_by_name():
    with pytest.raises(UserError, match=r"merging-like.*not one token"):
        letter_ids(tokenizer_named("merging"))
    for name in TOKENIZERS:
        letter_ids(tokenizer_named(name))


def test_every_letter_is_masked_in_every_place():
    tokenizer = tokenizer_named("gpt2")
    for answer, letter in enumerate(LETTERS):
        encoded = encode_question(tokenizer, [], Question(("x", "y", "z"), answer, relevant=True))
        assert tokenizer.decode([encoded.ids[encoded.row]]) == letter


def test_a_filler_must_be_one_token():
    tokenizer = tokenizer_named("gpt2")
    assert tokenizer.decode([filler_id(tokenizer, ".")]) == "."
    with pytest.raises(UserError, match="gpt2-like"):
        filler_id(tokenizer, "a very long filler")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_last_word_of_a_passage(name):
    tokenizer = tokenizer_named(name)
    passage = "The lantern swung over the harbour"
    encoded = encode_last_word(tokenizer, passage, passage.rindex("harbour"))
    assert tokenizer.decode(encoded.ids) == passage
    assert tokenizer.decode(encoded.ids[: encoded.row]).rstrip() == "The lantern swung over the"
    prompt = opened(encoded, 0, 1, tail=[7] * 3)
    assert prompt.ids == (*encoded.ids[: encoded.row], 0, 7, 7, 7) and prompt.answer_id == encoded.ids[encoded.row]


def test_mask_counts():
    assert [mask_count(masks, 50) for masks in (0, 1, 7, 0.0, 0.2, 0.5)] == [1, 1, 7, 1, 10, 25]
