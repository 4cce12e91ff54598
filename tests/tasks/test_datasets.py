"""Readers, on small files in the published forms written here."""

import json
import random
from importlib.util import find_spec

import pytest
from test_prompts import tokenizer_named

from maskwise.support.errors import UserError
from maskwise.tasks.datasets import Dataset, read_dataset, read_datasets, with_distinct_labels
from maskwise.tasks.labelled_exercises import Labelled, answer_masks, balanced, tell_apart
from maskwise.tasks.prompts import encode_label, gapped


def lines(file, *rows):
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_ag_news(tmp_path):
    lines(tmp_path / "train.csv", '"3","Wall St. Bears","Short-sellers, ""ultra-cynics"", see green."', '"1","A","b"')
    lines(tmp_path / "test.csv", '"2","Cup","First line\\second line"', '"4","Chip","Sci/Tech is dropped."')
    data = read_dataset("ag-news", tmp_path)
    assert data.shown[0] == Labelled('Text: Wall St. Bears. Short-sellers, "ultra-cynics", see green.', "Business")
    assert data.tests == (Labelled("Text: Cup. First line second line", "Sports"),)
    assert data.labels == ["Business", "Sports", "World"]


@pytest.mark.parametrize(("name", "longest"), [("qnli", 500), ("rte", 500), ("mrpc", 1000)])
def test_long_texts_are_left_out(name, longest, tmp_path):
    columns = ("question", "sentence") if name == "qnli" else ("sentence1", "sentence2")
    for file in ("train.jsonl", "dev.jsonl"):
        rows = [
            {columns[0]: "x" * (longest - 1), columns[1]: "y" * more, "label": n} for n in (0, 1) for more in (1, 2)
        ]
        lines(tmp_path / file, *map(json.dumps, rows))
    data = read_dataset(name, tmp_path)
    assert (
        [e.label for e in data.tests]
        == [e.label for e in data.shown]
        == (["yes", "no"] if longest == 500 else ["no", "yes"])
    )


@pytest.mark.parametrize(
    "name, header, row, asked, label",
    [
        ("sst2", "sentence\tlabel", 'it \'s a "charming" journey \t1', 'Text: it \'s a "charming" journey', "positive"),
        ("rte", "index\tsentence1\tsentence2\tlabel", "0\tA.\tC.\tnot_entailment", "First: A.\nSecond: C.", "no"),
        (
            "qnli",
            "index\tquestion\tsentence\tlabel",
            '0\tWhen?\tIn "90\tentailment',
            'Question: When?\nText: In "90',
            "yes",
        ),
        (
            "mrpc",
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            '1\t7\t8\tHe said " no\tHe said no',
            'First: He said " no\nSecond: He said no',
            "yes",
        ),
    ],
)
def test_glue(name, header, row, asked, label, tmp_path):
    other = {"sst2": "bad\t0", "rte": "1\tx\ty\tentailment", "qnli": "1\tx\ty\tnot_entailment", "mrpc": "0\t1\t2\tx\ty"}
    shown, asked_of = ("dev", "train") if name == "rte" else ("train", "dev")  # RTE's examples are of validation
    lines(tmp_path / f"{shown}.tsv", header, row, other[name])
    lines(tmp_path / f"{asked_of}.tsv", header, row)
    data = read_dataset(name, tmp_path)
    assert data.tests == (Labelled(asked, label),)
    assert len(data.shown) == 2 and len(data.labels) == 2
    lines(tmp_path / "dev.tsv", header, row, row.replace("\t", " "))
    with pytest.raises(UserError, match=r"dev.tsv line 3 should hold"):
        read_dataset(name, tmp_path)


def test_kaggles_ag_news_has_a_header(tmp_path):
    lines(tmp_path / "train.csv", "Class Index,Title,Description", "1,A,b", '"3","C, D","e"')
    lines(tmp_path / "test.csv", "Class Index,Title,Description", '2,Cup,"Two\nlines"')
    data = read_dataset("ag-news", tmp_path)
    assert data.shown == (Labelled("Text: A. b", "World"), Labelled("Text: C, D. e", "Business"))
    assert data.tests == (Labelled("Text: Cup. Two\nlines", "Sports"),)


HUB = {
    "ag-news": ([{"text": "A b", "label": 0}, {"text": "c", "label": 2}], "Text: A b", ["World", "Business"]),
    "sst2": (
        [{"idx": 0, "sentence": "good ", "label": 1}, {"idx": 1, "sentence": "bad", "label": 0}],
        "Text: good",
        ["positive", "negative"],
    ),
    "rotten-tomatoes": ([{"text": "x", "label": 1}, {"text": "y", "label": 0}], "Text: x", ["positive", "negative"]),
    "mrpc": (
        [{"sentence1": "x", "sentence2": "y", "label": n, "idx": n} for n in (1, 0)],
        "First: x\nSecond: y",
        ["yes", "no"],
    ),
    "rte": (
        [{"text1": "x", "text2": "y", "label": n, "label_text": "unread"} for n in (0, 1)],
        "First: x\nSecond: y",
        ["yes", "no"],
    ),
    "qnli": (
        [{"question": "x?", "sentence": "y", "label": n, "idx": n} for n in (0, 1)],
        "Question: x?\nText: y",
        ["yes", "no"],
    ),
}


def write_parquet(file, rows):
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist(rows), file)


@pytest.mark.parametrize("name", HUB)
@pytest.mark.parametrize("form", ["train.jsonl", "data/train-00000-of-00002.parquet"])
def test_the_hubs_columns_and_numbers(name, form, tmp_path):
    """Labels are numbers there, and those of RTE and QNLI mean the reverse of MRPC's."""
    rows, asked, labels = HUB[name]
    unlabelled = [row | {"label": -1} for row in rows[:1]]
    if form.endswith("jsonl"):
        lines(tmp_path / "train.jsonl", *map(json.dumps, rows))
        lines(tmp_path / "validation.jsonl", *map(json.dumps, rows + unlabelled))
        lines(tmp_path / "test.jsonl", *map(json.dumps, unlabelled))
    elif find_spec("pyarrow") is None:
        (tmp_path / "train.parquet").write_bytes(b"")
        with pytest.raises(UserError, match="parquet files need pyarrow"):
            read_dataset(name, tmp_path)
        return
    else:
        (tmp_path / "data").mkdir()
        for piece, some in enumerate((rows[:1], rows[1:])):
            write_parquet(tmp_path / f"data/train-0000{piece}-of-00002.parquet", some)
        write_parquet(tmp_path / "data/validation-00000-of-00001.parquet", rows + unlabelled)
    data = read_dataset(name, tmp_path)
    assert data.shown[0].asked == asked and data.tests == data.shown
    assert [e.label for e in data.tests] == labels


def test_one_file_of_a_data_set_serves_both_parts(tmp_path):
    lines(tmp_path / "dev.tsv", "sentence\tlabel", *(f"line {n} \t{n % 2}" for n in range(8)))
    data = read_dataset("sst2", tmp_path / "dev.tsv")
    assert len(data.shown) == len(data.tests) == 4 and not set(data.shown) & set(data.tests)


def test_nothing_but_a_line_break_ends_a_tab_separated_line(tmp_path):
    odd = 'He said " no,\rthen\u2028left\x85'
    rows = ["index\tquestion\tsentence\tlabel", f"0\tWhy?\t{odd}\tentailment", "1\tx\ty\tnot_entailment"]
    for part in ("train", "dev"):
        (tmp_path / f"{part}.tsv").write_bytes("\r\n".join([*rows, ""]).encode())
    data = read_dataset("qnli", tmp_path)
    assert data.tests[0] == Labelled(f"Question: Why?\nText: {odd.strip()}", "yes") and len(data.tests) == 2


def test_glue_before_microsofts_files_when_a_folder_has_both(tmp_path):
    """As GLUE's own download script leaves it."""
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    for file, word in (("train.tsv", "glue"), ("dev.tsv", "glue"), ("msr_paraphrase_train.txt", "ms")):
        lines(tmp_path / file, head, *(f"{n}\t1\t2\t{word}\ttwo" for n in (0, 1)))
    assert {e.asked for e in read_dataset("mrpc", tmp_path).shown} == {"First: glue\nSecond: two"}


def test_mrpc_in_microsofts_own_form(tmp_path):
    head, row = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{}\t1\t2\tone\ttwo"
    for part in ("train", "test"):
        text = "\r\n".join([head, row.format(0), row.format(1), ""])
        (tmp_path / f"msr_paraphrase_{part}.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_dataset("mrpc", tmp_path).labels == ["no", "yes"]


def test_rotten_tomatoes_is_latin_1(tmp_path):
    (tmp_path / "rt-polarity.pos").write_bytes(b"a touching clich\xe9 \n" * 2 + b"warm \nkind \nfunny \n")
    (tmp_path / "rt-polarity.neg").write_bytes(b"dull \nlong \nloud \nthin \n")
    data = read_dataset("rotten-tomatoes", tmp_path)
    assert Labelled("Text: a touching cliché", "positive") in (*data.shown, *data.tests)
    assert len(data.shown) == len(data.tests) == 4 and not set(data.shown) & set(data.tests)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl"])
def test_a_users_own_file(suffix, tmp_path):
    rows = [{"text": f'line {n}, "quoted"', "label": "good" if n % 2 else "bad"} for n in range(8)]
    file = tmp_path / f"mine.{suffix}"
    if suffix == "json":
        file.write_text(json.dumps([{"input": row["text"], "output": row["label"]} for row in rows]))
    elif suffix == "jsonl":
        lines(file, *(json.dumps(row) for row in rows))
    elif suffix == "csv":
        lines(file, "text,label", *(f'"{row["text"].replace(chr(34), chr(34) * 2)}",{row["label"]}' for row in rows))
    else:
        lines(file, "text\tlabel", *(f"{row['text']}\t{row['label']}" for row in rows))
    data = read_dataset("mine", file)
    assert {(e.asked, e.label) for e in (*data.shown, *data.tests)} == {
        (f"Text: {row['text']}", row["label"]) for row in rows
    }


def test_data_sets_are_named(tmp_path):
    lines(tmp_path / "a=b.jsonl", *(json.dumps({"text": str(n), "label": f"{n % 2}"}) for n in range(6)))
    assert list(read_datasets([f"mine={tmp_path / 'a=b.jsonl'}"])) == ["mine"]
    for wrong in (["mine="], [f"mine={tmp_path / 'a=b.jsonl'}"] * 2):
        with pytest.raises(UserError, match=r"is a folder|another set is called mine"):
            read_datasets(wrong)


def test_broken_files_are_named_with_their_line(tmp_path):
    file = tmp_path / "mine.jsonl"
    lines(file, '{"text": "a", "label": "x"}', '{"text": "b"')
    with pytest.raises(UserError, match=r"mine.jsonl line 2 should hold one JSON object"):
        read_dataset("mine", file)
    lines(file, '{"text": "a", "label": "x"}', '{"text": "b", "label": "a]"}')
    with pytest.raises(UserError, match=r"line 2 should hold a text and a label"):
        read_dataset("mine", file)
    lines(file, '{"text": "a", "label": "x"}', '{"text": "b", "label": "x"}')
    with pytest.raises(UserError, match="two labels"):
        read_dataset("mine", file)
    with pytest.raises(UserError, match="no data at"):
        read_dataset("sst2", tmp_path / "nowhere")
    with pytest.raises(UserError, match="line 1 should hold a label among 0, 1, not 'x'"):
        read_dataset("sst2", file)
    with pytest.raises(UserError, match="columns text, label, not sentence1, sentence2, label or text1"):
        read_dataset("rte", file)
    with pytest.raises(UserError, match="has no file called train"):
        read_dataset("qnli", tmp_path)
    (tmp_path / "bad.csv").write_text("text,label\n" + "x" * 140_000 + ",a\n")
    with pytest.raises(UserError, match="line 2 is not comma-separated text"):
        read_dataset("mine", tmp_path / "bad.csv")
    with pytest.raises(UserError, match="neither"):
        lines(tmp_path / "mine.xml", "<a/>")
        read_dataset("mine", tmp_path / "mine.xml")


def hotpot_entry(question, answer, kind="comparison"):
    return {
        "_id": "1",
        "question": question,
        "answer": answer,
        "type": kind,
        "level": "hard",
        "supporting_facts": [["Second", 1], ["First", 0]],
        "context": [["First", ["Annie was born in 1970. ", "Not this."]], ["Second", ["Nor this.", " Terry in 1965."]]],
    }


def test_hotpotqa_keeps_two_option_questions_and_supporting_facts_alone(tmp_path):
    entries = [
        hotpot_entry("Who is older, Annie Morton or Terry Richardson?", "Terry Richardson"),
        hotpot_entry("Who is older, Annie Morton or Terry Richardson?", "Terry Richardson"),
        hotpot_entry("Which came first, the Arrow, or Bow?", "Arrow"),
        hotpot_entry("Which came first, Arrow or Bow?", "Bow"),
        hotpot_entry("Are both of them old?", "yes"),
        hotpot_entry("Who wrote it, A or B?", "someone else"),
        hotpot_entry("Who wrote it, Ann or Bob?", "Ann", kind="bridge"),
    ]
    file = tmp_path / "hotpot.json"
    file.write_text(json.dumps(entries))
    data = read_dataset("hotpotqa", file)
    found = {e.asked: e.label for e in (*data.shown, *data.tests)}
    facts = "**Context**:\n'Annie was born in 1970. Terry in 1965.'.\n\n**Question**: "
    older = "'Who is older, Annie Morton or Terry Richardson?'"
    assert found == {
        facts + older + " [A] Annie Morton\n [B] Terry Richardson": "B",
        facts + older + " [A] Terry Richardson\n [B] Annie Morton": "A",
        facts + "'Which came first, the Arrow, or Bow?' [A] the Arrow\n [B] Bow": "A",
        facts + "'Which came first, Arrow or Bow?' [A] Bow\n [B] Arrow": "A",
        facts + "'Who wrote it, Ann or Bob?' [A] Ann\n [B] Bob": "A",
    }
    assert {e.answered for e in (*data.shown, *data.tests)} == {"**Answer**:[A]", "**Answer**:[B]"}
    assert data.system == "Which of the following answers is true? Respond with [A] or [B]."
    on_the_hub = [
        entry
        | {
            "supporting_facts": {"title": ["Second", "First"], "sent_id": [1, 0]},
            "context": {"title": ["First", "Second"], "sentences": [part for _, part in entry["context"]]},
        }
        for entry in entries
    ]
    lines(tmp_path / "validation.jsonl", *map(json.dumps, on_the_hub))
    same = read_dataset("hotpotqa", tmp_path / "validation.jsonl")
    assert (same.shown, same.tests) == (data.shown, data.tests)
    file.write_text(json.dumps([{"question": "x"}]))
    with pytest.raises(UserError, match="published form"):
        read_dataset("hotpotqa", file)


def test_hotpotqa_finds_options_without_a_comma_by_their_titles_and_needs_all_facts(tmp_path):
    facts = [["Arthur's Magazine", 0], ["First for Women (magazine)", 0]]
    context = [["Arthur's Magazine", ["Founded 1844."]], ["First for Women (magazine)", ["Founded 1989."]]]
    question = "Which magazine was started first Arthur's Magazine or First for Women?"
    entry = hotpot_entry(question, "Arthur's Magazine") | {"supporting_facts": facts, "context": context}
    file = tmp_path / "hotpot.json"
    file.write_text(json.dumps([entry, entry, entry | {"context": context[:1]}]))
    data = read_dataset("hotpotqa", file)
    start = f"**Context**:\n'Founded 1844. Founded 1989.'.\n\n**Question**: '{question}' "
    assert {e.asked: e.label for e in (*data.shown, *data.tests)} == {
        start + "[A] Arthur's Magazine\n [B] First for Women": "A",
        start + "[A] First for Women\n [B] Arthur's Magazine": "B",
    }


@pytest.mark.parametrize("name", ["gpt2", "qwen", "shipped"])
def test_the_labels_first_token_is_the_row_and_every_label_gets_as_many_masks(name):
    tokenizer = tokenizer_named(name)
    labels = ["positive", "negative", "so-so"]
    masks, firsts = answer_masks(tokenizer, labels), set()
    assert tell_apart(tokenizer, labels)
    examples = [Labelled("Text: with [brackets] inside", "negative"), Labelled("Text: plain", "so-so")]
    for label in labels:
        test = Labelled("Text: [more] of it", label)
        ids, gap = encode_label(tokenizer, examples, test)
        firsts.add(ids[gap.start])
        assert tokenizer.decode(ids[: gap.start]).endswith("Text: [more] of it\nAnswer:[")
        assert tokenizer.decode(ids[gap.start :]) == f"{label}]." and gap.stop == len(ids)
        prompt = gapped(ids, gap, 0, masks, 3)
        assert prompt.masks == masks + 3 >= len(gap) + 3 and prompt.ids == (*ids[: gap.start], *[0] * (masks + 3))
    assert len(firsts) == 3


@pytest.mark.parametrize("name", ["gpt2", "qwen", "shipped"])
def test_a_question_that_comes_first_hides_its_label_and_bracket_behind_as_many_masks(name):
    """Some tokenizers have one token for the bracket and the empty line after it; it goes too."""
    tokenizer = tokenizer_named(name)
    examples = [Labelled("Text: one", "negative"), Labelled("Text: two", "positive")]
    ids, gap = encode_label(tokenizer, examples, Labelled("Text: asked", "positive"), "left", system="Classify.")
    assert tokenizer.decode(ids[: gap.start]) == "Classify.\n\nText: asked\nAnswer:["
    assert tokenizer.decode([ids[row] for row in gap]).rstrip("\n") == "positive]."
    prompt = gapped(ids, gap, 0, 5, 2)
    assert prompt.ids == (*ids[: gap.start], *[0] * 5, *ids[gap.stop :], 0, 0) and prompt.row == gap.start
    assert tokenizer.decode(prompt.ids[gap.start + 5 : -2]).lstrip("\n").startswith("Text: one\nAnswer:[negative].")


def test_a_system_prompt_is_the_systems_turn_of_a_chat():
    tokenizer = tokenizer_named("qwen")
    if not tokenizer.chat_template:
        tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    ids, gap = encode_label(
        tokenizer, [Labelled("Text: one", "no")], Labelled("Text: two", "yes"), "right", True, "Be."
    )
    text = tokenizer.decode(ids)
    assert text.index("system") < text.index("Be.") < text.index("Text: one") < text.index("Text: two")
    assert tokenizer.decode(ids[gap.start :]) == "yes]."


def test_labels_that_begin_alike_become_letters():
    tokenizer = tokenizer_named("gpt2")
    apart = Dataset("mine", (Labelled("Text: a", "x"),), (Labelled("Text: b", "z"),))
    assert with_distinct_labels(apart, tokenizer) is apart
    alike = Dataset("mine", (Labelled("Text: a", "x y"),), (Labelled("Text: b", "x"), Labelled("Text: c", "x y")))
    found = with_distinct_labels(alike, tokenizer)
    assert found.shown == (Labelled("Text: a\nOptions: (A) x, (B) x y", "B"),)
    assert [(e.asked[6], e.label) for e in found.tests] == [("b", "A"), ("c", "B")] and found.labels == ["A", "B"]
    many = tuple(Labelled("Text: a", f"x {n}") for n in range(27))
    with pytest.raises(UserError, match="27 labels that begin alike"):
        with_distinct_labels(Dataset("mine", many, many), tokenizer)


def test_examples_are_balanced():
    pool = [Labelled(str(n), "a" if n < 90 else "b") for n in range(100)]
    chosen = balanced(pool, 8, random.Random(0))
    assert sorted(e.label for e in chosen) == ["a"] * 4 + ["b"] * 4 and len(set(chosen)) == 8
    assert chosen == balanced(pool, 8, random.Random(0)) != balanced(pool, 8, random.Random(1))
    assert len(balanced(pool, 30, random.Random(0))) == 30
