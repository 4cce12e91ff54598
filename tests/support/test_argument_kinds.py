"""Wrong kinds of arguments, as a newcomer gave them: one line, before anything is opened."""

import pytest
import torch

import maskwise as mw
from helpers.tiny import tiny_llada
from maskwise.support.errors import UserError

PAIRS = [{"prompt": "1 and 1 is", "answer": " 2."}]
WRONG = [
    (lambda m: mw.generate(m, "hi", max_new_tokens=16.5), "max_new_tokens must be a whole number, not 16.5"),
    (lambda m: mw.generate(m, [[5]], steps=2.0), "steps must be a whole number or None"),
    (lambda m: mw.generate(m, [[5]], parameters=["tau", 0.8]), "parameters must be a dictionary of numbers"),
    (lambda m: mw.generate(m, [[5]], end_ids="eos"), "end_ids must be a list of whole numbers or None"),
    (lambda m: mw.generate(m, [[5]], out=5), "out must be a text or a path or None, not 5"),
    (lambda m: mw.generate(m, [[5]], on_step="print"), "on_step must be a function"),
    (lambda m: mw.generate(m, [[5]], generator=7), "give a number as seed=7"),
    (lambda m: mw.generate(m, [[5]], seed="abc"), "seed must be a whole number or None, not 'abc'"),
    (lambda m: mw.generate(m, [[5]], seed=-1), "seed must be 0 or more, not -1"),
    (lambda m: mw.generate(m, torch.tensor([[5.5, 6.0]])), "prompt 1 holds 5.5: token ids are whole numbers"),
    (lambda m: mw.generate(m, b"hi"), "prompts is a value of the type bytes"),
    (lambda m: mw.generate(m, [{"role": "user", "content": "hi"}]), "takes no messages"),
    (lambda m: mw.generate(m, [[5]], tau=0.5, rule="low-confidence"), "name the strategy that has it"),
    (lambda m: mw.score(m, PAIRS, samples="many"), "samples must be a whole number, not 'many'"),
    (lambda m: mw.diagnose(m, ["mask-count"], points="ten"), "points must be a whole number or None, not 'ten'"),
    (lambda m: mw.diagnose(["mask-count"], m), "probes must be a text or a list of texts or None"),
    (lambda m: mw.diagnose(m, ["mask-count"], seed="a"), "seed must be a whole number, not 'a'"),
    (lambda m: mw.read_run(None), "folder must be a text or a path, not None"),
    (lambda m: mw.tune(m, "data", PAIRS), "out must be a text or a path or None"),
    (lambda m: mw.tune(m, PAIRS, "out", learning_rate="1e-3x"), "learning_rate is '1e-3x': it must be a number"),
    (lambda m: mw.toy(seed="x"), "seed must be a whole number, not 'x'"),
    (lambda m: mw.cures(m, points="x"), "points must be a whole number or None"),
    (lambda m: mw.compare("tiny-llada", 3), "no model '3'"),
    (lambda m: mw.wrap(torch.nn.Linear(2, 2)), "mw.wrap takes a loaded model of transformers"),
    (lambda m: mw.open("tiny-llada", dtype=torch.int8), "unknown dtype torch.int8"),
    (lambda m: mw.sweep("tiny-llada", preset="quick"), "give the YAML file of a sweep, or a list of models"),
]


@pytest.fixture(scope="module")
def small():
    return tiny_llada()


@pytest.mark.parametrize(("call", "line"), WRONG, ids=[line for _, line in WRONG])
def test_an_argument_of_another_kind_is_refused_in_one_line(small, call, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        call(small)
    assert line in str(refused.value) and not list(tmp_path.iterdir())


def test_a_missing_or_unknown_argument_has_pythons_own_message():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        mw.read_run()
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        mw.toy(sed=1)
