"""Texts and words in another alphabet than English: amino acids, on a small BERT with one token per residue."""

import json
import math

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
from typer.testing import CliRunner

import maskwise as mw
from helpers.masked_lms import SHAPE, save_masked_lm
from maskwise.cli import app
from maskwise.runs.diagnose import plan_run
from maskwise.runs.settings import chosen_settings
from maskwise.support.randomness import python_random

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
POSITIONS = 140
PROBES = ("natural-text", "marginals")
TEXT = " ".join(python_random("chains of residues").choices(RESIDUES, k=1200))
KINDS = {"helix": [f"A{x}" for x in RESIDUES[:8]], "sheet": [f"V{x}" for x in RESIDUES[8:16]]}
WORDS = {"sets": [["helix", "sheet"]], "kinds": KINDS}


def residue_tokenizer():
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *RESIDUES))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **named)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("residues")
    torch.manual_seed(0)
    tokenizer = residue_tokenizer()
    config = BertConfig(**SHAPE, vocab_size=len(tokenizer), max_position_embeddings=POSITIONS, pad_token_id=0)
    BertForMaskedLM(config).save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    (path / "residues.txt").write_text(TEXT)
    (path / "words.json").write_text(json.dumps(WORDS))
    return path


def called(*words):
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="maskwise")


def test_prompts_of_residues_have_no_unknown_token_and_fit_the_positions(folder):
    model = mw.open(folder / "model", device="cpu")
    planned = plan_run(model, chosen_settings("quick", PROBES), text=TEXT)
    items = [item for unit in planned.units for item in unit.items(unit.points, set())]
    allowed = {model.mask_id, *model.tokenizer.convert_tokens_to_ids(list(RESIDUES))}
    assert {item.key[0] for item in items} == set(PROBES)
    assert all(allowed.issuperset(item.prompt.ids) for item in items)
    assert all(item.answer in RESIDUES for item in items)
    assert max(len(item.prompt.ids) for item in items) <= model.window == POSITIONS - 2
    assert planned.setup.settings.passage_words == 25
    assert planned.setup.notes == [
        "passages of 25 words in place of 50: so prompts fit into the context length",
        "natural-text: not asked with full stops, for which the tokenizer has no token",
    ]


@pytest.mark.slow
def test_a_text_of_residues_is_diagnosed_with_finite_numbers(folder, tmp_path):
    done = called(
        "diagnose",
        folder / "model",
        "--quick",
        "--probes",
        ",".join(PROBES),
        "--text",
        folder / "residues.txt",
        "--questions",
        3,
        "--out",
        tmp_path / "run",
    )
    assert done.exit_code == 0, done.output
    found = mw.read_run(tmp_path / "run")
    assert {record.probe for record in found.records} == set(PROBES)
    assert all(math.isfinite(record.nll) for record in found.records)
    assert all(record.answer in RESIDUES for record in found.records)
    assert (tmp_path / "run" / "report.html").exists()


def test_questions_and_prose_that_the_tokenizer_cannot_write_are_refused_in_one_line(folder, tmp_path):
    base = ("diagnose", folder / "model", "--quick", "--questions", 1, "--relevant", 1, "--distractors", 3)
    questions = ("--probes", "mask-count", "--words", folder / "words.json", "--out", tmp_path / "run")
    for words, reason in (
        (questions, "has no token for"),
        (("--probes", "recall", "--out", tmp_path / "run"), "has no token for"),
        (("--probes", "natural-text", "--out", tmp_path / "run"), "give a text in its alphabet with --text"),
        (("--probes", "marginals", "--out", tmp_path / "run"), "give a text in its alphabet with --text"),
    ):
        done = called(*base, *words)
        assert done.exit_code == 2 and reason in done.output, done.output
        assert len(done.output.splitlines()) == 1 and not (tmp_path / "run").exists()


def test_words_of_residues_are_asked_where_the_tokenizer_can_write_the_question(folder, tmp_path):
    model = save_masked_lm(tmp_path / "bert", "Bert", positions=1024)
    done = called(
        "diagnose",
        model,
        "--quick",
        "--questions",
        1,
        "--relevant",
        1,
        "--distractors",
        3,
        "--probes",
        "mask-count",
        "--words",
        folder / "words.json",
        "--out",
        tmp_path / "run",
    )
    assert done.exit_code == 0, done.output
    assert all(record.task.startswith("helix among sheet") for record in mw.read_run(tmp_path / "run").records)
