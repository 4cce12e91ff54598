"""What may never end is stopped, and the process goes on as before."""

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskwise.support.errors import UserError
from maskwise.support.interrupts import time_limit


def test_a_search_that_would_take_years_is_stopped():
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(UserError, match="too long"), time_limit(0.1, UserError("too long")):
        re.search("(a+)+$", "a" * 60 + "!")
    assert signal.getsignal(signal.SIGVTALRM) is before and signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_in_another_thread_what_is_written_in_python_is_stopped_and_a_single_operation_is_not():
    def loops(number):
        while number:
            number += 1

    def limited(call, argument):
        with time_limit(0.1, UserError("too long")):
            return call(argument)

    with ThreadPoolExecutor(1) as other:
        with pytest.raises(UserError, match="too long"):
            other.submit(limited, loops, 1).result()
        assert other.submit(limited, sum, range(10_000_000)).result() == sum(range(10_000_000))
        assert other.submit(sys.gettrace).result() is None


def test_an_interrupt_before_the_command_is_read_is_one_line():
    code = """
import sys

def interrupt(frame, event, _):
    if event == "call" and frame.f_code.co_name == "make_context":
        sys.setprofile(None)
        raise KeyboardInterrupt

sys.setprofile(interrupt)
sys.argv = ["maskwise", "models"]
from maskwise.start import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "maskwise: interrupted\n")
