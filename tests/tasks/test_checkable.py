"""A user's own questions: files, GSM8K's own form, data sets as `datasets` reads them; and how answers are checked."""

import json

import datasets
import pytest

from maskwise.support.errors import UserError
from maskwise.tasks import checkable
from maskwise.tasks.checkable import EXACT, LAST_NUMBER, is_right
from maskwise.tasks.datasets import Checkable, read_dataset, read_datasets, read_own

JARS = {"question": "A crate holds 3 rows of 4 jars. How many jars?", "answer": "3*4 = <<3*4=12>>12 jars.\n#### 12"}
SACKS = {"question": "A mill grinds 1,200 sacks. How many?", "answer": "It is 1200.\n#### 1,200"}


def written(file, *rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_a_file_is_a_set_of_its_own_name(tmp_path):
    plain = written(tmp_path / "mine.jsonl", {"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": "d"})
    patterned = written(tmp_path / "theirs.json", {"question": "a", "answer": "b: 1", "pattern": r"(\d)"})
    found = read_datasets([plain, patterned])
    assert [(one.name, one.check, len(one.tests)) for one in found.values()] == [
        ("mine", EXACT, 2),
        ("theirs", r"(\d)", 1),
    ]
    assert [(one.asked, one.label) for one in found["mine"].tests] == [("a", "b"), ("c", "d")]
    with pytest.raises(UserError, match="another set is called mine"):
        read_datasets([plain, plain])


def test_gsm8k_is_read_as_published_and_its_last_number_counts(tmp_path):
    file = written(tmp_path / "test.jsonl", JARS, SACKS)
    for data in (read_own(file), read_dataset("gsm8k", file), read_dataset("gsm8k", tmp_path)):
        assert [one.label for one in data.tests] == [" 12", " 1200"] and data.check == LAST_NUMBER
        assert data.tests[0].asked.startswith("Question: A crate") and data.tests[0].asked.endswith("\nAnswer:")
    assert is_right("3 rows of 4 are 12.", " 12", LAST_NUMBER) and is_right("#### 1,200", " 1200", LAST_NUMBER)
    assert not is_right("12 of 13", " 12", LAST_NUMBER) and not is_right("none", " 12", LAST_NUMBER)
    for rows, line in (([JARS, SACKS | {"answer": "twelve"}], 2), ([JARS, JARS, {"answer": "#### 7"}], 3)):
        with pytest.raises(UserError, match=rf"test.jsonl line {line} should hold a question, and an answer that ends"):
            read_own(written(tmp_path / "test.jsonl", *rows))
    with pytest.raises(UserError, match="is it gsm8k as published"):
        read_dataset("gsm8k", tmp_path.parent)


def test_a_data_set_of_the_hub_is_asked_on_its_test_split(tmp_path, monkeypatch):
    """`datasets` reads a folder as it reads a name."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sums").mkdir()
    written(tmp_path / "sums" / "train.jsonl", JARS)
    written(tmp_path / "sums" / "test.jsonl", SACKS, JARS)
    data = read_own(str(tmp_path / "sums"))
    assert isinstance(data, Checkable) and data.name == "sums" and [one.label for one in data.tests] == [" 1200", " 12"]
    with pytest.raises(UserError, match="there is no file"):
        read_own(str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"there is no file .*nothing\.jsonl"):
        read_own(str(tmp_path / "nothing.jsonl"))


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([{"prompt": "x"}], "line 1 has the keys prompt: write prompt and answer"),
        ([{"prompt": "x", "answer": " "}], "line 1 should hold a prompt and an answer"),
        ([{"prompt": "x", "answer": "y"}, {"prompt": "x"}], "line 2 has the keys prompt"),
        ([{"prompt": "x", "answer": "y", "pattern": "("}], "does not compile"),
        ([{"prompt": "x", "answer": "y", "pattern": None}], "does not compile"),
        ([{"prompt": "x", "answer": "y", "pattern": EXACT}], "does not compile"),
        ([{"prompt": "x", "answer": "y", "pattern": "x{99999999999}"}], "does not compile"),
        ([{"prompt": "x", "answer": "a" * 60 + "!", "pattern": "(a+)+$"}], "takes more than 0.2 s on one text"),
        ([{"prompt": "x", "answer": "y", "pattern": "z"}], "line 1 should hold an answer that its pattern matches"),
        (
            [{"prompt": "x", "answer": "y"}, {"prompt": "x", "answer": "y", "pattern": "y"}],
            "line 2 should hold the pat",
        ),
        ([], "is empty"),
    ],
)
def test_a_file_of_questions_that_cannot_be_checked_is_refused(tmp_path, monkeypatch, lines, problem):
    monkeypatch.setattr(checkable, "MOST_SECONDS", 0.2)
    with pytest.raises(UserError, match=problem):
        read_own(written(tmp_path / "own.jsonl", *lines))


def test_a_line_that_is_no_json_is_named_by_its_number(tmp_path):
    (tmp_path / "own.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "a",\n')
    with pytest.raises(UserError, match="line 2 is not valid JSON"):
        read_own(str(tmp_path / "own.jsonl"))


def test_answers_are_checked_as_said():
    assert is_right(" otter\n", "otter", EXACT) and not is_right("otters", "otter", EXACT)
    assert is_right("so: 7", "it is: 7", r": (\d)") and not is_right("so 7", "it is: 7", r": (\d)")
    assert is_right("an exact one", "exact", "exact") and is_right("the last number", "last number", "last number")
