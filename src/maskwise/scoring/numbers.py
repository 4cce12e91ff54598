"""Numbers as text: percentages, points, intervals, p-values. A zero has no sign, a missing number is a dash."""

from msgspec import UNSET

from maskwise.scoring.scores import Score

NBSP = "\u00a0"


def percent(value: float | None, digits: int = 0) -> str:
    """0.375 -> 38 %"""
    if value is None:
        return "–"
    rounded = round(100 * value, digits) + 0.0
    return _minus(f"{rounded:.{digits}f}") + f"{NBSP}%"


def points(difference: float) -> str:
    """A change of a share, in points: 0.063 -> +6.3 points"""
    rounded = round(100 * difference, 1) + 0.0
    return _minus(f"{rounded:+.1f}").replace("+0.0", "0.0") + f"{NBSP}points"


def between(low: float | None, high: float | None, digits: int = 0) -> str:
    if low is None or high is None:
        return "no interval"
    return f"{percent(low, digits).removesuffix(NBSP + '%')} to {percent(high, digits)}"


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else _minus(f"{round(value, digits) + 0.0:.{digits}f}")


def signed(value: float, digits: int = 3) -> str:
    """A zero has no sign."""
    rounded = round(value, digits)
    return _minus(f"{rounded:+.{digits}f}") if rounded else number(0, digits)


def points_between(difference: float, low: float | None, high: float | None) -> str:
    """A change of a share with its interval: +6.3 points (1.0 to 11.6)"""
    ends = "" if low is None or high is None else f" ({tenths(100 * low)} to {tenths(100 * high)})"
    return points(difference) + ends


def nats_between(value: float, low: float | None, high: float | None) -> str:
    """+0.31 nats (0.20 to 0.42)"""
    ends = "" if low is None or high is None else f" ({number(low)} to {number(high)})"
    return f"{signed(value, 2)}{NBSP}nats{ends}"


def score_value(score: Score, unit: str) -> str:
    """A score's number in its unit."""
    if score.value is None or unit == "share":
        return percent(score.value, digits_of(score))
    return f"{signed(score.value, 2)}{NBSP}nats"


def score_interval(score: Score, unit: str) -> str:
    """A score's primary interval in its unit, without a label."""
    if unit == "share":
        return between(score.low, score.high, digits_of(score))
    if score.low is None or score.high is None:
        return "no interval"
    return f"{number(score.low)} to {number(score.high)}{NBSP}nats"


def parts_in_words(score: Score) -> str:
    """The parts of a score in nats that are format and content; empty if not known."""
    if score.allowed is UNSET or score.choice is UNSET:
        return ""
    form, content = (signed(part.value or 0.0, 2) for part in (score.allowed, score.choice))
    return f"format {form}, content {content}"


def digits_of(score: Score) -> int:
    """Decimals of a score in percent: 1 for a small score, because "0 to 3 %" does not show the side of zero."""
    known = [abs(value) for value in (score.value, score.low, score.high) if value]
    return 1 if known and min(known) < 0.05 else 0


def task_count(tasks: int) -> str:
    """ "one task", "16 tasks"."""
    return "one task" if tasks == 1 else f"{tasks} tasks"


def tenths(points: float) -> str:
    """6.3"""
    return _minus(f"{round(points, 1) + 0.0:.1f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
