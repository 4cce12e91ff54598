"""The one exception a user may see: a line that names the problem and the remedy; the one warning; and the first line
of other exceptions."""


class UserError(Exception):
    """Bad input. The command line prints it as one line and exits with status 2."""


class UserNotice(UserWarning):
    """What a user should know of a result. The command line prints it as one line, and goes on."""


def first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
