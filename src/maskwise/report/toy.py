"""The toy experiment as a person sees it: a table, a figure, three sentences."""

from rich.table import Table

from maskwise.probes.toy import Toy
from maskwise.report.bars import Bar, draw_bars

PARTS = ("AB", "A, not B", "B, not A", "neither")


def lines_of(toy: Toy) -> dict[str, list[float]]:
    """Name -> shares, in the order of the table."""
    return {
        "data": toy.data,
        "one parallel step": toy.parallel,
        "left to right, one a step": toy.sequential,
        **{f"rule {rule}": shares for rule, shares in toy.rules.items()},
    }


def distance(shares: list[float], data: list[float]) -> float:
    """Total variation between what a decoding writes and the data."""
    return sum(abs(a - b) for a, b in zip(shares, data, strict=True)) / 2


def toy_table(toy: Toy) -> Table:
    table = Table("decoding", box=None, pad_edge=False, header_style="dim")
    for name in (*PARTS, "distance", "passes"):
        table.add_column(name, justify="right")
    passes = {"one parallel step": 1.0, "left to right, one a step": toy.forwards["left-to-right"]}
    passes |= {f"rule {rule}": count for rule, count in toy.forwards.items()}
    for name, shares in lines_of(toy).items():
        told = [f"{100 * share:.1f} %" for share in shares]
        taken = f"{passes[name]:.2f}" if name in passes else ""
        table.add_row(name, *told, f"{distance(shares, toy.data):.3f}" if name != "data" else "", taken)
    return table


def toy_figure(toy: Toy) -> tuple[str, bytes]:
    """(SVG, PNG)"""
    bars = [
        Bar(name, tuple(shares), note=f"{distance(shares, toy.data):.2f} off" if name != "data" else "")
        for name, shares in lines_of(toy).items()
    ]
    return draw_bars(bars, PARTS, "What each decoding makes of two coupled tokens", "Share of the outcomes")


def three_sentences(toy: Toy) -> list[str]:
    nearest = min(toy.rules, key=lambda rule: distance(toy.rules[rule], toy.data))
    a, b = toy.marginals["A"], toy.marginals["B"]
    exact, often, wanted = distance(toy.sequential, toy.data), toy.rules["low-confidence"][0], toy.data[0]
    return [
        f"The model knows the right marginals, P(A) = {a:.2f} and P(B) = {b:.2f}, but one parallel step draws from "
        f"their product: {100 * toy.parallel[1]:.0f} % of its outcomes are A without B, a pair the data never holds.",
        f"One token at a time from left to right gives the data back (distance {exact:.3f}): the second token is asked "
        "for once the first stands.",
        "One token at a time is not enough where the place is chosen by what was drawn: low-confidence writes AB "
        f"{100 * often:.0f} % of the time instead of {100 * wanted:.0f} %; of the rules {nearest} comes nearest.",
    ]
