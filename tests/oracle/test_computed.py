"""What is computed from stored answers is what it was; that the run folders of commit cc8a75cd open is part of it."""

import pytest

from oracle import computed, stored

SLOW = {"computed/tiny-llada": pytest.mark.slow}  # half a minute


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in computed.entries()])
def test_numbers_of_stored_answers_are_those_of_before(name):
    found, wanted = computed.entries()[name](), computed.of_today(name, stored.read(name))
    if name == "computed/advise":  # goals, rounds and the frontier of 0.2 are gone
        wanted = {key: wanted[key] for key in ("quality", "differences", "picked", "questions to decide")}
        wanted["picked"] = {"highest": wanted["picked"]["highest"]}
        wanted["questions to decide"] = wanted["questions to decide"][:1]
    stored.assert_same(found, wanted, name)


def test_every_stored_entry_is_computed():
    names = {name for name in stored.names() if name.startswith("computed/")}
    assert {name for name in names if not name.startswith(computed.FOLDERS)} == set(computed.entries())
