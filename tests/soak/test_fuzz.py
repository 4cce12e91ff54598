"""Every reader of a stranger's files ends in a result or in one line."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest
from soak.__main__ import run, table, totals
from soak.fuzz import Found, _ring, _run_case, fuzz
from soak.parts import _fuzz, part_names
from soak.readers import Reader
from soak.records import cut_everywhere


@pytest.mark.slow
def test_ten_thousand_damaged_files_give_no_traceback_and_no_hang():
    found = fuzz(range(10_000), silent=True)
    assert found.cases == 10_000 and found.failures == {}
    assert found.results > 1000 and found.refusals > 1000 and found.memory < 2.0


def test_a_case_can_be_run_again():
    first, again = (fuzz(range(40), only="pairs", silent=True) for _ in range(2))
    assert (first.results, first.refusals) == (again.results, again.refusals)
    assert first.results and first.refusals and not first.failures


def found_by(read, folder):
    """What case 7 of a reader of one file ends in."""
    for name in ("sound", "damaged"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "a.json").write_text("{}")
    found, reader = Found(), Reader("mine", lambda folder: None, ("a.json",), read)
    _run_case(7, reader, random.Random(0), folder / "sound", folder / "damaged", found)
    return found


def test_what_is_no_exception_is_a_failure_too(tmp_path):
    """A panic of a library in Rust: the campaign counts it and goes on."""

    class Panic(BaseException):
        pass

    def read(folder):
        raise Panic("range end index")

    ((kind, said),) = found_by(read, tmp_path).failures.items()
    assert kind.startswith("mine: Panic in test_fuzz.py") and said.startswith("case 7: a.json")


def test_a_hang_is_a_case_that_computes_for_too_long(tmp_path, monkeypatch):
    """By processor time: a machine that is busy with other things hangs nothing."""
    monkeypatch.setattr("soak.fuzz.SECONDS_A_CASE", 0.2)
    for bell in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(bell, _ring)

    def computes(folder):
        while True:
            pass

    assert found_by(computes, tmp_path).hangs == 1
    assert found_by(lambda folder: time.sleep(0.4), tmp_path).hangs == 0


@pytest.mark.slow
def test_a_run_folder_cut_at_any_byte_is_read_up_to_its_last_whole_line():
    assert cut_everywhere()["cuts"] > 2000


@pytest.mark.slow
def test_a_campaign_goes_on_where_it_stopped(tmp_path):
    """In parts that are processes of their own; one whose time was over is begun again."""
    file = tmp_path / "soak.json"
    assert run(["torn"], file, seconds=0) == {} and not file.exists()
    assert run(["fuzz x y"], file, processes=2)["fuzz x y"]["failed"].count("invalid literal") == 1
    done = json.loads(file.read_text())
    done["parts"] |= {"fuzz 0 9": {"cases": 9, "slowest_seconds": 2.0, "seconds": 3.0}}
    file.write_text(json.dumps(done))
    assert run(["fuzz 0 9"], file)["fuzz 0 9"] == done["parts"]["fuzz 0 9"]
    assert totals(done["parts"])["fuzz"] | {"seconds": 0} == {
        "parts": 2,
        "failures": 1,
        "seconds": 0,
        "cases": 9,
        "slowest_seconds": 2.0,
    }
    assert "FAILED fuzz x y" in table(list(done["parts"]), done["parts"])


def test_a_part_that_does_not_end_is_stopped_and_counted_as_a_hang(tmp_path):
    done = run(["torn"], tmp_path / "soak.json", part_seconds=0.5)
    assert done["torn"]["failed"] == "the part did not end in 0.5 s" and totals(done)["torn"]["hangs"] == 1


def test_another_seed_is_another_campaign():
    asked = {"fuzz": 50_000, "kills": 0, "prompts": 9, "records": 8}
    known, other = ({name for name in part_names(**asked, seed=n) if name.startswith("fuzz")} for n in (0, 3))
    assert "fuzz 40000 50000" in known and "fuzz 40000 50000 3" in other and not known & other
    first, second = (fuzz(range(40), seed=n, only="pairs", silent=True) for n in (0, 3))
    assert first.results != second.results


@pytest.mark.slow
def test_a_part_runs_the_cases_of_its_seed():
    found = {seed: _fuzz("0", "60", seed) for seed in ("0", "3")}
    assert all(one["cases"] == 60 for one in found.values()) and found["0"]["results"] != found["3"]["results"]


def test_the_parts_cover_what_was_asked():
    names = [name.split() for name in part_names(fuzz=50_000, kills=12, prompts=9, records=8)]
    assert sum(int(last) - int(first) for kind, first, last in (name for name in names if name[0] == "fuzz")) == 50_000
    assert sum(int(name[3]) for name in names if name[0] == "kills") == 12
    assert len({tuple(name) for name in names}) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "torn", "refused", "full"])
def test_a_fault_comes_at_its_write_and_not_before(kind, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    code = (
        "import pathlib; from soak.faults import Fault\n"
        f"Fault({str(folder)!r}, {kind!r}, at=1).install()\n"
        f"for n in range(3): pathlib.Path({str(folder)!r}, str(n)).write_bytes(b'x' * 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    ends = {"kill": -signal.SIGKILL, "torn": -signal.SIGXFSZ, "refused": 1, "full": 1}
    assert done.returncode == ends[kind], done.stderr
    left = {"kill": [9], "torn": [9, 1], "refused": [9], "full": [9, 0]}
    assert [file.stat().st_size for file in sorted(folder.iterdir())] == left[kind]
    if kind in ("refused", "full"):
        assert {"refused": "No space left", "full": "File too large"}[kind] in done.stderr
