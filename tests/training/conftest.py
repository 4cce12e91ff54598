import pytest

from helpers.tuning import checkpoint, dream_checkpoint, pairs_file, run_small, text_file

__all__ = ["checkpoint", "dream_checkpoint", "pairs_file", "text_file"]


@pytest.fixture(scope="session")
def whole(checkpoint, pairs_file, tmp_path_factory):
    """An uninterrupted tuning run: its folder and its result."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return out, run_small(checkpoint, pairs_file, out)
