"""Table of published and measured values."""

from maskwise.probes.examples import PAPER_RELEVANT
from maskwise.probes.section import Summary
from maskwise.scoring.numbers import NBSP

PUBLISHED_TITLE = "published values (arXiv 2511.21338), expectations fixed beforehand"
PUBLISHED_HEAD = ("measure", "published", "measured", "95 % interval")


def published_rows(summary: Summary) -> list[tuple[str, ...]]:
    """A row for each published value of the model, none for models that are not the paper's."""
    return [
        (
            f"{one.probe}: {one.measure}",
            in_unit(one.published, one.unit),
            in_unit(one.value, one.unit),
            "–"
            if one.low is None or one.high is None
            else f"{in_unit(one.low, one.unit)} to {in_unit(one.high, one.unit)}",
        )
        for one in summary.published or ()
    ]


def in_unit(value: float, unit: str) -> str:
    written = {
        "points": f"{100 * value:+.1f}{NBSP}points",
        "share": f"{100 * value:.1f}{NBSP}%",
        "norm": f"{value:.3f}",
        "r": f"{value:.2f}",
    }[unit]
    return written.replace("-", "\u2212")


def setting_in_words(summary: Summary) -> str:
    """The questions of the preset `paper` and how their format differs from the paper's; empty for other presets."""
    settings = summary.settings
    if settings.preset != "paper":
        return ""
    differs = f". {summary.other_format}" if summary.other_format else ""
    return (
        f"{PAPER_RELEVANT} relevant examples among {settings.distractors} distractors, {len(settings.tasks)} "
        f"tasks with one context each, {settings.points:,} questions per task{differs}"
    )
