"""Readers of published data sets and of a user's own file, as labelled exercises. Nothing is downloaded.

    ag-news           folder with train.csv and test.csv, no header: "class 1..4","title","description"
    sst2              folder with train.tsv and dev.tsv (GLUE): sentence, label 0 or 1
    rotten-tomatoes   folder with rt-polarity.pos and rt-polarity.neg, a sentence a line, Latin-1 (or UTF-8)
    mrpc              folder with train.tsv and dev.tsv (GLUE), or msr_paraphrase_train.txt and _test.txt
    rte, qnli         folder with train.tsv and dev.tsv (GLUE)
    hotpotqa          hotpot_dev_distractor_v1.json or hotpot_train_v1.1.json (see hotpot.py)
    any other name    a .csv or .tsv file with a header, a .jsonl file, or a .json list of objects; the text and the
                      label are called text and label, or input and output

A folder's training file is shown as examples, the other asked. One file serves both: a random half each.
"""

import csv
import io
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.errors import UserError
from maskwise.tasks.hotpot import read_hotpotqa
from maskwise.tasks.labelled import Labelled, lettered, tell_apart

HOTPOTQA = "hotpotqa"
LONGEST = 1000  # characters; longer texts are left out
NEWS = {"1": "World", "2": "Sports", "3": "Business", "4": "Technology"}
FEELING = {"0": "negative", "1": "positive"}
SAME = {"0": "no", "1": "yes"}
FOLLOWS = {"entailment": "yes", "not_entailment": "no"}
TEXT_NAMES, LABEL_NAMES = ("text", "input"), ("label", "output")


@dataclass(frozen=True)
class Dataset:
    """What may be shown as an example, and what is asked."""

    name: str
    shown: tuple[Labelled, ...]
    tests: tuple[Labelled, ...]

    @property
    def labels(self) -> list[str]:
        return sorted({exercise.label for exercise in (*self.shown, *self.tests)})


def with_distinct_labels(data: Dataset, tokenizer: Any) -> Dataset:
    """The same data, its labels replaced by letters where the tokenizer begins two of them with one token."""
    if tell_apart(tokenizer, data.labels):
        return data
    shown, tests = (lettered(part, data.labels) for part in (data.shown, data.tests))
    return Dataset(data.name, shown, tests)


def read_dataset(name: str, path: str | Path) -> Dataset:
    """A data set by its name above, or a user's file under any other name."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"no data at {path}: give the file or folder of {name}")
    if name == HOTPOTQA:
        shown, tests = _halves(read_hotpotqa(path))
    elif name not in READERS:
        shown, tests = _halves(list(_user_rows(path)))
    elif not path.is_dir():
        raise UserError(f"{path} is a file: {name} is a folder in its published form")
    else:
        shown, tests = READERS[name](path)
    shown, tests = ([e for e in part if name == HOTPOTQA or len(e.asked) <= LONGEST] for part in (shown, tests))
    data = Dataset(name, tuple(shown), tuple(tests))
    if not shown or not tests or len(data.labels) < 2:
        raise UserError(f"{path} holds too little to show and to ask: two labels and a few lines of each are needed")
    return data


def read_datasets(named: Sequence[str]) -> dict[str, Dataset]:
    """`NAME=PATH` texts, as the command line gives them."""
    found: dict[str, Dataset] = {}
    for text in named:
        name, equals, path = text.partition("=")
        if not (name and equals and path) or name in found:
            raise UserError(f"--data {text}: write NAME=PATH, each name once")
        found[name] = read_dataset(name, path)
    return found


# Published forms


def _ag_news(folder: Path) -> tuple[list[Labelled], list[Labelled]]:
    def read(file: Path) -> list[Labelled]:
        found = []
        for number, row in _table(file, ",", quoted=True):
            if len(row) != 3:
                raise _broken(file, number, "three columns: class, title, description")
            title, description = row[1], row[2].replace("\\", " ")
            found.append(Labelled(f"Text: {title}. {description}", _label(NEWS, row[0], file, number)))
        return found

    return read(folder / "train.csv"), read(folder / "test.csv")


def _sst2(folder: Path) -> tuple[list[Labelled], list[Labelled]]:
    return _glue(folder, "label", FEELING, lambda row: f"Text: {row['sentence'].strip()}")


def _rte(folder: Path) -> tuple[list[Labelled], list[Labelled]]:
    return _glue(folder, "label", FOLLOWS, lambda row: f"First: {row['sentence1']}\nSecond: {row['sentence2']}")


def _qnli(folder: Path) -> tuple[list[Labelled], list[Labelled]]:
    return _glue(folder, "label", FOLLOWS, lambda row: f"Question: {row['question']}\nText: {row['sentence']}")


def _mrpc(folder: Path) -> tuple[list[Labelled], list[Labelled]]:
    def asked(row: dict[str, str]) -> str:
        return f"First: {row['#1 String']}\nSecond: {row['#2 String']}"

    if (folder / "msr_paraphrase_train.txt").exists():
        names = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt")
        return _glue(folder, "Quality", SAME, asked, names)
    return _glue(folder, "Quality", SAME, asked)


def _rotten_tomatoes(folder: Path) -> tuple[list[Labelled], list[Labelled]]:
    rows = [
        Labelled(f"Text: {line.strip()}", label)
        for name, label in (("rt-polarity.pos", "positive"), ("rt-polarity.neg", "negative"))
        for line in _text(folder / name).split("\n")
        if line.strip()
    ]
    return _halves(rows)


Reader = Callable[[Path], tuple[list[Labelled], list[Labelled]]]
READERS: dict[str, Reader] = {
    "ag-news": _ag_news,
    "sst2": _sst2,
    "rotten-tomatoes": _rotten_tomatoes,
    "mrpc": _mrpc,
    "rte": _rte,
    "qnli": _qnli,
}


def _glue(
    folder: Path,
    label: str,
    meaning: dict[str, str],
    asked: Callable[[dict[str, str]], str],
    names: tuple[str, str] = ("train.tsv", "dev.tsv"),
) -> tuple[list[Labelled], list[Labelled]]:
    """Tab-separated with a header, and quotation marks that are only text."""

    def read(file: Path) -> list[Labelled]:
        rows = _named_rows(file, "\t", quoted=False)
        try:
            return [Labelled(asked(row), _label(meaning, row[label], file, number)) for number, row in rows]
        except KeyError as missing:
            raise UserError(f"{file} has no column {missing}: it is not in its published form") from None

    return read(folder / names[0]), read(folder / names[1])


# A user's own file


def _user_rows(path: Path) -> Iterator[Labelled]:
    if path.is_dir():
        raise UserError(f"{path} is a folder: give one file, or one of the names {', '.join((*READERS, HOTPOTQA))}")
    rows: Iterator[tuple[int, dict[str, Any]]]
    if path.suffix in (".csv", ".tsv"):
        rows = _named_rows(path, "," if path.suffix == ".csv" else "\t", quoted=path.suffix == ".csv")
    elif path.suffix in (".json", ".jsonl"):
        rows = _json_rows(path)
    else:
        raise UserError(f"{path} is neither .csv, .tsv, .json nor .jsonl: save it as one of them")
    for number, row in rows:
        text = next((row[name] for name in TEXT_NAMES if name in row), None)
        label = next((row[name] for name in LABEL_NAMES if name in row), None)
        if text is None or label is None or not str(label).strip() or set("[]\n") & set(str(label)):
            raise _broken(path, number, "a text and a label without brackets (or input and output)")
        yield Labelled(f"Text: {str(text).strip()}", str(label).strip())


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    text = _text(path)
    if path.suffix == ".json":
        try:
            rows = list(enumerate(json.loads(text), start=1))
        except (json.JSONDecodeError, TypeError):
            raise UserError(f"{path} is not a JSON list of objects") from None
    else:
        rows = []
        for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
            try:
                rows.append((number, json.loads(line)))
            except json.JSONDecodeError:
                raise _broken(path, number, "one JSON object") from None
    for number, row in rows:
        if not isinstance(row, dict):
            raise _broken(path, number, "a JSON object")
        yield number, row


# Files


def _text(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise UserError(f"cannot read {file}: {problem.strerror}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _table(file: Path, separator: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of the lines that are not empty."""
    lines = io.StringIO(_text(file), newline="")
    reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    for row in reader:
        if row:
            yield reader.line_num, row


def _named_rows(file: Path, separator: str, quoted: bool) -> Iterator[tuple[int, dict[str, str]]]:
    lines = _table(file, separator, quoted)
    _, names = next(lines, (0, []))
    for number, row in lines:
        if len(row) != len(names):
            raise _broken(file, number, f"{len(names)} columns, not {len(row)}")
        yield number, dict(zip(names, row, strict=True))


def _label(meaning: dict[str, str], found: str, file: Path, number: int) -> str:
    if found.strip() not in meaning:
        raise _broken(file, number, f"a label among {', '.join(meaning)}, not {found!r}")
    return meaning[found.strip()]


def _broken(file: Path, number: int, wanted: str) -> UserError:
    return UserError(f"{file} line {number} should hold {wanted}")


def _halves(rows: list[Labelled]) -> tuple[list[Labelled], list[Labelled]]:
    """A random half to show and the other to ask, the same every time."""
    shuffled = random.Random(0).sample(rows, len(rows))
    cut = len(rows) // 2
    return shuffled[:cut], shuffled[cut:]
