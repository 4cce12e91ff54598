"""The page asks for models by names that the studio was started with, and no others."""

import pytest

from maskwise.studio.shelf import MOST_OPEN, Shelf, label_of
from maskwise.support.errors import UserError


def test_models_are_opened_once_and_the_last_few_kept():
    shelf = Shelf(["tiny-dream"])
    assert shelf.names[0] == "tiny-dream" and len(set(shelf.names)) == len(shelf.names) > MOST_OPEN
    first = shelf.take("tiny-dream")
    assert shelf.take("tiny-dream") is first
    # smol-diffusion stands on the weights of a package that need not be installed.
    for name in [name for name in shelf.names if name not in ("tiny-dream", "smol-diffusion")][:MOST_OPEN]:
        shelf.take(name)
    assert shelf.take("tiny-dream") is not first


@pytest.mark.parametrize("name", ["GSAI-ML/LLaDA-8B-Base", "/tmp", "", None])
def test_no_other_name_is_opened(name):
    with pytest.raises(UserError, match="no model"):
        Shelf([]).take(name)


def test_a_planted_fault_is_called_planted():
    phantom = "tiny-llada+distracted"
    assert label_of(phantom) == f"{phantom} (planted on purpose: sensitivity to appended masks)"
    assert label_of("tiny-llada") == "tiny-llada"
