"""The one exception a user may see: a line that names the problem and the remedy."""


class UserError(Exception):
    """Bad input. The command line prints it as one line and exits with status 2."""
