"""`maskwise studio` as a process of its own, as a user starts it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


@contextmanager
def running_studio(folder: Path) -> Iterator[str]:
    """Its address; a traceback that it has written is a failure."""
    paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    with (folder / "studio.err").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "maskwise.cli", "studio", "--port", "0"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"PYTHONPATH": paths},
        )
        try:
            found = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
            assert found is not None, (folder / "studio.err").read_text()
            yield found[0]
        finally:
            process.terminate()
            process.wait(20)
    assert "Traceback" not in (folder / "studio.err").read_text()
