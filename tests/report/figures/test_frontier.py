"""Quality against cost: the line of the best quality that a cost buys."""

from maskwise.report.figures.frontier import Frontier, Spot, steps


def test_the_line_rises_where_a_dearer_setting_is_better_and_stays_level_elsewhere():
    assert steps([(3.0, 0.9), (1.0, 0.5), (2.0, 0.4)]) == [(1.0, 0.5), (3.0, 0.5), (3.0, 0.9)]
    assert steps([(2.0, 0.4)]) == [(2.0, 0.4)]


def test_letters_of_dots_that_touch_stand_together_and_losers_have_none():
    spots = (
        Spot((1.0,), 0.9, (0.8, 1.0), "A", True),
        Spot((1.01,), 0.9, None, "B"),
        Spot((9.0,), 0.5, None, "C"),
        Spot((4.0,), 0.2),
    )
    drawn = Frontier(spots, ("Passes",), "Quality", True, "title").for_page("quality")["wide"]
    assert ">A, B<" in drawn and ">C<" in drawn and ">title<" not in drawn
