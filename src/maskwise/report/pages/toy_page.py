"""The toy experiment as a person sees it: a table, a figure, three sentences."""

from maskwise.report.figures.bars import Bar, Chart
from maskwise.report.pages.results import Result
from maskwise.scoring.experiment_results import Toy

PARTS = ("AB", "A, not B", "B, not A", "neither")
PARALLEL, SEQUENTIAL = "one parallel step", "left to right, one token per step"


def lines_of(toy: Toy) -> dict[str, list[float]]:
    """Name -> shares: the data, then by the distance from them; the rule left-to-right is the sequential line."""
    rules = {rule: shares for rule, shares in toy.rules.items() if rule != "left-to-right"}
    decoded = {PARALLEL: toy.parallel, SEQUENTIAL: toy.sequential, **rules}
    nearest = sorted(decoded.items(), key=lambda one: round(distance(one[1], toy.data), 6))
    return {"data": toy.data, **dict(nearest)}


def distance(shares: list[float], data: list[float]) -> float:
    """Total variation between what a decoding writes and the data."""
    return sum(abs(a - b) for a, b in zip(shares, data, strict=True)) / 2


def toy_result(toy: Toy) -> Result:
    return Result(
        name="toy",
        title="What filling in two tokens at once costs",
        facts="100 sequences x1 x2 C D G (55 AB, 14 EB, 31 EF) · a LLaDA of 2 layers asked: mask mask C D mask",
        sentences=three_sentences(toy),
        chart=_chart(toy),
        head=("decoding", *(f"{part}\n(share)" for part in PARTS), "distance\n(0 to 1)", "forward\npasses"),
        rows=_rows(toy),
        notes=(
            "Share: of all outcomes, in percent; AB: A then B in the first two places. Distance: total variation "
            "between what a decoding writes and the data, half the sum of the absolute differences of the shares: 0 is "
            "the data themselves, 1 nothing in common. Forward passes: on average, for three tokens. Rows by distance. "
            "Read from the model's probabilities at temperature 1, nothing is sampled.",
            "After Sun, Wen and Wang, Why mask diffusion does not work, arXiv 2510.03289, which publishes P(A) = 0.55 "
            "and P(B) = 0.69; the sequences are ours.",
        ),
    )


def _rows(toy: Toy) -> list[tuple[str, ...]]:
    passes = {PARALLEL: 1.0, SEQUENTIAL: toy.forwards["left-to-right"]}
    passes |= toy.forwards
    return [
        (
            name,
            *(f"{100 * share:.1f} %" for share in shares),
            f"{distance(shares, toy.data):.3f}" if name != "data" else "",
            f"{passes[name]:.2f}" if name in passes else "",
        )
        for name, shares in lines_of(toy).items()
    ]


def _chart(toy: Toy) -> Chart:
    bars = tuple(
        Bar(name, tuple(shares), note=f"distance {distance(shares, toy.data):.2f}" if name != "data" else "")
        for name, shares in lines_of(toy).items()
    )
    return Chart(
        bars,
        PARTS,
        "What each decoding makes of two coupled tokens",
        "Share of the outcomes",
        caption="What each decoding makes of two coupled tokens, the nearest to the data first. Distance: "
        "total variation from the data, 0 to 1.",
    )


def three_sentences(toy: Toy) -> list[str]:
    nearest = min(toy.rules, key=lambda rule: distance(toy.rules[rule], toy.data))
    a, b = toy.marginals["A"], toy.marginals["B"]
    exact, often, wanted = distance(toy.sequential, toy.data), toy.rules["low-confidence"][0], toy.data[0]
    never = 100 * toy.parallel[1]
    return [
        f"The model knows the right marginals, P(A) = {a:.2f} and P(B) = {b:.2f}, but one parallel step draws from "
        f"their product: {never:.0f} % of its outcomes are A without B, a pair the data never holds.",
        f"One token at a time from left to right gives the data back (distance {exact:.3f}): the second token is asked "
        "for once the first stands.",
        "One token at a time is not enough where the place is chosen by what was drawn: low-confidence writes AB "
        f"{100 * often:.0f} % of the time instead of {100 * wanted:.0f} %; of the strategies {nearest} comes nearest.",
    ]
