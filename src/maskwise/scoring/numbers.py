"""Numbers as text: percentages, points, intervals, p-values. A zero has no sign, a missing number is a dash."""

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
    return "–" if value is None else _minus(f"{value:.{digits}f}")


def signed(value: float, digits: int = 3) -> str:
    return _minus(f"{value:+.{digits}f}")


def p_value(p: float) -> str:
    return f"p{NBSP}<{NBSP}.001" if p < 0.001 else f"p{NBSP}={NBSP}{p:.3f}".replace("0.", ".")


def digits_of(score: Score) -> int:
    """A small score is told to a tenth of a percent: "0 to 3 %" would not say which side of zero it is on."""
    known = [abs(score[name]) for name in ("value", "low", "high") if score[name]]
    return 1 if known and min(known) < 0.05 else 0


def counted(tasks: int) -> str:
    return "one task" if tasks == 1 else f"{tasks} tasks"


def _minus(text: str) -> str:
    return text.replace("-", "−")
