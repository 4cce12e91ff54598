"""The page templates beside this file, filled in; whatever comes from a run is escaped."""

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from maskwise import __version__


def render(template: str, **shown: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("maskwise", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = Markup((Path(__file__).parent / "page.css").read_text(encoding="utf-8"))
    return environment.get_template(template).render(version=__version__, css=css, **shown)
