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
from helpers.contrast import contrast
from helpers.wheel import ROOT
from maskwise.cli import app
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
    assert all(re.search(rf"<code[^>]*>{probe.name}</code>", page) for probe in PROBES)
    page = (tmp_path / "library.html").read_text()
    assert all(re.search(rf'id="maskwise\.[\w.]+\.{name}"', page) for name in maskwise.__all__ if name != "__version__")
    assert "Called again with the same settings it resumes" in " ".join(page.split())  # what is returned, in one row
    assert "<blockquote>" not in page  # what a doctest becomes where docs/doctests.py does not see it
    page = (tmp_path / "index.html").read_text()
    assert "first-screen.png" in page and page.count('class="tabbed-block"') == 4
    listed = re.findall(r"\]\((.+?)\)", (tmp_path / "llms.txt").read_text())
    assert set(listed) == {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.md")} > {"index.md", "fields.md"}
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"?(https?:)?//|<link rel=\"?(?:stylesheet|preconnect)[^>]*https?:"
    )
    assert [str(page) for page in tmp_path.rglob("*.html") if loaded.search(page.read_text())] == []
    # By this mark the theme's script finds what to ask api.github.com for.
    assert [str(page) for page in tmp_path.rglob("*.html") if 'md-component="source' in page.read_text()] == []


@pytest.mark.parametrize("name", ["templates", "confidence", "trajectory"])
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


def declared(selector: str, scheme: str) -> dict[str, str]:
    """What site.css declares for a selector; on the dark page its rules for that page win."""
    sheet = re.sub(r"/\*.*?\*/", "", (ROOT / "docs" / "site.css").read_text(), flags=re.DOTALL)
    rules = [(names.strip().split(", "), body) for names, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet)]
    pages = ("", '[data-md-color-scheme="slate"] ') if scheme == "dark" else ("",)
    bodies = [body for page in pages for names, body in rules if page + selector in names]
    return {name: value for body in bodies for name, value in re.findall(r"([\w-]+): ([^;]+);", body)}


def six_digits(colour: str) -> str:
    """#fff is #ffffff."""
    return colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_letter_in_a_cell_of_a_schematic_has_a_contrast_of_4_5(scheme):
    """In the drawing and in its caption; a rule for the letters of one colour wins over that for all."""
    page = declared(".md-typeset .schematic", scheme)
    colours = {name.removeprefix("--"): value for name, value in page.items() if value.startswith("#")}
    assert {*colours} == {"relevant", "distractor", "question", "scored", "mask", "filler", "answer", "wrong"}
    for name, colour in colours.items():
        drawn = declared(".schematic svg .mid", scheme) | declared(f".schematic .{name} + .mid", scheme)
        key = declared(".schematic figcaption i", scheme) | declared(f".schematic i.{name}", scheme)
        assert declared(f".schematic rect.{name}", scheme)["fill"] == key["background"] == f"var(--{name})"
        for letter in (drawn["fill"], key["color"]):
            assert contrast(six_digits(letter), colour) >= 4.5, name


def test_a_name_stays_on_one_line_and_a_cell_of_words_is_marked(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    with_line_breaks = importlib.import_module("line_breaks").with_line_breaks
    html = f"<p><code>--rule</code>, <code>{'w' * 33} --rule low-confidence</code></p>"
    words = '<span class="name">--rule</span> <span class="name">low-confidence</span>'
    marked = f'<p><code class="name">--rule</code>, <code>{"w" * 33} {words}</code></p>'
    block = "<pre><span></span><code>a  b</code></pre>"
    assert with_line_breaks(html + block) == marked + block
    assert with_line_breaks("<p><code>of two\nlines</code></p>") == '<p><code class="name">of two lines</code></p>'
    cells = f"<tr><td>short</td><td>{'word ' * 12}</td></tr>"
    assert with_line_breaks(cells) == cells.replace("<td>word", '<td class="long">word')
    block = "<pre><span></span><code>-&gt; 5 %</code></pre>"
    text = "<p title='5 %'>66 -&gt; 70 % (± 2) in 3 s, -5.1 (-7 to -.5), 16-bit, 1e-7 or --rule</p>"
    marked = "66 → 70\u00a0% (±\u00a02) in 3\u00a0s, −5.1 (−7 to −.5), 16-bit, "
    marked += '<span class="name">1e-7</span> or <span class="name">--rule</span>'
    assert with_line_breaks(text + block) == f"<p title='5 %'>{marked}</p>{block}"


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
