"""Several models in one section: a heading with each result, marks next to each other, the place in the table."""

from types import SimpleNamespace

from maskwise.probes.section import Entry, Measure, Point, Section
from maskwise.report.figures.panels import panels
from maskwise.report.pages.figure_table import figure_table
from maskwise.report.words.sentences import advice_apart, finding_of_models, findings_by_model, what_this_run_shows

NAMES = ("batch", "order")


def entry(**condition) -> Entry:
    return Entry(condition=condition, masks=0, n=8, accuracy=None, low=None, high=None, measures={"share": 0.5})


def section(condition) -> Section:
    return Section(
        title="",
        question="",
        paper="",
        how_to_read="",
        x_label="Setting",
        at="{}",
        x_names=NAMES,
        points=lambda one: [Point("", place + 0.25, condition(name)) for place, name in enumerate(NAMES)],
        measures=(Measure("share", "Share"),),
        says=lambda one: one.lines,
    )


UNNAMED, NAMED = section(lambda name: entry(dtype="bf16")), section(lambda name: entry(setting=f"by {name}"))
A, B = (SimpleNamespace(label=name, lines=[f"{name} is first, and more", "the same of both"]) for name in "AB")


def test_the_place_on_the_x_axis_is_a_column_unless_the_condition_names_it():
    table = figure_table(UNNAMED, [A])
    assert table["head"] == ["dtype", "Setting", "Share", "answers"]
    assert [row[1] for row in table["rows"]] == ["batch", "order"]
    assert figure_table(NAMED, [A])["head"] == ["setting", "Share", "answers"]


def test_marks_of_two_models_stand_next_to_each_other_around_the_name():
    (panel,) = panels(UNNAMED, [A, B])
    first, second = (curve.x for curve in panel.curves)
    assert [(low + high) / 2 for low, high in zip(first, second, strict=True)] == [0, 1]
    assert all(high - low >= 0.2 for low, high in zip(first, second, strict=True))


def test_each_model_has_its_own_finding_and_equal_ones_are_joined():
    assert findings_by_model(UNNAMED, [A, B]) == {"A": "A is first, and more", "B": "B is first, and more"}
    both = [SimpleNamespace(label=name, lines=["Nothing changed"]) for name in "AB"]
    assert findings_by_model(UNNAMED, both) == {"A and B": "Nothing changed"}
    assert findings_by_model(UNNAMED, [A, SimpleNamespace(label="B", lines=["not run"])]) == {
        "A": "A is first, and more"
    }
    assert (
        findings_by_model(UNNAMED, [A]) == {}
        and finding_of_models(UNNAMED, findings_by_model(UNNAMED, [A, B]), ["A is first"]) == ""
    )
    shown = what_this_run_shows(UNNAMED, [A, B])
    assert shown == ["A, A is first, and more", "A and B, the same of both", "B, B is first, and more"]


def test_what_to_do_stands_apart_from_what_was_found_with_the_name_of_the_model():
    advised = [SimpleNamespace(label=name, lines=["one", f"what to do: ask {name}"]) for name in "AB"]
    found, to_do = advice_apart(what_this_run_shows(UNNAMED, advised))
    assert (found, to_do) == (["A and B, one"], ["A: ask A", "B: ask B"])
    assert advice_apart(what_this_run_shows(UNNAMED, advised[:1])) == (["one"], ["Ask A"])
