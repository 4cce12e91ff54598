"""The fields of an options dataclass as options of a command, so that names, defaults and help are written once."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
import typer.models


@dataclass(frozen=True)
class Spelling:
    """How a field is written on the command line where its own type cannot be: the type, the name, more help."""

    type: Any
    flag: str
    help: str = ""


def takes_fields(
    options: type, spelled: Mapping[str, Spelling] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces a command's parameter `options` by one option per field of the dataclass.

    The command is called with `options` as a dictionary of the values given, by the fields' names.
    """
    types = get_type_hints(options)
    added = [_parameter(field, types[field.name], (spelled or {}).get(field.name)) for field in fields(options)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        place = [parameter.name for parameter in own].index("options")
        kept = [parameter for parameter in own if parameter.name != "options"]

        @wraps(command)
        def flattened(**given: Any) -> None:
            values = {parameter.name: given.pop(parameter.name) for parameter in added}
            command(options=values, **given)

        parameters = [*kept[:place], *added, *kept[place:]]
        flattened.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        flattened.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return flattened

    return decorate


def _parameter(field: "Field[Any]", type: Any, spelling: Spelling | None) -> inspect.Parameter:
    name = field.name.replace("_", "-")
    help = field.metadata["help"]
    if spelling is not None:
        type, flags, help = spelling.type, [spelling.flag], f"{help} {spelling.help}".strip()
    elif type == bool | None:
        flags = [f"--{name}/--no-{name}"]
    else:
        flags = [f"--{name}"]
    if field.metadata["short"] is not None:
        flags.append(f"-{field.metadata['short']}")
    default = bool(field.default) if type is bool else field.default  # a flag is off, never None
    annotation = Annotated[type, typer.Option(*flags, help=help)]
    return inspect.Parameter(
        field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
    )


def with_kinds(command: Callable[..., None]) -> Callable[..., None]:
    """The command with what each option's value is, in words, for the help; a flag takes none."""
    kinds = {int: "number", float: "number", str: "text", Path: "path"}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, option = get_args(parameter.annotation)[:2]
        found = [kinds[one] for one in kinds if one in (kind, *get_args(kind), *sum(map(get_args, get_args(kind)), ()))]
        if found and not isinstance(option, typer.models.ArgumentInfo):
            option.metavar = option.metavar or f"<{found[0]}>"
    return command
