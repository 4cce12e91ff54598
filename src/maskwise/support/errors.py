"""The one exception a user may see: a line that names the problem and the remedy; the one warning; and the first line
of other exceptions."""

import re

# An option of ours, as --max-new-tokens, but not one inside a command such as `maskwise export --out` or `pip install`.
_OPTION = re.compile(
    r"(?P<command>(?:maskwise [\w-]+|pip install|train) )?(?<![\w/-])--(?P<name>[a-z]+(?:-[a-z]+)*)(?![\w-])"
)
_PRESETS = ("quick", "paper")


class UserError(Exception):
    """Bad input. The command line prints it as one line and exits with status 2.

    A message names options as they are typed, such as --max-new-tokens. In Python, which has arguments instead,
    `str` gives it with their names; the command line prints `as_typed`.
    """

    @property
    def as_typed(self) -> str:
        return super().__str__()

    def __str__(self) -> str:
        return _OPTION.sub(_as_argument, self.as_typed)


def _as_argument(found: "re.Match[str]") -> str:
    if found["command"]:
        return found[0]
    name = found["name"]
    if name in _PRESETS:
        return f'preset="{name}"'
    negated = name.removeprefix("no-")
    return negated.replace("-", "_") + ("=False" if negated != name else "")


class UserNotice(UserWarning):
    """A remark on a result. The command line prints it as one line and continues."""


def flag(name: str) -> str:
    """An option as it is typed."""
    return f"--{name.replace('_', '-')}"


def first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def cannot_open(problem: OSError) -> str:
    """An error of the file system as one line: which path, and why."""
    name = str(problem.filename)
    shown = name if len(name) <= 80 else f"{name[:40]}...{name[-37:]}"
    reason = (problem.strerror or str(problem)).lower()
    return f"cannot open {shown}: {reason}; check the path and who may read or write it"
