"""A user's YAML file as a typed value; what is wrong with it is one line that names the file and the field."""

from pathlib import Path
from typing import TypeVar

import msgspec

from maskwise.support.errors import UserError
from maskwise.support.files import read_text

T = TypeVar("T")


def read_yaml(file: Path, kind: type[T], remedy: str) -> T:
    """The file as a value of this type, its fields checked. JSON is YAML too."""
    import yaml  # a tenth of a second that commands without such a file do not pay

    content = read_text(file, remedy)
    try:
        return msgspec.convert(yaml.safe_load(content), type=kind)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        at = "" if mark is None else f" at line {mark.line + 1}"
        raise UserError(f"{file} is not valid YAML{at}: {remedy}") from None
    except msgspec.ValidationError as problem:
        line = " ".join(str(problem).split())
        raise UserError(f"{file}: {line[0].lower()}{line[1:]}; {remedy}") from None
