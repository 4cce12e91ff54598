"""Model cards: the README.md of an adapter, a trained checkpoint or an export. No card holds a path of this machine."""

import re
from os.path import abspath, exists
from pathlib import Path, PureWindowsPath

from maskwise.models.checkpoints.locations import split_name


def public_name(name: str) -> str:
    """A model's name without folders of this machine: OWNER/NAME and embedded names as they are, of a path its end."""
    base, adapter = split_name(name)
    if adapter is not None:
        return f"{public_name(base)}+{Path(abspath(adapter)).name}"
    is_path = exists(name) or name.count("/") != 1 or name.startswith((".", "/", "~"))
    return PureWindowsPath(name.rstrip("/")).name if is_path else name


def card(title: str, parts: list[str], base: str, licence: str | None, library: str = "peft") -> str:
    """The text of a card: the fields that the hub reads, a title, and paragraphs."""
    named = public_name(base)
    known = re.fullmatch(r"[\w.-]+/[\w.-]+", named) is not None  # the hub accepts no other name in this field
    head = [f"license: {licence}"] if licence else []
    head += [f"base_model: {named}"] if known else []
    head += [f"library_name: {library}", "tags: [maskwise, masked-diffusion]"]
    return "\n".join(["---", *head, "---", f"# {title}", "", "\n\n".join(parts), ""])


def licence_of(folder: Path | None) -> str | None:
    """The licence that a checkpoint's own card states."""
    found = re.search(r"^license: *([\w.-]+) *$", _card_of(folder)[0], re.MULTILINE)
    return found[1] if found else None


def body_of(folder: Path | None) -> str:
    """A checkpoint's own card without the fields at its top."""
    return _card_of(folder)[1].strip()


def _card_of(folder: Path | None) -> tuple[str, str]:
    """The fields at the top of a card and what follows; in time linear in a stranger's file."""
    file = None if folder is None else folder / "README.md"
    text = file.read_text(encoding="utf-8", errors="replace") if file is not None and file.is_file() else ""
    end = text.find("\n---\n", 3) if text.startswith("---\n") else -1
    return ("", text) if end < 0 else (text[4 : end + 1], text[end + 5 :])


def merged_card(source: str, adapters: list[Path], folder: Path) -> str:
    """The card of an export: what was merged into what, and the base model's own card below."""
    names = ", then ".join(f"`{adapter.resolve().name}`" for adapter in adapters)
    base = public_name(source)
    parts = [
        f"`{base}` with the LoRA adapter {names} merged into its weights by `maskwise export`: the sum of base and "
        "adapter is formed in float32 and rounded once to the stored dtype; names, shapes, configuration and tokenizer "
        "are the base model's.",
        "```python\nimport maskwise as mw\n\nmodel = mw.open(FOLDER)      # this folder, or its name on the hub\n```",
    ]
    parts += [f"## Of the adapter\n\n{text}" for adapter in adapters if (text := _demoted(body_of(adapter)))]
    parts += [f"## Of the base model\n\n{text}" for text in [_demoted(body_of(folder))] if text]
    return card(f"{base}, merged", parts, source, licence_of(folder), library="maskwise")


def _demoted(text: str) -> str:
    """Headings two levels lower, under one of ours; code between fences is left alone."""
    lines, in_code = [], False
    for line in text.split("\n"):
        in_code ^= line.startswith("```")
        lines.append(f"##{line}" if line.startswith("#") and not in_code else line)
    return "\n".join(lines)
