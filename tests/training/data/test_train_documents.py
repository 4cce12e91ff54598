"""Documents: what is read, which tokens carry loss, how rows are cut and packed, and what is refused."""

import json

import pytest
import torch

from helpers.checkpoints import END, byte_tokenizer
from helpers.tiny import tiny_llada
from helpers.tuning import word_tokenizer
from maskwise.support.errors import UserError
from maskwise.training.data.documents import TextPiece, cut_stream, pack, read_documents, tokenize_rows


def model_of(tokenizer, vocab=260, **more):
    return tiny_llada(tokenizer=tokenizer, vocab=vocab, mask_token_id=258, **more)


def write(path, content):
    path.write_text(content)
    return path


def rows_of(path, context=8, rows="documents", chat=None, **more):
    return tokenize_rows(read_documents(path), model_of(byte_tokenizer(chat), **more), context, rows)


def test_plain_text_is_one_document_or_several_with_form_feeds_between(tmp_path):
    text = write(tmp_path / "a.txt", "abc\n\ndef\f\n \fgh")
    assert [entry.content for entry in read_documents(text).entries] == ["abc\n\ndef", "gh"]
    rows = rows_of(text, context=9)
    tokenizer = byte_tokenizer()
    texts = [[tokenizer.decode(piece.ids.tolist()) for piece in row] for row in rows.kept]
    assert texts == [["abc\n\ndef<|end|>"], ["gh<|end|>"]] and rows.tokens == 12


def test_a_documents_row_packs_whole_documents_and_a_full_row_ignores_their_borders(tmp_path):
    lines = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ("ab", "c", "defgh")))
    packed, full = rows_of(lines, 6).kept, rows_of(lines, 6, "full").kept
    assert [[len(piece.ids) for piece in row] for row in packed] == [[3, 2], [6]]
    assert [[len(piece.ids) for piece in row] for row in full] == [[6]]
    stream = torch.cat([piece.ids for row in packed for piece in row])
    assert torch.equal(full[0][0].ids, stream[:6])


def test_packing_keeps_every_token_and_never_exceeds_a_row():
    draws = torch.Generator().manual_seed(0)
    pieces = [TextPiece(torch.randint(50, (int(torch.randint(2, 40, (), generator=draws)),))) for _ in range(50)]
    rows, dropped = pack(pieces, 16)
    assert dropped == 0 and all(2 <= sum(len(piece.ids) for piece in row) <= 16 for row in rows)
    lonely = sum(len(piece.ids) % 16 == 1 for piece in pieces)  # a cut may leave one token, which says nothing
    assert sum(len(piece.ids) for row in rows for piece in row) == sum(len(piece.ids) for piece in pieces) - lonely
    cut = cut_stream(pieces, 16)
    assert torch.equal(torch.cat([row[0].ids for row in cut]), torch.cat([p.ids for p in pieces])[: 16 * len(cut)])


def test_after_a_prompt_its_answer_carries_the_loss(tmp_path):
    lines = write(tmp_path / "a.jsonl", json.dumps({"prompt": "abc", "completion": "de"}) + "\n")
    ((piece,),) = rows_of(lines, 6).kept
    assert byte_tokenizer().decode(piece.ids.tolist()) == "abcde<|end|>"
    assert piece.carries.tolist() == [False] * 3 + [True] * 3


def test_in_a_chat_the_assistants_turns_carry_the_loss(tmp_path):
    turns = [("user", "hi"), ("assistant", "yes"), ("user", "or"), ("assistant", "no")]
    messages = [{"role": role, "content": content} for role, content in turns]
    chat = write(tmp_path / "a.jsonl", json.dumps({"messages": messages}) + "\n")
    template = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}<|im_end|>{% endfor %}" + (
        "{{ '[a]' if add_generation_prompt else '' }}"
    )
    (piece,) = rows_of(chat, 25, chat=template).kept[0]
    tokenizer = byte_tokenizer()
    assert tokenizer.decode(piece.ids.tolist()) == "[u]hi<|im_end|>[a]yes<|im_end|>[u]or<|im_end|>[a]no<|im_end|>"
    assert tokenizer.decode(piece.ids[piece.places].tolist()) == "yes<|im_end|>no<|im_end|>"
    with pytest.raises(UserError, match="less than a row"):
        rows_of(chat, 64, chat=template)
    longer = write(tmp_path / "b.jsonl", chat.read_text() * 3)
    with pytest.raises(UserError, match="fits into a row of 16 tokens"):
        rows_of(longer, 16, chat=template)


HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
TEMPLATES = {
    # as LLaDA-8B-Instruct's: a turn of the assistant is opened behind every chat, whatever is asked
    "llada": "{% for m in messages %}{{ bos_token if loop.first }}{{ '<|start_header_id|>' + m.role + "
    "'<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
    # as Dream's: a system turn of its own, a turn opened where it is asked for, a line break behind every turn
    "dream": "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nHelp.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n' if add_generation_prompt }}",
    # as LLaDA2's: other words for the roles
    "llada2": "{% for m in messages %}{{ '<role>' + ('ASSISTANT' if m.role == 'assistant' else 'HUMAN') + '</role>' + "
    "m.content + '<|role_end|>' }}{% endfor %}{{ '<role>ASSISTANT</role>' if add_generation_prompt }}",
    # opens no turn: the model writes the header itself
    "never": "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}<|im_end|>{{ '\n' }}{% endfor %}",
}
ANSWERS = {
    "llada": "{}<|eot_id|>",
    "dream": "{}<|im_end|>\n",
    "llada2": "{}<|role_end|>",
    "never": "[a]{}<|im_end|>\n",
}
ENDS = {
    "llada": HEADER.format("assistant") + "no<|eot_id|>",
    "dream": "assistant\nno<|im_end|>\n",
    "llada2": "<role>ASSISTANT</role>no<|role_end|>",
    "never": "[a]no<|im_end|>\n",
}


def chat_tokenizer(template):
    """One token each for the starts and ends of turns of all these templates; the others are bytes."""
    tokenizer = byte_tokenizer(template, starts=True)
    names = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|role_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": [*names]})
    return tokenizer


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("turns", [2, 4])
def test_the_loss_of_a_chat_is_on_the_answers_and_their_ends_alone(tmp_path, kind, turns):
    said = [("user", "hi"), ("assistant", "yes"), ("user", "or"), ("assistant", "no")][-turns:]
    messages = [{"role": role, "content": content} for role, content in said]
    chats = write(tmp_path / "a.jsonl", 10 * (json.dumps({"messages": messages}) + "\n"))
    tokenizer = chat_tokenizer(TEMPLATES[kind])
    piece, *_ = tokenize_rows(read_documents(chats), model_of(tokenizer, vocab=300, window=128), 128, "documents").kept[
        0
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    written = text.removesuffix(HEADER.format("assistant"))  # in LLaDA's only
    assert piece.ids.tolist() == tokenizer(written, add_special_tokens=False)["input_ids"]
    answers = [content for role, content in said if role == "assistant"]
    wanted = "".join(ANSWERS[kind].format(answer) for answer in answers)
    assert tokenizer.decode(piece.ids[piece.places].tolist()) == wanted
    assert tokenizer.decode(piece.ids.tolist()).endswith(ENDS[kind])


def test_a_template_that_always_opens_a_turn_must_end_them_with_a_token(tmp_path):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    chat = write(tmp_path / "a.jsonl", json.dumps({"messages": messages}) + "\n")
    with pytest.raises(UserError, match="opens a turn behind every chat, and no token of the tokenizer ends one"):
        rows_of(chat, chat="{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]")


REFUSED = {
    "no text": ("a.txt", " \n\f\n", "is empty: it needs lines with text, messages"),
    "short": ("a.txt", "abc", "4 tokens, less than a row of 8"),
    "no column of ours": ("a.jsonl", '{"a": "a", "b": "b"}\n', "line 1 has the keys a, b: write text, messages"),
    "no object": ("a.jsonl", '{"text": "abcdefgh"}\n[1]\n', "line 2 is not a JSON object"),
    "broken": ("a.jsonl", '{"text": "abcdefgh"}\n{"text"\n', "line 2 is not valid JSON"),
    "mask": ("a.txt", "abcdefgh<|mask|>", "contains the mask token"),
    "no template": (
        "a.jsonl",
        json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}),
        "no chat template",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line(tmp_path, case):
    name, content, reason = REFUSED[case]
    with pytest.raises(UserError, match=reason) as problem:
        rows_of(write(tmp_path / name, content))
    assert "\n" not in str(problem.value)


def test_another_models_tokenizer_and_a_row_past_the_context_length(tmp_path):
    text = write(tmp_path / "a.txt", "red blue " * 20)
    assert max(byte_tokenizer()("red")["input_ids"] + [END]) > 64
    with pytest.raises(UserError, match="is the tokenizer another model's"):
        tokenize_rows(read_documents(text), tiny_llada(tokenizer=byte_tokenizer(), vocab=64), 8, "full")
    with pytest.raises(UserError, match="lower context"):
        tokenize_rows(read_documents(text), tiny_llada(tokenizer=word_tokenizer(), window=16), 32, "full")
