"""The columns of TRL, Alpaca and OpenOrca are read as what they mean; what can mean two things is one line."""

import json

import pytest

from maskwise.decoding.prompt_files import read_prompts, read_requests
from maskwise.support.errors import UserError
from maskwise.tasks.columns import MESSAGES, PAIRS, TEXT, Conversation, TextPair, read_row
from maskwise.tasks.datasets import read_dataset, read_own
from maskwise.tasks.tables import located_rows
from maskwise.training.data.documents import read_documents
from maskwise.training.data.pairs import read_pairs

USER, ASSISTANT = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}
ALPACA = {"instruction": "Add.", "input": "1 and 2", "output": "3"}
ROWS = {
    "ours": ({"prompt": "a", "answer": "b"}, TextPair("a", "b")),
    "trl": ({"prompt": "a", "completion": "b"}, TextPair("a", "b")),
    "trl turns": ({"prompt": [USER], "completion": [ASSISTANT]}, Conversation([USER, ASSISTANT])),
    "messages": ({"messages": [USER, ASSISTANT], "prompt": "Who?"}, Conversation([USER, ASSISTANT])),
    "alpaca": (ALPACA, TextPair("Add.\n1 and 2", "3", is_question=True)),
    "no input": (ALPACA | {"input": ""}, TextPair("Add.", "3", is_question=True)),
    "its text": (ALPACA | {"text": "### Instruction"}, TextPair("Add.\n1 and 2", "3", is_question=True)),
    "orca": (
        {"question": "q", "response": "r", "system_prompt": "s"},
        TextPair("q", "r", is_question=True, system="s"),
    ),
    "text": ({"text": "a text"}, "a text"),
    "null columns": ({"text": "a text", "messages": None, "prompt": None, "completion": None}, "a text"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_read_by_the_names_of_its_columns(name):
    row, expected = ROWS[name]
    assert read_row(row, "line 1", (*PAIRS, MESSAGES, TEXT), "text") == expected


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "a", "answer": "b", "completion": "c"}, "has prompt and answer, and also prompt and completion"),
        ({"prompt": "a", "completion": "b", "messages": [USER, ASSISTANT]}, "and also messages: keep one of them"),
        ({"question": "a", "answer": "b", "response": "c"}, "has question and answer, and also question and response"),
        ({"conversations": [], "id": 1}, "has the keys conversations, id: write prompt and answer"),
        ({"prompt": "a", "completion": ["b"]}, "prompt and completion must be texts"),
        ({"prompt": [USER], "completion": [USER]}, "ends with the assistant's"),
        ({"instruction": "a", "output": "b", "input": 7}, "must be texts, and input where there is one"),
        ({"text": 7}, "text must be a text, not int"),
        ([1], "is not a JSON object"),
    ],
)
def test_what_means_nothing_or_two_things_is_one_line(row, said):
    with pytest.raises(UserError, match=said) as caught:
        read_pairs([row])
    assert "\n" not in str(caught.value) and str(caught.value).startswith("item 1")


def test_a_document_is_not_both_a_text_and_a_pair():
    with pytest.raises(UserError, match="item 1 has text, and also instruction and output: keep one of them"):
        read_documents([ALPACA | {"text": "all of it"}])
    assert read_documents([{"text": "old", "messages": [USER, ASSISTANT]}]).entries[0].content == Conversation(
        [USER, ASSISTANT]
    )


def test_every_command_reads_tables_and_arrays(tmp_path):
    rows = [{"prompt": f"a{n}", "completion": f"b{n}"} for n in range(3)]
    (tmp_path / "rows.csv").write_text("prompt,completion\n" + "".join(f"a{n},b{n}\n" for n in range(3)))
    (tmp_path / "rows.tsv").write_text("prompt\tcompletion\n" + "".join(f"a{n}\tb{n}\n" for n in range(3)))
    (tmp_path / "rows.json").write_text(json.dumps(rows, indent=2))
    (tmp_path / "rows.jsonl").write_text(json.dumps(rows))
    expected = [TextPair(f"a{n}", f"b{n}") for n in range(3)]
    for name in ("rows.csv", "rows.tsv", "rows.json", "rows.jsonl"):
        assert [entry.content for entry in read_pairs(tmp_path / name).entries] == expected
        assert [entry.content for entry in read_documents(tmp_path / name).entries] == expected
        assert [request.content for request in read_requests(tmp_path / name)] == expected
        assert read_prompts(tmp_path / name) == ["a0", "a1", "a2"]
        if name != "rows.jsonl":
            asked = read_own(str(tmp_path / name))
            assert [(one.asked, one.label) for one in asked.tests] == [(f"a{n}", f"b{n}") for n in range(3)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "the data is None"),
        (7, "of the type int"),
        ({"train": [], "test": []}, "it holds train, test; give one split"),
        ([], "the list is empty"),
    ],
)
def test_what_is_no_list_of_rows_is_named(source, said):
    for read in (located_rows, read_pairs):
        with pytest.raises(UserError, match=said):
            read(source)


def test_prompts_may_be_turns_and_not_two_things():
    assert [request.answer for request in read_requests([{"messages": [USER, ASSISTANT]}])] == ["I."]
    with pytest.raises(UserError, match="has prompt and answer, and also messages"):
        read_requests([{"prompt": "a", "answer": "b", "messages": [USER, ASSISTANT]}])


def test_labels_are_named_once(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"text": "a", "input": "b", "label": "c"}) + "\n")
    with pytest.raises(UserError, match="line 1 has text and also input: keep one of them"):
        read_dataset("mine", file)
    file.write_text(json.dumps({"review": "a", "stars": 3}) + "\n")
    with pytest.raises(UserError, match="line 1 has the keys review, stars: it should hold text and label"):
        read_dataset("mine", file)
    turns = {"messages": [{"role": "system", "content": "s"}, USER, ASSISTANT]}
    file.write_text(json.dumps(turns) + "\n")
    with pytest.raises(UserError, match="messages must be one turn of the user's"):
        read_own(str(file))
