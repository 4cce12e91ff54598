"""Readers of data sets by name, as labelled exercises, and of a user's own questions. Only a hub name is downloaded.

    ag-news           train.csv and test.csv: "class 1..4","title","description", with a header or without; or hub form
    sst2              train.tsv and dev.tsv (GLUE): sentence, label 0 or 1; or hub form
    rotten-tomatoes   rt-polarity.pos and rt-polarity.neg, a sentence a line, Latin-1 (or UTF-8); or hub form
    mrpc              train.tsv and dev.tsv (GLUE), or msr_paraphrase_train.txt and _test.txt; or hub form
    rte, qnli         train.tsv and dev.tsv (GLUE); or hub form
    gsm8k             test.jsonl, or a folder with it; or hub form: questions whose generated answers are checked
    hotpotqa          a file: hotpot_dev_distractor_v1.json or hotpot_train_v1.1.json (see hotpot.py); or hub form
    any other name    a file with a header (.csv, .tsv), .jsonl, a .json list of objects, or .parquet; the text and the
                      label are called text and label, or input and output
    without a name    questions with answers (checkable.py): a file, or a data set of the hub, its test split if it has
                      one; the file's own name is the set's

Hub form: train.* and validation.*, dev.* or test.* (also NAME-00000-of-00001.*, also in a folder data), .parquet,
.jsonl, .json or .csv, with the hub's columns and numbers for labels. Rows without a label (-1) are left out.

Examples are taken from a folder's training file and test questions from the other; for rte the other way round, as in
the paper (Piskorz et al., arXiv 2511.21338). One file serves both: a random half each. AG News is World, Sports and
Business: the paper drops Sci/Tech. Texts of more than 500 characters (ag-news, rte and qnli, as in the paper) or 1000
(others) are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.tasks.checkable import EXACT, LAST_NUMBER, gsm8k_questions, is_gsm8k, questions_of
from maskwise.tasks.columns import keys_in_words
from maskwise.tasks.hotpot import SYSTEM, read_hotpotqa
from maskwise.tasks.labelled_exercises import Labelled, lettered, tell_apart
from maskwise.tasks.tables import SUFFIXES, broken, located_rows, read_rows, read_text_leniently

AG_NEWS, HOTPOTQA, ROTTEN_TOMATOES, RTE, GSM8K = "ag-news", "hotpotqa", "rotten-tomatoes", "rte", "gsm8k"
LONGEST = {AG_NEWS: 500, RTE: 500, "qnli": 500}  # characters of a question's texts together
LONGEST_OTHERS = 1000
TRAIN_NAMES = ("train", "msr_paraphrase_train")
TEST_NAMES = ("dev", "validation", "msr_paraphrase_test", "test")  # GLUE's own test files have no labels
UNLABELLED, DROPPED = "-1", ""
TEXT_NAMES, LABEL_NAMES = ("text", "input"), ("label", "output")


@dataclass(frozen=True)
class Form:
    """How one publication of a data set names its columns, and what its labels mean."""

    columns: tuple[str, ...]
    label: str
    meaning: dict[str, str]


NEWS = ("World", "Sports", "Business", DROPPED)  # the last is Sci/Tech
NEWS_CSV = ("Class Index", "Title", "Description")
FEELING = {"0": "negative", "1": "positive"}
SAME = {"0": "no", "1": "yes"}
FOLLOWS = {"entailment": "yes", "not_entailment": "no", "0": "yes", "1": "no"}

# What the texts of a data set are called in the prompt, and its forms.
PUBLISHED: dict[str, tuple[tuple[str, ...], tuple[Form, ...]]] = {
    AG_NEWS: (
        ("Text",),
        (
            Form(NEWS_CSV[1:], NEWS_CSV[0], {str(place + 1): name for place, name in enumerate(NEWS)}),
            Form(("text",), "label", {str(place): name for place, name in enumerate(NEWS)}),
        ),
    ),
    "sst2": (("Text",), (Form(("sentence",), "label", FEELING), Form(("text",), "label", FEELING))),
    ROTTEN_TOMATOES: (("Text",), (Form(("text",), "label", FEELING),)),
    "mrpc": (
        ("First", "Second"),
        (
            Form(("#1 String", "#2 String"), "Quality", SAME),
            Form(("sentence1", "sentence2"), "label", SAME),
            Form(("text1", "text2"), "label", SAME),
        ),
    ),
    RTE: (
        ("First", "Second"),
        (Form(("sentence1", "sentence2"), "label", FOLLOWS), Form(("text1", "text2"), "label", FOLLOWS)),
    ),
    "qnli": (
        ("Question", "Text"),
        (Form(("question", "sentence"), "label", FOLLOWS), Form(("text1", "text2"), "label", FOLLOWS)),
    ),
}
READERS = tuple(PUBLISHED)


@dataclass(frozen=True)
class Dataset:
    """The exercises of a data set: examples and test questions. `system` precedes them in a prompt."""

    name: str
    shown: tuple[Labelled, ...]
    tests: tuple[Labelled, ...]
    system: str = ""

    @property
    def labels(self) -> list[str]:
        return sorted({exercise.label for exercise in (*self.shown, *self.tests)})


@dataclass(frozen=True)
class Checkable(Dataset):
    """Questions whose answers are generated; `check` is what a right one is (checkable.py)."""

    check: str = EXACT


def is_checkable(data: Dataset) -> bool:
    return isinstance(data, Checkable)


def has_labels(data: Dataset) -> bool:
    return data.name != HOTPOTQA and not is_checkable(data)


def with_distinct_labels(data: Dataset, tokenizer: Any) -> Dataset:
    """The same data, its labels replaced by letters where the tokenizer begins two of them with one token."""
    if tell_apart(tokenizer, data.labels):
        return data
    shown, tests = (lettered(part, data.labels) for part in (data.shown, data.tests))
    return replace(data, shown=shown, tests=tests)


def read_dataset(name: str, path: str | Path) -> Dataset:
    """A data set by its name above, or a user's file under any other name."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"no data at {path}: give the file or folder of {name}")
    if name == GSM8K:
        rows = [row for file in _gsm8k_files(path) for row in located_rows(file)]
        return Checkable(name, (), tuple(gsm8k_questions(rows)), check=LAST_NUMBER)
    if name == HOTPOTQA:
        shown, tests = _halves(read_hotpotqa(path))
    elif name not in PUBLISHED:
        shown, tests = _halves(list(_user_rows(path)))
    elif path.is_file():
        shown, tests = _halves(list(_published_rows(name, path)))
    elif name == ROTTEN_TOMATOES and (path / "rt-polarity.pos").exists():
        shown, tests = _halves(_polarity(path))
    else:
        shown, tests = (
            [row for file in part_files(name, path, names) for row in _published_rows(name, file)]
            for names in ((TEST_NAMES, TRAIN_NAMES) if name == RTE else (TRAIN_NAMES, TEST_NAMES))
        )
    data = Dataset(name, tuple(shown), tuple(tests), SYSTEM if name == HOTPOTQA else "")
    if not shown or not tests or len(data.labels) < 2:
        raise UserError(f"{path} holds too little to show and to ask: two labels and a few lines of each are needed")
    return data


def read_own(source: str) -> Checkable:
    """A user's own questions: a file, or a data set of the hub."""
    path = Path(source)
    rows = located_rows(path) if path.is_file() else located_rows(_of_hub(source))
    if is_gsm8k(rows[0][1]):
        return Checkable(path.stem, (), tuple(gsm8k_questions(rows)), check=LAST_NUMBER)
    questions, check = questions_of(rows)
    return Checkable(path.stem, (), tuple(questions), check=check)


def read_datasets(named: Sequence[str]) -> dict[str, Dataset]:
    """FILE, a hub name or NAME=PATH, as the command line gives them; by name."""
    found: dict[str, Dataset] = {}
    for text in named:
        name, equals, path = text.partition("=")
        read = read_dataset(name, path) if equals else read_own(text)
        if read.name in found:
            raise UserError(f"--data {text}: another set is called {read.name} too; rename the file")
        found[read.name] = read
    return found


def _of_hub(name: str) -> Any:
    """The test split of a data set, else the validation split, else its first one; of its first configuration."""
    missing = f"there is no file {name}: give a .jsonl file with prompt and answer"
    if Path(name).suffix in SUFFIXES:
        raise UserError(missing)
    if find_spec("datasets") is None:
        raise UserError(f"{missing}; data sets of the hub need pip install '.[data]' in a clone")
    import datasets

    try:
        splits = datasets.load_dataset(name, datasets.get_dataset_config_names(name)[0])
    except (OSError, ValueError) as problem:
        raise UserError(f"{missing}; the hub gives no data set of this name ({str(problem).splitlines()[0]})") from None
    return splits[next(split for split in ("test", "validation", *splits) if split in splits)]


def _gsm8k_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    for place in (path, path / "main"):
        found = [*sorted(place.glob("test.jsonl")), *sorted(place.glob("test-*.parquet"))]
        if found:
            return found
    raise UserError(f"{path} has no test.jsonl or test-*.parquet: is it gsm8k as published?")


# Published forms


def part_files(name: str, folder: Path, names: Sequence[str]) -> list[Path]:
    """The file of a part under the first of its names that is there, or all its pieces (NAME-00000-of-00002...)."""
    for place in (folder, folder / "data"):
        for called in names:
            for suffix in SUFFIXES:
                whole, pieces = place / f"{called}{suffix}", sorted(place.glob(f"{called}-*{suffix}"))
                if whole.exists() or pieces:
                    return [whole] if whole.exists() else pieces
    wanted = ", ".join(dict.fromkeys(called.rsplit("_", 1)[-1] for called in names))
    kinds = ".tsv, .csv, .jsonl or .parquet"
    raise UserError(f"{folder} has no file called {wanted} ({kinds}): is it {name} as published?")


def _published_rows(name: str, file: Path) -> Iterator[Labelled]:
    titles, forms = PUBLISHED[name]
    for number, row in read_rows(file, unnamed=NEWS_CSV if name == AG_NEWS else ()):
        form = next((form for form in forms if {*form.columns, form.label} <= row.keys()), None)
        if form is None:
            wanted = " or ".join(", ".join((*form.columns, form.label)) for form in forms)
            raise UserError(f"{file} has the columns {', '.join(row)}, not {wanted}: is it {name} as published?")
        found = str(row[form.label]).strip()
        if found == UNLABELLED:
            continue
        if found not in form.meaning:
            raise broken(file, number, f"a label among {', '.join(form.meaning)}, not {found!r}")
        texts = [str(row[column]).strip() for column in form.columns]
        if form.meaning[found] == DROPPED or sum(map(len, texts)) > LONGEST.get(name, LONGEST_OTHERS):
            continue
        if name == AG_NEWS:
            texts = [". ".join(texts).replace("\\", " ")]  # a backslash stands where a line was broken
        asked = "\n".join(f"{title}: {text}" for title, text in zip(titles, texts, strict=True))
        yield Labelled(asked, form.meaning[found])


def _polarity(folder: Path) -> list[Labelled]:
    return [
        Labelled(f"Text: {line.strip()}", label)
        for name, label in (("rt-polarity.pos", "positive"), ("rt-polarity.neg", "negative"))
        for line in read_text_leniently(folder / name).split("\n")
        if 0 < len(line.strip()) <= LONGEST_OTHERS
    ]


# A user's own file


def _user_rows(path: Path) -> Iterator[Labelled]:
    if path.is_dir():
        raise UserError(f"{path} is a folder: give one file, or one of the names {', '.join((*READERS, HOTPOTQA))}")
    for number, row in read_rows(path):
        text, label = (_only(row, names, f"{path} line {number}") for names in (TEXT_NAMES, LABEL_NAMES))
        if text is None or label is None:
            where = f"{path} line {number} has the keys {keys_in_words(row)}"
            raise UserError(f"{where}: it should hold text and label, or input and output; of questions, --data FILE")
        if not str(label).strip() or set("[]\n") & set(str(label)):
            raise broken(path, number, "a text and a label without brackets (or input and output)")
        if len(str(text).strip()) <= LONGEST_OTHERS:
            yield Labelled(f"Text: {str(text).strip()}", str(label).strip())


def _only(row: Mapping[str, Any], names: Sequence[str], where: str) -> Any:
    """The value of the one column that has one of these names."""
    given = [name for name in names if row.get(name) is not None]
    if len(given) > 1:
        raise UserError(f"{where} has {' and also '.join(given)}: keep one of them")
    return row[given[0]] if given else None


def _halves(rows: list[Labelled]) -> tuple[list[Labelled], list[Labelled]]:
    """A random half to show and the other to ask, the same every time; a row that comes again is not in both."""
    rows = list(dict.fromkeys(rows))
    shuffled = python_random("halves").sample(rows, len(rows))
    cut = len(rows) // 2
    return shuffled[:cut], shuffled[cut:]
