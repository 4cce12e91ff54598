"""The settings that a search names, confirmed under rewordings of the questions held back (`--templates`).

Every template wraps the same prompts. On each question under each template: quality of the setting less quality of the
reference; scoring/variance_components.py says how much of it is the template's, and where a new template would lie.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from maskwise.advice.search_request import SearchRequest
from maskwise.advice.setting_evaluator import SearchResult, SettingEvaluator
from maskwise.records.folder import make_run_folder
from maskwise.records.search import Advice, RewordedSetting
from maskwise.scoring.variance_components import template_spread
from maskwise.tasks.rewordings import PROMPT

FOLDER = "rewordings"
MOST_QUESTIONS = 32  # held back, asked under every template
SHARE = (-1.0, 1.0)
ANY = (-np.inf, np.inf)


def confirm_reworded(
    ask: SettingEvaluator,
    found: SearchResult,
    request: SearchRequest,
    advice: Advice,
    on_phase: Callable[[str, int], None],
) -> list[RewordedSetting]:
    """Each setting that the advice names and that is not the reference, under every template."""
    numbers = {ask.settings[place].name: place for place in found.finalists}
    wanted = [row.setting for row in advice.advice] + ([advice.winner] if advice.winner else [])
    named = [name for name in dict.fromkeys(wanted) if name != advice.reference]
    if not named or not request.rewordings:
        return []
    held = [ask.order[place] for place in found.plan.held_back][:MOST_QUESTIONS]
    asked = [
        replace(request.questions[number], prompt=template.text.replace(PROMPT, request.questions[number].prompt))
        for template in request.rewordings
        for number in held
    ]
    folder = ask.folder / FOLDER
    if ask.crew.rank == 0:
        make_run_folder(folder)
    ask.crew.wait()
    on_phase("Rewording", len(asked) * (len(named) + 1))
    reworded = SettingEvaluator(ask.model, ask.settings, asked, request, ask.judge, folder, ask.advance, ask.crew)
    reworded.read_answers_on_file()

    def quality(name: str) -> np.ndarray:
        """[templates, questions]"""
        answers = reworded.answers_to(numbers[name], range(len(asked)))
        return np.array([answer.quality for answer in answers]).reshape(len(request.rewordings), -1)

    reference = quality(advice.reference)
    return [_reworded(name, quality(name) - reference, request) for name in named]


def _reworded(name: str, difference: np.ndarray, request: SearchRequest) -> RewordedSetting:
    one = template_spread({"": difference}, SHARE if request.quality.is_share else ANY)
    means = zip(request.rewordings, difference.mean(1).tolist(), strict=True)
    return RewordedSetting(
        setting=name,
        questions=one.questions,
        difference=one.mean,
        low=one.mean_low,
        high=one.mean_high,
        sd=one.sd,
        sd_low=one.sd_low,
        sd_high=one.sd_high,
        new_low=one.new_low,
        new_high=one.new_high,
        templates={template.name: mean for template, mean in means},
    )
