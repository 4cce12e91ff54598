"""Every reader of a stranger's files: what it is given, which of its files may be damaged, and how it is called."""

import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

import maskwise as mw
from maskwise.advice.search_folder import begin, read_answers, read_plan
from maskwise.decoding.prompt_files import read_prompts, read_requests
from maskwise.decoding.prompt_ids import encode_prompts
from maskwise.decoding.score import score_requests
from maskwise.models import LLaDAConfig, LLaDAModelLM
from maskwise.models.checkpoints.catalog import describe_checkpoint
from maskwise.models.checkpoints.export import _refuse_outside_links, beside_the_weights
from maskwise.models.checkpoints.locations import ZOO
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.probes.text import load_text
from maskwise.report.pages.advice import read_search, write_search
from maskwise.report.pages.page import write_page
from maskwise.report.pages.registry import run_table, search_table, write_tables
from maskwise.report.readings import read_all
from maskwise.report.words.card import card_of_search, run_card_of
from maskwise.tasks.datasets import read_dataset
from maskwise.tasks.words import load_words
from maskwise.training.data.documents import read_documents, tokenize_rows
from maskwise.training.data.pairs import read_pairs, tokenize_pairs
from maskwise.training.run_folder import newest_whole, refuse_other_base, refuse_other_run, vouch
from soak.mutate import wild_text


@dataclass(frozen=True)
class Reader:
    """`make` writes a sound folder, `files` are damaged one at a time, `read` is called with the damaged folder.

    weight: how often, relative to the others; opening a model takes longer than reading a line.
    """

    name: str
    make: Callable[[Path], None]
    files: Sequence[str]
    read: Callable[[Path], Any]
    weight: int = 20


def readers() -> list[Reader]:
    model, chatting = mw.open("tiny-llada", device="cpu"), mw.open("tiny-llada", device="cpu")
    chatting.tokenizer.chat_template = TEMPLATE

    def tokenized(folder: Path) -> Any:
        return tokenize_pairs(read_pairs(folder / "pairs.jsonl"), model, 200)

    def scored(folder: Path) -> Any:
        """A mask in an answer has no likelihood: refused, not minus infinity."""
        found = score_requests(model, read_requests(folder / "pairs.jsonl"), "monte-carlo", samples=2)
        assert all(math.isfinite(one.log_likelihood) for one in found), "a likelihood that is not finite"
        return found

    def chats(folder: Path) -> Any:
        return tokenize_pairs(read_pairs(folder / "columns.json"), chatting, 200)

    def documents(name: str, rows: str) -> Callable[[Path], Any]:
        return lambda folder: tokenize_rows(read_documents(folder / name), chatting, 16, rows)

    def encoded(folder: Path) -> Any:
        """Not from a file: the damaged seed draws the prompts."""
        seed = (folder / "seed").read_bytes() if (folder / "seed").is_file() else b""
        draw = random.Random(seed)
        return encode_prompts(model, ["Hello" if seed == SEED else wild_text(draw) for _ in range(3)], None)

    checkpoint = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    found = [
        Reader("describe", _checkpoint, checkpoint[:1], lambda folder: describe_checkpoint(str(folder)), 6),
        Reader("open", _checkpoint, (*checkpoint, "config.json", "tokenizer_config.json"), _opened, 3),
        Reader("index", _sharded, ("model.safetensors.index.json", "part.safetensors"), _opened, 2),
        Reader("adapter", _adapter, ("adapter_config.json", "adapter_model.safetensors"), _adapted, 2),
        Reader("documents", _documents, ("documents.jsonl",), documents("documents.jsonl", "documents"), 4),
        Reader("plain documents", _documents, ("documents.txt",), documents("documents.txt", "full")),
        Reader("pairs", _pairs, ("pairs.jsonl",), tokenized),
        Reader("chats", _pairs, ("columns.json",), chats),
        Reader("text", _pairs, ("text.txt",), lambda folder: read_pairs(folder / "text.txt")),
        Reader("prompts", _pairs, ("pairs.jsonl",), lambda folder: read_prompts(folder / "pairs.jsonl")),
        Reader("plain prompts", _pairs, ("text.txt",), lambda folder: read_prompts(folder / "text.txt")),
        Reader("scored", _pairs, ("pairs.jsonl",), lambda folder: read_requests(folder / "pairs.jsonl")),
        Reader("likelihoods", _pairs, ("pairs.jsonl",), scored, 2),
        Reader("columns", _pairs, ("columns.json",), lambda folder: read_requests(folder / "columns.json")),
        Reader("wild prompts", _seed, ("seed",), encoded, 4),
        Reader("prose", _pairs, ("text.txt",), lambda folder: load_text(folder / "text.txt")),
        Reader("words", _words, ("words.json",), lambda folder: load_words(folder / "words.json")),
        *(Reader(f"data {name}", _tables, (name,), _table(name)) for name in TABLES),
        Reader("hotpotqa", _tables, ("hotpot.json",), lambda folder: read_dataset("hotpotqa", folder / "hotpot.json")),
        Reader("gsm8k", _checked, ("gsm8k.jsonl",), lambda folder: read_dataset("gsm8k", folder / "gsm8k.jsonl")),
        Reader("checked", _checked, ("own.jsonl",), lambda folder: read_dataset("prompts", folder / "own.jsonl")),
        Reader("search", _search, ("advice.json", "manifest.json"), _searched),
        Reader("resumed search", _begun_search, ("manifest.json", "records.jsonl"), _resumed_search),
        Reader("exported", _checkpoint, ("tokenizer.json", "tokenizer_config.json"), _exported, 1),
        Reader("search page", _search, ("advice.json", "manifest.json"), _search_page, 1),
        Reader("table of runs", _run, ("records.jsonl", "manifest.json"), _tabled, 4),
        Reader("run", _run, ("records.jsonl", "manifest.json"), lambda folder: read_all([folder]), 8),
        Reader("page", _run, ("records.jsonl", "manifest.json"), _page, 1),
        Reader("tuning run", _tuning, _SAVED, _tuned),
    ]
    # Where a package is not installed its readers end in one line, which says nothing of damage.
    needs = {"data rows.parquet": "pyarrow", "page": "matplotlib", "search page": "matplotlib"}
    return [reader for reader in found if find_spec(needs.get(reader.name, "json")) is not None]


# Sound folders

ROW = {"text": "a fine film", "label": "good"}
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
TABLES = ("rows.csv", "rows.tsv", "rows.jsonl", "rows.json", "rows.parquet")
SEED = b"0123456789"
PAIR = {"prompt": "Say it:", "answer": "it"}


def _checkpoint(folder: Path, window: int = 64) -> None:
    """The embedded tokenizer, in a chat template of its own, and a network of two small layers."""
    tokenizer = mw.open("tiny-llada").tokenizer
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "mlp_hidden_size": 24}
    rest = {"vocab_size": len(tokenizer), "max_sequence_length": window, "mask_token_id": tokenizer.mask_token_id}
    LLaDAModelLM(LLaDAConfig(**small, **rest)).save_pretrained(folder)


def _sharded(folder: Path) -> None:
    _checkpoint(folder)
    whole = folder / "model.safetensors"
    names = list(load_file(whole))
    whole.rename(folder / "part.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, "part.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _adapter(folder: Path) -> None:
    for file in (ZOO / "tiny-llada+ma").iterdir():
        shutil.copyfile(file, folder / file.name)


def _documents(folder: Path) -> None:
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I, 北京."}]
    lines = [{"text": "One document of several words, Größe."}, {"messages": turns}, {"text": "Short.", "id": 7}]
    (folder / "documents.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines * 3))
    (folder / "documents.txt").write_text("One paragraph of words.\n\nAnother.\fA second document, 北京.\n" * 4)


def _seed(folder: Path) -> None:
    (folder / "seed").write_bytes(SEED)


def _pairs(folder: Path) -> None:
    lines = [PAIR, PAIR | {"prompt": "Größe, 北京"}, {"prompt": "Say it:", "completion": "it"}]
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I"}]
    asked = [
        {"question": "Who?", "response": "I", "system_prompt": "Be brief."},
        {"instruction": "Add.", "input": "1 and 1", "output": "2", "text": "Add."},
        {"prompt": turns[:1], "completion": turns[1:]},
        {"messages": turns},
    ]
    (folder / "columns.json").write_text(json.dumps(asked))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines * 3))
    (folder / "text.txt").write_text("One paragraph of words.\n\nAnother, Größe, 北京, and so on.\n" * 3)


def _words(folder: Path) -> None:
    (folder / "words.json").write_text(json.dumps({k: load_words()[k][:12] for k in ("animal", "colour")}))


def _tables(folder: Path) -> None:
    rows = [ROW | {"text": f"{ROW['text']} {n}", "label": "good" if n % 2 else "bad"} for n in range(12)]
    (folder / "rows.csv").write_text("text,label\n" + "".join(f'"{r["text"]}",{r["label"]}\n' for r in rows))
    (folder / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in rows))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rows.json").write_text(json.dumps(rows))
    if find_spec("pyarrow") is not None:
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(rows), folder / "rows.parquet")
    entry = {
        "question": "Who was born first, Ann or Bob?",
        "answer": "Ann",
        "type": "comparison",
        "supporting_facts": [["Ann", 0], ["Bob", 0]],
        "context": [["Ann", ["Born 1900."]], ["Bob", ["Born 1910."]]],
    }
    entries = [entry | {"question": f"Who was {n} first, Ann or Bob?", "answer": "Ann"} for n in range(8)]
    (folder / "hotpot.json").write_text(json.dumps(entries))


def _checked(folder: Path) -> None:
    """Questions whose answers are checked: GSM8K's form, and a user's own."""
    solved = [{"question": f"What is {n} and 1?", "answer": f"It is {n + 1}.\n#### {n + 1}"} for n in range(9)]
    own = [PAIR | {"answer": f"it is {n}", "pattern": r"(\d)"} for n in range(9)]
    for name, lines in (("gsm8k.jsonl", solved), ("own.jsonl", own)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _search(folder: Path) -> None:
    """What advise leaves: three settings, two of them confirmed, one dropped."""
    ends = {"mean": 0.5, "low": 0.25, "high": 0.75}
    row = {
        "setting": "fixed",
        "quality": ends,
        "to_reference": ends,
        "to_best": ends,
        "passes": 4.0,
        "seconds": 0.5,
        "frontier": True,
    }
    advised = row | {"options": {"max_new_tokens": 4}, "command": "maskwise", "python": "mw", "lm_eval": "--model"}
    found = {
        "model": "m", "quality": "exact match", "unit": "share", "sentence": "All equal.", "all_equal": True,
        "questions": {"searched": 8, "held_back": 24, "embedded": False}, "winner": None, "reference": "fixed",
        "advice": [advised | {"goal": goal} for goal in ("best", "within 1", "within 3")],
        "confirmed": [row, row | {"setting": "growing", "frontier": False}],
        "dropped": [{"setting": "window", "questions": 8, "quality": 0.5, "cost": 4.0, "passes": 4.0, "seconds": 0.5}],
        "not_tried": ["sampling"], "cost": "little", "passes": 99, "seconds": 1.5, "device": "cpu", "folder": "x",
    }  # fmt: skip
    space = {"max_new_tokens": 4, "canvases": ["fixed"], "blocks": [2], "steps": None, "end_ids": []}
    identity = {
        "model": {"name": "m", "fingerprint": "f", "dtype": "float32"},
        "space": space,
        "budget": None,
        "questions": {"count": 32, "hash": "h"},
        "cost": "passes",
        "seed": 0,
    }
    manifest = {"command": "advise", "identity": identity, "planted": None, "versions": {"maskwise": "1"}, "plan": None}
    (folder / "advice.json").write_text(json.dumps(found))
    (folder / "manifest.json").write_text(json.dumps(manifest))


SEARCHED = {"model": {"name": "m"}, "seed": 0}


def _begun_search(folder: Path) -> None:
    """What advise resumes: its manifest with the plan, and the answers so far."""
    plan = {"rounds": [4, 8], "held": 24, "seconds_per_pass": 0.01}
    manifest = {"command": "advise", "identity": SEARCHED, "versions": {}, "plan": plan, "complete": False}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    answer = {"setting": "fixed", "text": "4", "quality": 1.0, "passes": 4, "seconds": 0.1}
    lines = [json.dumps(answer | {"question": number}) + "\n" for number in range(8)]
    (folder / "records.jsonl").write_text("".join(lines))


def _run(folder: Path) -> None:
    """A few records of several probes, with their evidence."""
    conditions = [
        ("location", {"location": 0}, None),
        ("location", {"location": 15}, None),
        ("mask-count", {"masks": 2}, None),
        ("mask-count", {"masks": 50}, None),
        ("few-steps", {"steps": 2, "masks": 2}, None),
        ("few-steps", {"steps": 2, "masks": 50}, None),
        ("order", {"rule": "low-confidence"}, ORDER),
        ("nelbo", {"draws": 4}, None),
        ("likelihood-masks", {"masks": 0}, None),  # its entries have no accuracy
        ("likelihood-masks", {"masks": 64}, None),
    ]
    base = {"model": "m", "predicted": "A", "answer": "A", "confidence": 0.5, "entropy": 0.25, "nll": 1.5}
    records = [
        base | {"probe": probe, "task": task, "point": point, "condition": condition, "correct": bool(point % 2),
                "masks": condition.get("masks", 1)}
        | ({} if evidence is None else {"evidence": evidence})
        for probe, condition, evidence in conditions for task in ("t-1", "t-2") for point in range(4)
    ]  # fmt: skip
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    model = {
        "name": "m",
        "kind": "llada",
        "parameters": 9,
        "window": 99,
        "mask_id": 3,
        "shift": False,
        "causal": False,
        "dtype": "float32",
    }
    settings = {
        "preset": "quick",
        "probes": list(dict.fromkeys(probe for probe, *_ in conditions)),
        "tasks": ["t-1", "t-2"],
        "points": 4,
        "seed": 0,
        "chat": False,
        "relevant": [10],
    }
    manifest = {"model": model, "settings": settings, "versions": {}, "complete": True, "notes": [], "command": "x"}
    (folder / "manifest.json").write_text(json.dumps(manifest))


ORDER = dict.fromkeys(("tau", "global1", "global4", "local1", "local4"), 0.5)
_SAVED = ("settings.json", "checkpoints/checkpoint-2/complete.json", "checkpoints/checkpoint-2/README.md")
IDENTITY = {"model": "m", "settings": {"steps": 6}, "data": {"sha256": "0"}}


def _tuning(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    (checkpoint / "optimizer.pt").write_bytes(b"state")
    (checkpoint / "README.md").write_text("An adapter.")
    vouch(checkpoint, 2)
    shutil.copytree(checkpoint, checkpoint.with_name("checkpoint-4-backup"))  # of the user's own
    (folder / "settings.json").write_text(json.dumps({"identity": IDENTITY, "base": "abc"}))


# Calls


def _searched(folder: Path) -> Any:
    search = read_search(folder)
    write_tables([search_table([search])], folder / "out")
    return card_of_search(search)


def _resumed_search(folder: Path) -> Any:
    begin(folder, SEARCHED, {})
    return read_plan(folder, 32), read_answers(folder, {"fixed"}, 32)


def _exported(folder: Path) -> Any:
    """A link to a file outside must not be exported: among the kinds of damage are links."""
    found = beside_the_weights(folder)
    _refuse_outside_links(folder)
    assert not any(file.is_symlink() for file in found), "a link was let through"
    return found


def _search_page(folder: Path) -> Any:
    return write_search(read_search(folder), folder / "out")


def _tabled(folder: Path) -> Any:
    write_tables([run_table(read_all([folder]))], folder / "out")
    return run_card_of(folder)


def _opened(folder: Path) -> Any:
    """Opened, asked and described: a model that opens must also answer."""
    model = open_model(folder, device="cpu")
    model.predict([[1, 2, 3]], [[1]])
    return encode_prompts(model, ["Hello"], None) if model.tokenizer is not None else None


def _page(folder: Path) -> Any:
    return write_page(read_all([folder]), folder / "page")


def _adapted(folder: Path) -> Any:
    return open_model("tiny-llada", device="cpu", adapter=folder)


def _table(name: str) -> Callable[[Path], Any]:
    return lambda folder: read_dataset("mine", folder / name)


def _tuned(folder: Path) -> Any:
    refuse_other_run(folder, IDENTITY, {})
    refuse_other_base(folder, "abc")
    return newest_whole(folder / "checkpoints", lambda line: None)
