"""The package as a stranger gets it: the wheel, and a command line that answers at once."""

import gc
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec

import pytest
import typer
from typer.testing import CliRunner

import maskwise
from helpers.wheel import ROOT, build_wheel
from maskwise.cli import app
from maskwise.support.garbage_collection import collection_paused

HEAVY = ("torch", "transformers", "numpy", "peft", "matplotlib", "scipy", "sklearn", "jinja2", "accelerate")


@pytest.mark.slow  # builds it: a quarter of a minute
def test_the_wheel_holds_every_module_and_data_file(tmp_path):
    wheel = build_wheel(tmp_path)
    assert wheel.name.startswith(f"maskwise-{maskwise.__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("maskwise/")}
        archive.extractall(tmp_path / "site")
    tracked = subprocess.run(
        ["git", "ls-files", "src/maskwise"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    assert {name.removeprefix("src/") for name in tracked} <= packed
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in packed if name.endswith(".py")
    )
    kernels = ("decoding_step", "linear_ce_tv", "moe", "small_batch_linear", "split_attention")
    left_out = {f"maskwise.kernels.{name}" for name in kernels}  # need a package that exists for CUDA machines alone
    left_out |= {"maskwise.studio.app"} if find_spec("gradio") is None else set()
    code = f"import sys, importlib; sys.path.insert(0, {str(tmp_path / 'site')!r})\n" + "\n".join(
        f"assert importlib.import_module({m!r}).__file__.startswith({str(tmp_path)!r}), {m!r}"
        for m in modules
        if m not in left_out
    )
    code += "\nassert 'matplotlib' not in sys.modules, 'figures import it when they draw'"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_help_and_version_import_nothing_heavy():
    for argument in ("--help", "--version"):
        code = (
            f"import sys; sys.argv = ['maskwise', {argument!r}]\nfrom maskwise.start import main\n"
            "try: main()\nexcept SystemExit as stop: assert not stop.code\n"
            f"print('MODULES', len(sys.modules), [m for m in {HEAVY!r} if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        _, count, heavy = done.stdout.splitlines()[-1].split(" ", 2)
        assert heavy == "[]"
        assert int(count) < 500


def test_a_report_is_drawn_without_torch():
    """Seconds of imports, for nothing: it reads records and draws them."""
    names = ("report.page", "report.result", "report.card", "runs.run", "runs.settings")
    modules = ", ".join(f"maskwise.{name}" for name in names)
    code = f"import sys, {modules}; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["diagnose", "--question", "3"], "--questions"),
        (["diagnose", "--questions", "three"], "--questions"),
        (["diagnoze"], "diagnose"),
        (["score", "tiny-llada"], "--data"),
    ],
)
def test_a_wrong_command_line_is_one_line(given, said):
    done = CliRunner().invoke(app, given, prog_name="maskwise")
    assert done.exit_code == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("maskwise: ") and said in line and "--help" in line


@pytest.mark.parametrize("name", ["typer", "maskwise.decoding.strategies", "torch.nn.functional", "transformers.utils"])
def test_ctrl_c_while_modules_are_imported_is_one_line(name):
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job's shell has it ignored
        "class Press:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {name!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        "sys.argv = ['maskwise', 'generate', 'tiny-llada', 'hello']\n"
        "from maskwise.start import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == "maskwise: interrupted\n" and not done.stdout


@pytest.mark.parametrize("command", list(typer.main.get_command(app).commands))
def test_help_says_types_and_ranges_in_words_within_80_columns(command):
    output = CliRunner().invoke(app, [command, "--help"], prog_name="maskwise", env={"COLUMNS": "80"}).stdout
    assert max(map(len, output.splitlines())) <= 80
    assert re.search(r"<(?!text>|number>|path>)|list\[|x>=|<=x", output) is None
    assert "{" not in output.splitlines()[0]


def test_the_list_of_commands_cuts_no_line_short():
    output = CliRunner().invoke(app, ["--help"], prog_name="maskwise", env={"COLUMNS": "80"}).stdout
    first, _, more = output.partition("Commands:")[2].partition("More commands:")
    assert "..." not in output.partition("Commands:")[2] and max(map(len, output.splitlines())) <= 80
    assert len(first.split("\n  ")) - 1 == 6 and "diagnose" in first and "verify" in more
    assert len(output.splitlines()) <= 40  # one screen


@pytest.mark.parametrize("module", ["maskwise", "maskwise.cli"])
def test_launchers_run_the_command_line_as_a_module(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"maskwise {maskwise.__version__}\n"


def test_imports_pause_the_garbage_collector_and_leave_it_as_it_was():
    with pytest.raises(ImportError), collection_paused():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_every_extra_is_a_package_that_something_needs_and_says_so():
    """Each is installed here, where its tests run (studio and docs by `make slow`); what misses it names the extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() == {"lm-eval", "studio", "gguf", "data", "docs", "dev"}
    assert all(find_spec(module) is not None for module in ("lm_eval", "pandas", "gguf", "datasets", "pyarrow"))
    source = "".join(file.read_text() for file in (ROOT / "src" / "maskwise").rglob("*.py"))
    assert all(f"'.[{extra}]'" in source for extra in ("gguf", "data", "studio"))


def test_ci_runs_the_readmes_test_command_and_more():
    assert "make check" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text().splitlines()
    (check,) = [line for line in makefile if line.startswith("check:")]
    assert check.split()[1:] == ["lint", "test", "slow"]
