"""Wrong kinds of arguments, as a newcomer gave them: one line, before anything is opened."""

import re
from collections.abc import Sequence

import pytest
import torch

import maskwise as mw
from helpers.tiny import tiny_llada
from maskwise.decoding.prompt_files import read_prompts
from maskwise.support.argument_kinds import checked_arguments
from maskwise.support.errors import UserError, UserNotice
from maskwise.training.checked_settings import settings_from
from maskwise.training.data.pairs import read_pairs

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
    (
        lambda m: mw.generate(m, [[5]], tau=0.5, rule="low-confidence"),
        "threshold and klass have it, give rule threshold",
    ),
    (lambda m: mw.generate(m, [[5]], parameters={"zeta": 0.5}, rule="random"), "it has none, leave it out"),
    (lambda m: mw.generate(m, torch.tensor([1.0, 2.5])), "put the token ids of one prompt in a list of their own"),
    (lambda m: mw.generate(m, [None]), "prompt 1 is None: give a text, messages or a list of token ids"),
    (lambda m: mw.generate(m, [["a", "b"]]), "prompt 1 holds 'a': give token ids"),
    (lambda m: mw.generate("hi", "tiny-llada"), "'tiny-llada' is a model, and 'hi' is none: give the model first"),
    (lambda m: mw.open("tiny-llada", device=0), "device must be a text, such as cuda:0, or a torch.device, not 0"),
    (lambda m: mw.open("tiny-llada", device=["cpu"]), "such as cuda:0, or a torch.device, not ['cpu']"),
    (lambda m: mw.open("tiny-llada", device=1, device_map="auto"), "such as cuda:0, or a torch.device, not 1"),
    (lambda m: mw.diagnose(m, device=1), "device must be a text or None, not 1: write cuda:1"),
    (lambda m: mw.diagnose(["a", "b"]), "a model is one name, folder or opened model, not ['a', 'b']"),
    (lambda m: mw.compare("tiny-llada", None), "opened model, not None: give one at a time"),
    (lambda m: mw.diagnose(m, ["likelihood-masks"], data="pairs.jsonl"), "data pairs.jsonl: write NAME=PATH"),
    (lambda m: mw.diagnose(m, ["likelihood-masks"], data={"prompts": PAIRS}), "data of prompts must be the path"),
    (lambda m: m.predict("hello", [[0]]), "sequences are lists of token ids"),
    (lambda m: mw.score(m, []), "the list is empty: give one object a row"),
    (lambda m: mw.score(m, PAIRS, on_pass=3), "on_pass must be a function"),
    (lambda m: m.predict([[1.5, 2]], [[0]]), "sequence 0 holds a number that is not whole: give token ids"),
    (lambda m: mw.train(m, PAIRS, "out", objective=5), "unknown objective 5"),
    (lambda m: mw.tune(m, PAIRS, "out", clip=float("inf")), "clip is inf: it must be a finite number"),
    (lambda m: mw.score(m, [{"prompt": "a", "answer": None}]), "item 1: answer is null; write prompt and answer"),
    (lambda m: mw.tune(m, PAIRS, "out", callbacks="wandb"), "name a reporter with report_to"),
    (lambda m: mw.score(m, PAIRS, samples="many"), "samples must be a whole number, not 'many'"),
    (lambda m: mw.diagnose(m, ["mask-count"], points="ten"), "points must be a whole number or None, not 'ten'"),
    (lambda m: mw.diagnose(["mask-count"], m), "a model is one name, folder or opened model"),
    (lambda m: mw.diagnose(m, ["mask-count"], seed="a"), "seed must be a whole number, not 'a'"),
    (lambda m: mw.read_run(None), "folder must be a text or a path, not None"),
    (lambda m: mw.tune(m, "data", PAIRS), "out must be a text or a path or None"),
    (lambda m: mw.tune(m, PAIRS, "out", learning_rate="1e-3x"), "learning_rate is '1e-3x': it must be a number"),
    (lambda m: mw.train(m, PAIRS, "out", warmup="10"), "warmup is '10': it must be a number"),
    (lambda m: mw.tune(m, PAIRS, "out", targets=[]), "targets is empty, so no layer would get an adapter"),
    (lambda m: mw.generate(m, [[5]], rule=["margin"]), "rule must be a text, not ['margin']"),
    (lambda m: mw.toy(seed="x"), "seed must be a whole number, not 'x'"),
    (lambda m: mw.cures(m, points="x"), "points must be a whole number or None"),
    (lambda m: mw.compare("tiny-llada", 3), "no model '3'"),
    (lambda m: mw.wrap(torch.nn.Linear(2, 2)), "mw.wrap takes a loaded model of transformers"),
    (lambda m: mw.open("tiny-llada", dtype=torch.int8), "unknown dtype torch.int8"),
    (lambda m: mw.generate(m, [[5]], rule=None), "rule must be a text, not None"),
    (lambda m: mw.diagnose(m, ["mask-count"], preset=None), "preset must be a text, not None"),
    (lambda m: mw.generate(m, [[5]], rule="threshold", parameters={"tau": "0.8"}), "must be a dictionary of numbers"),
    (lambda m: mw.advise(m, PAIRS, judge=5), "judge must be a model or its name, not 5"),
    (lambda m: mw.cures(m, adapter=5), "adapter must be a name, a path or a list of them, not 5"),
    (lambda m: mw.cures(m, adapter=["a", "a"]), "the adapter a is named twice"),
    (lambda m: mw.tune(m, PAIRS, "out", settings={"steps": 1}), "settings must be a TuneSettings"),
    (lambda m: mw.train(m, PAIRS, "out", settings={"steps": 1}), "settings must be a TrainSettings"),
    (lambda m: mw.tune(m, PAIRS, "out", warmup=5, steps=5), "warmup 5 is not shorter than steps 5"),
    (lambda m: mw.sweep(["tiny-llada", "tiny-llada"], dry_run=True), "tiny-llada is named twice"),
    (lambda m: mw.open(m.net), "a network of the class LLaDAModelLM: give it to mw.wrap, with its tokenizer"),
    (lambda m: mw.diagnose(m.net), "a network of the class LLaDAModelLM: give it to mw.wrap, with its tokenizer"),
    (lambda m: mw.compare(["a", "b"]), "takes each model as an argument of its own, like compare(A, B), not a list"),
    (lambda m: mw.wrap(m.net, mask_id=9999), "mask_id 9999 is outside 0..63"),
    (lambda m: mw.wrap(m.net, "ck"), "tokenizer is 'ck': give the loaded tokenizer, not its name"),
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
    with pytest.raises(TypeError, match="missing a required argument"):
        mw.read_run()
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        mw.toy(sed=1)


def test_the_names_of_other_libraries_lead_to_ours():
    with pytest.raises(TypeError, match=r"torch_dtype.*did you mean dtype\?"):
        mw.open("tiny-llada", torch_dtype="float16")
    with pytest.raises(TypeError, match=r"missing a required argument: 'prompts': did you mean prompts\?"):
        mw.generate(model="tiny-llada", prompt="hi")
    with pytest.raises(AttributeError, match="did you mean open"):
        mw.load("tiny-llada")


def test_targets_are_a_list_of_names_as_in_peft():
    pattern = settings_from("quick", {"targets": ["q_proj", "v_proj"]}).targets
    fits = [bool(re.fullmatch(pattern, name)) for name in ("model.0.q_proj", "v_proj", "model.0.xv_proj")]
    assert fits == [True, True, False]


def test_json_lines_in_a_text_file_are_a_notice(tmp_path):
    file = tmp_path / "pairs.txt"
    file.write_text('{"prompt": "a", "answer": "b"}\n' * 40)
    for read in (read_prompts, read_pairs):
        with pytest.warns(UserNotice, match=r"looks like JSON lines and is read as plain text: name it .jsonl"):
            read(file)


def test_the_tensors_of_a_tokenizer_are_led_to_prompts(small):
    given = {"input_ids": [[5, 6]], "attention_mask": [[1, 1]]}
    for call in (small.generate, lambda **named: mw.generate(small, **named)):
        with pytest.raises(TypeError, match="did you mean prompts, a list of texts or of lists of token ids"):
            call(**given, max_new_tokens=1)


def test_top_k_at_temperature_0_is_a_notice(small):
    with pytest.warns(UserNotice, match="change nothing at temperature 0"):
        mw.generate(small, [[5]], 1, top_k=2)


def test_a_list_of_models_is_taken_where_the_argument_is_one():
    @checked_arguments
    def sweep(models: Sequence[str]) -> list[str]:
        return list(models)

    assert sweep(["a", "b"]) == ["a", "b"]
    with pytest.raises(UserError, match="a model is one name, folder or opened model"):
        sweep([["a"], "b"])


def test_a_name_of_another_library_is_explained_only_where_ours_exists():
    @checked_arguments
    def score(model: str, samples: int = 1) -> None: ...

    with pytest.raises(TypeError, match=r"did you mean samples\?"):
        score("m", num_samples=8)
