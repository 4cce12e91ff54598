"""Draws docs/figures/first-screen.png, the top of the page of two models' default runs.

    maskwise diagnose tiny-llada tiny-llada+distracted --dtype float32
    python recipes/studies/first_screen.py runs/tiny-llada-default-... runs/tiny-llada+distracted-default-...

It needs chromium on the PATH.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import maskwise as mw
from maskwise.report.page import write_page

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "first-screen.png"
SIZE = "1280,1500"  # from the heading to the figure, before what to do


def main(folders: list[str]) -> None:
    with TemporaryDirectory() as place:
        page = write_page([mw.read_run(folder) for folder in folders], Path(place))
        options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
        subprocess.run(["chromium", *options, f"--screenshot={FIGURE}", page.resolve().as_uri()], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
