"""Pages that are made when the site is built (mkdocs calls the functions on_...).

They are the landing page, the commands with their options, the notebooks, and the documents of the root. Every page is
also written as Markdown next to its HTML, and llms.txt lists these.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs imports this file by its path
from line_breaks import with_line_breaks
from schematics import drawn

ROOT = Path(__file__).parent.parent
ROOT_PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_markdown: dict[str, tuple[str, str, str]] = {}  # of each page by its path: section, title and text


def on_config(config: Any) -> Any:
    """Every command is in the contents, also one that was added since."""
    (reference,) = (part["Reference"] for part in config["nav"] if "Reference" in part)
    pages = [{f"maskwise {name}": f"commands/{name}.md"} for name in command_pages()]
    reference[-1]["Commands"] = pages
    return config


def on_files(files: Files, config: Any) -> Files:
    made = {"index.md": landing_page()}
    made |= {name: _moved((ROOT / name).read_text()) for name in ROOT_PAGES}
    made |= {f"commands/{name}.md": page for name, page in command_pages().items()}
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Keeps the text for on_post_build; draws schematics, puts the first commands into tabs."""
    from maskwise.probes import PROBES

    # Documents of the root are one folder nearer on the site.
    markdown = re.sub(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, ROOT_PAGES))}))", r"](\1", markdown)
    section = page.ancestors[-1].title if page.ancestors else "Begin"
    _markdown[page.file.src_uri] = section, page.title or page.file.name, markdown
    if page.file.src_uri == "how-to/first-command.md":
        intro, rest = markdown.split("\n## ", 1)
        markdown = f"{intro}\n\n{tabs('## ' + rest)}"
    return drawn(markdown, {probe.name: probe.about for probe in PROBES})


def on_page_content(html: str, **_: Any) -> str:
    return with_line_breaks(html)


def on_post_page(output: str, **_: Any) -> str:
    return _alone(output)


def on_post_template(output_content: str, **_: Any) -> str:
    return _alone(output_content)


def _alone(page: str) -> str:
    """Without the mark by which the theme's script asks GitHub for the repository's stars and releases."""
    return page.replace(' data-md-component="source"', "")


def on_post_build(config: Any) -> None:
    """llms.txt and the pages as Markdown, for coding assistants."""
    sections: dict[str, list[str]] = {"Begin": [], **{name: [] for part in config["nav"] for name in part}}
    for path, (section, title, text) in _markdown.items():
        place = Path(config["site_dir"], path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        sections[section].append(f"- [{title}]({path})")
    parts = [f"# {config['site_name']}", f"> {config['site_description']}"]
    parts += ["\n\n".join([f"## {name}", "\n".join(rows)]) for name, rows in sections.items() if rows]
    Path(config["site_dir"], "llms.txt").write_text("\n\n".join(parts) + "\n")


def landing_page() -> str:
    """The README, with the first command of each model family in tabs before its table of tasks."""
    text = _moved((ROOT / "README.md").read_text())
    commands = (ROOT / "docs" / "how-to" / "first-command.md").read_text().split("\n## ", 1)[1]
    commands = re.sub(r"\]\((?=[\w-]+\.md)", "](how-to/", commands)
    before, table, after = text.partition("| I want to |")
    return f"{before}## The first command for your model\n\n{tabs('## ' + commands)}\n\n{table}{after}"


def tabs(text: str) -> str:
    """Each section of the second level as a tab."""
    parts = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        body = "\n".join(f"    {line}" if line else "" for line in body.strip().splitlines())
        parts.append(f'=== "{title}"\n\n{body}')
    return "\n\n".join(parts)


def _moved(text: str) -> str:
    """A document of the root as a page of docs/."""
    return text.replace("](docs/", "](")


def command_pages() -> dict[str, str]:
    """Of each command: what it does, how it is called, its arguments and options, all as --help has them."""
    from maskwise.cli import app

    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name: _command_page(name, command) for name, command in commands.items()}


def _command_page(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=f"maskwise {name}")
    shown = [(one.param_type_name, one.get_help_record(context)) for one in command.params]
    rows = {
        kind: [_row(*record) for what, record in shown if what == kind and record is not None]  # a hidden one has none
        for kind in ("argument", "option")
    }
    usage = " ".join(command.collect_usage_pieces(context)).replace("{", "").replace("}", "")
    parts = [f"# maskwise {name}", command.help, f"```text\nmaskwise {name} {usage}\n```"]
    for kind, found in rows.items():
        if found:
            parts.append("\n".join([f"| {kind} | |", "|---|---|", *found]))
    if name == "diagnose":
        parts.append(_probes())
    return "\n\n".join(parts) + "\n"


def _row(names: str, about: str) -> str:
    """Of an argument or option, from its line in --help: "TEXT  [default: X]"."""
    from maskwise.cli.hints import in_words

    text, _, more = in_words(about).partition("  [")
    more = re.sub(r"\]\s+\[", "; ", more.removesuffix("]"))
    range_of = f" *({_cell(more)})*" if more else ""
    return f"| `{names.replace('|', '/')}` | {_cell(text)}{range_of} |"


def _probes() -> str:
    from maskwise.probes import PROBES

    rows = [f"| `{probe.name}` | {', '.join(probe.presets)} | {_cell(probe.about)} |" for probe in PROBES]
    return "\n".join(["## Probes", "", "| probe | run by | |", "|---|---|---|", *rows])


def notebook_page(notebook: Path) -> str:
    """Its cells, and the file to download."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    parts.insert(1, f"The notebook: [{notebook.name}]({notebook.name})")
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
