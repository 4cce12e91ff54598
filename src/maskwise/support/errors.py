"""The one exception a user may see: a line that names the problem and the remedy; the one warning; and the first line
of other exceptions."""


class UserError(Exception):
    """Bad input. The command line prints it as one line and exits with status 2."""


class UserNotice(UserWarning):
    """What a user should know of a result. The command line prints it as one line, and goes on."""


def first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def cannot_open(problem: OSError) -> str:
    """An error of the file system as one line: which path, and why."""
    name = str(problem.filename)
    shown = name if len(name) <= 80 else f"{name[:40]}...{name[-37:]}"
    reason = (problem.strerror or str(problem)).lower()
    return f"cannot open {shown}: {reason}; check the path and who may read or write it"
