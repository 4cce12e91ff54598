"""What the presets ask: the paper's setting to the letter, and how many tokens the first look takes."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from helpers.known import known_model, shipped_tokenizer, uniform
from helpers.page_reader import read
from helpers.report_runs import DIFFUSION, KNOWN, write_run
from helpers.tiny import llada_net
from maskwise.cli import app
from maskwise.probes import PROBES
from maskwise.probes.probe import Asker, Setup
from maskwise.probes.published import EXPECTATIONS, PAPER_MODELS, paper_model
from maskwise.probes.text import load_text
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.words.printed_summary import print_summary
from maskwise.runs.diagnose import diagnose, plan
from maskwise.runs.settings import DEFAULT, FULL, PAPER, QUICK, power_of, preset, with_examples
from maskwise.tasks.episodes import draw
from maskwise.tasks.prompts import filler_id
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words, split_words

QUICK_TOKENS = 190_000  # two models are asked within two minutes on two cores


def tokens_asked(settings) -> int:
    """The tokens of all different sequences of a run, on the shipped tokenizer."""
    model = known_model(uniform)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, settings.filler))
    setup = Setup(model, asker, settings, load_words(), load_text(), {}, [])
    units = plan(setup, [probe for probe in PROBES if probe.name in settings.probes])
    return sum(len(ids) for unit in units for ids in {item.prompt.ids for item in unit.items(unit.points, set())})


def test_quick_spends_a_limited_number_of_tokens_on_one_difference():
    assert QUICK.probes == ("mask-count",) and QUICK.parameters["mask-count"] == {"mask_counts": (2, 200), "among": 6}
    assert len(QUICK.tasks) * QUICK.points == 300
    assert 100_000 < tokens_asked(QUICK) <= QUICK_TOKENS


def test_quick_keeps_its_numbers_and_gives_them_up_for_those_the_user_names():
    assert QUICK.parameters["recall"]["pairs"] == 30 and (QUICK.relevant, QUICK.distractors) == ((1,), 15)
    assert QUICK.parameters["contrast"]["among"] == 32  # 15 are too near to tell
    assert with_examples(QUICK, (1,), None).parameters["contrast"]["among"] == 32
    for distractors in (15, 8):
        assert with_examples(QUICK, None, distractors).parameters["contrast"]["among"] is None


def test_the_papers_preset_is_the_papers_setting():
    assert (PAPER.preset, PAPER.relevant, PAPER.distractors, PAPER.points) == ("paper", (10,), 40, 1000)
    assert PAPER.tasks == tuple(task.name for task in TASKS) and len(PAPER.tasks) == 16
    assert {"location", "mask-count", "context-length", "filler", "steps",
            "attribution", "shots-masks"} <= set(PAPER.probes)  # fmt: skip
    assert not {"contrast", "natural-text", "nelbo"} & set(PAPER.probes)  # ours
    assert "attention" not in PAPER.parameters["attribution"]["of"]
    assert PAPER.parameters["filler"]["after_two_masks"] == ()  # format B is ours
    assert PAPER.parameters["steps"]["points"] == 1000


# What was published, next to what is measured


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("GSAI-ML/LLaDA-8B-Base", "LLaDA-8B-Base"),
        ("/models/LLaDA-8B-Instruct/", "LLaDA-8B-Instruct"),
        ("Dream-org/Dream-v0-Base-7B", "Dream-7B-Base"),
        ("weights\\dream-v0-instruct-7b", "Dream-7B-Instruct"),
        ("inclusionAI/LLaDA-MoE-7B-A1B-Base", "LLaDA-MoE-Base"),
        ("tiny-llada", None),
        ("GSAI-ML/LLaDA-8B-Base+tuned", None),
        ("GSAI-ML/LLaDA-8B-Base-4bit", None),
    ],
)
def test_models_of_the_paper_are_known_by_their_published_names(name, known):
    assert paper_model(name) == known


def test_every_published_value_is_of_a_model_of_the_paper_and_a_probe_of_its_preset():
    for expected in EXPECTATIONS:
        assert expected.probe in PAPER.probes and set(expected.values) <= set(PAPER_MODELS.values())


ASKED = [
    *KNOWN,
    ("mask-count", {"masks": 200}, 200, [5, 5, 5, 5]),
    ("filler", {"filler": ".", "fillers": 200}, 1, [7, 8, 6, 7]),
    ("few-steps", {"steps": 2, "masks": 2}, 2, [8, 8, 8, 8]),
    ("few-steps", {"steps": 2, "masks": 200}, 200, [6, 6, 6, 6]),
]


def paper_run(folder, name="GSAI-ML/LLaDA-8B-Base", preset="paper", chat=False):
    return read_all([write_run(folder, ASKED, DIFFUSION | {"name": name}, preset=preset, distractors=40, chat=chat)])


@pytest.mark.slow
def test_published_values_stand_next_to_the_measured_ones(tmp_path, capsys):
    readings = paper_run(tmp_path / "run")
    found = {(one["probe"], one["measure"]): one for one in readings[0].summary["published"]}
    masks = found["mask-count", "200 masks against 2"]
    assert (masks["published"], masks["value"]) == (-0.23, pytest.approx(-0.3))
    stops = found["filler", "200 full stops against none"]
    assert (stops["published"], stops["value"]) == (-0.03, pytest.approx(-0.1))
    steps = found["steps", "degradation in 2 steps"]
    assert (steps["published"], steps["value"]) == (0.197, pytest.approx(0.25))
    assert len(found) == 3  # nothing of what was not asked
    print_summary(readings[0])
    printed = capsys.readouterr().out.replace("\u00a0", " ")
    assert "expectations fixed beforehand" in printed and "−23.0 points" in printed and "−30.0 points" in printed
    page = read(write_page(readings, tmp_path / "page")).words.replace("\u00a0", " ")
    assert "The paper's setting. 10 relevant examples among 40 distractors, 4 tasks with one context each" in page
    assert "mask-count: 200 masks against 2 −23.0 points −30.0 points" in page


@pytest.mark.slow
def test_other_models_and_other_settings_have_none(tmp_path):
    assert "published" not in paper_run(tmp_path / "other", name="lab/tiny-llada")[0].summary
    quick = paper_run(tmp_path / "quick", preset="quick")
    assert "published" not in quick[0].summary
    assert "The paper's setting" not in read(write_page(quick, tmp_path / "page")).words


@pytest.mark.slow
def test_an_instruct_model_asked_without_chat_is_labelled_and_not_compared(tmp_path, capsys):
    instruct = paper_run(tmp_path / "plain", name="GSAI-ML/LLaDA-8B-Instruct")
    assert "published" not in instruct[0].summary
    assert "The prompt format differs from the paper's" in instruct[0].summary.other_format
    print_summary(instruct[0])
    printed = " ".join(capsys.readouterr().out.split())
    assert "made without --chat, so no published values are shown" in printed and "−27.0" not in printed
    page = read(write_page(instruct, tmp_path / "page")).words
    assert "made without --chat, so no published values are shown" in page and "Published values next to" not in page
    asked = paper_run(tmp_path / "chat", name="GSAI-ML/LLaDA-8B-Instruct", chat=True)[0].summary
    assert asked.published[0].published == -0.27 and "other_format" not in asked
    base = paper_run(tmp_path / "base", chat=True)[0].summary
    assert "published" not in base and "without --chat to compare" in base.other_format
    unknown = paper_run(tmp_path / "unknown", name="lab/other-7b-instruct")[0].summary
    assert "without --chat" in unknown.other_format
    assert "other_format" not in paper_run(tmp_path / "quick", name="LLaDA-8B-Instruct", preset="quick")[0].summary


def test_the_paper_preset_holds_no_words_out():
    """Examples and questions are drawn from the same words; the other presets keep half for the questions."""
    assert PAPER.held_out == 0 and QUICK.held_out == DEFAULT.held_out == FULL.held_out == 0.5
    words = load_words()
    for task in TASKS:
        tests = draw(task, words, 10, 40, PAPER.points, 0, PAPER.held_out).tests
        targets = {test.options[test.answer] for test in tests}
        assert targets & set(task.word.lists(split_words(words)[0])[0]), task.name  # words that other presets only show


@pytest.mark.slow
def test_the_command_asks_it_and_refuses_what_contradicts_it(tmp_path):
    folder = tmp_path / "LLaDA-8B-Base"
    llada_net(vocab=2048, window=4096, width=16, layers=1, mask_token_id=1).save_pretrained(folder)
    shipped_tokenizer().save_pretrained(folder)

    def maskwise(*arguments):
        return CliRunner().invoke(app, ["diagnose", str(folder), "--device", "cpu", "--paper", *arguments])

    result = maskwise("--probes", "mask-count", "--questions", "1", "--json", "--out", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["settings"]["preset"], summary["settings"]["relevant"]) == ("paper", [10])
    assert [one["published"] for one in summary["published"]] == [-0.23]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["settings"]["preset"] == "paper"
    for more, said in ((["--relevant", "1"], "leave --relevant and --distractors out"), (["--quick"], "exclude each")):
        refused = maskwise(*more)
        assert refused.exit_code == 2 and said in refused.stderr


# What a run of this size can detect


def test_power_is_printed_without_opening_a_model(capsys):
    result = CliRunner().invoke(app, ["diagnose", "no-such-model", "--quick", "--power", "--json"])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)
    assert (found["probe"], found["questions"]) == ("mask-count", 300)
    assert found["few_change"] == pytest.approx(0.051, abs=0.001)
    printed = CliRunner().invoke(app, ["diagnose", "--words", "unfamiliar-1", "--power"]).output
    assert "mask-count, 1,200 questions" in printed


@pytest.mark.slow
def test_the_questions_that_power_counts_are_those_that_are_asked(tmp_path):
    """Of each probe of the default run: the paired differences rest on as many questions."""
    asked = replace(
        preset("default"), probes=("mask-count", "recall", "contrast"), questions=2,
        tasks=("country-smallest", "verb-largest"), relevant=(1,), distractors=2,
    )  # fmt: skip
    for probe, own in {
        "mask-count": {"mask_counts": (2, 5)},
        "recall": {"pairs": 6, "mask_counts": (2, 5), "filler_counts": (), "lists_per_point": 2},
        "contrast": {"tasks": 2, "questions": 2, "mask_counts": (2,), "among": 2},
    }.items():
        asked = asked.changed(probe, **own)
    folder = diagnose(known_model(lambda *_: "A"), asked, tmp_path / "run")
    found = read_all([folder])[0].summary.power
    assert {one.probe: one for one in found} == {one.probe: one for one in power_of(asked)}
    page = read(write_page(read_all([folder]), tmp_path / "page")).words.replace("\u00a0", " ")
    assert "The smallest difference this run can detect" in page and "mask-count, 4 questions" in page
