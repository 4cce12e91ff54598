"""The names that LLaDA's, Dream's and transformers' `generate` give to our options."""

import json

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.checkpoints import MASK, save
from helpers.tiny import tiny_llada
from helpers.wheel import ROOT
from maskwise.cli import app
from maskwise.decoding.known_names import KNOWN_NAMES

PROMPT = [[5, 9, 2]]
# What each name does on top of 8 new tokens, and the same by our names; None: it sets nothing.
SAME = {
    "gen_length": ({"gen_length": 4}, {"max_new_tokens": 4}),
    "block_length": ({"block_length": 4}, {"block": 4}),
    "remasking": ({"remasking": "random"}, {"rule": "random"}),
    "cfg_scale": ({"cfg_scale": 1.5}, {"guidance": 1.5}),
    "alg": ({"alg": "topk_margin"}, {"rule": "dream-topk-margin"}),
    "alg_temp": ({"alg": "entropy", "alg_temp": 0.5}, {"rule": "dream-entropy", "parameters": {"alg_temp": 0.5}}),
    "mask_id": ({"mask_id": None}, {}),  # the model's own is put in below
    "do_sample": ({"do_sample": False}, {}),
}
REFUSED = {
    "max_length": ({"max_length": 64}, "max_length counts the prompt's tokens too: give max_new_tokens"),
    "mask_id": ({"mask_id": 7}, "mask_id 7 is not the mask of"),
    "do_sample": ({"do_sample": True}, "do_sample True needs a temperature above 0"),
    "remasking": ({"remasking": "margin"}, "remasking margin is none of LLaDA's: low_confidence, random; rule names"),
    "alg": ({"alg": "best"}, "alg best is none of Dream's: origin, maskgit_plus"),
    "alg_temp": ({"alg_temp": 0.1}, "alg_temp is of Dream's strategies: give alg too"),
    "gen_length": ({"gen_length": 4, "max_new_tokens": 8}, "gen_length is max_new_tokens here: give one of them"),
}


def test_every_name_is_tried_here_and_documented():
    assert {known.name for known in KNOWN_NAMES} == SAME.keys() | REFUSED.keys()
    guide = (ROOT / "docs" / "how-to" / "generate.md").read_text()
    assert all(f"`{known.name}`" in guide for known in KNOWN_NAMES)


@pytest.mark.parametrize("name", SAME)
def test_a_name_that_means_the_same_is_taken_and_ours_is_recorded(name):
    model = tiny_llada(init_std=1.0)
    theirs, ours = SAME[name]
    given = theirs | ({"mask_id": model.mask_id} if name == "mask_id" else {})
    found, wanted = mw.generate(model, PROMPT, **given), mw.generate(model, PROMPT, **ours)
    assert found == wanted and found.settings == wanted.settings


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_means_something_else_is_one_line_with_ours(name):
    given, said = REFUSED[name]
    with pytest.raises(mw.UserError) as refused:
        mw.generate(tiny_llada(), PROMPT, **given)
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save(tmp_path_factory.mktemp("checkpoint") / "llada"))


def test_the_command_line_takes_the_same_names_with_hyphens_or_underscores(folder):
    def run(*options):
        return CliRunner().invoke(app, ["generate", folder, "hello", "--json", *options])

    wanted = json.loads(run("-n", "8", "--block", "4", "--rule", "random", "--guidance", "1.5").stdout)
    llada = ["--gen_length", "8", "--block-length", "4", "--remasking", "random", "--cfg_scale", "1.5", "--mask_id"]
    assert json.loads(run(*llada, str(MASK)).stdout) == wanted
    dream = json.loads(run("-n", "8", "--alg", "entropy", "--alg-temp", "0.1").stdout)["settings"]
    assert (dream["rule"], dream["parameters"]["alg_temp"]) == ("dream-entropy", 0.1)
    refused = run("--max-length", "64")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("maskwise: --max-length counts the prompt's tokens too: give --max-new-tokens")
