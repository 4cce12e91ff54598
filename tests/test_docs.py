"""The site builds without a warning and asks nothing of other servers; the notebooks run."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
import typer

import maskwise
from helpers.wheel import ROOT
from maskwise.cli import app
from maskwise.cli.outputs import FILES, OUTPUTS
from maskwise.probes import PROBES

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
def test_the_site_builds_strictly_with_every_command_field_and_public_name(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(build, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, command in typer.main.get_command(app).commands.items():
        page = (tmp_path / "commands" / f"{name}.html").read_text()
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        assert all(option in page or option.upper() in page for one in shown for option in one.opts)  # an ARGUMENT
    page = (tmp_path / "commands" / "diagnose.html").read_text()
    assert all(f"<code>{probe.name}</code>" in page for probe in PROBES)
    page = (tmp_path / "fields.html").read_text()
    structs = [*FILES.values(), *OUTPUTS.values()]
    assert all(f"<code>{name}</code>" in page for kind in structs for name in kind.__struct_fields__)
    page = (tmp_path / "library.html").read_text()
    assert all(re.search(rf'id="maskwise\.[\w.]+\.{name}"', page) for name in maskwise.__all__ if name != "__version__")
    assert "<blockquote>" not in page  # what a doctest becomes where docs/doctests.py does not see it
    page = (tmp_path / "index.html").read_text()
    assert "filling.svg" in page and page.count('class="tabbed-block"') == 4
    listed = re.findall(r"\]\((.+?)\)", (tmp_path / "llms.txt").read_text())
    assert set(listed) == {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.md")} > {"index.md", "fields.md"}
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"?(https?:)?//|<link rel=\"?(?:stylesheet|preconnect)[^>]*https?:"
    )
    assert [str(page) for page in tmp_path.rglob("*.html") if loaded.search(page.read_text())] == []


@pytest.mark.parametrize("name", ["numerics", "templates", "confidence", "self-correction", "trajectory"])
def test_the_concept_page_of_a_probe_is_at_most_one_screen_and_ends_with_what_to_do(name):
    lines = (ROOT / "docs" / "concepts" / f"{name}.md").read_text().splitlines()
    assert len(lines) <= 55 and sum(len(line.split()) for line in lines) <= 620
    text = "\n".join(lines)
    assert text.index("**Cost.**") < text.index("**What to do.**") and " tokens" in text and "arXiv" in text


def test_every_probe_has_one_schematic_of_known_cells(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    schematics = importlib.import_module("schematics")
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "concepts").glob("*.md"))
    found = schematics.BLOCK.findall(pages)
    assert sorted(name for name, _ in found) == sorted(probe.name for probe in PROBES)
    for name, block in found:
        rows = schematics.conditions(block)
        assert all(schematics.meaning(cell) for _, cells in rows for cell in cells), name
        root = ET.fromstring(schematics.draw(rows))
        assert len(root.findall("rect")) == sum(len(cells) for _, cells in rows)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """Each cell in one namespace; what it ends in is shown, as a notebook would."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            *body, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module([*body], []), path.name, "exec"), names)
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
                getattr(shown, "_repr_html_", shown.__repr__)()
            else:
                exec(compile(ast.Module([last], []), path.name, "exec"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_what_a_run_leaves(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)
