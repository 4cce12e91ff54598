"""A published masked language model that we did not train: rxnmapper's ALBERT, opened from its wheel."""

import math
import re
import subprocess
import sys

import pytest

import maskwise as mw
from masked_lm_checkpoint import write_checkpoint

REACTION = "CC(=O)O.OCC>>CC(=O)OCC.O"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rxnmapper")
    download = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), "rxnmapper==0.4.3"]
    done = subprocess.run([sys.executable, "-m", "pip", *download], capture_output=True, text=True, timeout=120)
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        pytest.skip(f"the wheel of rxnmapper 0.4.3 cannot be had here: {done.stderr.strip().splitlines()[-1:]}")
    return mw.open(write_checkpoint(wheels[0], folder / "rxnmapper"), device="cpu")


@pytest.mark.slow
def test_a_trained_albert_opens_and_predicts_the_hidden_atom_better_than_chance(model):
    pieces = re.findall(">>|.", REACTION)
    ids = model.tokenizer.convert_tokens_to_ids(pieces)
    assert (model.kind, model.window) == ("masked-lm", 510) and model.tokenizer.unk_token_id not in ids
    hidden = [place for place, piece in enumerate(pieces) if piece in "CO"]
    shown = [[*ids[:place], model.mask_id, *ids[place + 1 :]] for place in hidden]
    logits = model.predict(shown, [[place] for place in hidden])
    losses = [-float(row[0].log_softmax(-1)[ids[place]]) for row, place in zip(logits, hidden, strict=True)]
    assert sum(losses) / len(losses) < math.log(model.vocab) - 2  # nats below uniform
