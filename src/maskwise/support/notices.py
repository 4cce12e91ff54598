"""Our own warnings, printed as lines by the command line."""

import sys
import warnings
from contextlib import suppress
from typing import Any

from maskwise.support.errors import UserNotice


def show_notices_as_lines() -> None:
    """Print a UserNotice as one line on standard error; warnings of other packages stay as they are."""
    default_show = warnings.showwarning

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if not issubclass(category, UserNotice):
            return default_show(message, category, filename, lineno, file, line)
        from maskwise.support.terminal import one_line

        if (out := file or sys.stderr) is not None:  # it may be closed
            with suppress(OSError):
                out.write(f"maskwise: {one_line(message)}\n")

    warnings.showwarning = show
