"""Answers by question, from the values of each task."""

from collections.abc import Sequence

import pandas as pd


def questions(*tasks: Sequence[float]) -> pd.Series:
    listed = {f"task {number}": pd.Series(values, dtype=float) for number, values in enumerate(tasks)}
    return pd.concat(listed, names=["task", "point"])
