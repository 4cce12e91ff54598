"""The wheel in an environment of its own: what a stranger installs runs, far from the repository."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import maskwise
from helpers.wheel import build_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Path:
    """The bin folder of a new environment that holds the wheel; its dependencies are those of this environment.

    They are named in a .pth file, whose folder comes after the new environment's own and whose own .pth files, the
    editable installation's among them, are not read.
    """
    folder = tmp_path_factory.mktemp("clean")
    wheel = build_wheel(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    site = folder / "env" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    install = [sys.executable, "-m", "pip", "--python", folder / "env" / "bin" / "python", "install", "--quiet"]
    subprocess.run([*map(str, install), "--no-deps", "--no-index", str(wheel)], check=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "env" / "bin"


def run(command: Path, *arguments: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_package_is_the_wheels_and_is_typed(clean, tmp_path):
    code = "import maskwise, pathlib; print(pathlib.Path(maskwise.__file__).parent)"
    package = Path(run(clean / "python", "-c", code, cwd=tmp_path).strip())
    assert package.is_relative_to(clean.parent) and (package / "py.typed").exists()
    code = "from importlib.metadata import version; print(version('maskwise'))"
    assert run(clean / "python", "-c", code, cwd=tmp_path).strip() == maskwise.__version__
    assert run(clean / "maskwise", "--version", cwd=tmp_path).strip() == f"maskwise {maskwise.__version__}"


def test_the_installed_commands_diagnose_generate_and_tune(clean, tmp_path):
    def result_of(command: str) -> dict:
        return json.loads(run(clean / "maskwise", *command.split(), "--json", cwd=tmp_path))

    result = result_of("diagnose --quick --questions 1 --probes location,mask-count --out run")
    assert {one["probe"] for one in result["estimates"]} == {"location", "mask-count"}
    assert (tmp_path / "run" / "report.html").exists()
    (tmp_path / "prompts.txt").write_text("Once upon a time\n")
    assert len(result_of("generate tiny-llada --file prompts.txt -n 4")["generations"]) == 1
    pairs = [{"prompt": f"Question {n}:", "answer": f" It is {n}."} for n in range(6)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    result = result_of(
        "tune tiny-llada --data pairs.jsonl --out tuned --steps 1 --batch 2 --accumulation 1 --context 64 --many 8"
    )
    assert result["steps"] == 1 and (tmp_path / "tuned" / "adapter_model.safetensors").exists()
