"""What the presets ask: how many tokens the first look takes, and which words."""

import maskwise as mw
from maskwise.runs.diagnose import plan_run
from maskwise.runs.settings import DEFAULT, FULL, PAPER, QUICK, with_examples
from maskwise.tasks.episodes import draw
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words, split_words

QUICK_TOKENS = 360_000  # two models are asked within two minutes on two cores


def tokens_asked(settings) -> int:
    """The tokens of all different sequences of a run, on the shipped tokenizer."""
    units = plan_run(mw.open("tiny-llada"), settings).units
    return sum(len(ids) for unit in units for ids in {item.prompt.ids for item in unit.items(unit.points, set())})


def test_quick_spends_a_limited_number_of_tokens_on_one_difference_and_its_control():
    masks, stops = (QUICK.parameters[probe] for probe in QUICK.probes)
    assert QUICK.probes == ("mask-count", "filler") and len(QUICK.tasks) * QUICK.questions == 300
    assert (masks["mask_counts"], stops["filler_counts"]) == ((2, 200), (0, 200)) and masks["among"] == stops["among"]
    assert 300_000 < tokens_asked(QUICK) <= QUICK_TOKENS


def test_quick_keeps_its_numbers_and_gives_them_up_for_those_the_user_names():
    assert QUICK.parameters["recall"]["pairs"] == 30 and (QUICK.relevant, QUICK.distractors) == ((1,), 15)
    assert QUICK.parameters["contrast"]["among"] == 32  # 15 are too near to tell
    assert with_examples(QUICK, (1,), None).parameters["contrast"]["among"] == 32
    for distractors in (15, 8):
        assert with_examples(QUICK, None, distractors).parameters["contrast"]["among"] is None


def test_the_paper_preset_holds_no_words_out():
    """Examples and questions are drawn from the same words; the other presets keep half for the questions."""
    assert PAPER.held_out == 0 and QUICK.held_out == DEFAULT.held_out == FULL.held_out == 0.5
    words = load_words()
    for task in TASKS:
        tests = draw(task, words, 10, 40, PAPER.questions, 0, PAPER.held_out).tests
        targets = {test.options[test.answer] for test in tests}
        assert targets & set(task.word.lists(split_words(words)[0])[0]), task.name  # words that other presets only show
