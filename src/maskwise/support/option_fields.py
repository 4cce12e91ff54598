"""The fields of an options dataclass as options of a command, so that names, defaults and help are written once."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
import typer.models


@dataclass(frozen=True)
class Spelling:
    """The command-line form of a field whose own type is not possible there: type, name, more help."""

    type: Any
    flag: str
    help: str = ""


def takes_fields(
    options: type,
    spelled: Mapping[str, Spelling] | None = None,
    changes: str | None = None,
    hidden: Mapping[str, type] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces a command's parameter `options` by one option per field of the dataclass that has a help text.

    The command is called with `options` as a dictionary of the values given, by the fields' names. The fields of the
    class itself stand before those that it inherits.

    changes: what is not given is None, and the help gives the fields' defaults under this name.
    hidden: further options that the help does not list, by name and type, also written with underscores.
    """
    types = get_type_hints(options)
    inherited = {field.name for base in options.__mro__[1:] if is_dataclass(base) for field in fields(base)}
    ordered = sorted(fields(options), key=lambda field: field.name in inherited)
    added = [
        _parameter(field, types[field.name], (spelled or {}).get(field.name), changes)
        for field in ordered
        if "help" in field.metadata
    ]
    added += [_hidden_parameter(name, type) for name, type in (hidden or {}).items()]

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


def _parameter(field: "Field[Any]", type: Any, spelling: Spelling | None, changes: str | None) -> inspect.Parameter:
    name, about = field.name.replace("_", "-"), field.metadata
    help, flags = about["help"], list(about.get("flags", ()))
    if spelling is not None:
        type, flags, help = spelling.type, [spelling.flag], f"{help} {spelling.help}".strip()
    elif not flags:
        flags = [f"--{name}/--no-{name}"] if type == bool | None else [f"--{name}"]
    if about.get("short") is not None:
        flags.append(f"-{about['short']}")
    default = bool(field.default) if type is bool else field.default  # a flag is off, never None
    notes = [] if type in (bool, bool | None) or default in (None, ()) else [f"{changes or 'default'}: {default}"]
    if about.get("at_least") is not None:
        notes.append(f"{about['at_least']} or more")
    if notes:
        help = f"{help}  [{'; '.join(notes)}]"
    if changes is not None:
        type, default = (about.get("type") or type) | None, None
    annotation = Annotated[type, typer.Option(*flags, help=help, show_default=False)]
    return inspect.Parameter(
        field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
    )


def _hidden_parameter(name: str, type: Any) -> inspect.Parameter:
    flags = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
    annotation = Annotated[type | None, typer.Option(*flags, hidden=True)]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def with_kinds(command: Callable[..., None]) -> Callable[..., None]:
    """The command with what each option's value is, in words, for the help; a flag takes none, an argument its name."""
    kinds = {int: "number", float: "number", str: "text", Path: "path"}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, option = get_args(parameter.annotation)[:2]
        found = [kinds[one] for one in kinds if one in (kind, *get_args(kind), *sum(map(get_args, get_args(kind)), ()))]
        if isinstance(option, typer.models.ArgumentInfo):
            option.metavar = parameter.name.upper()
        elif found:
            option.metavar = option.metavar or f"<{found[0]}>"
    return command
