"""Pages that are made when the site is built (mkdocs calls on_files).

They are the commands with their options, the fields of files and outputs, the notebooks, and the documents that lie
beside docs/.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
BESIDE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def on_config(config: Any) -> Any:
    """Every command is in the contents, also one that was added since."""
    (reference,) = (part["Reference"] for part in config["nav"] if "Reference" in part)
    pages = [{f"maskwise {name}": f"commands/{name}.md"} for name in command_pages()]
    reference[-1]["Commands"] = pages
    return config


def on_files(files: Files, config: Any) -> Files:
    made = {"index.md": _moved((ROOT / "README.md").read_text())}
    made |= {name: _moved((ROOT / name).read_text()) for name in BESIDE}
    made |= {f"commands/{name}.md": page for name, page in command_pages().items()}
    made |= {"fields.md": fields_page()}
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of docs/ to the documents beside it: on the site they are one folder nearer."""
    return re.sub(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, BESIDE))}))", r"](\1", markdown)


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
    from maskwise.cli.renamed import in_words

    told, _, more = in_words(about).partition("  [")
    range_of = f" *({_cell(more.removesuffix(']'))})*" if more else ""
    return f"| `{names.replace('|', '/')}` | {_cell(told)}{range_of} |"


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
            if isinstance(own, msgspec.inspect.StructType) and own.cls is not info.cls:
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
