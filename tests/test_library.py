"""`import maskwise as mw`: what is there, that it is typed, that it loads at once, and that every example runs."""

import doctest
import os
import subprocess
import sys

import pytest

import maskwise as mw
from helpers.wheel import ROOT
from maskwise.models.interface import ModelInterface

NAMES = (
    "open wrap convert export generate score diagnose advise compare cures tune train toy read_run Model Run UserError"
)
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
    assert float(best[0]) < 0.3 and best[1:] == ["3", "False"]  # maskwise, and support.moved


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
    assert [int(line.split(":")[1]) for line in lines if "wrong.py" in line] == [2, 3, 4, 5], done.stdout + done.stderr
    assert len(lines) == 4, done.stdout


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
    assert runner.tries >= 40
