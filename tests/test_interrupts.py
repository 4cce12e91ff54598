"""What may never end is stopped, and the process goes on as before."""

import re
import signal
import threading

import pytest

from maskwise.errors import UserError
from maskwise.interrupts import time_limit


def test_a_search_that_would_take_years_is_stopped():
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(UserError, match="too long"), time_limit(0.1, UserError("too long")):
        re.search("(a+)+$", "a" * 60 + "!")
    assert signal.getsignal(signal.SIGVTALRM) is before and signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_in_another_thread_nothing_is_limited_and_nothing_breaks():
    found = []

    def search():
        with time_limit(1e-6, UserError("too long")):
            found.append(sum(range(100_000)))

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert found == [sum(range(100_000))]
