"""The probes get the stored answers (asked.py)."""

import pytest

from oracle import asked, stored

ENTRIES = asked.entries()
QUICK = "asked/tiny-llada/mask-count"
MARKED = [pytest.param(name, marks=() if name == QUICK else pytest.mark.slow) for name in ENTRIES]


@pytest.mark.parametrize("name", MARKED)
def test_answers_are_those_stored(name):
    found, kept = ENTRIES[name](), stored.read(name)
    if "records" in kept:
        kept = asked.of_today(name, kept)
        found, kept = (asked.compared(value, kept["fragile"]) for value in (found, kept))
    stored.assert_same(found, kept, name)


def test_every_entry_is_stored_and_every_stored_one_asked():
    assert {name for name in stored.names() if name.startswith("asked/")} == ENTRIES.keys()
