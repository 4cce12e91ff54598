"""The one exception a user may see: a line that names the problem and the remedy; and the first line of others."""


class UserError(Exception):
    """Bad input. The command line prints it as one line and exits with status 2."""


def first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
