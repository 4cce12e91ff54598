"""Data files become pairs, or one line that says what is wrong with which line."""

import hashlib
import json

import pytest

from helpers.tiny import tiny_llada
from helpers.tuning import SPECIAL, word_tokenizer
from maskwise.support.errors import UserError
from maskwise.training.data.end_tokens import end_of_turn
from maskwise.training.data.pairs import TokenizedPairs, read_pairs, tokenize_pairs

TURN, END = SPECIAL.index("<|eot_id|>"), SPECIAL.index("<end>")


@pytest.fixture
def model():
    return tiny_llada(tokenizer=word_tokenizer(), vocab=32, mask_token_id=SPECIAL.index("<mask>"))


@pytest.fixture
def chatting():
    return tiny_llada(tokenizer=word_tokenizer(chat=True), vocab=32, mask_token_id=SPECIAL.index("<mask>"))


def written(tmp_path, *lines, name="data.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def pairs_of(path, model, context, **more) -> TokenizedPairs:
    return tokenize_pairs(read_pairs(path), model, context, **more)


def words(model, ids) -> str:
    return " ".join(model.tokenizer.convert_ids_to_tokens(list(ids)))


def test_prompts_stay_verbatim_and_answers_end_the_turn(model, tmp_path):
    path = written(tmp_path, {"prompt": "say red :", "answer": "one two"}, "", {"question": "red ?", "answer": "now"})
    first, second = pairs_of(path, model, 64).kept
    assert words(model, first.prompt) == "say red :" and words(model, first.answer) == "one two <|eot_id|>"
    assert words(model, second.prompt) == "red ?" and words(model, second.answer) == "now <|eot_id|>"


def test_open_orcas_columns_are_read(model, chatting, tmp_path):
    path = written(tmp_path, {"system_prompt": "say", "question": "red ?", "response": "now", "id": 1})
    (plain,) = pairs_of(path, model, 64).kept
    assert words(model, plain.prompt) == "say red ?" and words(model, plain.answer) == "now <|eot_id|>"
    (turns,) = pairs_of(path, chatting, 64).kept
    said = [{"role": "system", "content": "say"}, {"role": "user", "content": "red ?"}]
    opened = chatting.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert list(turns.prompt) == chatting.tokenizer(opened, add_special_tokens=False)["input_ids"]


def test_alpacas_and_trls_columns_are_read(model, chatting, tmp_path):
    path = written(
        tmp_path,
        {"prompt": "say red :", "completion": "one two"},
        {"instruction": "say", "input": "red", "output": "now"},
        {"text": "red cat runs now"},
    )
    first, second, third = pairs_of(path, model, 64).kept
    assert words(model, first.prompt) == "say red :" and words(model, first.answer) == "one two <|eot_id|>"
    assert words(model, second.prompt) == "say red" and words(model, second.answer) == "now <|eot_id|>"
    assert words(model, third.prompt) == "red cat" and words(model, third.answer) == "runs now <|eot_id|>"
    turns = pairs_of(path, chatting, 64).kept[1]
    assert words(chatting, turns.prompt) == "user : say red <|eot_id|> assistant :"


def test_questions_and_messages_go_through_the_chat_template(chatting, tmp_path):
    turns = [
        {"role": "user", "content": "red ?"},
        {"role": "assistant", "content": "blue"},
        {"role": "user", "content": "cat ?"},
        {"role": "assistant", "content": "dog now"},
    ]
    path = written(tmp_path, {"question": "red ?", "answer": "blue"}, {"messages": turns})
    asked, talked = pairs_of(path, chatting, 64).kept
    assert words(chatting, asked.prompt) == "user : red ? <|eot_id|> assistant :"
    assert words(chatting, asked.answer) == "blue <|eot_id|>"
    opened = "user : red ? <|eot_id|> assistant : blue <|eot_id|> user : cat ? <|eot_id|> assistant :"
    assert words(chatting, talked.prompt) == opened
    assert words(chatting, talked.answer) == "dog now <|eot_id|>"


def test_the_end_of_turn_is_the_templates_then_a_known_one_then_the_end_of_text(model, chatting):
    assert end_of_turn(chatting) == TURN and end_of_turn(model) == TURN
    chatting.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} <end> {% endfor %}"
    assert end_of_turn(chatting) == END


def test_plain_text_becomes_continuations_that_end_with_sentences(model, tmp_path):
    sentence = "red cat runs then one dog sits now ."
    path = written(tmp_path, " ".join([sentence] * 4), "", "blue bird jumps .", "", "say", name="prose.txt")
    pairs = pairs_of(path, model, 64, text_piece=20).kept
    assert len(pairs) == 3
    whole = [words(model, pair.prompt + pair.answer[:-1]) for pair in pairs]
    assert whole == [f"{sentence} {sentence}", f"{sentence} {sentence}", "blue bird jumps ."]
    assert all(pair.answer[-1] == TURN and abs(len(pair.prompt) - len(pair.answer)) <= 1 for pair in pairs)


def test_a_piece_without_a_sentence_end_is_cut_at_the_limit(model, tmp_path):
    path = written(tmp_path, "red " * 25, name="prose.txt")
    assert [pair.length - 1 for pair in pairs_of(path, model, 64, text_piece=10).kept] == [10, 10, 5]


def test_pairs_without_room_for_two_mask_counts_are_dropped_and_counted(model, tmp_path):
    lines = [{"prompt": "red " * n, "answer": "one"} for n in (4, 5, 6, 7)]  # 6, 7, 8 and 9 tokens with the end
    found = pairs_of(written(tmp_path, *lines), model, 8)
    assert [pair.length for pair in found.kept] == [6, 7] and found.dropped == 2


GOOD = {"prompt": "red", "answer": "one"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([GOOD, '{"prompt": "red", '], "line 2 is not valid JSON"),
        ([GOOD, "", '"red"'], "line 3 is not a JSON object"),
        ([{"prompt": "red"}], "line 1 has the keys prompt: write prompt and answer"),
        ([GOOD, {"prompt": "red", "answer": 7}], "line 2: prompt and answer must be texts"),
        ([GOOD, {"prompt": "red", "answer": " "}], "line 2: the answer has no tokens"),
        ([{"prompt": "", "answer": "one"}], "line 1: the prompt has no tokens"),
        ([{"prompt": "red", "answer": "one <mask>"}], "line 1: the answer contains the mask token"),
        ([{"messages": [{"role": "user", "content": "red"}]}], "line 1: messages must be a list"),
        ([{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}], "no chat template"),
        ([""], "is empty"),
        ([{"prompt": "red " * 99, "answer": "one"}], "none of the 1 pairs"),
    ],
)
def test_bad_data_is_one_line_that_names_the_place(model, tmp_path, lines, said):
    with pytest.raises(UserError) as problem:
        pairs_of(written(tmp_path, *lines), model, 64)
    assert said in str(problem.value) and "\n" not in str(problem.value)


def test_the_file_is_read_once_and_hashed_as_it_was_read(model, tmp_path):
    path = written(tmp_path, GOOD, GOOD)
    data = read_pairs(path)
    assert data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    path.unlink()
    assert len(tokenize_pairs(data, model, 64).kept) == 2


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings_and_a_byte_order_mark_do_not_matter(model, tmp_path, ending):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + ending.join([json.dumps(GOOD), json.dumps(GOOD)]).encode())
    assert len(pairs_of(path, model, 64).kept) == 2


def test_files_and_windows_that_do_not_fit_are_named(model, tmp_path):
    path = written(tmp_path, GOOD)
    with pytest.raises(UserError, match="context 300 is more than the context length"):
        pairs_of(path, model, 300)
    with pytest.raises(UserError, match="no data file"):
        pairs_of(tmp_path / "nothing.jsonl", model, 64)
    path.write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(UserError, match="not UTF-8"):
        pairs_of(path, model, 64)
    (tmp_path / "short.txt").write_text("hi")
    with pytest.raises(UserError, match="is too short to be cut into examples"):
        pairs_of(tmp_path / "short.txt", model, 64)
    (tmp_path / "bare.csv").write_text("prompt,answer\n")
    with pytest.raises(UserError, match=r"bare.csv holds no row: it needs"):
        pairs_of(tmp_path / "bare.csv", model, 64)
    path = written(tmp_path, GOOD)
    model.tokenizer = None
    with pytest.raises(UserError, match="no tokenizer"):
        pairs_of(path, model, 64)
