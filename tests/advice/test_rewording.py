"""Settings that a search names, asked again under rewordings of the questions held back."""

import numpy as np
import pytest
from msgspec import structs

from helpers.known import shipped_tokenizer
from helpers.tiny import tiny_llada
from maskwise.advice.outcome import outcome
from maskwise.advice.rewording import FOLDER, confirm_reworded
from maskwise.advice.search_request import prepare
from maskwise.advice.selection import make_plan
from maskwise.advice.setting_evaluator import SettingEvaluator, every_setting, run_search
from maskwise.runs.runner import Crew
from maskwise.scoring.variance_components import template_spread
from maskwise.support.errors import UserError

QUESTIONS = [
    {"prompt": f"Word: {word} {n}\nKind:[", "answer": "animal"} for n in range(18) for word in ("otter", "lemon")
]
SPACE = {"max_new_tokens": 4, "blocks": [2], "steps": [2], "rules": "low-confidence", "caches": "none"}
TEMPLATES = '- {name: bare, text: "{prompt}"}\n- {name: polite, text: "Please.\\n{prompt}"}\n'


@pytest.fixture
def searched(tmp_path):
    """A search on a small random model, its request with two templates, and the texts that were graded."""
    (tmp_path / "own.yaml").write_text(TEMPLATES)
    graded = []

    def grade(text, answer):
        graded.append(text)
        return float(len(text) % 2)

    request = prepare(QUESTIONS, function=grade, templates=tmp_path / "own.yaml", canvases="fixed,growing", **SPACE)
    tokenizer = shipped_tokenizer()
    model = tiny_llada(tokenizer=tokenizer, vocab=len(tokenizer), mask_token_id=tokenizer.mask_token_id)
    ask = SettingEvaluator(
        model, every_setting(request), request.questions, request, None, tmp_path, lambda count: None, Crew()
    )
    plan = make_plan(len(request.settings), len(request.questions))
    found = run_search(request, ask, plan, lambda what, total: None)
    costs = {"cost": "", "passes": 0, "seconds": 0.0, "device": "cpu", "folder": str(tmp_path)}
    return ask, found, request, outcome(found, request, "tiny", None, **costs), graded, tmp_path


def test_a_named_setting_is_compared_with_the_reference_under_every_template(searched):
    ask, found, request, advice, graded, folder = searched
    other = next(row.setting for row in advice.confirmed if row.setting != advice.reference)
    named = structs.replace(advice, winner=other)
    (one,) = confirm_reworded(ask, found, request, named, lambda what, total: None)
    assert (one.setting, set(one.templates), one.questions) == (other, {"bare", "polite"}, found.plan.held)
    numbers = {ask.settings[place].name: place for place in found.finalists}
    held = [ask.order[place] for place in found.plan.held_back]
    plain = [np.mean([ask.answers[name, number].quality for number in held]) for name in (other, advice.reference)]
    assert other in numbers and one.templates["bare"] == pytest.approx(
        plain[0] - plain[1]
    )  # {prompt} alone rewords nothing
    assert one.difference == pytest.approx(np.mean(list(one.templates.values())))
    before = len(graded)
    assert confirm_reworded(ask, found, request, named, lambda what, total: None) == [one]
    assert len(graded) == before and (folder / FOLDER / "records.jsonl").exists()  # read from the folder


def test_nothing_is_asked_again_where_no_setting_or_only_the_reference_is_named(searched):
    ask, found, request, advice, graded, _ = searched
    before = len(graded)
    for named in (structs.replace(advice, winner=None, advice=[]), structs.replace(advice, winner=advice.reference)):
        assert confirm_reworded(ask, found, request, structs.replace(named, advice=[]), lambda *_: None) == []
    assert len(graded) == before


def test_templates_of_a_question_are_refused_by_advise(tmp_path):
    (tmp_path / "own.yaml").write_text('- {name: a, text: "{A} {B} {C}\\n[{letter}]"}\n')
    with pytest.raises(UserError, match="advise rewords whole prompts"):
        prepare(QUESTIONS, exact=True, templates=tmp_path / "own.yaml", **SPACE)


def test_the_same_difference_under_every_template_has_no_spread():
    assert template_spread({"": np.tile([0.0, 1.0], (3, 4))}).sd == 0.0
