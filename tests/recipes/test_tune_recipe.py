"""The CPU recipe at a fraction of its length: every stage runs and the table is complete."""

import importlib.util
from dataclasses import replace
from pathlib import Path

from maskwise.training.tune import summary_lines, tune

RECIPE = Path(__file__).parents[2] / "recipes" / "studies" / "tune_cpu.py"


def test_the_cpu_recipe_trains_tunes_and_tells_every_measure(tmp_path):
    loader = importlib.util.spec_from_file_location("tune_cpu", RECIPE)
    recipe = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(recipe)
    recipe.train_small_model(tmp_path / "model", 2, seed=1)
    recipe.write_pairs(tmp_path / "pairs.jsonl", 30, seed=2)
    settings = replace(recipe.TUNING, steps=2, save_every=2, eval_every=0)
    result = tune(str(tmp_path / "model"), tmp_path / "pairs.jsonl", tmp_path / "adapter", settings, device="cpu")
    table = "\n".join(summary_lines(result))
    assert result["held_out"] == 6 and result["dropped"] == 0
    for row in (
        "cross-entropy",
        "TV between 2 and 200 masks",
        "token accuracy, 200 masks",
        "difference in token accuracy",
    ):
        assert row in table
