"""Examples in docstrings (`>>> ...`) as code on the site: mkdocstrings would take them for quotations."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n(?=\S).*)*", re.MULTILINE)  # to the next empty line


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
