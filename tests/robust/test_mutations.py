"""The tests find a fixed list of faults in the code of the numbers: signs, baselines, off by one, dropped filters.

Each is planted in a copy of the package, and the tests named beside it must fail.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "maskwise"
SCORES, VERDICTS, SCREEN = "scoring/test_scores.py", "scoring/test_verdicts.py", "report/test_screen.py"
CONTRAST, RESULT, UPGRADE = "probes/test_contrast.py", "report/test_result.py", "records/test_upgrade.py"

MUTATIONS = [
    ("scoring/estimates.py", "(after - before).dropna()", "(before - after).dropna()", SCREEN),
    ("scoring/estimates.py", "int(self.low > bar) - int(self.high < bar)", "int(self.low > bar)", VERDICTS),
    ("scoring/estimates.py", "bar = self.against or 0.0", "bar = 0.0", VERDICTS),
    ("scoring/estimates.py", 'wanted = -1 if self.claim == "below" else 1', "wanted = 1", VERDICTS),
    ("scoring/estimates.py", "[grouped.size() == times]", "[grouped.size() > 0]", CONTRAST),
    ("scoring/estimates.py", "point=table.point // times", "point=table.point // (times + 1)", CONTRAST),
    ("scoring/verdicts.py", "word = LOSS if one.side < 0 else GAIN", "word = GAIN if one.side < 0 else LOSS", VERDICTS),
    ("scoring/verdicts.py", "found.low >= -LARGE", "found.low <= -LARGE", VERDICTS),
    ("scoring/verdicts.py", "(len(ordered) - place)", "(len(ordered) - place - 1)", VERDICTS),
    ("scoring/verdicts.py", "> masks.change.value / 2 else", "> masks.change.value else", VERDICTS),
    ("scoring/verdicts.py", "nats.low > COUPLED", "nats.high > COUPLED", VERDICTS),
    ("scoring/scores.py", "(best - accuracy.min(1))", "(accuracy.min(1) - best)", SCORES),
    ("probes/library/mask_count.py", "BASELINE, SOME = 2, 20", "BASELINE, SOME = 1, 20", SCORES),
    ("probes/library/mask_count.py", "more = [k for k in right if k > BASELINE]", "more = [k for k in right]", SCORES),
    ("probes/library/contrast.py", "near, far = right", "far, near = right", CONTRAST),
    ("report/screen.py", "masks.by_question - stops.by_question", "masks.by_question + stops.by_question", SCREEN),
    ("report/screen.py", "(moved < 0)", "(moved > 0)", SCREEN),
    ("report/screen.py", "if k in SHOWN and k < most", "if k in SHOWN and k <= most", SCREEN),
    ("report/result.py", "own.get(name)})", "None})", RESULT),
    ("records/upgrade.py", '{"order": "random"}', '{"order": ""}', UPGRADE),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tests_find_each_of_twenty_faults(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "maskwise", ignore=shutil.ignore_patterns("zoo", "__pycache__"))
    (tmp_path / "maskwise" / "models" / "zoo").symlink_to(PACKAGE / "models" / "zoo")
    survived = [
        (file, new)
        for file, old, new, tests in MUTATIONS
        if not found(tmp_path, tmp_path / "maskwise" / file, old, new, tests)
    ]
    assert len(MUTATIONS) == 20 and survived == []


def found(place: Path, file: Path, old: str, new: str, tests: str) -> bool:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file.name}: {old}"
    file.write_text(text.replace(old, new), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(ROOT / "tests" / tests)]
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    file.write_text(text, encoding="utf-8")
    assert done.returncode in (0, 1), done.stdout[-500:]
    return done.returncode == 1
