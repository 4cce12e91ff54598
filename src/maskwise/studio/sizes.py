"""Checks of the page's input: bounded text sizes, numbers within their ranges."""

from maskwise.support.errors import UserError
from maskwise.support.files import is_writable

MOST_CHARACTERS = 20_000


def check_text(name: str, text: object) -> None:
    if not isinstance(text, str) or not is_writable(text):
        raise UserError(f"the {name} is not text, or holds half a surrogate pair: type it again")
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"the {name} has {len(text):,} characters, at most {MOST_CHARACTERS:,} are read: shorten it")


def check_whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{name}: {value!r} is not a whole number from {low} to {high}")


def check_share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UserError(f"{name}: {value!r} is not a number from 0 to 1")
