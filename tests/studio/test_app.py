"""What the page shows before a model is open, and the text that its default prompt gives."""

import re

import pytest

import maskwise as mw
from maskwise.studio.shelf import Shelf
from maskwise.support.errors import UserError
from maskwise.tasks.words import load_words

pytest.importorskip("gradio", reason="no Gradio here: pip install .[studio]")

from maskwise.studio.app import build_app
from maskwise.studio.decode_tab import EXAMPLES, NEW, PROMPT


def values(app):
    return [str(component["props"].get("value", "")) for component in app.config["components"]]


def test_the_page_is_built_without_opening_a_model(tmp_path):
    shelf = Shelf([str(tmp_path / "no-such-model")])
    shown = values(build_app(shelf))
    with pytest.raises(UserError):
        shelf.take(shelf.names[0])
    assert any("Opening the model" in value and "Answer:[" in value for value in shown)
    assert sum(f"Decode fills the {NEW} masks." in value for value in shown) == 2


def test_the_default_prompt_gives_words_with_their_kinds():
    """The first text that a newcomer generates: what the model was trained to write, and right."""
    text = mw.generate("tiny-llada", PROMPT, NEW, chat=False, rule="threshold")[0].text
    kinds = load_words()
    assert text.startswith("colour].\n\nWord:")
    pairs = re.findall(r"Word: (\w+)\nKind:\[(\w+)\]\.", text)
    assert len(pairs) == 2 and all(word in kinds[kind] for word, kind in pairs)


def test_an_example_names_a_model_that_is_embedded():
    assert {model for model, _ in EXAMPLES.values()} == {"tiny-llada", "smol-diffusion"}
