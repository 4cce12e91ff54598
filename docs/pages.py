"""Pages that are made when the site is built (mkdocs calls the functions on_...).

They are the landing page, the commands with their options, the fields of files and outputs, the notebooks, and the
documents of the root. Every page is also written as Markdown next to its HTML, and llms.txt lists these.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
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
    made |= {"fields.md": fields_page()}
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
    before, table, after = text.partition("| I want to ... |")
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


def fields_page() -> str:
    """The structs that readers decode by, in tables."""
    from maskwise.cli.outputs import FILES, OUTPUTS

    parts = [
        "# Fields of files and JSON outputs",
        "Made from the structs in `maskwise.cli.outputs`: a run folder that departs from them is refused with the name "
        "of the field, and tests decode the `--json` outputs by them. `*` is any name, `[]` each entry of a list. "
        "Other fields may be added; these keep their names.",
    ]
    for title, structs in (("Files", FILES), ("Outputs of --json", OUTPUTS)):
        parts.append(f"## {title}")
        for name, kind in structs.items():
            rows = [
                f"| `{field}` | {'' if always else 'not always; '}{_cell(is_what)} | {_cell(about)} |"
                for field, is_what, always, about in field_rows(kind)
            ]
            parts.append("\n".join([f"### {name}", "", "| field | is | |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def field_rows(kind: Any, path: str = "") -> Iterator[tuple[str, str, bool, str]]:
    """(path, type in words, whether it is always there, what it says) of all fields of a struct."""
    info = msgspec.inspect.type_info(kind) if isinstance(kind, type) else kind
    for field in info.fields:
        inner, about = _plain(field.type)
        place = f"{path}{field.encode_name}"
        yield place, _in_words(inner), field.required, about
        for one in inner.types if isinstance(inner, msgspec.inspect.UnionType) else (inner,):
            own, entries = _plain(one)[0], place
            while isinstance(own, msgspec.inspect.ListType | msgspec.inspect.DictType):
                is_list = isinstance(own, msgspec.inspect.ListType)
                entries += "[]" if is_list else ".*"
                own = _plain(own.item_type if is_list else own.value_type)[0]
            if isinstance(own, msgspec.inspect.StructType | msgspec.inspect.DataclassType) and own.cls is not info.cls:
                yield from field_rows(own, f"{entries}.")


def _plain(kind: Any) -> tuple[Any, str]:
    """A type without its annotations, and what they say of it."""
    about = ""
    while isinstance(kind, msgspec.inspect.Metadata):
        about, kind = about or (kind.extra_json_schema or {}).get("description", ""), kind.type
    return kind, about


def _in_words(kind: Any) -> str:
    kind = _plain(kind)[0]
    if isinstance(kind, msgspec.inspect.UnionType):
        return ", or ".join(dict.fromkeys(filter(None, map(_in_words, kind.types))))
    if isinstance(kind, msgspec.inspect.ListType):
        return f"a list: {_in_words(kind.item_type)}"
    names = {"Int": "a whole number", "Float": "a number", "Str": "a text", "Bool": "true or false", "None": "null",
             "Unset": "", "Any": "anything", "Literal": "a text", "Tuple": "a list"}  # fmt: skip
    return names.get(type(kind).__name__.removesuffix("Type"), "an object")


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
