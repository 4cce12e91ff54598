"""A parquet file of a stranger is refused by its size before it is read."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from maskwise.support.errors import UserError
from maskwise.tasks import tables
from maskwise.tasks.tables import read_rows


def test_rows_of_a_parquet_file_are_those_that_were_written(tmp_path):
    turns = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]] * 3
    rows = [
        {"messages": turn, "n": n, "text": text}
        for turn, n, text in zip(turns, (1, 2, 3), ("a", None, "a"), strict=True)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [row for _, row in read_rows(tmp_path / "a.parquet")] == rows


@pytest.mark.parametrize("repeated", [True, False])
def test_a_small_parquet_file_of_much_text_is_refused(tmp_path, monkeypatch, repeated):
    """One long cell, compressed; or a text that every row repeats, of which the file holds one."""
    monkeypatch.setattr(tables, "MOST_BYTES", 1 << 20)
    if repeated:
        column = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["y" * 1000]))
    else:
        column = pa.array(["x" * (2 << 20)])
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": column}), file, compression="zstd")
    assert file.stat().st_size < 5000
    with pytest.raises(UserError, match="holds more than"):
        list(read_rows(file))
