"""Rendering of the page templates in this folder; values from a run are escaped."""

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from maskwise.support.version import __version__


def render(template: str, **shown: Any) -> str:
    css = Markup(style("colours", "page", "prompt"))
    return environment("report/pages", "report").get_template(template).render(version=__version__, css=css, **shown)


def environment(*packages: str) -> jinja2.Environment:
    """Templates of these packages of ours, the first that has one."""
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("maskwise", package) for package in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["whole_options"] = whole_options
    made.filters["whole_names"] = whole_names
    return made


def whole_options(text: str) -> Markup:
    """The text; a browser does not break its lines inside an option such as --chat."""
    return Markup(re.sub(r"(?<![\w-])--?[a-z][a-z-]*", r'<span class="word">\g<0></span>', str(escape(text))))


def whole_names(text: str) -> Markup:
    """The text; a browser does not break its lines inside an option or a name such as LLaDA-8B, if a line has room."""
    words = re.split(r"(\s+)", str(escape(text)))
    return Markup("").join(
        Markup(f'<span class="whole">{word}</span>') if re.search(r"\w-\w", word) else whole_options(Markup(word))
        for word in words
    )


def style(*sheets: str) -> str:
    """Style sheets of this folder, one after the other."""
    return "".join((Path(__file__).parent / f"{name}.css").read_text(encoding="utf-8") for name in sheets)
