"""`import maskwise as mw`: what is there, that it is typed, that it loads at once, and that every example runs."""

import doctest
import inspect
import os
import subprocess
import sys

import pytest
import torch

import maskwise as mw
from helpers.wheel import ROOT
from maskwise.decoding.known_names import KNOWN_NAMES
from maskwise.decoding.strategies import STRATEGIES
from maskwise.models.generation import GenerateArguments, OtherNames
from maskwise.models.interface import ModelInterface

NAMES = "open wrap convert export generate score diagnose advise compare tune train toy read_run Model Run UserError"
PUBLIC = set(NAMES.split())
SCRIPT = ROOT / "tests" / "data" / "user_script.py"
# What mypy would read for a minute, and what a user's script has nothing to do with.
HEAVY = ("torch", "transformers", "peft", "accelerate", "numpy", "scipy", "sklearn", "matplotlib", "pandas", "rich")


def test_every_public_name_is_listed_and_resolves():
    assert set(mw.__all__) == PUBLIC | {"__version__"} and set(dir(mw)) == set(mw.__all__)
    for name in PUBLIC:
        assert getattr(mw, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'diagnoze': did you mean diagnose"):
        mw.diagnoze  # noqa: B018


def test_the_import_loads_nothing_and_takes_less_than_three_tenths_of_a_second():
    code = (
        "import time; start = time.perf_counter(); import maskwise; taken = time.perf_counter() - start\n"
        "import sys; print(taken, len([m for m in sys.modules if m.startswith('maskwise')]), 'torch' in sys.modules)"
    )
    best = min(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    )
    assert float(best[0]) < 0.3 and best[1:] == ["3", "False"]  # with support and support.version


@pytest.mark.slow  # mypy reads the whole package: a quarter of a minute
def test_a_script_over_the_whole_api_is_typed_and_a_wrong_name_is_not(tmp_path):
    """mypy --strict; packages that are not ours are taken as they are, for they would cost a minute."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import maskwise as mw\n"
        "mw.no_such_thing()\n"
        "mw.diagnose('tiny-llada', presset='quick')\n"
        "mw.diagnose('tiny-llada', preset='quik')\n"
        "number: int = mw.generate(mw.open('tiny-llada'), 'hi')[0].text\n"
        "mw.generate('tiny-llada', 'hi', max_tokens=3)\n"
        "mw.open('tiny-llada').generate('hi', max_tokens=3)\n"
        "mw.open('tiny-llada').generate('hi', steps='four')\n"
        "mw.open('tiny-llada').generate('hi', 8, steps=4, gen_length=8, tau=0.5)  # fine\n"
    )
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = true\n"
        + "".join(f"[mypy-{name}.*]\nfollow_imports = skip\nignore_missing_imports = true\n" for name in HEAVY)
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(tmp_path / "cache")]
    # As if it were installed: errors of the package's own files are not the script's.
    place = tmp_path / "site"
    place.mkdir()
    (place / "maskwise").symlink_to(ROOT / "src" / "maskwise")
    done = subprocess.run(
        [*command, "--follow-imports", "silent", str(SCRIPT), str(wrong)],
        capture_output=True,
        text=True,
        env=os.environ | {"MYPYPATH": str(place)},
        cwd=tmp_path,
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [int(line.split(":")[1]) for line in lines if "wrong.py" in line] == list(range(2, 9)), (
        done.stdout + done.stderr
    )
    assert len(lines) == 7, done.stdout


def test_an_editor_shows_signatures_that_can_be_read_and_every_argument_of_generate():
    assert len(str(inspect.signature(mw.open))) < 500 and "= FAMILIES" in str(inspect.signature(mw.open))
    own = inspect.signature(mw.generate).parameters.keys() - {"model", "prompts", "named"}
    parameters = {name for one in STRATEGIES for parameter in one.parameters for name in parameter.names}
    others = {known.name for known in KNOWN_NAMES} - {"max_length"}  # which is refused
    assert GenerateArguments.__annotations__.keys() == own | parameters | others
    assert OtherNames.__annotations__.keys() == parameters | others


def test_a_model_says_what_it_is_and_what_to_call():
    model = mw.open("tiny-llada", device="cpu")
    assert repr(model) == (
        "Model(tiny-llada (llada), 4.5 M parameters, mask id 1, context length 1536, cpu, float32, no adapter)"
    )
    assert "adapter default)" in repr(mw.open("tiny-llada+distracted", device="cpu"))
    assert "no mask, context length" in repr(mw.open("tiny-qwen", device="cpu"))
    ids = torch.tensor([[5, 6, 7]])
    for call in (lambda: model(ids), lambda: model(input_ids=ids), lambda: model()):
        with pytest.raises(mw.UserError, match=r"call model\.predict\(sequences, rows\).* model\.net\(input_ids\)"):
            call()
    with pytest.raises(mw.UserError, match=r"tiny-llada cannot be moved .*such as cpu"):
        model.to("cuda:99")
    assert model.to("cpu") is model


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mw.diagnose("tiny-llada", questions=0), "questions must be at least 1, not 0"),
        (lambda: mw.diagnose("tiny-llada", preset="paper", relevant=3), 'preset="paper" asks 10 relevant examples'),
        (lambda: mw.generate("tiny-llada", "hi", chat=True), "has no chat template: use chat=False"),
        (lambda: mw.advise("tiny-llada", [{"prompt": "a", "answer": "b"}]), "judged: exact, pattern REGEX or function"),
        (lambda: mw.export("tiny-llada", "out"), "give one with adapter"),
    ],
)
def test_an_error_names_the_argument_as_python_has_it(call, said):
    with pytest.raises(mw.UserError) as refused:
        call()
    assert said in str(refused.value) and "--" not in str(refused.value)


def test_an_error_keeps_the_commands_in_it_and_the_command_line_its_own_spelling():
    problem = mw.UserError("a-b--c: run maskwise diagnose --out x, or lower --max-new-tokens; use --no-chat")
    assert problem.as_typed.endswith("lower --max-new-tokens; use --no-chat")
    assert str(problem) == "a-b--c: run maskwise diagnose --out x, or lower max_new_tokens; use chat=False"


def public_objects() -> dict[str, object]:
    """Every public function and class with its public methods; `diagnose` first, whose run the others look at."""
    found: dict[str, object] = {"diagnose": mw.diagnose}
    for name in sorted(PUBLIC - {"UserError"}):
        found[name] = getattr(mw, name)
    for cls in (mw.Run, mw.Model, ModelInterface):
        own = {name: member for name, member in vars(cls).items() if not name.startswith("_")}
        found |= {f"{cls.__name__}.{name}": member for name, member in own.items() if hasattr(member, "__doc__")}
    return found


def test_every_public_function_tells_its_arguments_and_has_an_example():
    for name in PUBLIC - {"UserError"}:
        member = getattr(mw, name)
        text = member.__doc__ or ""
        assert ">>> " in text and (isinstance(member, type) or name == "read_run" or "Returns:" in text), name


@pytest.mark.slow
def test_every_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    for name, member in public_objects().items():
        for example in finder.find(member.fget if isinstance(member, property) else member, name):
            runner.run(example, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
    assert runner.tries >= 34
